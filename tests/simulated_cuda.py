"""Nests as kernels, on the simulator of CUDA: started by ``test_sweep_cuda`` in a process with the simulator."""

from __future__ import annotations

from pathlib import Path

import pytest
import test_nests_counted as real
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from interpreted import interpreted
from numba import config
from test_nests_random import THOROUGH, Made, compare, compare_random
from test_sweep_rows import compare_rows

from shardmath.exploring import explore
from shardmath.spaces import Rows, Space
from shardmath.sweeps import answers, cuda
from shardmath.sweeps.cuda import CudaNest
from shardmath.sweeps.nests import Nest
from shardmath.sweeps.running import run
from shardmath.symbolic.nests.made import nest_source

assert config.ENABLE_CUDASIM

few = settings(max_examples=300 if THOROUGH else 60, deadline=None, phases=(Phase.reuse, Phase.generate),
               suppress_health_check=list(HealthCheck))


@pytest.fixture(params=[None, 2], ids=["room for all", "little room"])
def room(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param is not None:
        monkeypatch.setattr(cuda, "_ROOM", request.param)
        monkeypatch.setattr(answers, "_ROOM", 1)


def _made(literal: bool) -> Made:
    return lambda part, asked, problem: CudaNest(
        part, asked, interpreted(nest_source("random", "", problem, {}, literal=literal, kernel=True)))


@pytest.mark.usefixtures("room")
@few
@given(literal=st.booleans(), data=st.data())
def test_a_kernel_answers_as_exact_counting(literal: bool, data: st.DataObject) -> None:
    compare_random(data, _made(literal))


@few
@given(literal=st.booleans(), data=st.data())
def test_rows_are_all_that_belong(literal: bool, data: st.DataObject) -> None:
    compare_rows(data, _made(literal))


@pytest.mark.usefixtures("room")
@pytest.mark.parametrize("name", ["saved tensors", "a larger model", "huggingface", "a model's shape"])
def test_every_configuration_of_a_space(name: str) -> None:
    nest = CudaNest(real.part_of(name), real.QUESTIONS)
    rows = real.counted(nest)
    assert {row.verdict for row in rows} >= ({None, 0, 1, 2} if name == "a larger model" else {None, 0})
    found, compiled = run(nest, workers=cuda.on_gpu(nest)).answer, run(Nest(nest.part, nest.asked, nest.module)).answer
    compare(found, rows, nest)
    compare(compiled, rows, nest)
