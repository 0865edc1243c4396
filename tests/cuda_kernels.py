"""Nests as kernels: ``test_sweep_cuda`` starts these tests on the simulator of CUDA, and on a GPU if there is one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import small_space
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from interpreted import interpreted
from searches import test_nests_counted as real
from searches.test_nests_random import THOROUGH, Made, compare, compare_random
from searches.test_sweep_rows import compare_rows

from shardmath.commands.explore.run import explore
from shardmath.search.nests import answers, cuda
from shardmath.search.nests.compiled import CompiledNest
from shardmath.search.nests.cuda import CudaNest
from shardmath.search.nests.running import Run, run
from shardmath.search.spaces import Front

pytestmark = pytest.mark.slow
few = settings(max_examples=300 if THOROUGH else 15, phases=(Phase.reuse, Phase.generate),
               suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture
def room(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "little":
        monkeypatch.setattr(cuda, "_ROOM", 2)
        monkeypatch.setattr(answers, "_ROOM", 1)


def _made(literal: bool) -> Made:
    return lambda part, asked, source: CudaNest(part, asked, interpreted(source(literal=literal, kernel=True)), getattr)


@pytest.mark.usefixtures("room")
@pytest.mark.parametrize("room", ["enough", "little"], indirect=True)
@few
@given(literal=st.booleans(), data=st.data())
def test_a_kernel_answers_as_exact_counting(literal: bool, data: st.DataObject) -> None:
    compare_random(data, _made(literal))


@few
@given(literal=st.booleans(), data=st.data())
def test_rows_are_all_that_belong(literal: bool, data: st.DataObject) -> None:
    compare_rows(data, _made(literal))


@pytest.mark.usefixtures("room")
@pytest.mark.parametrize(("name", "verdicts", "room"), [
    ("saved tensors", {None, 0, 1}, "enough"), ("a larger model", {None, 0, 1, 2}, "little"),
    ("huggingface", {0, 1}, "enough"), *([("saved tensors", {None, 0, 1}, "little")] if THOROUGH else []),
], indirect=["room"])
def test_every_configuration_of_a_space(name: str, verdicts: set[int | None]) -> None:
    nest = CudaNest(real.part_of(name), (*real.QUESTIONS, Front("ties", ("num_gpus", "-micro_batch_size"), "legal")))
    rows = real.counted(nest)
    assert {row.verdict for row in rows} == verdicts
    found = run(nest, workers=cuda.on_gpu(nest)).answer
    compare(found, rows, nest)
    assert found.evaluated == sum(row.verdict is not None for row in rows)
    backwards = Run(nest.empty())
    for shard in reversed(range(nest.shards)):
        backwards.add(shard, shard + 1, nest.swept(shard, shard + 1, backwards.answer))
    compare(backwards.answer, rows, nest)
    compare(run(CompiledNest(nest.part, nest.asked, nest.module)).answer, rows, nest)


def test_a_space_is_explored_as_on_processors(tmp_path: Path) -> None:
    asked = {"terms": ("first.total", "peak / 2**30"), "among": "uncertain"}
    space = replace(small_space.space(), axes={**small_space.AXES, "seq_length": [4096, 8192], "num_gpus": [16, 96]})
    one = explore(space, rows=tmp_path / "one.csv", **asked)
    two = explore(space, rows=tmp_path / "two.csv", device="cuda", **asked)
    lines = [(tmp_path / name).read_text().splitlines() for name in ("one.csv", "two.csv")]
    assert len(lines[0]) > 100
    assert sorted(lines[0]) == sorted(lines[1])
    found = [explored.to_dict() for explored in (one, two)]
    for explored in found:  # which rule counts as broken first, and what was evaluated, depends on the order of loops
        explored["broken"] = sum(rule["count"] for rule in explored["broken"])
        del explored["evaluated"]
    assert found[0] == found[1]
