"""What the reader makes of each family's config.json: derived dimensions, other names of keys, and refusals."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
from families import CONFIGS, DATA, read_config

from shardmath.errors import InputError
from shardmath.models.config_json import FAMILIES
from shardmath.models.model import Model

MIXTRAL = CONFIGS["small mixtral"]
QWEN = CONFIGS["small qwen3_moe, every second layer"]
LLAMA4 = CONFIGS["small llama4_text, dense first"]
DEEPSEEK = CONFIGS["small deepseek_v3"]
GPT = CONFIGS["small gpt2, inner width"]
GEMMA4 = {
    "model_type": "gemma4_text", "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 6,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "global_head_dim": 32, "vocab_size": 100,
    "max_position_embeddings": 64, "hidden_size_per_layer_input": 0,
}
NEOX = CONFIGS["small gpt_neox, sequential"]
PARALLEL = CONFIGS["small gpt_neox, parallel"]
REMOVE = object()


def changed(config: dict[str, Any], **changes: object) -> dict[str, Any]:
    """The config with some keys changed or removed."""
    return {key: value for key, value in {**config, **changes}.items() if value is not REMOVE}


def test_the_tables_have_every_family() -> None:
    """One table counts part by part, the other whole models as they are published."""
    public = json.loads((DATA / "public_configs.json").read_text())
    rows = [*CONFIGS.values(), *(row["config"] for row in public.values() if row["answer"] == "read")]
    # No published one of the first is at hand, drawn ones are tested against Transformers; the next is another name,
    # and those of Gemma 4 are models of images.
    others = {"granitemoeshared", "exaone_moe", "hyperclovax", "ministral", "vaultgemma", "bailing_moe_v2",
              "gemma4_text", "gemma4_unified_text"}
    assert {config["model_type"] for config in rows} >= set(FAMILIES) - others


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (MIXTRAL, {"num_experts": 5, "moe_topk": 2, "moe_ffn_hidden_size": 96, "ffn_hidden_size": 96}),
        (changed(MIXTRAL, num_local_experts=REMOVE, num_experts=7), {"num_experts": 7}),
        (changed(MIXTRAL, num_key_value_heads=REMOVE, num_attention_heads=16), {"num_kv_heads": 8}),
        (QWEN, {"moe_layer_step": 2, "first_dense_layers": 0, "qk_norm": True, "head_dim": 16}),
        (changed(QWEN, decoder_sparse_step=REMOVE, mlp_only_layers=None), {"moe_layer_step": 1}),
        (changed(QWEN, num_experts=REMOVE, num_local_experts=6), {"num_experts": 6}),
        (changed(QWEN, mlp_only_layers=[0, 2, 99]), {"moe_layer_step": 2, "first_dense_layers": 0}),
        (changed(QWEN, mlp_only_layers=[1]), {"moe_layer_step": 2, "first_dense_layers": 2}),
        (LLAMA4, {"first_dense_layers": 1, "moe_layer_step": 1, "note": "every fourth layer has no rotary embedding"}),
        (LLAMA4, {"moe_ffn_hidden_size": 40, "shared_expert_ffn_hidden_size": 40, "ffn_hidden_size": 96}),
        (changed(LLAMA4, moe_layers=[3]), {"first_dense_layers": 3, "moe_layer_step": 1}),
        (changed(LLAMA4, moe_layers=[3], interleave_moe_layer_step=4), {"first_dense_layers": 0, "moe_layer_step": 4}),
        (changed(LLAMA4, moe_layers=None, interleave_moe_layer_step=2), {"moe_layer_step": 2}),
        (changed(LLAMA4, head_dim=REMOVE), {"head_dim": 128}),
        (changed(LLAMA4, head_dim=None), {"head_dim": 16}),
        (GEMMA4, {"full_head_dim": 32, "full_num_kv_heads": 2, "full_attention_step": 6, "attention_window": 512,
                  "keys_as_values": False, "logit_softcapping": False}),
        (changed(GEMMA4, attention_k_eq_v=True, num_global_key_value_heads=1), {"full_num_kv_heads": 1}),
        (changed(GEMMA4, num_global_key_value_heads=1), {"full_num_kv_heads": 2}),
        (changed(GEMMA4, num_hidden_layers=3), {"full_attention_step": 3}),
        (changed(GEMMA4, per_layer_config={"05": {"head_dim": 24, "num_key_value_heads": 1}}),
         {"full_head_dim": 24, "full_num_kv_heads": 1}),
        (DEEPSEEK, {"head_dim": 20, "num_kv_heads": 4, "q_lora_rank": 28, "first_dense_layers": 2}),
        (changed(DEEPSEEK, head_dim=8, hidden_size=65), {"head_dim": 20}),
        (changed(DEEPSEEK, q_lora_rank=None), {"q_lora_rank": 0}),
        (changed(DEEPSEEK, q_lora_rank=REMOVE), {"q_lora_rank": 1536}),
        (changed(DEEPSEEK, n_shared_experts=3), {"shared_expert_ffn_hidden_size": 72}),
        (changed(DEEPSEEK, n_shared_experts=None), {"shared_expert_ffn_hidden_size": 0}),
        (changed(DEEPSEEK, num_nextn_predict_layers=2), {"num_mtp_layers": 2}),
        (changed(DEEPSEEK, num_nextn_predict_layers=REMOVE, num_mtp_layers=1), {"num_mtp_layers": 1}),
        (changed(DEEPSEEK, model_type="deepseek_v2", first_k_dense_replace=REMOVE), {"first_dense_layers": 0}),
        (GPT, {"learned_positions": 32, "max_seq_length": 32, "tied_embeddings": True, "linear_bias": True}),
        (GPT, {"normalisation": "layer", "mlp": "gelu", "num_kv_heads": 4, "head_dim": 16, "ffn_hidden_size": 100}),
        (changed(GPT, n_inner=None), {"ffn_hidden_size": 256}),
        (changed(GPT, n_embd=REMOVE, hidden_size=128), {"hidden_size": 128}),
        (NEOX, {"learned_positions": 0, "tied_embeddings": False, "linear_bias": True, "qkv_bias": True}),
        (NEOX, {"parallel_residual": False, "qk_rope_head_dim": 0, "note": ""}),
        (changed(NEOX, rotary_pct=REMOVE, rope_parameters={"partial_rotary_factor": 1}), {"qk_rope_head_dim": 0}),
        (changed(NEOX, rotary_pct=0.25), {"qk_rope_head_dim": 4}),
        (changed(NEOX, use_parallel_residual=REMOVE), {"parallel_residual": True}),
        # A quarter of 12 elements is 3, whose angles fill two pairs.
        (PARALLEL, {"parallel_residual": True, "head_dim": 12, "qk_rope_head_dim": 4, "tied_embeddings": False}),
        (changed(PARALLEL, rope_parameters={"partial_rotary_factor": 0.5}, rotary_pct=1), {"qk_rope_head_dim": 6}),
        (changed(PARALLEL, rotary_pct=0.99), {"qk_rope_head_dim": 0}),
        (changed(PARALLEL, hidden_act="gelu_pytorch_tanh"), {"gelu": "fused", "note": ""}),
        (changed(PARALLEL, hidden_act="gelu_fast"), {"gelu": "fast", "note": ""}),
        (changed(PARALLEL, hidden_act=REMOVE), {"gelu": "fused"}),
        (changed(GPT, activation_function=REMOVE), {"gelu": "new"}),
        (changed(GPT, activation_function="gelu"), {"gelu": "fused"}),
        (changed(GPT, activation_function="gelu_python"), {"gelu": "python"}),
        (changed(GPT, activation_function="gelu_accurate"), {"gelu": "new"}),
    ],
)
def test_dimensions(tmp_path: Path, config: dict[str, Any], expected: dict[str, object]) -> None:
    assert read_config(tmp_path, config).model_dump(include=set(expected)) == expected


@pytest.mark.parametrize(
    ("config", "line"),
    [
        (changed(MIXTRAL, num_experts=4), "num_experts = 4: must be the same as num_local_experts"),
        (changed(MIXTRAL, num_local_experts=0), "num_local_experts = 0: must be at least 1; nearest legal: 1"),
        (changed(MIXTRAL, num_experts_per_tok=6),
         "num_experts_per_tok = 6: must be at most num_experts = 5; nearest legal: 5"),
        (changed(QWEN, mlp_only_layers=[3]),
         "mlp_only_layers = [3]: must be the first layers, from 0 on without a gap"),
        (changed(QWEN, mlp_only_layers=[1, 3]),
         "mlp_only_layers = [1, 3]: must give another first_dense_layers than 4: "
         "it must be below 4, the last layer that may have experts"),
        (changed(QWEN, mlp_only_layers=[-1]), "mlp_only_layers.0 = -1: must be at least 0; nearest legal: 0"),
        (changed(QWEN, decoder_sparse_step=6),
         "decoder_sparse_step = 6: must be at most num_layers = 5; nearest legal: 5"),
        (changed(LLAMA4, moe_layers=[0, 3]),
         "moe_layers = [0, 3]: must be every layer, or every n-th, from one of them on to the last"),
        (changed(LLAMA4, moe_layers=[]),
         "moe_layers = []: must be every layer, or every n-th, from one of them on to the last"),
        (changed(LLAMA4, moe_layers=[0, 1, 2**31 - 1], num_hidden_layers=2**31),
         "moe_layers = [0, 1, 2147483647]: must be every layer, or every n-th, from one of them on to the last"),
        (changed(DEEPSEEK, num_key_value_heads=2),
         "num_key_value_heads = 2: must equal num_attention_heads = 4 with latent attention; nearest legal: 4"),
        (changed(DEEPSEEK, attention_bias=True),
         "attention_bias = True: must be false: a bias of latent attention is not counted yet; nearest legal: false"),
        (changed(DEEPSEEK, moe_layer_freq=2),
         "moe_layer_freq = 2: must be 1: dense layers after the first with experts are not counted yet; "
         "nearest legal: 1"),
        (changed(DEEPSEEK, first_k_dense_replace=4),
         "first_k_dense_replace = 4: must be below 4, the last layer that may have experts; nearest legal: 3"),
        (changed(DEEPSEEK, num_nextn_predict_layers=REMOVE), "num_nextn_predict_layers = absent: must be given"),
        (changed(DEEPSEEK, qk_nope_head_dim=2**31),
         "qk_nope_head_dim = 2147483648: must give another head_dim than 2147483656: it must be at most 2147483648"),
        (changed(GPT, n_head=5),
         "n_embd = 64: must be a multiple of n_head = 5; nearest legal: 60 or 65"),
        (changed(GPT, add_cross_attention=True),
         "add_cross_attention = True: must be false: encoders and cross-attention are not counted yet; "
         "nearest legal: false"),
        (changed(GPT, reorder_and_upcast_attn=True),
         "reorder_and_upcast_attn = True: must be false: attention in fp32 is not counted yet; nearest legal: false"),
        (changed(GPT, num_local_experts=8),
         "num_local_experts = 8: must not be there: no model of this model_type has experts"),
        (changed(NEOX, use_parallel_residual=1), "use_parallel_residual = 1: must be true or false"),
        (changed(NEOX, rotary_pct=1.5),
         "rotary_pct = 1.5: must be a number that leaves at least one of 16 elements of a head, and at most 1; "
         "nearest legal: 0.25 or 1"),
        (changed(NEOX, rope_parameters={"partial_rotary_factor": "all"}),
         "rotary_pct = 'all': must be a number that leaves at least one of 16 elements of a head, and at most 1; "
         "nearest legal: 0.25 or 1"),
        (changed(GEMMA4, hidden_size_per_layer_input=REMOVE),
         "hidden_size_per_layer_input = 256: must be one of 0, None: embeddings of each layer are not counted yet; "
         "nearest legal: 0"),
        (changed(GEMMA4, num_kv_shared_layers=2),
         "num_kv_shared_layers = 2: must be 0: keys and values shared between layers are not counted yet; "
         "nearest legal: 0"),
        (changed(GEMMA4, enable_moe_block=True, num_experts=4),
         "enable_moe_block = True: must be false: experts beside the MLP are not counted yet; nearest legal: false"),
        (changed(GEMMA4, layer_types=3 * ["full_attention"], num_hidden_layers=3),
         "layer_types = ['full_attention', 'full_attention', 'full_attention']: must name 3 layers, full_attention"
         " every n-th and last and sliding_attention the others: another order of heads of two widths is not counted"
         " yet"),
        (changed(GEMMA4, per_layer_config={"04": {"head_dim": 32}}),
         "per_layer_config = {'04': {'head_dim': 32}}: must give all layers without windows the same head_dim and"
         " num_key_value_heads, and others nothing"),
        (changed(GEMMA4, num_hidden_layers=8),
         "layer_types = absent: must name 8 layers, full_attention every n-th and last and sliding_attention the"
         " others: another order of heads of two widths is not counted yet"),
        (changed(GEMMA4, attention_k_eq_v=True, num_global_key_value_heads=3),
         "num_global_key_value_heads = 3: must divide num_attention_heads = 4; nearest legal: 2 or 4"),
        (changed(NEOX, attention_bias=False),
         "attention_bias = False: must be true: a bias of the MLP alone is not counted yet; "
         "nearest legal: true"),
    ],
)
def test_refusals(tmp_path: Path, config: dict[str, Any], line: str) -> None:
    with pytest.raises(InputError) as caught:
        read_config(tmp_path, config)
    assert str(caught.value) == line


def test_other_activations_are_refused_with_those_that_are_held(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"^activation_function = 'relu': must be one of 'gelu', 'gelu_new', "):
        read_config(tmp_path, changed(GPT, activation_function="relu"))


SIZES = sorted(
    (name, key) for name, config in CONFIGS.items() for key, value in config.items()
    if name.startswith("small") and type(value) is int
)
ONLY_ONE = {"moe_layer_freq"}


@pytest.mark.slow
@pytest.mark.parametrize(("name", "key"), SIZES)
def test_a_bad_size_is_refused_under_its_key(tmp_path: Path, name: str, key: str) -> None:
    for value in (-1, 2**31 + 1, 1e30, 10**400, 8.0, "8", True, [], {}, math.nan, math.inf):
        with pytest.raises(InputError) as caught:
            read_config(tmp_path, changed(CONFIGS[name], **{key: value}))
        assert caught.value.field == key
        assert str(caught.value).isprintable()


def multimodal(text_config: object) -> dict[str, Any]:
    return {"model_type": "llama4", "vision_config": {"hidden_size": 1408}, "text_config": text_config}


def test_the_language_model_inside_a_model_of_images(tmp_path: Path) -> None:
    inside, alone = read_config(tmp_path, multimodal(LLAMA4)), read_config(tmp_path, LLAMA4)
    assert inside == alone
    assert read_config(tmp_path, multimodal(changed(LLAMA4, model_type=REMOVE))) == alone


@pytest.mark.parametrize(
    ("text_config", "line"),
    [
        (REMOVE, "text_config = absent: must be the object that describes the language model"),
        ([], "text_config = []: must be the object that describes the language model"),
        (changed(LLAMA4, model_type="bert"),
         "text_config.model_type = 'bert': must be a family that is read, such as llama4_text;"
         " nearest legal: llama4_text"),
        (changed(LLAMA4, model_type=["x"]),
         "text_config.model_type = ['x']: must be a family that is read, such as llama4_text;"
         " nearest legal: llama4_text"),
        (changed(LLAMA4, vocab_size="7"), "text_config.vocab_size = '7': must be an integer; nearest legal: 7"),
        (changed(LLAMA4, num_experts_per_tok=5),
         "text_config.num_experts_per_tok = 5: must be at most num_experts = 4; nearest legal: 4"),
    ],
)
def test_faults_inside_a_text_config(tmp_path: Path, text_config: object, line: str) -> None:
    config = changed(multimodal(text_config), text_config=text_config)
    with pytest.raises(InputError) as caught:
        read_config(tmp_path, config)
    assert str(caught.value) == line


def test_deep_nesting_in_a_family(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_text(json.dumps(QWEN)[:-1] + ', "mlp_only_layers": ' + "[" * 500 + "]" * 500 + "}")
    with pytest.raises(InputError, match=r"^mlp_only_layers.0 = \[+\.\.\.: must be an integer$"):
        Model.from_config(file)
