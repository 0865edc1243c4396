"""Low-rank adapters on full and on 4-bit weights (LoRA, QLoRA): weights, gradients, states and saved tensors."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from counted import table, values
from families import read_config
from oracles.instruments.times import work
from oracles.instruments.traced import evaluated

from shardmath import explain
from shardmath.configuration.choosing import choices_of, evaluator_for
from shardmath.errors import InputError
from shardmath.input.parameters import model_values
from shardmath.symbolic.accounts import build
from shardmath.symbolic.implementations import HUGGINGFACE, MEGATRON
from shardmath.symbolic.parallel.uncounted import refuse_impossible
from shardmath.symbolic.parameters import BY_NAME, symbol

FAMILY = {"llama": {}, "qwen2": {"bias": 1}, "qwen3": {"qkn": 1}}
NAMES = ("stage.weight", "stage.gradient", "stage.optimizer", "stage.activation", "stage.buffer",
         "stage.frozen_parameters")
#: Terms of what a forward pass keeps, and of trained elements.
KEPT, TRAINED = ("stage.activation", "stage.buffer"), ("stage.parameters", "stage.expert_parameters")


@pytest.mark.parametrize(("name", "row"), [
    (name, row) for name in ("lora", "lora_in_fp32") for row in table(name)
], ids=lambda item: item if isinstance(item, str) else " ".join(item.values()))
def test_adapters(name: str, row: dict[str, str]) -> None:
    known = values(row, "h a k d f u L tied s b rl", **FAMILY[row["family"]])
    precision = "bf16" if name == "lora" else "fp32"
    terms = evaluated(HUGGINGFACE.with_choices(
        adapters=row["adapters"], base_weights=row.get("base_weights", "full"), precision=precision), NAMES, known)
    assert terms["stage.weight"] == int(row["weights"]) + int(row["adapter_weights"])
    assert terms["stage.gradient"] == int(row["gradients"]) == int(row["adapter_weights"])
    assert terms["stage.optimizer"] == int(row["states"])
    # The loss keeps the labels too: shifted ones, or for b = 1 the padded ones that they are a view of.
    labels = 8 * known["b"] * (known["s"] + (known["b"] == 1))
    assert terms["stage.activation"] + terms["stage.buffer"] + labels == int(row["saved"])


def test_frozen_weights_have_no_gradients() -> None:
    whole = build(HUGGINGFACE)
    adapted = build(HUGGINGFACE.with_choices(adapters="attention"))
    assert symbol("rl") not in whole["stage.gradient"].expression.free_symbols
    names = {str(part) for part in adapted["stage.gradient"].expression.free_symbols}
    assert "stage.buffer_elements" in names
    assert "stage.frozen_parameters" not in names
    assert "stage.frozen_buffer_elements" not in names


@pytest.mark.parametrize(("changed", "text"), [
    ({"base_weights": "nf4"}, "4-bit weights without adapters"),
    ({"adapters": "attention", "precision": "autocast"}, "adapters with precision autocast"),
    ({"adapters": "attention", "layers": "experts", "adapter_kind": "dora"},
     "adapters for models with experts in Transformers with this precision"),
    ({"adapters": "attention", "layers": "experts", "scores": "sigmoid", "adapter_precision": "fp32"},
     "adapter_precision = fp32 with sigmoid scores of fp32 logits"),
    ({"adapters": "all_linear", "layers": "experts", "router": "huggingface_mixer"}, "a linear layer that PEFT cannot"),
    ({"adapters": "all_linear", "layers": "experts", "router": "huggingface_chosen", "expert_adapters": "weights"},
     "adapters of experts and router = huggingface_chosen"),
    ({"adapters": "attention", "layers": "experts", "balance": "loss"}, "adapters with a load-balancing loss"),
    ({"adapters": "attention", "layers": "experts", "base_weights": "nf4"}, "adapters beside quantised layers of exp"),
    ({"adapters": "attention", "heads": "latent"}, "adapters for latent attention"),
    ({"precision": "fp32", "layers": "experts"}, "precision = fp32 with layers = experts"),
    ({"precision": "fp32", "peak": "torch"}, "precision = fp32 with peak = torch"),
    ({"adapter_kind": "dora"}, "adapter_kind = dora without adapters"),
    ({"adapter_precision": "fp32"}, "adapter_precision = fp32 without adapters"),
    ({"adapters": "qkv", "adapter_precision": "fp32", "adapter_kind": "dora"}, "adapter_precision = fp32 with another"),
    ({"adapters": "qkv", "adapter_precision": "fp32", "base_weights": "nf4"}, "choose adapter_precision = fp32_un"),
    ({"adapters": "qkv", "adapter_precision": "fp32_uncopied"}, "choose adapter_precision = fp32"),
    ({"adapter_ends": "copies"}, "adapter_ends = copies without adapters"),
    ({"adapters": "qkv", "adapter_ends": "copies", "peak": "torch"}, "adapter_ends = copies: choose peak = saved"),
    ({"adapters": "qkv", "adapter_ends": "copies", "data_parallel": "fsdp"}, "beside adapters with FSDP2"),
    ({"adapters": "qkv", "adapter_ends": "copies", "layers": "experts"}, "beside adapters in models with experts"),
    ({"adapters": "qkv", "loss": "value"}, "adapters beside a value head"),
    ({"base_weights": "int8"}, "8-bit weights with adapters = none: choose adapters = all_linear"),
    ({"adapters": "qkv", "base_weights": "int8"}, "8-bit weights with adapters = qkv: choose adapters = all_linear"),
    ({"adapters": "all_linear", "base_weights": "int8", "data_parallel": "fsdp"}, "choose data_parallel = ddp"),
    ({"adapters": "all_linear", "base_weights": "int8", "peak": "torch"}, "base_weights = int8: choose peak = saved"),
    ({"adapters": "qkv", "adapter_kind": "dora", "data_parallel": "deepspeed", "precision": "mixed"},
     "adapter_kind = dora with data_parallel = deepspeed"),
])
def test_what_was_not_counted_is_refused(changed: dict[str, str], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        refuse_impossible({**HUGGINGFACE.choices, **changed})


@pytest.mark.slow
def test_a_person_asks_for_adapters_by_their_rank() -> None:
    kernels = {"base_weights": "nf4"}
    found = explain("llama-3.1-8b", "h100-80gb", implementation="huggingface", lora_rank=16, kernels=kernels)
    assert found.peak.by_role["weight"] < 7 * 10**9
    with pytest.raises(InputError, match="must be 1 or more with adapters"):
        explain("llama-3.1-8b", "h100-80gb", implementation="huggingface", kernels={"adapters": "attention"})
    with pytest.raises(InputError, match="must be one of none with torchtitan"):
        explain("llama-3.1-8b", "h100-80gb", implementation="torchtitan", lora_rank=16)


@pytest.mark.slow
def test_products_with_weights_of_8_bits() -> None:
    """Frozen linear layers have a byte for an element; the widest product lies in int32 and in fp16 at the peak."""
    known = {"implementation": "huggingface", "lora_rank": 16, "seq_length": 16384, "recompute": "full",
             "gpu": "h100-80gb"}
    found = explain("llama-2-7b", kernels={"base_weights": "int8", "loss": "liger"}, **known)
    codes, scales = 32 * (4 * 4096**2 + 3 * 4096 * 11008), 32 * 4 * (5 * 4096 + 2 * 11008)
    others, adapters = 2 * (2 * 32000 * 4096 + 65 * 4096), 2 * 39976960
    assert found.peak.by_role["weight"] == codes + scales + others + adapters
    passing = next(line for line in found.peak.lines if line.term == "stage.passing_products.layer_backward")
    assert passing.bytes == 16384 * (4096 + 4 + 6 * 11008)


@pytest.mark.slow
def test_adapters_in_megatron() -> None:
    """Rank 16 on Llama 3.1 8B with one adapter for each fused projection: 29 million parameters on two ranks."""
    layout = {"tensor_parallel": 2, "num_gpus": 8, "lora_rank": 16}
    found = explain("llama-3.1-8b", "h100-80gb", **layout)
    h, f, qkv, a = 4096, 14336, 6144, 4096
    elements = 32 * 16 * ((h + qkv) + (a + h) + (h + 2 * f) + (f + h)) // 2
    assert found.peak.by_role["gradient"] >= 4 * elements
    assert found.peak.by_role["gradient"] - 4 * elements < 4 * 128 * 4
    assert found.peak.by_role["weight"] > 8 * 10**9
    apart = explain("llama-3.1-8b", "h100-80gb", **layout, kernels={"adapter_parts": "apart"})
    more = 32 * 16 * (2 * h + h) // 2  # first matrices for keys and values, and one for gate or up
    assert apart.peak.by_role["gradient"] - found.peak.by_role["gradient"] == 4 * more
    with pytest.raises(InputError, match="lora_rank = 15: must be a multiple of tensor_parallel"):
        explain("llama-3.1-8b", "h100-80gb", tensor_parallel=2, num_gpus=8, lora_rank=15)


@pytest.mark.slow
def test_frozen_weights_have_no_products_for_gradients() -> None:
    """The backward pass has one product for a frozen matrix, two for adapters and attention, whose mask hides half."""
    shape = {"h": 64, "a": 4, "k": 4, "d": 16, "f": 128, "u": 512, "L": 2, "s": 16, "b": 1, "rl": 4, "tied": 0}
    whole, = work(MEGATRON, "step.model_flops", **shape, B=1)
    adapted, = work(MEGATRON.with_choices(adapters="all_linear", peak="saved"), "step.model_flops", **shape, B=1)
    tokens, layers = 16, 2
    base = 2 * tokens * (layers * (4 * 64 * 64 + 3 * 64 * 128) + 64 * 512)
    core = 2 * 2 * tokens * tokens * 64 * layers // 2
    added = 2 * tokens * 4 * ((64 + 192) + (64 + 64) + (64 + 256) + (128 + 64)) * layers
    assert whole == 3 * (base + core)
    assert adapted == 2 * base + 3 * (core + added)


@pytest.mark.parametrize("adapters", ["q_v", "qkv", "attention", "all_linear"])
def test_magnitudes(adapters: str) -> None:
    """Weight-decomposed adapters keep two outputs of every projection, and three vectors of its width."""
    rows = [row for row in table("dora") if row["adapters"] == adapters]
    assert rows
    implementation = HUGGINGFACE.with_choices(adapters=adapters, adapter_kind="dora")
    for row in rows:
        known = values(row, "h a k d f u L tied s b rl", **FAMILY[row["family"]])
        counted = evaluated(implementation, ("stage.activation", "stage.buffer", "stage.parameters"), known)
        labels = 8 * known["b"] * (known["s"] + (known["b"] == 1))
        assert counted["stage.parameters"] == int(row["trained"])
        assert counted["stage.activation"] + counted["stage.buffer"] + labels == int(row["saved"]), row


@pytest.mark.parametrize("adapters", ["q_v", "qkv", "attention", "all_linear"])
def test_adapters_in_fp32_under_autocast(adapters: str) -> None:
    """PEFT's default: each adapter keeps a copy of its input, and bf16 copies of its matrices."""
    rows = [row for row in table("lora_fp32") if row["adapters"] == adapters]
    assert rows
    implementation = HUGGINGFACE.with_choices(adapters=adapters, adapter_precision="fp32")
    for row in rows:
        known = values(row, "h a k d f u L tied s b rl", **FAMILY[row["family"]])
        counted = evaluated(implementation, NAMES, known)
        assert counted["stage.weight"] - 2 * counted["stage.frozen_parameters"] == int(row["adapter_weights"])
        assert counted["stage.gradient"] == int(row["gradients"])
        assert counted["stage.optimizer"] == int(row["states"])
        labels = 8 * known["b"] * (known["s"] + (known["b"] == 1))
        assert counted["stage.activation"] + counted["stage.buffer"] + labels == int(row["saved"]), row


@pytest.mark.parametrize("row", table("lora_quantised"), ids=lambda row: " ".join(row.values()))
def test_adapters_on_quantised_weights(row: dict[str, str]) -> None:
    """Layers of bitsandbytes in 8 and 4 bits; under a GPU's autocast PEFT makes no copies of their inputs."""
    wide = row["adapter_precision"] == "fp32"
    implementation = HUGGINGFACE.with_choices(adapters=row["adapters"], base_weights=row["base_weights"],
                                              adapter_precision="fp32_uncopied" if wide else "low")
    known = values(row, "h a k d f u L tied s b rl", **FAMILY[row["family"]])
    counted = evaluated(implementation, NAMES, known)
    assert counted["stage.weight"] == int(row["weights"]) + int(row["adapter_weights"])
    assert counted["stage.gradient"] == int(row["gradients"])
    assert counted["stage.optimizer"] == int(row["states"])
    labels = 8 * known["b"] * (known["s"] + (known["b"] == 1))
    assert counted["stage.activation"] + counted["stage.buffer"] + labels == int(row["saved"])


@pytest.mark.parametrize("adapters", ["q_v", "attention", "all_linear"])
@pytest.mark.parametrize("model", ["MixtralForCausalLM", "Qwen2MoeForCausalLM", "Qwen3MoeForCausalLM"])
def test_adapters_beside_experts(model: str, adapters: str) -> None:
    """PEFT adds adapters to the weights of experts and routers, in Qwen2-MoE to linear layers alone; in fp32 too."""
    rows = [row for row in table("lora_experts") if (row["model"], row["adapters"]) == (model, adapters)]
    assert rows
    for scores, precision in sorted({(row["scores"], row["adapter_precision"]) for row in rows}):
        implementation = HUGGINGFACE.with_choices(
            layers="experts", adapters=adapters, scores=scores, adapter_precision=precision,
            expert_adapters="none" if model.startswith("Qwen2") else "weights",
            router_precision="fp32" if model.startswith("Mixtral") else "bf16",
        )
        for row in rows:
            if (row["scores"], row["adapter_precision"]) == (scores, precision):
                known = values(row, "h a k d f fe fs sgate bias qkn E q u L s b rl", tied=0)
                counted = evaluated(implementation, (*KEPT, *TRAINED), known)
                labels = 8 * known["b"] * (known["s"] + (known["b"] == 1))
                assert sum(counted.get(name, 0) for name in TRAINED) == int(row["trained"]), row
                assert sum(counted[name] for name in KEPT) + labels == int(row["saved"]), row


@pytest.mark.slow
@pytest.mark.parametrize("family", sorted({row["family"] for row in table("lora_families")}))
def test_adapters_of_later_families_with_experts(family: str, tmp_path: Path) -> None:
    """From a config.json to PEFT's bytes: routers with sigmoids and others, shared experts, dense layers first."""
    for row in (row for row in table("lora_families") if row["family"] == family):
        model = read_config(tmp_path, json.loads(row["config"]))
        implementation = HUGGINGFACE.with_choices(**evaluator_for("huggingface", {
            "adapters": row["adapters"], "adapter_precision": row["adapter_precision"],
            "attention": "eager" if family == "gpt_oss" else "sdpa"}, model, {}).choices)
        shape = {BY_NAME[name].letter: value for name, value in model_values(model).items()}
        known = {**values(row, "s b rl", **shape), **shape}
        counted = evaluated(implementation, (*KEPT, *TRAINED, "stage.router.buffer"), known)
        labels = 8 * known["b"] * (known["s"] + (known["b"] == 1))
        assert sum(counted.get(name, 0) for name in TRAINED) == int(row["trained"]), row
        corrections = counted.get("stage.router.buffer", 0)  # which are the model's own
        assert sum(counted[name] for name in KEPT) - corrections + labels == int(row["saved"]), row


@pytest.mark.slow
@pytest.mark.parametrize("family", sorted({row["family"] for row in table("lora_dense_families")}))
def test_adapters_of_dense_families(family: str, tmp_path: Path) -> None:
    """From a config.json to PEFT's bytes: norms behind layers, scales of one more, GeGLU, capped scores."""
    for row in (row for row in table("lora_dense_families") if row["family"] == family):
        model = read_config(tmp_path, json.loads(row["config"]))
        precision = {"low": "low", "fp32": "fp32" if row["base_weights"] == "full" else "fp32_uncopied"}
        implementation = HUGGINGFACE.with_choices(**evaluator_for("huggingface", {
            "adapters": row["adapters"], "adapter_precision": precision[row["adapter_precision"]], "peak": "saved",
            "base_weights": row["base_weights"], "attention": "eager" if family == "gemma2" else "sdpa"},
            model, {}).choices)
        shape = {BY_NAME[name].letter: value for name, value in model_values(model).items()}
        known = {**values(row, "s b rl", **shape), **shape}
        counted = evaluated(implementation, NAMES, known)
        labels = 8 * known["b"] * (known["s"] + (known["b"] == 1))
        assert counted["stage.weight"] == int(row["weights"]) + int(row["adapter_weights"]), row
        assert counted["stage.gradient"] == int(row["adapter_weights"]), row
        assert sum(counted[name] for name in KEPT) + labels == int(row["saved"]), row


@pytest.mark.parametrize("choices", [
    {"data_parallel": "fsdp"}, {"data_parallel": "deepspeed", "precision": "mixed"}, {"adapter_kind": "dora"},
    {"base_weights": "int8"}, {"precision": "fp32"},
])
def test_adapters_of_dense_families_are_counted_as_they_were_run(choices: dict[str, str]) -> None:
    plain = {**HUGGINGFACE.choices, "adapters": "all_linear", "norms": "both"}
    refuse_impossible({**plain, "adapter_precision": "low"})
    with pytest.raises(ValueError, match=r"norms = both|8-bit|fp32|DeepSpeed"):
        refuse_impossible({**plain, **choices})


@pytest.mark.slow
def test_products_of_adapters_beside_heads_of_two_widths(tmp_path: Path) -> None:
    """Every element of an adapter is multiplied once for each token; values that are keys have none."""
    rows = [row for row in table("lora_dense_families") if row["family"] == "gemma4_text"
            and (row["base_weights"], row["adapter_precision"]) == ("full", "low")]
    assert {json.loads(row["config"])["attention_k_eq_v"] for row in rows} == {False, True}
    for row in rows:
        model = read_config(tmp_path, json.loads(row["config"]))
        shape = {BY_NAME[name].letter: value for name, value in model_values(model).items()}
        shape |= {letter: int(row[letter]) for letter in ("s", "b", "rl")}
        chosen = {**choices_of("huggingface", model), "attention": "sdpa"}
        without, beside = (work(HUGGINGFACE.with_choices(**chosen, adapters=adapters), "stage.forward_flops", **shape)
                           for adapters in ("none", row["adapters"]))
        assert beside[0] - without[0] == 2 * shape["s"] * shape["b"] * (int(row["adapter_weights"]) // 2), row


def test_products_of_weights_with_adapters_added() -> None:
    """The sum of weights and adapters has a gradient, and adapters are multiplied for all experts, used or not."""
    shape = {"h": 64, "a": 4, "k": 4, "d": 16, "f": 8, "fe": 32, "E": 4, "q": 2, "u": 512, "L": 2, "s": 16, "b": 1,
             "tied": 0}
    chosen = HUGGINGFACE.with_choices(layers="experts", adapters="all_linear", expert_adapters="weights")
    whole, = work(HUGGINGFACE.with_choices(layers="experts"), "step.model_flops", **shape, B=1)
    small, large = (work(chosen, "step.model_flops", **shape, rl=rank, B=1)[0] for rank in (1, 3))
    tokens, layers = 16, 2
    experts, router, attention = 4 * (2 * 64 * 64 + 32 * 64), 4 * 64, 4 * (64 + 64)
    added = 2 * 3 * layers * (experts + router + tokens * attention)
    assert (large - small) // 2 == added
    assert small - added == whole - 2 * tokens * (layers * 4 * 64 * 64 + 64 * 512)


@pytest.mark.slow
def test_adapters_of_experts_in_megatron() -> None:
    """Rank 8 on Qwen3 30B-A3B with two ranks of experts: one adapter for all experts of a rank, or one for each."""
    layout = {"num_gpus": 4, "expert_parallel": 2, "lora_rank": 8, "recompute": "full"}
    of = {kind: explain("qwen3-30b-a3b", "h100-80gb", **layout, kernels={"expert_adapters": kind}).peak.by_role
          for kind in ("none", "shared", "each")}
    h, fe, layers = 2048, 768, 48
    elements = layers * 8 * ((h + 2 * fe) + (fe + h))
    for kind, experts in (("shared", 1), ("each", 64)):
        assert of[kind]["weight"] - of["none"]["weight"] == 2 * experts * elements
        assert of[kind]["gradient"] - of["none"]["gradient"] == 4 * experts * elements
    for kernels, text in (
        ({"expert_products": "sequential"}, "experts that are computed one after another: choose expert_adapters"),
        ({"adapter_parts": "apart"}, "adapters of separate projections for experts: choose adapter_parts = joined"),
    ):
        with pytest.raises(InputError, match=text):
            explain("qwen3-30b-a3b", "h100-80gb", **layout, kernels=kernels)


@pytest.mark.slow
def test_adapters_of_experts_in_transformers() -> None:
    """Without recompute the sums of weights and adapters are kept, as many bytes as all experts have."""
    asked = {"implementation": "huggingface", "lora_rank": 8, "seq_length": 1024, "gpu": "h200"}
    attention = explain("qwen3-30b-a3b", **asked, kernels={"adapters": "attention"}).peak.by_role
    whole = explain("qwen3-30b-a3b", **asked).peak.by_role
    experts = 2 * 48 * 128 * 3 * 2048 * 768
    assert 0 < whole["activation"] - attention["activation"] - experts < 0.1 * experts
    small = explain("qwen3-30b-a3b", **asked, recompute="full").peak.by_role
    assert small["activation"] < 0.1 * experts
    with pytest.raises(InputError, match="expert_adapters = weights without experts: choose expert_adapters = none"):
        explain("qwen3-8b", **asked, kernels={"expert_adapters": "weights"})


@pytest.mark.parametrize("row", table("lora_ends"), ids=lambda row: " ".join(row.values()))
def test_trained_copies_beside_adapters(row: dict[str, str]) -> None:
    known, scores = values(row, "h a k d f u L tied s b rl", **FAMILY[row["family"]]), row["ends"] == "scores"
    terms = evaluated(HUGGINGFACE.with_choices(
        adapters=row["adapters"], adapter_precision=row["adapter_precision"],
        **({"loss": "reward"} if scores else {"adapter_ends": "copies"})), NAMES, known)
    assert terms["stage.weight"] == int(row["weights"]) + int(row["trained_weights"])
    assert terms["stage.gradient"] == int(row["gradients"]) == int(row["trained_weights"])
    assert terms["stage.optimizer"] == int(row["states"])
    # On a CPU log-sigmoid keeps a buffer of its input's size; other losses keep the labels too.
    beside = known["b"] if scores else 8 * known["b"] * (known["s"] + (known["b"] == 1))
    assert terms["stage.activation"] + terms["stage.buffer"] + beside == int(row["saved"])
