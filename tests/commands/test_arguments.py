"""Every public function refuses wrong calls with an InputError and nothing else, and takes NumPy's numbers."""

from __future__ import annotations

import inspect
import math
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from oracles.extent import FULL

import shardmath
from shardmath import Cluster, Gpu, InputError, Model, explain, load_model
from shardmath.errors import shortened
from shardmath.machines import Network
from shardmath.search.spaces import Best, Space

SPACE = Space(axes={"tensor_parallel": [1, 2]}, model="llama-3.2-1b", gpu="h100-80gb",
              fixed={"num_gpus": 2, "global_batch_size": 2}, questions=(Best("best", ("peak",)),))
JOB: dict[str, Any] = {"model": "llama-3.2-1b", "gpu": "h100-80gb"}
SWEPT = {**JOB, "num_gpus": 2, "global_batch_size": 2, "tensor_parallel": [1, 2], "context_parallel": [1],
         "pipeline_parallel": [1], "recompute": ["none"]}
#: A right call of every public function, by the name of each argument that is given.
RIGHT: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    "explain": (shardmath.explain, {**JOB, "tensor_parallel": 2}),
    "compare": (shardmath.compare, {**JOB, "against": [{"tensor_parallel": 2}]}),
    "evaluate": (shardmath.evaluate, {"table": {"tensor_parallel": [1, 2]}, **JOB, "terms": ["peak"]}),
    "explore": (shardmath.explore, {"space": SPACE}),
    "fit": (shardmath.fit, {**JOB, "solve": "gpu_memory", "formulas": False}),
    "formula": (shardmath.formula, {"name": "swiglu.saved"}),
    "layouts": (shardmath.layouts, SWEPT),
    "load_model": (shardmath.load_model, {"name_or_path": "llama-3.2-1b"}),
    "moves": (shardmath.moves, {**JOB, "num_gpus": 1}),
    "phases": (shardmath.phases, {"plan": {"model": "llama-3.2-1b", "gpu": "h100-80gb", "num_gpus": 1, "phases": [
        {"tokens": 1, "seq_length": 1024, "global_batch_size": 1, "layout": {}}]}}),
    "plan": (shardmath.plan, {"model": "llama-3.2-1b", "tokens": "1T", "gpus": ["h100-80gb"], "num_gpus": [8],
                              **{name: SWEPT[name] for name in ("tensor_parallel", "context_parallel",
                                                                "pipeline_parallel", "recompute")}}),
    "prove": (shardmath.prove, {"claim": "layer.saved < 1"}),
    "read_cluster": (shardmath.read_cluster, {"path": "docs/clusters/example.toml"}),
    "recommend": (shardmath.recommend, SWEPT),
    "scale": (shardmath.scale, {**SWEPT, "num_gpus": [1, 2]}),
    "sweep": (shardmath.sweep, SWEPT),
    "Model": (Model, load_model("llama-3.2-1b").model_dump()),
    "Gpu": (Gpu, Gpu.named("h100-80gb").model_dump()),
    "Cluster": (Cluster, {"name": "x", "gpu": Gpu.named("h100-80gb"), "gpus_per_node": 8}),
    "Network": (Network, Network.named("ndr-400").model_dump()),
    "Model.named": (Model.named, {"name": "llama-3.2-1b"}),
    "Model.from_config": (Model.from_config, {"path": "no.json"}),
    "Gpu.named": (Gpu.named, {"name": "h100-80gb"}),
    "Gpu.custom": (Gpu.custom, {"memory_gib": 80.0}),
    "Gpu.of": (Gpu.of, {"figures": {"name": "x", "memory_gib": 8, "node_size": 1, "source": "", "note": ""}}),
    "Cluster.named": (Cluster.named, {"gpu": "h100-80gb"}),
    "Network.named": (Network.named, {"name": "ndr-400"}),
    "Cluster.values": (Cluster.named("h100-80gb").values, {}),
}
#: Functions that answer what is legal by a search.
SEARCHING = ("layouts", "moves", "plan", "recommend", "scale", "sweep")
#: Arguments of some functions that are not in their signature.
HIDDEN = ("virtual_pipeline", "expert_parallel", "matmul_per_mille", "seq_length", "kernels", "recompute", "zero_stage")


class Index:
    """What Python can use as an index and is no integer otherwise."""

    def __index__(self) -> int:
        return 2


class Hostile:
    """Nothing that can be said of it."""

    def __repr__(self) -> str:
        return "hostile"

    def __eq__(self, other: object) -> bool:
        return NotImplemented

    __hash__ = None  # type: ignore[assignment]


WRONG: tuple[Any, ...] = (
    None, True, False, 0, -1, 3, 2**70, 10**5000, 1.5, -0.0, math.nan, math.inf, 1j, "", "2", "x" * 10**5, "\0",
    "\ud800", "λ", b"x", bytearray(b"x"), [], [None], ["2"], [[1]], [True], [math.nan], [-1], (), (1, "a"), {},
    {"a": 1}, {1: 2},    {"tensor_parallel": "2"}, {"tensor_parallel": [None]}, set(), {1}, object(),
    Hostile(), Index(), int, len, lambda: 1,
    range(3), iter(()), slice(1), np.int64(2), np.float64(2.5), np.float64("nan"), np.bool_(True), np.array(3),
    np.array([1, 2]), np.array(["a"]), np.str_("llama-3.2-1b"), np.datetime64("2020-01-01"), Path("nowhere"), Path(),
    Exception("x"), NotImplemented, ..., SPACE, Gpu.named("h100-80gb"), Cluster.named("h100-80gb"), Model,
)
#: A text may be the address of a scheduler, which is waited for.
NO_TEXT = tuple(value for value in WRONG if not isinstance(value, str))
#: Functions that are called, and any function may be one.
CALLED = ("progress", "writing", "stopped", "on_layouts")
NO_FUNCTION = tuple(value for value in WRONG if not callable(value))


def wrong_calls(name: str) -> Iterator[tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]]:
    """Yield calls with one argument wrong, missing, unknown or twice, and with two that are wrong.

    Every argument meets a third of the wrong values, and each value every third argument; a sixth where all legal
    layouts are searched. `make oracle` tries all.
    """
    function, right = RIGHT[name]
    parameters = {key: item.default for key, item in inspect.signature(function).parameters.items()
                  if item.kind not in (item.VAR_KEYWORD, item.VAR_POSITIONAL)}
    names = [*dict.fromkeys((*parameters, *right, *HIDDEN))]
    step = 1 if FULL else 6 if name in SEARCHING else 3
    for place, key in enumerate(names):
        values = NO_TEXT if key == "dask" else NO_FUNCTION if key in CALLED else WRONG
        for value in values[place % step::step]:
            if key in right or value is not parameters.get(key, ...):  # with a default, it is the right call again
                yield function, (), {**right, key: value}
    for key in right:
        yield function, (), {other: value for other, value in right.items() if other != key}
    yield function, (), {**right, "tensr_parallel": 1}
    yield function, (), {**right, "": 1}
    yield function, (*right.values(), 1, 2, 3), {}
    yield function, tuple(right.values())[:1], right
    draw = random.Random(name)
    for _ in range(100 if FULL else 40):
        first, second = draw.sample([key for key in names if key not in CALLED], 2)
        yield function, (), {**right, first: draw.choice(NO_TEXT), second: draw.choice(NO_TEXT)}


def test_every_public_function_is_called() -> None:
    results = {"Advice", "Comparison", "Explanation", "Explored", "Fits", "Formula", "InputError", "InputWarning",
               "Moves", "Phases", "Plan", "Proof", "Scaling", "SweepResult", "__version__"}
    assert set(RIGHT) >= set(shardmath.__all__) - results


@pytest.mark.slow
@pytest.mark.parametrize("name", RIGHT)
@pytest.mark.filterwarnings("ignore")
def test_nothing_but_an_input_error_comes(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What is legal is answered; no answer is computed that takes long: the checks are what is tried."""
    monkeypatch.chdir(tmp_path)
    others, lines = [], []
    count = 0
    for function, arguments, options in wrong_calls(name):
        count += 1
        try:
            function(*arguments, **options)
        except InputError as error:
            lines.append(str(error))
        except Exception as error:  # every other kind is what this test looks for
            changed = {key: shortened(value) for key, value in options.items() if value is not RIGHT[name][1].get(key)}
            others.append((type(error).__name__, str(error)[:80], changed, len(arguments)))
    assert others == []
    assert all(line.isprintable() and len(line) <= 1500 for line in lines)
    assert count > (150 if FULL else 100)


@pytest.mark.slow
def test_integers_of_every_kind_are_integers() -> None:
    plain = explain("llama-3.2-1b", "h100-80gb", tensor_parallel=2, num_gpus=4)
    for two in (np.int64(2), np.uint8(2), Index(), np.array(2)):
        found = explain("llama-3.2-1b", "h100-80gb", tensor_parallel=two, num_gpus=np.int32(4))  # type: ignore[arg-type]
        assert found == plain
        assert {type(value) for value in found.inputs.values()} <= {int, bool}
    own = {name: np.int64(value) if type(value) is int else value
           for name, value in load_model("llama-3.2-1b").model_dump().items()}
    assert Model(**own) == load_model("llama-3.2-1b")
    assert Gpu.custom(np.float64(80.0)) == Gpu.custom(80.0)  # type: ignore[arg-type]
    assert explain("llama-3.2-1b", "h100-80gb", pipeline_parallel=2, pipeline_layout=np.array([8, 8])).peak.total > 0  # type: ignore[arg-type]


@pytest.mark.parametrize(("options", "line"), [
    ({"tensor_parallel": "2"}, "tensor_parallel = '2': must be an integer from 1 to 2147483648; nearest legal: 2"),
    ({"tensor_parallel": True}, "tensor_parallel = True: must be an integer from 1 to 2147483648; nearest legal: 1"),
    ({"num_gpus": 2.5}, "num_gpus = 2.5: must be an integer from 1 to 2147483648; nearest legal: 2"),
    ({"recompute": ["none"]}, "recompute = ['none']: must be a name"),
    ({"kernels": "norm=eager"},
     "kernels = 'norm=eager': must be an object of names; nearest legal: {'norm': 'eager'}"),
    ({"kernels": {"norm": 1}}, "kernels = {'norm': 1}: must be an object of names"),
    ({"sequence_parallel": "yes"}, "sequence_parallel = 'yes': must be true or false; nearest legal: 0"),
    ({"pipeline_layout": 5}, "pipeline_layout = 5: must be a list of integers or a name"),
    ({"anchor": 1}, "anchor = 1: must be a name or a path"),
    ({"implementation": b"megatron"}, "implementation = b'megatron': must be a name"),
    ({"model": None}, "model = None: must be a Model or a name or a path"),
])
def test_refusals_name_argument_value_and_rule(options: dict[str, Any], line: str) -> None:
    with pytest.raises(InputError) as caught:
        explain(**{**JOB, **options})
    assert str(caught.value) == line


def test_what_is_missing_or_unknown_is_named() -> None:
    for call, line in (
        (lambda: shardmath.explain("llama-3.2-1b"), "gpu = absent: must be given"),  # type: ignore[call-arg]
        (shardmath.formula, "name = absent: must be given"),  # type: ignore[call-arg]
        (lambda: shardmath.formula("a", nme=1), "nme = 1: must not be given: there is no such argument"
         "; nearest legal: name"),  # type: ignore[call-arg]
        (lambda: shardmath.load_model("a", "b"), "arguments = 2: must be at most 1 without a name; nearest legal: 1"),  # type: ignore[call-arg]
    ):
        with pytest.raises(InputError) as caught:
            call()
        assert str(caught.value).startswith(line)


@pytest.mark.process
def test_importing_the_package_loads_nothing_heavy() -> None:
    code = "import shardmath, sys; print(*sorted({name.split('.')[0] for name in sys.modules}))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"numba", "sympy", "numpy", "pydantic", "pyarrow", "rich", "click"} & set(loaded)
