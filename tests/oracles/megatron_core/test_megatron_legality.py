"""Random configurations, most of them illegal: Megatron-Core builds and runs exactly those that the rules allow.

A rank of a fake job makes its configuration, its process groups and all chunks of its model, and runs one micro-batch
through each. It refuses by an assertion, or fails, as a user would see it. Rules of batch and GPUs are not asked.
"""

from __future__ import annotations

from random import Random

import pytest
from counted import MEGATRON_CPU, values
from megatron.core import parallel_state
from megatron.core.transformer.transformer_block import get_num_layers_to_build
from oracles.instruments.ledger import evaluator
from oracles.megatron_core.megatron_cpu import Batch, config, gpt_model, one_rank
from torch import zeros

from shardmath.symbolic.parameters import BY_NAME

#: Refusals of Megatron-Core: assertions, its own checks, shapes that do not fit, layers that are not
#: there, and stages that share out nothing.
REFUSALS = (AssertionError, ValueError, RuntimeError, IndexError, ZeroDivisionError)
#: Rules of the job around the model, which no single rank checks.
OF_THE_JOB = {"gpus", "node", "batch", "replicas", "group", "last_group"}


def random_configuration(draw: Random) -> dict[str, int]:
    """Draw sizes and degrees by letter without making them fit, half of the time only a few of them."""
    several = draw.random() < 0.5
    t, p, V = draw.choice((1, 2, 3, 4, 8)), draw.choice((1, 1, 2, 3, 4)), draw.choice((1, 1, 2, 3))
    k = draw.choice((1, 2, 3, 4, t, 2 * t))
    a = k * draw.randint(1, 4) * (1 if several else t)
    layers = draw.randint(1, 12) if several else p * V * draw.randint(1, 2)
    first, last = (draw.choice((0, 0, 0, 1, 2, 3, V)) for _ in range(2)) if draw.random() < 0.3 else (0, 0)
    embedding, loss = (draw.randint(0, 1) for _ in range(2)) if draw.random() < 0.3 else (0, 0)
    uniform = draw.random() < 0.3
    return {
        "t": t, "p": p, "V": V, "c": 1, "D": 1, "r": draw.randrange(p), "k": k, "a": a, "d": 2 * draw.randint(1, 4),
        "h": draw.randint(1, 12) * draw.choice((1, t)), "f": draw.randint(1, 12) * draw.choice((1, t)),
        "s": 2 * draw.randint(1, 6) * draw.choice((1, t)), "b": 1, "u": 8 * t, "tied": 0, "sp": draw.randint(0, 1),
        "L": max(1, layers - embedding - loss), "Lf": first, "Ll": last, "eemb": embedding, "eloss": loss,
        "rfull": int(uniform), "rn": draw.randint(1, 3) if uniform else 1, "m": 4 * p, "B": 4 * p,
    }


def is_run(shape: dict[str, int], draw: Random) -> tuple[bool, str]:
    """True if Megatron-Core runs the configuration on every rank; else what it says."""
    for rank in range(shape["p"]):
        try:
            with one_rank(shape | {"r": rank}, draw):
                _run_rank(shape | {"r": rank})
        except REFUSALS as error:
            return False, f"rank {rank}: {type(error).__name__}: {error}"
    return True, ""


def _run_rank(shape: dict[str, int]) -> None:
    settings, several = config(shape, "uniform"), shape["V"] > 1
    of_ranks = [
        get_num_layers_to_build(settings, chunk if several else None, rank)
        for rank in range(shape["p"]) for chunk in range(shape["V"])
    ]
    if sum(of_ranks) != shape["L"] or min(of_ranks) < 0:
        raise ValueError(f"{of_ranks} of {shape['L']} layers")
    for chunk in range(shape["V"]):
        model, batch = gpt_model(shape, settings, chunk=chunk if several else None), Batch.of(shape)
        if not model.pre_process:
            share = shape["t"] if shape["sp"] else 1
            model.set_input_tensor(zeros(shape["s"] // share, 1, shape["h"], dtype=settings.params_dtype,
                                         requires_grad=True))
        labels = batch.labels if model.post_process else None
        model(batch.ids, batch.positions, None, labels=labels)
    assert parallel_state.get_tensor_model_parallel_world_size() == shape["t"]


def broken(shape: dict[str, int]) -> list[str]:
    """The rules that the configuration breaks, by name."""
    chosen = MEGATRON_CPU.with_choices(
        schedule="interleaved" if shape["V"] > 1 else "1f1b",
        stages="uneven" if any(shape[letter] for letter in ("Lf", "Ll", "eemb", "eloss")) else "even",
        recompute_method="uniform" if shape["rn"] > 1 else "each",
    )
    module = evaluator(chosen).terms
    known = {**dict.fromkeys("MNn", 8), **values({}, "", **shape), **shape}
    met = module.rules_met(**{name: known[BY_NAME[name].letter] for name in module.INPUTS})
    return [name for (name, _, _), holds in zip(module.RULES, met, strict=True) if not holds and name not in OF_THE_JOB]


@pytest.mark.cases(40, 600)
def test_what_is_refused_and_what_is_run(draw: Random) -> None:
    shape = random_configuration(draw)
    runs, said = is_run(shape, draw)
    assert (broken(shape) == []) == runs, (broken(shape), said, shape)
