"""Step time of pipelines whose stages differ, against the times of all their ranks, added up one by one."""

from __future__ import annotations

from fractions import Fraction

import pytest

from shardmath.account.time import machine_values, step_time
from shardmath.commands.calibrate.runs import asked
from shardmath.configuration.job import Job
from shardmath.errors import InputError
from shardmath.machines import Cluster

pytestmark = pytest.mark.slow

CLUSTER = Cluster.named("h100-80gb", "ndr-400")
LAYOUT = {"num_gpus": 64, "tensor_parallel": 2, "context_parallel": 2, "pipeline_parallel": 4, "global_batch_size": 64}


def terms(job: Job, rank: int, **changed: int) -> dict[str, Fraction]:
    """Every term of one rank, exact."""
    module = job.evaluator.times
    values = {**job.on_rank(rank), **machine_values(job.evaluator, CLUSTER, 64), **changed}
    found: dict[str, Fraction] = module.terms(**{name: Fraction(values[name]) for name in module.INPUTS})
    return found


@pytest.mark.parametrize("layout", [None, (8, 8, 8, 8), (9, 8, 8, 7), (4, 12, 8, 8), (11, 11, 10, 0)])
@pytest.mark.parametrize("place", [0, 1, 2])
@pytest.mark.parametrize("recompute", ["none", "full"])
def test_the_slowest_rank_and_one_pass_through_all(layout: tuple[int, ...] | None, place: int, recompute: str) -> None:
    job = asked("llama-3.1-8b", CLUSTER.gpu, **LAYOUT, pipeline_layout=layout, recompute=recompute)
    ranks = [terms(job, rank, pipeline_place=place, stage_stall_ns=50_000) for rank in range(4)]
    times = [rank["stage.microbatch_time"] for rank in ranks]
    assert ranks[0]["step.slowest_stage"] == max(times)
    assert ranks[0]["step.bubble"] == sum(times) - max(times)
    assert ranks[0]["step.data_waiting"] == max(rank["stage.data_waiting"] for rank in ranks)
    assert ranks[0]["step.optimizer"] == max(rank["stage.optimizer_time"] for rank in ranks)


def test_a_list_of_even_stages_is_as_even_ones() -> None:
    even = asked("llama-3.1-8b", CLUSTER.gpu, **LAYOUT)
    listed = asked("llama-3.1-8b", CLUSTER.gpu, **LAYOUT, pipeline_layout=(8, 8, 8, 8))
    for name in ("step.time", "step.mfu", "step.hardware_flops"):
        assert terms(even, 0)[name] == terms(listed, 0)[name]


def test_the_slowest_rank_is_shown() -> None:
    job = asked("llama-3.1-8b", CLUSTER.gpu, **LAYOUT, pipeline_layout=(4, 12, 8, 8))
    values = {**job.values, **machine_values(job.evaluator, CLUSTER, 64)}
    found = step_time(job.evaluator, values, job.by_rank)
    assert found.rank == 1
    assert sum(found.spent.values()) == pytest.approx(found.seconds)


def test_the_rank_behind_the_dense_layers_can_be_the_slowest() -> None:
    """Of DeepSeek-V3's stages the first has dense layers alone here, and the last no loss to speak of."""
    job = asked("deepseek-v3", CLUSTER.gpu, num_gpus=512, pipeline_parallel=16, expert_parallel=32,
                first_stage_layers=4, last_stage_layers=1, vocab_multiple=1)
    values = {**job.values, **machine_values(job.evaluator, CLUSTER, 512)}
    ranks = [job.evaluator.times.terms(**{name: Fraction({**values, "pipeline_rank": rank}[name])
                                          for name in job.evaluator.times.INPUTS}) for rank in range(16)]
    found = step_time(job.evaluator, values)
    assert ranks[found.rank]["spent.idle"] == min(rank["spent.idle"] for rank in ranks)
    assert sum(found.spent.values()) == pytest.approx(found.seconds, rel=1e-12)


def test_a_list_of_layers_of_which_some_have_experts_has_no_time() -> None:
    job = asked("mixtral-8x7b", CLUSTER.gpu, num_gpus=8, pipeline_parallel=2, pipeline_layout=(17, 15))
    with pytest.raises(InputError, match="pipeline_layout"):
        _ = job.evaluator.times
