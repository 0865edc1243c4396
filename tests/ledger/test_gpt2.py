"""GPT-2 in Hugging Face: bytes added up by hand for every GELU; Megatron-Core has one kernel in any case."""

from __future__ import annotations

from typing import Any

import pytest

from shardmath import explain
from shardmath.errors import InputError
from shardmath.models.model import Model

GPT2 = Model.named("gpt2")
S, B = 512, 2
SIZES: dict[str, Any] = {"seq_length": S, "micro_batch_size": B}
#: Bytes that GELU itself keeps for each element of the inner width: in bf16, and under autocast.
GELUS = {"fused": (2, 2), "new": (8, 14), "fast": (14, 14), "python": (6, 6)}


def kept(
    model: Model = GPT2, role: str = "activation", implementation: str = "huggingface", **more: Any,
) -> dict[str, int]:
    """Bytes of the only rank, by component."""
    lines = explain(model, "h100-80gb", **SIZES, implementation=implementation, **more).ranks[0].lines
    return {line.component: int(line.bytes) for line in lines if line.role == role}


@pytest.mark.slow
@pytest.mark.parametrize("gelu", list(GELUS))
def test_saved_tensors_by_hand(gelu: str) -> None:
    found = kept(GPT2.model_copy(update={"gelu": gelu}))
    token, scalars = 2 * GPT2.hidden_size, 4 * GPT2.num_attention_heads
    norm = token + 2 * 4  # its input, mean and deviation
    attention = token + 3 * token + token + scalars  # its input; q, k, v; their output, and the log-sum-exp
    mlp = token + GELUS[gelu][0] * GPT2.ffn_hidden_size + 2 * GPT2.ffn_hidden_size
    of_a_layer = {"attention_norm": norm, "attention": attention, "ffn_norm": norm, "gelu": mlp}
    assert {name: found[name] for name in of_a_layer} == {
        name: GPT2.num_layers * S * B * size for name, size in of_a_layer.items()
    }


@pytest.mark.slow
@pytest.mark.parametrize("gelu", list(GELUS))
def test_autocast_takes_third_powers_in_fp32(gelu: str) -> None:
    other = GPT2.model_copy(update={"gelu": gelu})
    kernels = {"precision": "autocast"}
    one = GPT2.model_copy(update={"gelu": "fused"})
    more = kept(other, kernels=kernels)["gelu"] - kept(one, kernels=kernels)["gelu"]
    assert more == GPT2.num_layers * S * B * GPT2.ffn_hidden_size * (GELUS[gelu][1] - GELUS["fused"][1])


@pytest.mark.slow
def test_autocast_casts_the_input_of_the_fused_projection_once() -> None:
    kernels = {"precision": "autocast"}
    separate = kept(kernels={**kernels, "projections": "separate"})["attention"]
    assert separate - kept(kernels=kernels)["attention"] == GPT2.num_layers * S * B * 2 * 2 * GPT2.hidden_size


@pytest.mark.slow
def test_positions_are_made_once_for_all_sequences() -> None:
    assert kept(role="input")["position_embedding"] == 8 * S
    assert kept(role="input", implementation="megatron")["position_embedding"] == 8 * S * B


@pytest.mark.slow
def test_eager_attention_has_no_fp32_probabilities() -> None:
    heads = GPT2.num_layers * S * B * GPT2.num_attention_heads
    plain, dropped = (kept(kernels={"attention": "eager"}, attention_dropout=p)["attention"] for p in (False, True))
    flash = kept()["attention"]
    assert plain - flash == heads * (2 * S - 4)  # and no log-sum-exp
    assert dropped - plain == heads * S * (2 + 1)


@pytest.mark.slow
def test_full_recompute_keeps_the_mask_of_eager_attention() -> None:
    found, plain = (kept(kernels={"attention": name}, recompute="full") for name in ("eager", "sdpa"))
    assert found == {**plain, "tables": B * S * S * 2}


@pytest.mark.parametrize("implementation", ["megatron", "torchtitan", "nanotron"])
def test_other_frameworks_have_one_kernel(implementation: str) -> None:
    with pytest.raises(InputError, match=r"^gelu = 'new': must be one of fused with"):
        explain("llama-3.2-1b", "h100-80gb", implementation=implementation, kernels={"gelu": "new"})


@pytest.mark.slow
def test_megatron_core_does_not_read_the_name_of_the_kernel() -> None:
    one = GPT2.model_copy(update={"gelu": "fused"})
    assert kept(implementation="megatron") == kept(one, implementation="megatron")


@pytest.mark.slow
def test_what_a_user_chooses_stays() -> None:
    one = GPT2.model_copy(update={"gelu": "fused"})
    assert kept(kernels={"gelu": "fused"}) == kept(one)


def test_other_mlps_have_no_gelu() -> None:
    fields = Model.named("llama-3.2-1b").model_dump() | {"gelu": "new"}
    with pytest.raises(InputError, match=r"^gelu = 'new': must be fused with mlp = swiglu; nearest legal: fused$"):
        Model(**fields)
