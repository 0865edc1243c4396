"""Embedding and loss that stand for a layer of the first and last chunk, as in NVIDIA's own 405B (126 + 2 layers)."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest

import shardmath
from shardmath import explain
from shardmath.account.accounting import Explanation
from shardmath.commands.explore.answer import Ranking
from shardmath.errors import InputError
from shardmath.formats import read
from shardmath.models.model import Model
from shardmath.search.spaces import Best, Space

MODEL = "llama-3.1-405b"
BOTH = {"account_for_embedding": 1, "account_for_loss": 1}
LAYOUT = {"tensor_parallel": 8, "pipeline_parallel": 8, "virtual_pipeline": 8}


def account(**others: int) -> Explanation:
    return explain(MODEL, "h200", num_gpus=2048, global_batch_size=512, seq_length=8192, **{**LAYOUT, **others})


@pytest.mark.slow
def test_which_ranks_lose_a_layer() -> None:
    """128 shares of a layer over 8 ranks of 8 chunks: the two ends have 15 layers, all others 16."""
    layer, found = 2 * 3 * 16384 * 53248 // 8, account(**BOTH)
    held = {rank.rank: next(line.bytes for line in rank.lines if line.term == "stage.swiglu.weight") // layer
            for rank in found.ranks}
    assert held == {rank: 16 - (rank in (0, 7)) for rank in range(8)}
    assert explain(MODEL, "h200", num_gpus=2048, **{**LAYOUT, "virtual_pipeline": 16}, **BOTH).ranks
    assert len(found.ranks) == 8


@pytest.mark.slow
@pytest.mark.parametrize(("embedding", "loss", "layers"), [(1, 1, 126), (1, 0, 127), (0, 1, 127)])
@pytest.mark.parametrize("recompute", ["none", "full", "core_attention"])
def test_as_a_list_of_the_same_stages(embedding: int, loss: int, layers: int, recompute: str) -> None:
    """What a walk through the schedule finds for each rank, from the same layers of every chunk.

    Of a list only the moment with most saved bytes is known. The last rank may peak at another one, without a loss.
    """
    stages = [2] * 64
    stages[0] -= embedding
    stages[-1] -= loss
    model = Model.named(MODEL).model_copy(update={"num_layers": layers})
    options = {**LAYOUT, "num_gpus": 2048, "seq_length": 8192, "recompute": recompute}
    for batch, group in ((256, 0), (512, 0), (768, 16)):  # one group of a chunk, two, and two with a smaller one
        options |= {"global_batch_size": batch, "microbatch_group": group}
        accounted = explain(model, "h200", account_for_embedding=embedding, account_for_loss=loss, **options)
        listed = explain(model, "h200", pipeline_layout=stages, **options)
        for mine, other in zip(accounted.ranks[:-1], listed.ranks[:-1], strict=True):
            assert (mine.by_role, mine.total) == (other.by_role, other.total)
        mine, other = accounted.ranks[-1], listed.ranks[-1]
        fuller = [line.bytes for line in mine.lines if line.component == "fuller_chunks"]
        if mine.site == "loss_forward":
            assert (mine.by_role, mine.total) == (other.by_role, other.total)
        else:
            assert fuller == [] or mine.total - sum(fuller) <= other.total < mine.total
        assert loss or not any(fuller)


@pytest.mark.slow
def test_without_even_chunks_it_is_refused() -> None:
    with pytest.raises(InputError, match="must divide the layers"):
        account(account_for_embedding=1)
    with pytest.raises(InputError, match="without numbers of their own"):
        explain(MODEL, "h200", num_gpus=2048, **LAYOUT, first_stage_layers=8, last_stage_layers=24, **BOTH)


@pytest.mark.slow
@pytest.mark.parametrize(("stages", "first", "last"), [(8, 40, 40), (2, 80, 0), (4, 0, 80)])
def test_a_stage_without_layers_is_refused(stages: int, first: int, last: int) -> None:
    """Megatron-Core would give the other stages none, and block recompute would share out no layers among them."""
    with pytest.raises(InputError, match=r"(first|last)_stage_layers = .*must leave layers for the other stages"):
        explain("llama-3.1-70b", "h100-80gb", num_gpus=64, tensor_parallel=8, pipeline_parallel=stages,
                first_stage_layers=first, last_stage_layers=last, kernels={"recompute_method": "block"})


@pytest.mark.slow
def test_experts_in_every_layer() -> None:
    """32 layers as 31 + 1 of 4 ranks with 4 chunks; models with dense layers too need a list."""
    options = {"num_gpus": 64, "pipeline_parallel": 4, "virtual_pipeline": 4, "expert_parallel": 8}
    model = Model.named("mixtral-8x7b").model_copy(update={"num_layers": 31})
    found = explain(model, "h200", account_for_loss=1, **options)
    listed = explain(model, "h200", pipeline_layout=[2] * 15 + [1], **options)
    assert [rank.total for rank in found.ranks] == [rank.total for rank in listed.ranks]
    with pytest.raises(InputError, match="equal numbers of expert layers"):
        explain("llama-4-maverick", "h200", num_gpus=40, pipeline_parallel=5, virtual_pipeline=2,
                expert_parallel=8, **BOTH)


def test_a_script_of_megatron_lm(tmp_path: Path) -> None:
    """Layers of a chunk count those that stand for embedding and loss."""
    script = tmp_path / "train.sh"
    script.write_text("""torchrun --nproc_per_node 8 --nnodes 256 pretrain_gpt.py
        --num-layers 126 --hidden-size 16384 --ffn-hidden-size 53248 --num-attention-heads 128 --group-query-attention
        --num-query-groups 8 --seq-length 8192 --max-position-embeddings 8192 --swiglu --normalization RMSNorm
        --disable-bias-linear --untie-embeddings-and-output-weights --position-embedding-type rope --bf16
        --vocab-size 128256 --micro-batch-size 1 --global-batch-size 512 --tensor-model-parallel-size 8
        --pipeline-model-parallel-size 8 --num-layers-per-virtual-pipeline-stage 2 --sequence-parallel
        --account-for-embedding-in-pipeline-split --account-for-loss-in-pipeline-split --use-distributed-optimizer
        """.replace("\n", " \\\n").rstrip(" \\\n") + "\n")
    run = read(str(script))
    assert {name: run.arguments[name] for name in (*BOTH, "virtual_pipeline")} == {**BOTH, "virtual_pipeline": 8}


@pytest.mark.slow
def test_a_nest_ranks_them_as_the_account_does() -> None:
    space = Space(
        axes={
            "pipeline_parallel": [4, 8, 16], "virtual_pipeline": [1, 2, 4, 8], "account_for_embedding": [0, 1],
            "account_for_loss": [0, 1], "micro_batch_size": [1, 2],
        },
        model=MODEL, gpu="h200", kernels={"stages": "uneven", "schedule": "interleaved"},
        fixed={"num_gpus": 2048, "global_batch_size": 512, "seq_length": 8192, "tensor_parallel": 8},
        questions=(Best("best", ("step.time",), 8, among="legal"),),
    )
    ranking = shardmath.explore(space).answers["best"]
    assert isinstance(ranking, Ranking)
    best = ranking.groups[0].configurations
    assert {(row.values["account_for_embedding"], row.values["account_for_loss"]) for row in best} == {(1, 1)}
    assert max(row.values["virtual_pipeline"] for row in best) > 1
    for row in best:
        found = account(**{name: row.values[name] for name in space.axes})
        assert found.time is not None
        assert found.peak.total == row.terms["peak"]
        assert found.time.seconds == pytest.approx(row.keys["step.time"], rel=1e-12)


@pytest.mark.slow
def test_every_account_sums_up() -> None:
    """All lines of a rank give its total, whichever chunk is lighter and whether the head outweighs a layer."""
    for embedding, loss, vocabulary in product((0, 1), (0, 1), (1000, 200_000)):
        model = Model.named(MODEL).model_copy(update={"num_layers": 128 - embedding - loss, "vocab_size": vocabulary})
        found = explain(model, "h200", num_gpus=2048, account_for_embedding=embedding, account_for_loss=loss, **LAYOUT)
        for rank in found.ranks:
            assert sum(line.bytes for line in rank.lines) == rank.total
