"""Compiled nests of real evaluators against every configuration of small spaces, counted in exact fractions."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import brute_force
import pytest
from brute_force import Row
from interpreted import interpreted
from searches.test_nests_random import compare

from shardmath.compiler import nesting
from shardmath.compiler.nesting import nest_of
from shardmath.search.nests.compiled import CompiledNest
from shardmath.search.nests.nest import Nest
from shardmath.search.nests.posing import evaluator_source, posing_of, verdict_source
from shardmath.search.nests.running import run
from shardmath.search.spaces import Best, Front, Histogram, Part, PowersOfTwo, Space

pytestmark = pytest.mark.slow

QUESTIONS = (
    Best("best", ("tensor_parallel * context_parallel * pipeline_parallel", "peak", "-micro_batch_size"), 5),
    Best("per", ("peak",), 2, ("recompute",), "legal"),
    Best("largest", ("tensor_parallel - peak / 4", "-peak"), 3, (), "legal"),
    Front("front", ("peak", "-micro_batch_size"), "uncertain"),
    Histogram("sizes", "peak", (2**32, 2**33, 2**34), "legal"),
)
LAYOUT = {
    "tensor_parallel": [1, 2], "pipeline_parallel": [1, 2, 4], "micro_batch_size": [1, 2, 3],
    "sequence_parallel": [0, 1], "recompute": ["none", "full"],
}
SPACES: dict[str, dict[str, Any]] = {
    "saved tensors": {"kernels": {"peak": "saved"}},
    "every moment": {},
    "a larger model": {"model": "llama-3.1-8b", "gpu": "h100-80gb"},
    "huggingface": {"implementation": "huggingface", "axes": {"data_parallel": [1, 2, 4], "micro_batch_size": [1, 2],
                                                              "recompute": ["none", "full"]}},
    "a model's shape": {
        "axes": {"num_layers": [8, 16], "hidden_size": [1024, 2048], "ffn_hidden_size": [4096, 5632],
                 "tensor_parallel": [1, 2], "recompute": ["none", "full"], "context_parallel": [1, 2]},
        "derived": {"head_dim": "hidden_size / num_attention_heads"},
    },
    "gpus": {"gpu": None, "axes": {**LAYOUT, "gpu": ["a100-40gb", "h100-80gb"], "num_gpus": PowersOfTwo(4, 8)}},
}


def part_of(name: str) -> Part:
    declared = {
        "axes": LAYOUT, "model": "llama-3.2-1b", "gpu": "a100-40gb", "questions": QUESTIONS,
        "fixed": {"num_gpus": 8, "global_batch_size": 24, "seq_length": 4096}, **SPACES[name],
    }
    if "num_gpus" in declared["axes"] or "data_parallel" in declared["axes"]:
        declared["fixed"] = {key: value for key, value in declared["fixed"].items() if key != "num_gpus"}
    (part,) = Space(**declared).parts()
    return part


def counted(nest: Nest) -> list[Row]:
    """Every configuration of a nest, counted."""
    return _placed(brute_force.rows(nest.part, nest.questions, _tried(nest.part, nest)), nest.part, nest)


@pytest.mark.parametrize("name", SPACES)
def test_every_configuration_of_a_space(name: str) -> None:
    nest = CompiledNest(part_of(name), QUESTIONS)
    rows = counted(nest)
    assert any(row.verdict is not None for row in rows)
    one, two = run(nest, threads=1).answer, run(nest, threads=3).answer
    compare(one, rows, nest)
    compare(two, rows, nest)
    posing = posing_of(nest.part, nest.questions, literal=False)
    source = nest_of("proved", posing, evaluator_source(nest.part), verdict_source(), proving=True)
    proved = CompiledNest(nest.part, nest.questions, interpreted(source), getattr)
    compare(proved.swept(0, proved.shards, proved.empty()), counted(proved), proved)


def _tried(part: Part, nest: Nest) -> list[int]:
    """The conditions of a part in the order in which its nest tries them; what always holds comes last."""
    names = brute_force.conditions(part)
    tried = [names.index(nest.conditions[place]) for place in nest.tried]
    return tried + [place for place in range(len(names)) if place not in tried]


def _placed(rows: Iterable[Row], part: Part, nest: Nest) -> list[Row]:
    """Rows whose broken conditions are counted as the nest counts them."""
    names = brute_force.conditions(part)
    return [
        row if row.broken is None else replace(row, broken=nest.conditions.index(names[row.broken])) for row in rows
    ]


def test_tables_in_which_nothing_fits_are_passed_over() -> None:
    outside = ("seq_length", "recompute", "tensor_parallel", "pipeline_parallel")
    questions = (
        Best("best", ("peak", "-micro_batch_size"), 4, outside), Front("front", ("peak", "seq_length"), "uncertain"),
    )
    (part,) = Space(
        axes={**LAYOUT, "seq_length": [4096, 16384, 65536, 262144]}, model="llama-3.2-1b", gpu="a100-40gb",
        fixed={"num_gpus": 8, "global_batch_size": 24}, questions=questions,
    ).parts()
    posing = posing_of(part, questions, literal=True)
    for proving in (True, False):
        evaluated = {}
        for skipping in (True, False):
            own = replace(posing, skipping=skipping)
            module = interpreted(nest_of("own", own, evaluator_source(part), verdict_source(), proving=proving))
            nest = CompiledNest(part, questions, module, getattr)
            answer = nest.swept(0, nest.shards, nest.empty())
            compare(answer, counted(nest), nest)
            evaluated[skipping] = answer.evaluated
        # Bounds of an estimate with all of its parts are too wide for this space.
        assert evaluated[True] < evaluated[False] if proving else evaluated[True] <= evaluated[False]


@pytest.mark.parametrize(("model", "least"), [("llama-3.2-1b", 10**8), ("mixtral-8x7b", 10**10)])
def test_proofs_and_passing_over_begin_where_they_pay(model: str, least: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A model with experts has longer formulas, of which proofs take longer."""
    (part,) = Space(
        axes={"tensor_parallel": [1]}, model=model, gpu="a100-40gb", questions=QUESTIONS[:1],
        fixed={"global_batch_size": 24, "seq_length": 4096, "num_gpus": 8},
    ).parts()
    proofs: list[int] = []
    monkeypatch.setattr(nesting, "without_dominated", lambda graph, estimate, *rest: proofs.append(1) or estimate)

    def chosen(size: int, literal: bool = True) -> tuple[bool, bool]:
        posing = posing_of(replace(part, size=size), QUESTIONS[:1], literal=literal)
        proofs.clear()
        sized = replace(posing, axes=(replace(posing.axes[0], size=size),))
        nesting.plan_of(sized, evaluator_source(part), verdict_source(), blocks=False)
        return posing.skipping, bool(proofs)

    assert [chosen(size)[0] for size in (10**8 - 1, 10**8)] == [False, True]
    assert [chosen(size)[1] for size in (least - 1, least)] == [False, True]
    assert chosen(10**11, literal=False) == (False, False)
