"""One nest through every backend: the same answers to the last bit, from Python, LLVM, Numba and columns of NumPy.

CUDA has a process of its own (``test_sweep_cuda``), and C answers questions for the best only (``test_nest_in_c``).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
import small_space
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from interpreted import interpreted
from searches.test_nests_random import THOROUGH, Source, compare_random

from shardmath.cli.main import exit_code
from shardmath.commands.explore.run import explore
from shardmath.compiler.native.objects import native
from shardmath.errors import InputError
from shardmath.files.cached import module_of
from shardmath.generated.definitions import IMPLEMENTATIONS
from shardmath.search.nests.answers import Answer, BestAnswer
from shardmath.search.nests.chosen import BACKENDS
from shardmath.search.nests.columns import ColumnNest
from shardmath.search.nests.compiled import CompiledNest, NumbaNest
from shardmath.search.nests.nest import Nest
from shardmath.search.nests.rows import Table
from shardmath.search.nests.running import run
from shardmath.search.spaces import Best, Part, Question, Space

pytestmark = pytest.mark.slow

#: Implementations whose nests are compiled by Numba too, with and without time: ten seconds each.
PACKAGED = [(name, timed) for name in IMPLEMENTATIONS for timed in (False, True)
            if THOROUGH or (name, timed) == ("nanotron", True)]


class Every(CompiledNest):
    """A nest that is swept by each backend, and gives the answer of the first."""

    others: Sequence[Nest] = ()

    def swept(self, start: int, stop: int, known: Answer, table: Table | None = None) -> Answer:
        answer = super().swept(start, stop, known, table)
        whole = (start, stop) == (0, self.shards)
        for nest in self.others:
            if isinstance(nest, CompiledNest):
                same(answer, nest.swept(start, stop, known, table), ordered=True)
            elif whole:  # its shards are others
                same(answer, nest.swept(0, nest.shards, known, table), ordered=False)
        return answer


def same(one: Answer, other: Answer, *, ordered: bool) -> None:
    """All arrays are equal; a nest on columns tries conditions in another order, and has fronts in another."""
    assert one.verdicts.tolist() == other.verdicts.tolist()
    assert one.broken.sum() == other.broken.sum()
    assert not ordered or one.broken.tolist() == other.broken.tolist()
    for left, right in zip(one.questions, other.questions, strict=True):
        if ordered or isinstance(left, BestAnswer):
            assert [array.tolist() for array in left.arrays] == [array.tolist() for array in right.arrays]


@settings(max_examples=200 if THOROUGH else 5, phases=(Phase.reuse, Phase.generate))
@given(literal=st.booleans(), data=st.data())
def test_random_nests(literal: bool, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory) -> None:
    def made(part: Part, asked: Sequence[Question], source: Source) -> Nest:
        path = tmp_path_factory.mktemp("nest") / "nest.py"
        path.write_text(source(literal=literal))
        module = module_of(f"backends_{path.parent.name}", path)
        every = Every(part, asked, module, native)
        every.others = (
            CompiledNest(part, asked, interpreted(path.read_text()), getattr), NumbaNest(part, asked, module),
            ColumnNest.of_problem(part, asked, source.problem),
        )
        return every

    compare_random(data, made)


@pytest.mark.parametrize(("implementation", "timed"), PACKAGED)
def test_nests_of_implementations(implementation: str, timed: bool) -> None:
    keys = ("step.time", "peak") if timed else ("peak",)
    questions = (Best("best", keys, 5, ("micro_batch_size",)), Best("largest", ("-peak",), 3, (), "legal"))
    degrees = {"data_parallel": [1, 2, 4, 8]} if implementation == "huggingface" else {
        "tensor_parallel": [1, 2, 4], "pipeline_parallel": [1, 2, 4]}
    fixed = {"global_batch_size": 24, "seq_length": 4096} | ({} if "data_parallel" in degrees else {"num_gpus": 16})
    space = Space(axes={**degrees, "micro_batch_size": [1, 2, 3]}, model="llama-3.2-1b", gpu="h100-80gb",
                  implementation=implementation, fixed=fixed, questions=questions)
    (part,) = space.parts()
    compiled = CompiledNest(part, questions)
    answer = run(compiled).answer
    assert answer.evaluated
    same(answer, run(NumbaNest(part, questions, compiled.module)).answer, ordered=True)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_space_is_explored_by_each(backend: str) -> None:
    one, other = (explore(small_space.space(), **asked).to_dict() for asked in ({"backend": backend}, {}))
    assert one.pop("evaluated") >= one["legal"]
    assert one == {key: value for key, value in other.items() if key != "evaluated"}


@pytest.mark.parametrize(("arguments", "rule"), [
    ({"backend": "llvmm"}, "nearest legal: llvm"), ({"backend": "numba", "device": "cuda"}, "must not be given with"),
])
def test_what_cannot_work_is_refused(arguments: dict[str, str], rule: str) -> None:
    with pytest.raises(InputError, match=f"^backend = .*{rule}"):
        explore(small_space.space(), **arguments)


def test_the_command_takes_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(["explore", str(small_space.file_in(tmp_path)), "--backend", "c"]) == 2
    assert "backend = 'c': must be one of the backends" in capsys.readouterr().err
