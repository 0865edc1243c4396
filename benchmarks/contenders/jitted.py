"""JAX, if it is installed: the same expressions through ``lambdify``, compiled by XLA for the processor, in float64."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import numpy as np
from sympy import lambdify

from benchmarks.contenders import CORES, PEAK, WHOLE, Contender, LeftOutError
from benchmarks.contenders.lambdified import expanded, inputs
from benchmarks.contenders.same_answer import SIZES, conditions
from benchmarks.data import Columns, Job, Outputs


def contenders(job: Job) -> list[Contender]:
    """Return the peak, and the whole answer; XLA takes as many threads as there are cores.

    Raises LeftOutError without JAX.
    """
    if find_spec("jax") is None:
        raise LeftOutError("JAX: it is not installed")
    import jax

    jax.config.update("jax_enable_x64", True)
    jax.config.update("jax_platforms", "cpu")
    peak, whole = _peak(job), _whole(job)
    return [
        Contender("JAX, jit", PEAK, CORES, _over_columns(job, jax.jit(peak))),
        Contender("JAX, jit", WHOLE, CORES, _over_columns(job, jax.jit(whole))),
    ]


def _peak(job: Job) -> Callable[..., dict[str, Any]]:
    compute = _to_jax(job, [expanded("peak")["peak"]])

    def peak(*values: Any) -> dict[str, Any]:
        return {"peak": compute(*values)[0]}

    return peak


def _whole(job: Job) -> Callable[..., dict[str, Any]]:
    import jax.numpy as jnp

    sizes = expanded(*SIZES.values())
    rules, verdicts = conditions(sizes["peak"])
    compute = _to_jax(job, [*sizes.values(), *verdicts, *rules])

    def first(holding: list[Any], count: int) -> Any:
        rows = [jnp.broadcast_to(jnp.asarray(condition, bool), (count,)) for condition in holding]
        return jnp.select(rows, [jnp.int8(number) for number in range(len(rows))], jnp.int8(len(rows)))

    def whole(*values: Any) -> dict[str, Any]:
        computed = compute(*values)
        outputs = dict(zip(SIZES, computed, strict=False))
        holds, count = computed[len(SIZES):], len(outputs["peak"])
        broken = first([~jnp.asarray(kept, bool) for kept in holds[len(verdicts):]], count) + 1
        rule = jnp.where(broken > len(rules), 0, broken)
        verdict = jnp.where(rule == 0, first(holds[: len(verdicts)], count), -1)
        return {**outputs, "rule": rule, "verdict": verdict}

    return whole


def _to_jax(job: Job, wanted: list[Any]) -> Callable[..., list[Any]]:
    import jax.numpy as jnp

    functions = {
        "CeilDiv": lambda numerator, denominator: jnp.ceil(numerator / denominator),
        "FloorDiv": lambda numerator, denominator: jnp.floor(numerator / denominator),
        "LeastCommonMultiple": lambda left, right: jnp.lcm(jnp.asarray(left, jnp.int64), int(right)),
        "Iverson": lambda condition: jnp.asarray(condition, jnp.float64),
    }
    function: Callable[..., list[Any]] = lambdify(inputs(job), wanted, [functions, "jax"], cse=True)
    return function


def _over_columns(job: Job, compute: Callable[..., dict[str, Any]]) -> Callable[[Columns], Outputs]:
    scalars, names = job.scalars, job.evaluator.kernel.COLUMNS

    def run(columns: Columns) -> Outputs:
        outputs = compute(*scalars, *(columns[name] for name in names))
        return {name: np.asarray(values) for name, values in outputs.items()}

    return run
