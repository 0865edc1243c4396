"""The nest in C gives the answers of the compiled one: counts, verdicts and the best configurations."""

import shutil
from pathlib import Path

import pytest

from benchmarks.nest_in_c import in_c
from shardmath.search.nests.compiled import CompiledNest
from shardmath.search.nests.nest import Nest
from shardmath.search.nests.running import run
from shardmath.search.spaces import Best, Histogram, PowersOfTwo, Space

pytestmark = pytest.mark.slow

AXES = {
    "tensor_parallel": [1, 2, 4, 8], "pipeline_parallel": [1, 2, 4, 5], "micro_batch_size": [1, 2, 4],
    "sequence_parallel": [0, 1], "recompute": ["none", "core_attention", "full"], "seq_length": [4096, 8192],
    "num_gpus": PowersOfTwo(64, 1024),
}
QUESTIONS = (Best("least", ("peak",), 5, ("recompute",)), Best("few", ("tensor_parallel * pipeline_parallel", "peak")))


def nest(*questions: Best | Histogram) -> Nest:
    space = Space(axes=AXES, model="llama-3.1-70b", gpu="h100-80gb", kernels={"peak": "saved"},
                  fixed={"global_batch_size": 1024}, questions=questions)
    return CompiledNest(space.parts()[0], space.questions)


@pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc")
@pytest.mark.parametrize("bits", [256, 512])
def test_the_nest_in_c_gives_the_same_answers(bits: int, tmp_path: Path) -> None:
    compiled = nest(*QUESTIONS)
    expected, found = run(compiled).answer, run(in_c(compiled, bits, tmp_path)).answer
    assert found.broken.tolist() == expected.broken.tolist()
    assert found.verdicts.tolist() == expected.verdicts.tolist()
    assert found.evaluated == expected.evaluated > 0
    for one, other in zip(found.questions, expected.questions, strict=True):
        for left, right in zip(one.arrays, other.arrays, strict=True):
            assert left.tolist() == right.tolist()


def test_other_questions_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="best only"):
        in_c(nest(Histogram("bins", "peak", (2**34,))), 256, tmp_path)
