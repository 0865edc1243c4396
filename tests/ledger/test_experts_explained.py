"""Accounts of models with experts through the public function: every rank, published totals, what is refused."""

import re
from collections.abc import Mapping
from typing import Any

import pytest
from families import parameters_by_part, parameters_of_mtp

from shardmath import explain
from shardmath.account.accounting import Explanation
from shardmath.errors import InputError
from shardmath.models.model import Model

# Layouts on 80 GB GPUs as people run them, on as many ranks as the layout has.
LAYOUTS: dict[str, dict[str, int]] = {
    "mixtral-8x7b": {"tensor_parallel": 2, "pipeline_parallel": 4, "expert_parallel": 4, "data_parallel": 4},
    "mixtral-8x22b": {"tensor_parallel": 4, "pipeline_parallel": 7, "expert_parallel": 8, "data_parallel": 4},
    "llama-4-scout": {"tensor_parallel": 4, "pipeline_parallel": 4, "expert_parallel": 16, "data_parallel": 4},
    "llama-4-maverick": {"tensor_parallel": 2, "pipeline_parallel": 6, "expert_parallel": 32, "data_parallel": 32},
    "qwen3-30b-a3b": {"tensor_parallel": 1, "pipeline_parallel": 2, "expert_parallel": 8, "data_parallel": 8},
    "qwen3-235b-a22b": {"tensor_parallel": 4, "pipeline_parallel": 2, "expert_parallel": 16, "data_parallel": 8},
    "deepseek-v2-lite": {"tensor_parallel": 2, "pipeline_parallel": 3, "expert_parallel": 4, "data_parallel": 8},
    "deepseek-v2": {"tensor_parallel": 2, "pipeline_parallel": 4, "expert_parallel": 16, "data_parallel": 16},
}


def account(model: str, layout: Mapping[str, int], **others: Any) -> Explanation:
    return explain(model, "h100-80gb", seq_length=4096, **{"expert_tensor_parallel": 1, **layout}, **others)


def weights(explanation: Explanation, rank: int, *, routed: bool) -> int:
    """Weight bytes of a pipeline rank, of routed experts or of all else."""
    return int(sum(
        line.bytes for line in explanation.ranks[rank].lines
        if line.role == "weight" and line.component != "padding" and line.term.endswith("expert_weight") == routed
    ))


@pytest.mark.slow
@pytest.mark.parametrize("name", LAYOUTS)
def test_ranks_together_hold_the_published_parameters(name: str) -> None:
    """Two bytes for every parameter: experts over EP ranks, norms, routers and compressions on every TP rank."""
    model, layout = Model.named(name), LAYOUTS[name]
    t, ep = layout["tensor_parallel"], layout["expert_parallel"]
    found = account(name, layout, vocab_multiple=1)
    parts = parameters_by_part(model)
    routed = sum(weights(found, rank, routed=True) for rank in range(len(found.ranks))) * ep
    experts = model.num_experts * 3 * model.hidden_size * model.moe_ffn_hidden_size
    layers = [layer for layer in range(1, model.num_layers + 1)
              if layer > model.first_dense_layers and not layer % model.moe_layer_step]
    assert routed == 2 * experts * len(layers)
    others = sum(weights(found, rank, routed=False) for rank in range(len(found.ranks)))
    copied = model.hidden_size * (2 * model.num_layers + 1) + model.num_experts * model.hidden_size * len(layers)
    copied += model.num_layers * 2 * model.head_dim * model.qk_norm
    if model.kv_lora_rank:
        each = (model.q_lora_rank + model.kv_lora_rank + model.qk_rope_head_dim) * model.hidden_size
        copied += model.num_layers * (each + model.q_lora_rank + model.kv_lora_rank)
    assert t * others == 2 * (sum(parts.values()) - experts * len(layers) + (t - 1) * copied)


@pytest.mark.slow
def test_deepseek_v3_on_a_listed_pipeline() -> None:
    """Three dense layers on the first rank, one module of multi-token prediction on the last."""
    layout = {"tensor_parallel": 1, "pipeline_parallel": 16, "expert_parallel": 64, "data_parallel": 64}
    found = account("deepseek-v3", layout, pipeline_layout=[4] * 15 + [1])
    model = Model.named("deepseek-v3")
    expert = 2 * 3 * model.hidden_size * model.moe_ffn_hidden_size * model.num_experts // 64
    of_experts = [weights(found, rank, routed=True) // expert for rank in range(16)]
    assert of_experts == [1, *[4] * 14, 2]
    everything = sum(parameters_by_part(model).values()) + parameters_of_mtp(model)
    held = sum(weights(found, rank, routed=True) * 64 + weights(found, rank, routed=False) for rank in range(16))
    again = model.hidden_size * model.vocab_size  # the embedding of the last stage
    assert held == 2 * (everything + again)
    uneven = account("deepseek-v3", layout, first_stage_layers=4, last_stage_layers=1)
    assert [rank.total for rank in uneven.ranks] == [rank.total for rank in found.ranks]


@pytest.mark.slow
def test_states_of_experts_are_shared_by_their_own_ranks() -> None:
    """EP 8 leaves 2 of 16 data-parallel ranks for experts, which is what their optimizer states are shared over."""
    layout = {"pipeline_parallel": 2, "data_parallel": 16}
    plain, spread = (account("mixtral-8x7b", {**layout, "expert_parallel": e}) for e in (1, 8))

    def states(found: Explanation, term: str) -> int:
        return int(sum(line.bytes for line in found.ranks[0].lines if line.term == f"stage.experts.{term}"))

    assert states(plain, "expert_weight") == 8 * states(spread, "expert_weight")
    assert states(plain, "expert_optimizer") == states(spread, "expert_optimizer")
    assert states(spread, "expert_optimizer") == 6 * states(spread, "expert_weight") // 2


@pytest.mark.slow
def test_a_fuller_rank_keeps_more() -> None:
    layout = {"pipeline_parallel": 2, "data_parallel": 16, "expert_parallel": 8}
    balanced, full = (
        account("mixtral-8x7b", layout, expert_load_percent=load, kernels={"peak": "saved"}) for load in (100, 150)
    )
    model = Model.named("mixtral-8x7b")
    tokens = 4096 * 2 // 2  # half as many tokens again
    each = 2 * (model.hidden_size + 3 * model.moe_ffn_hidden_size) + 4  # a single expert of a rank sorts nothing
    assert full.ranks[0].total - balanced.ranks[0].total == 16 * 2 * tokens * each


@pytest.mark.slow
def test_a_region_is_recomputed_however_it_is_asked_for() -> None:
    layout = {"pipeline_parallel": 2, "data_parallel": 16, "expert_parallel": 8}
    by_mode = account("mixtral-8x7b", layout, recompute="core_attention+moe_act")
    by_switch = account("mixtral-8x7b", layout, recompute="core_attention", recompute_moe_act=1)
    assert by_switch == by_mode
    plain = account("mixtral-8x7b", layout, recompute="core_attention")
    tokens, model = 4096 * 2, Model.named("mixtral-8x7b")
    assert plain.ranks[0].total - by_mode.ranks[0].total == 16 * 2 * tokens * 2 * model.moe_ffn_hidden_size


@pytest.mark.slow
@pytest.mark.parametrize(
    ("layout", "message"),
    [
        ({"expert_parallel": 3, "data_parallel": 3}, "expert_parallel = 3: must divide num_experts"),
        ({"expert_parallel": 8, "data_parallel": 4}, "expert_parallel = 8: times expert_tensor_parallel must divide"),
        ({"expert_tensor_parallel": 3, "data_parallel": 3}, "expert_tensor_parallel = 3: must divide moe_ffn_hidden"),
        ({"tensor_parallel": 2, "sequence_parallel": False}, "sequence_parallel = 0: must be 1: experts and tensor"),
        ({"expert_capacity_percent": 100, "expert_load_percent": 120}, "expert_capacity_percent = 100: leaves no"),
        ({"recompute": "full", "recompute_moe_act": 1}, "recompute = 'full+moe_act': must be none, full, or some of"),
        ({"recompute": "mla_up_proj"}, "must not be mla_up_proj: mixtral-8x7b-v0.1 has no latent attention"),
        ({"implementation": "huggingface", "expert_parallel": 2, "data_parallel": 2},
         "data_parallel = 2: must be that of one batch without data_parallel = fsdp"),
    ],
)
def test_what_is_refused(layout: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=re.escape(message)):
        account("mixtral-8x7b", layout)


@pytest.mark.parametrize(
    ("option", "value"),
    [("expert_parallel", 2), ("expert_tensor_parallel", 2), ("expert_load_percent", 110), ("recompute", "moe_act")],
)
def test_dense_models_have_no_experts_to_share_out(option: str, value: Any) -> None:
    with pytest.raises(InputError, match=r"llama-3\.1-8b has no experts"):
        account("llama-3.1-8b", {"tensor_parallel": 2, "data_parallel": 2, option: value})
