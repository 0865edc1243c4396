"""Questions about huge parts, answered by bounds of boxes and by loops, against loops for all of them."""

from __future__ import annotations

import math
from typing import Any

import pytest

from shardmath import recommend
from shardmath.commands.recommend.asking import _questions
from shardmath.models.model import load_model
from shardmath.search import answered as asking
from shardmath.search.answered import answered
from shardmath.search.choosing import SLOWER, seconds_of
from shardmath.search.nests.configurations import Configuration
from shardmath.search.offered import offered

pytestmark = pytest.mark.slow

#: Jobs with few layouts and with ties: dense, with experts, with several implementations, with nothing that fits.
JOBS: dict[str, dict[str, Any]] = {
    "dense": {"model": "llama-3.1-8b", "num_gpus": 16, "global_batch_size": 64},
    "experts": {"model": "mixtral-8x7b-v0.1", "num_gpus": 32, "global_batch_size": 64, "virtual_pipeline": (1,),
                "micro_batch_size": (1, 2), "recompute": ("none", "full")},
    "several": {"model": "llama-3.1-8b", "num_gpus": 8, "global_batch_size": 16, "micro_batch_size": (1, 2),
                "recompute": ("none", "full"), "implementation": ("megatron", "torchtitan")},
    "nothing": {"model": "llama-3.1-70b", "num_gpus": 8, "global_batch_size": 8, "micro_batch_size": (1, 2)},
}


def alike(left: Any, right: Any) -> bool:
    """Compare plain data by value: floats but for the rounding of sums in another order."""
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(alike(left[name], right[name]) for name in left)
    if isinstance(left, list | tuple):
        return len(left) == len(right) and all(map(alike, left, right))
    return math.isclose(left, right, rel_tol=1e-12) if isinstance(left, float) else bool(left == right)


def place(item: Configuration | None) -> object:
    """Return where a configuration is."""
    return None if item is None else (item.part.evaluator.name, item.part.number, item.number)


@pytest.mark.parametrize("name", JOBS)
def test_advice_is_the_same(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """All that is told of a job, whichever way its questions are answered."""
    job = {"gpu": "h100-80gb", "seq_length": 4096, **JOBS[name]}
    plain = recommend(**job).to_dict()
    monkeypatch.setattr(asking, "_HUGE", 0)
    assert alike(recommend(**job).to_dict(), plain)


@pytest.mark.parametrize("name", ["experts", "several"])
def test_every_answer_is_that_of_one_nest(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same configurations of fronts, of kinds and of the best, and the same counts."""
    job = {"gpu": "h100-80gb", "seq_length": 4096, "rank_by": "time", **JOBS[name]}
    spaces = offered(load_model(job.pop("model")), job.pop("gpu"), job.pop("num_gpus"), **job)

    def told() -> dict[str, Any]:
        found = answered(spaces, _questions)
        names = [question.name for question in found.questions[0]]
        of = {question: found.front if question in ("fitting", "legal") else found.best for question in names}
        return {"counts": found.verdicts.tolist(), "size": found.size,
                **{question: [place(item) for item in of[question](question)] for question in names}}

    plain = told()
    monkeypatch.setattr(asking, "_HUGE", 0)
    assert told() == plain


@pytest.mark.parametrize("name", ["dense", "experts", "several"])
def test_kinds_by_bounds_are_those_of_loops(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same best of every kind that is not slower than the best by more than a choice may be."""
    job = {"gpu": "h100-80gb", "seq_length": 4096, "rank_by": "time", **JOBS[name]}
    spaces = offered(load_model(job.pop("model")), job.pop("gpu"), job.pop("num_gpus"), **job)

    def near() -> set[object]:
        kinds = answered(spaces, _questions, within=SLOWER).best("kinds")
        most = (1 + SLOWER) * min(map(seconds_of, kinds))
        return {place(item) for item in kinds if seconds_of(item) <= most}

    loops = near()
    monkeypatch.setattr(asking, "_HUGE", 0)
    assert near() == loops
    assert len(loops) > 1


def test_an_axis_that_one_implementation_alone_has_ends_no_advice() -> None:
    """The first choice has no numbers of chunks where the other implementation tries several."""
    advice = recommend("llama-3.1-8b", "h100-80gb", 64, global_batch_size=64, implementation=["megatron", "torchtitan"],
                       pipeline_parallel=[1, 2], tensor_parallel=[1], micro_batch_size=[1], recompute=["full"])
    assert advice.choices[0].layout["implementation"] == "torchtitan"
