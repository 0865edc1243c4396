"""Models of the catalogue: their names, what they are made of, and fields that contradict each other."""

from typing import Any

import pytest
from pydantic.fields import FieldInfo

from shardmath.catalogue import read
from shardmath.errors import InputError
from shardmath.generated.definitions import PARAMETERS
from shardmath.machines.gpu import Nanoseconds
from shardmath.models.dense_families import Epsilon
from shardmath.models.model import Count, Model, Size, load_model, stands_for
from shardmath.models.rotary import Factor, RopeScaling
from shardmath.symbolic.choices import ARCHITECTURE, BY_NAME

SAID_OF_A_MODEL = {"name", "source", "note", "max_seq_length"}
CHOOSE_ROWS = {
    "normalisation", "norms", "qk_norms", "mlp", "gelu", "parallel_residual", "one_norm", "expert_scores", "model_type",
    "own_router", "attention_sinks", "alibi", "embedding_norm", "dense_mtp_layers",
}
#: No size follows from these: launch scripts need them.
WITHOUT_SIZE = {"norm_epsilon", "rope_base", "rope_scaling", "routed_scaling_factor"}


@pytest.mark.parametrize("name", read("models"))
def test_every_catalogued_model_says_where_it_is_from(name: str) -> None:
    model = Model.named(name)
    assert model.name == name
    assert model.source


@pytest.mark.parametrize("kind", [Size, Count, Epsilon, Factor, Nanoseconds])
def test_kinds_of_numbers_share_no_field(kind: Any) -> None:
    """Pydantic before 2.12 keeps the default of one key in such a field, and gives it to keys that must be given."""
    assert kind.__metadata__
    assert not [item for item in kind.__metadata__ if isinstance(item, FieldInfo)]


def test_every_field_reaches_the_ledger() -> None:
    parameters = {name for name, (_, _, _, _, kind, _) in PARAMETERS.items() if kind == "model"}
    assert set(Model.model_fields) - SAID_OF_A_MODEL - CHOOSE_ROWS - WITHOUT_SIZE == parameters


@pytest.mark.parametrize("name", read("models"))
def test_the_architecture_is_one_option_of_every_axis(name: str) -> None:
    architecture = Model.named(name).architecture
    assert tuple(architecture) == ARCHITECTURE
    assert all(option in BY_NAME[axis].options for axis, option in architecture.items())


@pytest.mark.parametrize(
    ("name", "different_from_llama"),
    [
        ("llama-3.1-8b", {}),
        ("mixtral-8x7b", {"layers": "experts"}),
        ("llama-4-maverick", {"layers": "experts", "scores": "sigmoid"}),
        ("qwen3-30b-a3b", {"layers": "experts"}),
        ("deepseek-v2", {"heads": "latent", "layers": "experts", "scores": "softmax_all"}),
        ("deepseek-v3", {"heads": "latent", "layers": "experts", "scores": "sigmoid"}),
        ("k-exaone-236b-a23b", {
            "layers": "experts", "scores": "sigmoid", "predictions": "dense", "window": "sliding"}),
        ("gpt2", {"normalisation": "layer", "mlp": "gelu", "positions": "learned"}),
        ("opt-6.7b", {"normalisation": "layer", "mlp": "relu", "positions": "learned"}),
        ("bloom-176b", {"normalisation": "layer", "mlp": "gelu", "positions": "alibi", "embedding_norm": "norm"}),
        ("pythia-6.9b", {"normalisation": "layer", "mlp": "gelu", "positions": "partial", "residual": "parallel"}),
    ],
)
def test_architectures(name: str, different_from_llama: dict[str, str]) -> None:
    llama = {
        "normalisation": "rms", "mlp": "swiglu", "heads": "grouped", "layers": "dense", "positions": "rotary",
        "residual": "sequential", "scores": "softmax", "norms": "pre", "qk_norms": "head", "window": "none",
        "capping": "none", "sinks": "none", "embedding_norm": "none", "predictions": "experts",
    }
    assert Model.named(name).architecture == llama | different_from_llama


@pytest.mark.parametrize(
    ("given_name", "name"),
    [
        ("Llama-3.1-8B", "llama-3.1-8b"),
        ("meta-llama/Llama-3.1-70B", "llama-3.1-70b"),
        ("meta-llama/Meta-Llama-3-8B", "llama-3-8b"),
        ("meta-llama/Llama-2-7b-hf", "llama-2-7b"),
        ("Qwen/Qwen2.5-0.5B", "qwen2.5-0.5b"),
        (" mistralai/Mistral-7B-v0.1 ", "mistral-7b-v0.1"),
        ("mistralai/Mixtral-8x22B-v0.1", "mixtral-8x22b-v0.1"),
        ("Mixtral-8x7B", "mixtral-8x7b-v0.1"),
        ("llama-4-scout", "llama-4-scout-17b-16e"),
        ("deepseek-ai/DeepSeek-V2", "deepseek-v2"),
        ("openai-community/gpt2", "gpt2"),
        ("gpt-2", "gpt2"),
        ("Llama3.1-8B", "llama-3.1-8b"),
        ("qwen-3-8b", "qwen3-8b"),
        ("meta-llama/Llama-3.1-8B-Instruct", "llama-3.1-8b"),
        ("meta-llama/Llama-3.3-70B-Instruct", "llama-3.1-70b"),
        ("mistralai/Mixtral-8x7B-Instruct-v0.1", "mixtral-8x7b-v0.1"),
        ("deepseek-ai/DeepSeek-R1", "deepseek-v3"),
        ("https://huggingface.co/Qwen/Qwen3-30B-A3B-Instruct-2507", "qwen3-30b-a3b"),
    ],
)
def test_names_that_are_forgiven(given_name: str, name: str) -> None:
    assert Model.named(given_name) == Model.named(name) == load_model(given_name)


def test_a_model_stands_for_those_that_were_trained_from_it() -> None:
    model = Model.named("llama-3.1-70b")
    assert all(stands_for(model, name) for name in ("meta-llama/Llama-3.3-70B-Instruct", "Llama-3.1-70B-Instruct"))
    for own in ("llama-3.1-70b", "meta-llama/Meta-Llama-3.1-70B", "llama3.1-70b"):
        assert not stands_for(model, own)
    assert not stands_for(model.model_copy(update={"num_layers": 4}), "llama-3.3-70b-instruct")


@pytest.mark.parametrize(
    "name",
    ["llama-3.1-80b", "", "meta-llama/", "llama3", "mistral-7b", "mixtral-8x", "a\nb", "x" * 9999, "nul\0", "\udc80"],
)
def test_unknown_names(name: str) -> None:
    for look_up in (Model.named, load_model):
        with pytest.raises(InputError, match=r"^model = .*nearest legal: ") as caught:
            look_up(name)
        assert str(caught.value).isprintable()


def test_similar_names_are_suggested() -> None:
    with pytest.raises(InputError) as caught:
        Model.named("llama-3.1-80b")
    assert "llama-3.1-8b or llama-3.1-70b" in str(caught.value)


def test_a_model_made_by_hand_is_held_to_the_same_rules() -> None:
    fields = Model.named("llama-3.1-8b").model_dump()
    with pytest.raises(
        InputError, match=r"^num_kv_heads = 5: must divide num_attention_heads = 32; nearest legal: 4 or 8$"
    ):
        Model(**{**fields, "num_kv_heads": 5})
    with pytest.raises(InputError, match=r"^experts = 8: must not be given: there is no such field$"):
        Model(**fields, experts=8)
    with pytest.raises(InputError, match=r"^hidden_size = True: must be an integer$"):
        Model(**{**fields, "hidden_size": True})
    with pytest.raises(InputError, match=r"^mlp = 'silu': must be 'swiglu'(, '\w+')* or '\w+'$"):
        Model(**{**fields, "mlp": "silu"})
    assert hash(Model(**fields)) == hash(Model.named("llama-3.1-8b"))


EXPERTS = {"num_experts": 8, "moe_topk": 2, "moe_ffn_hidden_size": 512}
LATENT = {"kv_lora_rank": 512, "qk_rope_head_dim": 64, "v_head_dim": 128, "num_kv_heads": 32}


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({**EXPERTS, "moe_topk": 9}, "moe_topk = 9: must be at most num_experts = 8; nearest legal: 8"),
        ({**EXPERTS, "moe_topk": 0}, "moe_topk = 0: must be at least 1 with num_experts = 8; nearest legal: 1"),
        (
            {**EXPERTS, "moe_ffn_hidden_size": 0},
            "moe_ffn_hidden_size = 0: must be at least 1 with num_experts = 8; nearest legal: 1",
        ),
        ({**EXPERTS, "expert_groups": 3}, "expert_groups = 3: must divide num_experts = 8; nearest legal: 2 or 4"),
        (
            {**EXPERTS, "expert_groups": 4},
            "expert_group_topk = 0: must be at least 1 with expert_groups = 4; nearest legal: 1",
        ),
        (
            {**EXPERTS, "expert_groups": 4, "expert_group_topk": 5},
            "expert_group_topk = 5: must be at most expert_groups = 4; nearest legal: 4",
        ),
        (
            {**EXPERTS, "moe_topk": 4, "expert_groups": 4, "expert_group_topk": 1},
            "expert_group_topk = 1: must be at least 2, whose experts suffice for moe_topk = 4; nearest legal: 2",
        ),
        (
            {**EXPERTS, "expert_group_topk": 1},
            "expert_group_topk = 1: must be 0 where expert_groups is 0; nearest legal: 0",
        ),
        ({"moe_topk": 2}, "moe_topk = 2: must be 0 where num_experts is 0; nearest legal: 0"),
        ({"first_dense_layers": 1}, "first_dense_layers = 1: must be 0 where num_experts is 0; nearest legal: 0"),
        ({"moe_layer_step": 2}, "moe_layer_step = 2: must be 1 where num_experts is 0; nearest legal: 1"),
        (
            {**EXPERTS, "shared_expert_gate": True},
            "shared_expert_gate = True: must be false without shared experts; nearest legal: false",
        ),
        ({**EXPERTS, "moe_layer_step": 33}, "moe_layer_step = 33: must be at most num_layers = 32; nearest legal: 32"),
        (
            {**EXPERTS, "first_dense_layers": 32},
            "first_dense_layers = 32: must be below 32, the last layer that may have experts; nearest legal: 31",
        ),
        (
            {**EXPERTS, "first_dense_layers": 30, "moe_layer_step": 3},
            "first_dense_layers = 30: must be below 30, the last layer that may have experts; nearest legal: 29",
        ),
        (
            {**EXPERTS, "num_mtp_layers": 1, "moe_layer_step": 3},
            "dense_mtp_layers = False: must be true where the last layer is dense, as which Megatron-Core makes those"
            " of further predictions; nearest legal: true",
        ),
        ({"num_mtp_layers": 1}, "num_mtp_layers = 1: must be 0: not counted yet without experts; nearest legal: 0"),
        ({"v_head_dim": 128}, "v_head_dim = 128: must be 0 where kv_lora_rank is 0; nearest legal: 0"),
        (
            {**LATENT, "v_head_dim": 0},
            "v_head_dim = 0: must be at least 1 with latent attention; nearest legal: 1",
        ),
        (
            {**LATENT, "num_kv_heads": 8},
            "num_kv_heads = 8: must equal num_attention_heads = 32 with latent attention; nearest legal: 32",
        ),
        (
            {**LATENT, "qk_rope_head_dim": 128},
            "qk_rope_head_dim = 128: must be below head_dim = 128, of which it is a part; nearest legal: 127",
        ),
        ({**LATENT, "qk_norm": True}, "qk_norm = True: must be false with latent attention; nearest legal: false"),
        (
            {"linear_bias": True},
            "qkv_bias = False: must be true with linear_bias, which is the bias of every projection; "
            "nearest legal: true",
        ),
        (
            {"learned_positions": 1024},
            "max_seq_length = 131072: must be at most learned_positions = 1024; nearest legal: 1024",
        ),
        (
            {"learned_positions": 131072, "qk_rope_head_dim": 32},
            "qk_rope_head_dim = 32: must be 0 with learned positions; nearest legal: 0",
        ),
        (
            {"qk_rope_head_dim": 128},
            "qk_rope_head_dim = 128: must be below head_dim = 128, of which it is a part; nearest legal: 127",
        ),
        ({"one_norm": True}, "one_norm = True: must be false without parallel_residual; nearest legal: false"),
        ({"qk_norms": "width"}, "qk_norms = 'width': must be head without qk_norm; nearest legal: head"),
        ({"full_attention_step": 4},
         "full_attention_step = 4: must be 0 without attention_window; nearest legal: 0"),
        ({"moe_topk": -1}, "moe_topk = -1: must be at least 0; nearest legal: 0"),
        ({"num_experts": 8.0}, "num_experts = 8.0: must be an integer; nearest legal: 8"),
    ],
)
def test_fields_that_contradict_each_other(changes: dict[str, Any], line: str) -> None:
    with pytest.raises(InputError) as caught:
        Model(**{**Model.named("llama-3.1-8b").model_dump(), **changes})
    assert str(caught.value) == line


def test_rules_name_a_value_that_would_do() -> None:
    fields = {**Model.named("llama-3.1-8b").model_dump(), **EXPERTS, "moe_layer_step": 3}
    assert Model(**{**fields, "first_dense_layers": 29}).first_dense_layers == 29


def test_the_short_text_has_what_differs_from_the_defaults_and_makes_the_same_model() -> None:
    model = Model.named("llama-3.1-8b")
    text = repr(model)
    assert "attention_sinks" not in text
    assert eval(text, {"Model": Model, "RopeScaling": RopeScaling}) == model
    shown = model._repr_html_()
    assert "<tr><th>hidden_size</th><td>4096</td></tr>" in shown
    assert "attention_sinks" not in shown
    assert "<b>" not in model.model_copy(update={"note": "<b>"})._repr_html_()
