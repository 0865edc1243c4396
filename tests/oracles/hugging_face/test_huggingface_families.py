"""Families of Hugging Face models, from a drawn config.json to its parameters and the bytes alive after a forward pass.

Nothing in between is told to the ledger: it gets the file.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from random import Random
from typing import Any

import pytest
from families import read_config
from oracles.hugging_face.huggingface import size, token_ids
from oracles.hugging_face.public_families import FAMILIES, LONGEST, built, random_config
from oracles.hugging_face.test_flops_huggingface import counted
from oracles.instruments.ledger import ledger
from oracles.instruments.live import Live
from oracles.instruments.on_gpu import OnGpu
from oracles.instruments.times import work
from torch import nn
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from shardmath.configuration.choosing import choices_of
from shardmath.input.parameters import model_values
from shardmath.models.config_json import FAMILIES as READERS
from shardmath.models.dense_families import counted_instead
from shardmath.models.latent_families import LATENT
from shardmath.symbolic.implementations import HUGGINGFACE
from shardmath.symbolic.parameters import BY_NAME

#: Families that Transformers has no other kernel of attention for.
EAGER_ALONE = ("bloom", "gemma2", "vaultgemma")
#: Keys of Transformers for the number that norms add to the variance.
EPSILONS = ("rms_norm_eps", "layer_norm_eps", "norm_eps", "norm_epsilon", "layer_norm_epsilon")


def wider_scales(model: Any, config: dict[str, Any], checkpointing: bool) -> int:
    """Bytes that are kept more here: Nemotron's one plus its scales, in fp32 for the sake of the statistics."""
    if config["model_type"] != "nemotron":
        return 0
    norms = [module for module in model.modules() if isinstance(module, nn.LayerNorm)]
    return 2 * (1 if checkpointing else len(norms)) * config["hidden_size"]


@pytest.mark.cases(2, 40)
@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("family", FAMILIES)
def test_from_the_file_to_the_bytes(draw: Random, family: str, attention: str, tmp_path: Path) -> None:
    config = random_config(draw, family)
    if family in EAGER_ALONE and attention == "sdpa":
        pytest.skip("Transformers has no such kernel for scores that are bounded, or fall with distance")
    if "v_head_dim" in config and attention == "sdpa":  # a CPU has no such kernel for narrower values
        config["v_head_dim"] = config["qk_nope_head_dim"] + config["qk_rope_head_dim"]
    tokens = {"s": size(draw, LONGEST), "b": size(draw, 3)}
    window = read_config(tmp_path, config).attention_window
    checkpointing = draw.random() < 0.4 and not (window and attention == "eager")
    assert_bytes(config, attention, tokens, checkpointing, tmp_path)


@pytest.mark.parametrize("batch", [1, 3])
def test_one_key_and_value_head_of_falcon(batch: int, tmp_path: Path) -> None:
    """Keys and values of all heads are copies of one sequence's, and views of several ones'."""
    config = random_config(Random("one head"), "falcon") | {
        "num_attention_heads": 4, "hidden_size": 64, "num_kv_heads": 1, "new_decoder_architecture": False,
        "multi_query": True, "num_ln_in_parallel_attn": None}
    assert_bytes(config, "sdpa", {"s": 11, "b": batch}, False, tmp_path)


@pytest.mark.parametrize("batch", [1, 3])
def test_as_many_keys_as_queries_of_phi3(batch: int, tmp_path: Path) -> None:
    """Nothing is repeated, so that values of one sequence are a part of the fused projection."""
    config = random_config(Random("as many keys"), "phi3") | {
        "num_attention_heads": 4, "num_key_value_heads": 4, "hidden_size": 64}
    assert_bytes(config, "eager", {"s": 11, "b": batch}, False, tmp_path)


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_wide_heads_and_dropout_of_two_widths(attention: str, tmp_path: Path) -> None:
    """PyTorch's kernels share no keys of more than 256 elements: they are repeated, as eager attention does anyway."""
    config = random_config(Random("wide heads"), "gemma4_unified_text") | {
        "num_attention_heads": 4, "num_key_value_heads": 2, "num_global_key_value_heads": 2, "global_head_dim": 264,
        "attention_k_eq_v": True}
    assert_bytes(config, attention, {"s": 11, "b": 2}, False, tmp_path, dropout=0.1)


def assert_bytes(
    config: dict[str, Any], attention: str, tokens: dict[str, int], checkpointing: bool, folder: Path,
    dropout: float = 0.0,
) -> None:
    """Compare parameters, and bytes alive after a forward pass of so many tokens and sequences."""
    model, read = built(config, attention, dropout), read_config(folder, config)
    shape = {BY_NAME[name].letter: value for name, value in model_values(read).items()} | tokens
    if checkpointing:
        model.gradient_checkpointing_enable({"use_reentrant": False})
    chosen = choices_of("huggingface", read)
    if not (attention == "sdpa" and "sdpa" in chosen.get("attention", "")):  # Falcon has kernels of its own
        chosen["attention"] = attention
    if dropout:
        chosen["dropout"] = "masks"
    implementation = HUGGINGFACE.with_choices(**chosen)
    parameters, *kept = ledger(
        implementation, "stage.parameters", "stage.activation", "stage.buffer", "stage.after_forward", "stage.input",
        **shape, rfull=int(checkpointing), adrop=int(dropout > 0),
    )
    assert sum(each.numel() for each in model.parameters()) == parameters
    ids, labels = token_ids(shape), token_ids(shape)
    with OnGpu(), Live(model, ids, labels) as live, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        output = model(input_ids=ids, labels=labels)
    assert output.logits is not None
    assert live.now == sum(kept) - ids.nbytes + wider_scales(model, config, checkpointing)


@pytest.mark.cases(1, 20)
@pytest.mark.parametrize("family", FAMILIES)
def test_products(draw: Random, family: str, tmp_path: Path) -> None:
    """FLOPs of both passes with eager attention, which computes all pairs of tokens."""
    config = random_config(draw, family)
    read = read_config(tmp_path, config)
    shape = {BY_NAME[name].letter: value for name, value in model_values(read).items()}
    shape |= {"s": size(draw, LONGEST), "b": size(draw, 3)}
    implementation = HUGGINGFACE.with_choices(**{**choices_of("huggingface", read), "attention": "eager"})
    forward, = work(implementation, "stage.forward_flops", **shape)
    assert counted(built(config, "eager"), shape) == (forward, 2 * forward)


@pytest.mark.parametrize("family", sorted(FAMILIES.keys() - LATENT.keys()))
def test_what_a_file_leaves_out_is_what_the_class_has(family: str, tmp_path: Path) -> None:
    """Sizes that a config.json need not state: the defaults of the reader are those of Transformers."""
    keys = {"hidden_size": 5120, "num_attention_heads": 160, "vocab_size": 100, "max_position_embeddings": 64,
            "intermediate_size": 100, "num_hidden_layers": 12, **counted_instead(READERS[family])}
    made, model = CONFIG_MAPPING[family](**keys), read_config(tmp_path, {"model_type": family, **keys})
    made.allow_global_per_layer_attribute_access = True
    one_key = getattr(made, "multi_query", False)
    heads = 1 if one_key else getattr(made, "num_key_value_heads", None) or made.num_attention_heads
    assert (model.num_kv_heads, model.head_dim, model.tied_embeddings) == (
        heads, getattr(made, "head_dim", None) or made.hidden_size // made.num_attention_heads,
        made.tie_word_embeddings)
    epsilons = [getattr(made, key) for key in EPSILONS if hasattr(made, key)]
    assert [model.norm_epsilon] == (epsilons or [1e-5])
    rope = getattr(made, "rope_parameters", None) or {"rope_theta": 0}
    assert model.rope_base == rope.get("full_attention", rope)["rope_theta"]


@pytest.mark.parametrize(("family", "heads"), [("minicpm3", 40), ("youtu", 16)])
def test_sizes_that_a_file_with_latent_attention_leaves_out(family: str, heads: int, tmp_path: Path) -> None:
    keys = {"hidden_size": 64 * heads, "num_attention_heads": heads, "vocab_size": 100, "max_position_embeddings": 64,
            "intermediate_size": 100, "num_hidden_layers": 12}
    made, model = CONFIG_MAPPING[family](**keys), read_config(tmp_path, {"model_type": family, **keys})
    assert (model.q_lora_rank, model.kv_lora_rank, model.qk_rope_head_dim, model.v_head_dim, model.head_dim) == (
        made.q_lora_rank, made.kv_lora_rank, made.qk_rope_head_dim, made.v_head_dim, made.qk_head_dim)
    assert (model.num_kv_heads, model.tied_embeddings, model.norm_epsilon, model.rope_base) == (
        made.num_key_value_heads, made.tie_word_embeddings, made.rms_norm_eps, made.rope_parameters["rope_theta"])
