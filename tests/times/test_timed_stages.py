"""Step time of pipelines whose stages differ, against the times of all their ranks, added up one by one."""

from __future__ import annotations

from fractions import Fraction

import pytest

from shardmath.account.time import machine_values, step_time
from shardmath.commands.calibrate.runs import asked
from shardmath.configuration.job import Job
from shardmath.configuration.stages import longest
from shardmath.errors import InputError
from shardmath.machines import Cluster
from shardmath.models.model import Model
from validation.measured.case import varied

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


#: DeepSeek-V3 has 3 dense layers, then 58 with experts; every second layer of Llama 4 Maverick has experts.
OF_EXPERTS = {
    "mixtral-8x7b": [(17, 15), (8, 8, 8, 8), (0, 16, 15, 1)],
    "deepseek-v3": [(3, 19, 20, 19), (0, 3, 29, 29), (1, 3, 40, 17), (0, 2, 30, 29), (61, 0), (2, 59)],
    "llama-4-maverick": [(9, 15, 15, 9), (12, 11, 13, 12), (24, 0, 0, 24)],
}


@pytest.mark.parametrize("recompute", ["none", "full"])
@pytest.mark.parametrize(("name", "layout"), [(name, each) for name, lists in OF_EXPERTS.items() for each in lists])
def test_layers_of_two_kinds_in_a_list(name: str, layout: tuple[int, ...], recompute: str) -> None:
    """The slowest rank is that of all ranks, added up one by one; a pass goes through all of them.

    Models that predict further are left with their own layers for the pass: on one rank they need no second embedding.
    """
    for further in {0, Model.named(name).num_mtp_layers}:
        job = asked(varied(name, num_mtp_layers=further), CLUSTER.gpu, num_gpus=64, pipeline_parallel=len(layout),
                    pipeline_layout=layout, expert_parallel=8, global_batch_size=64, recompute=recompute)
        ranks = [terms(job, rank) for rank in range(len(layout))]
        times = [rank["stage.microbatch_time"] for rank in ranks]
        assert ranks[0]["step.slowest_stage"] == max(times)
        assert ranks[0]["step.optimizer"] == max(rank["stage.optimizer_time"] for rank in ranks)
        assert further or ranks[0]["step.bubble"] == sum(times) - max(times)


@pytest.mark.parametrize(("model", "layout"), [("mixtral-8x7b", (8,) * 4), ("llama-4-maverick", (12,) * 4)])
def test_a_list_of_even_stages_with_experts_is_as_even_ones(model: str, layout: tuple[int, ...]) -> None:
    job = {"num_gpus": 64, "pipeline_parallel": 4, "expert_parallel": 8, "global_batch_size": 64}
    even, listed = asked(model, CLUSTER.gpu, **job), asked(model, CLUSTER.gpu, **job, pipeline_layout=layout)
    for name in ("step.time", "step.mfu", "step.hardware_flops"):
        assert terms(even, 0)[name] == terms(listed, 0)[name]


def test_a_list_with_too_many_kinds_of_stages_is_refused() -> None:
    """Four ranks with 0 to 3 dense layers: each has more of one kind than every other."""
    assert longest([(3, 1), (2, 2), (1, 3), (0, 4), (0, 3), (1, 3)]) == [(0, 4), (1, 3), (2, 2), (3, 1)]
    model = varied("deepseek-v3", first_dense_layers=6, num_mtp_layers=0)
    with pytest.raises(InputError, match="at most 3 ranks"):
        asked(model, CLUSTER.gpu, num_gpus=48, pipeline_parallel=6, virtual_pipeline=2, global_batch_size=48,
              expert_parallel=8, pipeline_layout=(0, 1, 2, 3, 0, 0, 10, 10, 8, 5, 12, 10))
