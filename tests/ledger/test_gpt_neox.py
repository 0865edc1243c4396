"""GPT-NeoX with parallel residuals: bytes added up by hand, what recompute leaves, and frameworks that lack it."""

from __future__ import annotations

from typing import Any

import pytest

from shardmath import explain
from shardmath.errors import InputError
from shardmath.models.model import Model

NEOX, PYTHIA = Model.named("gpt-neox-20b"), Model.named("pythia-6.9b")
SIZES: dict[str, Any] = {"seq_length": 512, "micro_batch_size": 2, "implementation": "huggingface",
                         "kernels": {"peak": "saved"}}


def of_a_layer(model: Model, s: int, b: int) -> int:
    """What autograd keeps of one layer: tensor by tensor, in bf16 but for statistics in fp32."""
    token = 2 * model.hidden_size
    statistics = 2 * 2 * 4  # two norms, mean and deviation
    normed = 2 * token
    heads = 2 * token + 3 * token + 2 * token  # q and k turned; q, k, v in one tensor; output, and its copy
    logsumexp = 4 * model.num_attention_heads
    gelu = {"gpt-neox-20b": 7, "pythia-6.9b": 1}[model.name]  # gelu_fast in steps, or one kernel
    mlp = 2 * (gelu + 1) * model.ffn_hidden_size
    return s * b * (token + statistics + normed + heads + logsumexp + mlp)


def kept(model: Model, **more: Any) -> dict[str, int]:
    """Bytes of saved tensors of the only rank, by component."""
    lines = explain(model, "h100-80gb", **{**SIZES, **more}).ranks[0].lines
    return {line.component: int(line.bytes) for line in lines if line.role == "activation"}


@pytest.mark.slow
@pytest.mark.parametrize("model", [NEOX, PYTHIA], ids=lambda model: model.name)
def test_saved_tensors_by_hand(model: Model) -> None:
    found = kept(model)
    outside = ("final_norm", "head", "loss", "tables")
    layers = sum(value for name, value in found.items() if name not in outside)
    assert layers == model.num_layers * of_a_layer(model, 512, 2)
    assert found["tables"] == 2 * 512 * 2 * model.qk_rope_head_dim


@pytest.mark.slow
def test_one_after_the_other_each_norm_keeps_an_input_of_its_own() -> None:
    sequential = PYTHIA.model_copy(update={"parallel_residual": False})
    more, less = kept(sequential), kept(PYTHIA)
    assert more.pop("ffn_norm") - less.pop("ffn_norm") == PYTHIA.num_layers * 512 * 2 * PYTHIA.hidden_size * 2
    assert more == less


@pytest.mark.slow
def test_full_recompute_keeps_the_input_of_every_layer() -> None:
    found = kept(PYTHIA, recompute="full")
    assert found["layer_input"] == PYTHIA.num_layers * 512 * 2 * PYTHIA.hidden_size * 2
    assert not {"attention_norm", "attention", "ffn_norm", "gelu"} & {name for name, size in found.items() if size}


@pytest.mark.slow
def test_whole_heads_have_wider_tables_and_nothing_else() -> None:
    whole = kept(PYTHIA.model_copy(update={"qk_rope_head_dim": 0}))
    part = kept(PYTHIA)
    assert whole.pop("tables") == 4 * part.pop("tables")
    assert whole == part


def test_megatron_core_refuses_the_published_models() -> None:
    for model in (NEOX, PYTHIA):
        with pytest.raises(InputError, match=r"^implementation = 'megatron': .* residual = parallel: "):
            explain(model, "h100-80gb", implementation="megatron")


@pytest.mark.parametrize("implementation", ["megatron", "torchtitan", "nanotron"])
def test_frameworks_without_it_refuse_it(implementation: str) -> None:
    # Other dimensions as these frameworks have them: the residual alone is refused.
    model = Model.named("llama-3.2-1b").model_copy(update={"parallel_residual": True})
    with pytest.raises(InputError) as refused:
        explain(model, "h100-80gb", implementation=implementation)
    assert str(refused.value) == (
        f"implementation = '{implementation}': must be one that has llama-3.2-1b, with residual = parallel: an MLP"
        " reads what attention has been added to there; nearest legal: huggingface"
    )


@pytest.mark.slow
def test_other_models_are_not_counted_with_it() -> None:
    llama = Model.named("llama-3.2-1b")
    for changes in ({"parallel_residual": True}, {"qk_rope_head_dim": 32}):
        with pytest.raises(InputError, match=r"not counted yet: (two norms|rotary embedding of a part)"):
            explain(llama.model_copy(update=changes), "h100-80gb", implementation="huggingface")
