"""Precisions: fp16 with its scaler, and FP8 as Transformer Engine does it, against rules read in its source."""

from __future__ import annotations

from math import ceil
from random import Random

import pytest
from counted import rows_of, table, values
from oracles.instruments.traced import account_of, evaluated, summed

from shardmath import explain
from shardmath.account.configured import configured
from shardmath.errors import InputError
from shardmath.models.model import Model
from shardmath.symbolic.implementations import MEGATRON, Implementation
from shardmath.symbolic.parallel.legality import rules_for
from shardmath.symbolic.parallel.uncounted import refuse_impossible

RECIPES = ("delayed", "current", "block", "mx", "nvfp4")
SCALED = ("delayed", "current")
QUANTISED = 5  # input, weight, output, and gradients of output and input

#: Saved tensors and states alone.
SAVED = MEGATRON.with_choices(peak="saved")


def numbers(implementation: Implementation, known: dict[str, int], *names: str) -> list[int]:
    results = evaluated(implementation, names, known)
    assert all(results[name].denominator == 1 for name in names)
    return [one if isinstance(one := results[name], int) else int(one) for name in names]


def shape(draw: Random) -> dict[str, int]:
    t = draw.choice((1, 2))
    return values({}, "", t=t, sp=t - 1, k=t, a=2 * t * draw.randint(1, 3), d=128, h=128 * draw.randint(1, 9),
                  f=128 * t * draw.randint(1, 9), u=256, L=draw.randint(1, 4), s=256 * draw.randint(1, 4),
                  D=draw.choice((1, 2, 4)), zero1=draw.randint(0, 1), w=draw.choice((2, 4)), ah=draw.choice((1, 16)))


def matrices(known: dict[str, int]) -> list[tuple[int, int]]:
    """The linear layers of one layer on one rank: rows and columns."""
    t, h, f = known["t"], known["h"], known["f"] // known["t"]
    query, pair = known["a"] * known["d"] // t, 2 * known["k"] * known["d"] // t
    return [(query + pair, h), (h, query), (2 * f, h), (h, f)]


def to(size: int, step: int) -> int:
    return ceil(size / step) * step


def scales(recipe: str, rows: int, columns: int, known: dict[str, int]) -> int:
    """Bytes of a weight's scales, both ways, and of its layer's quantisers."""
    if recipe == "delayed":
        return 4 + 4 * QUANTISED * (1 + known["ah"])
    if recipe == "current":
        return 4 + 8 * QUANTISED
    if recipe == "block":
        high, wide = ceil(rows / 128), ceil(columns / 128)
        return 4 * (high * to(wide, 4) + wide * to(high, 4))
    block, magnitudes = (16, 8) if recipe == "nvfp4" else (32, 0)
    return to(rows, 128) * to(columns // block, 4) + to(rows // block, 4) * to(columns, 128) + magnitudes


def size(recipe: str) -> int:
    """Bytes of two elements of a quantised tensor."""
    return 1 if recipe == "nvfp4" else 2


@pytest.mark.parametrize("recipe", RECIPES)
def test_copies_of_weights(recipe: str) -> None:
    draw = Random(recipe)
    for _ in range(10):
        known = shape(draw)
        (whole,) = numbers(SAVED, known, "stage.weight")
        (copied,) = numbers(SAVED.with_choices(fp8=recipe), known, "stage.weight")
        extra = sum(size(recipe) * rows * columns + scales(recipe, rows, columns, known)
                    for rows, columns in matrices(known))
        assert copied - whole == known["L"] * extra


@pytest.mark.parametrize("mlp", ["swiglu", "gelu"])
@pytest.mark.parametrize("recipe", RECIPES)
def test_saved_inputs_of_linear_layers(recipe: str, mlp: str) -> None:
    draw, dense = Random(recipe), SAVED.with_choices(mlp=mlp)
    for _ in range(10):
        known = shape(draw)
        t, tokens, shared = known["t"], known["s"] * known["b"], known["s"] * known["b"] // known["t"]
        (whole,) = numbers(dense, known, "layer.saved")
        (quantised,) = numbers(dense.with_choices(fp8=recipe), known, "layer.saved")
        replaced = 2 * shared * known["h"] + tokens * known["f"] // t  # two inputs from a norm, one of the MLP
        query = tokens * known["a"] * known["d"] // t
        more = {
            "delayed": query + 4 * 4, "current": 3 * 4, "block": replaced * 4 // 128, "mx": replaced // 32,
            "nvfp4": replaced // 16 + 3 * 4 + (t > 1) * 2 * shared * known["h"] * 9 // 16,  # two inputs by rows too
        }[recipe]
        assert quantised - whole == replaced * size(recipe) // 2 - 2 * replaced + more


@pytest.mark.parametrize("recipe", RECIPES)
def test_experts_and_latent_attention(recipe: str) -> None:
    """Saved inputs of routed and shared experts, of latent attention, and copies of all their matrices."""
    draw = Random(recipe)
    experts = SAVED.with_choices(layers="experts", heads="latent")
    blocks = ("experts", "shared_experts", "latent_attention")
    names = (*(f"{block}.saved" for block in blocks), "stage.weight")
    for _ in range(5):
        known = shape(draw) | {"E": 2 * draw.randint(1, 3), "q": 2, "fe": 128 * draw.randint(1, 3), "dr": 64, "dv": 128,
                               "d": 192, "lq": 128 * draw.randint(0, 2), "lk": 128, "L": 1}
        known |= {"k": known["a"], "fs": 128 * known["t"] * draw.randint(1, 2)}
        t, h, a, fe, fs = known["t"], known["h"], known["a"] // known["t"], known["fe"], known["fs"] // known["t"]
        tokens, own, sent = known["s"] * known["b"], known["s"] * known["b"] // t, 2 * known["s"] * known["b"] // t
        compressed = [known["lk"], *([known["lq"]] if known["lq"] else [])]
        # Elements of quantised inputs: those in place of 16-bit ones, those beside what else is kept, and tensors.
        routed, latent = sent * (h + fe), own * sum(compressed)
        quantised = {"experts": (routed, 0, 2 * known["E"]), "shared_experts": (tokens * fs, 0, 1),
                     "latent_attention": (latent + own * h, own * h, 2 + len(compressed))}
        if recipe == "delayed":
            quantised["shared_experts"] = (tokens * fs, own * h, 2)
            quantised["latent_attention"] = (latent + own * h, own * h + tokens * a * 128, 3 + len(compressed))
        plain, fp8 = (numbers(experts.with_choices(fp8=name), known, *names) for name in ("none", recipe))
        for block, before, after in zip(blocks, plain, fp8, strict=False):
            instead, beside, count = quantised[block]
            elements = instead + beside
            scales_of_inputs = 4 * count if recipe in ("delayed", "current") else elements // 32
            if recipe == "nvfp4":  # magnitudes of experts 16 bytes apart; what norms feed by rows too
                rows = (t > 1) * latent if block == "latent_attention" else 0
                magnitudes = 16 * count - 2 * 12 if block == "experts" else 4 * count
                scales_of_inputs = (elements + rows) // 16 + rows // 2 + magnitudes
            assert after - before == elements * size(recipe) // 2 - 2 * instead + scales_of_inputs, block
        query = a * known["d"]
        first = [(query, h)] if not known["lq"] else [(known["lq"], h), (query, known["lq"])]
        of_latent = [*first, (128 + 64, h), (a * (128 + 128), 128), (h, a * 128)]
        of_experts = known["E"] * [(2 * fe, h), (h, fe)] + [(2 * fs, h), (h, fs)]
        extra = sum(size(recipe) * rows * columns + scales(recipe, rows, columns, known)
                    for rows, columns in of_latent + of_experts)
        assert fp8[-1] - plain[-1] == extra


@pytest.mark.parametrize("recipe", RECIPES)
def test_the_projection_of_further_predictions(recipe: str) -> None:
    """Its input is twice as wide as others, and in 16 bits beside FP4."""
    known = shape(Random(recipe))
    elements = known["s"] * known["b"] // known["t"] * 2 * known["h"]
    plain, quantised = (
        summed(chosen, rows_of(chosen, "mtp", "projection"), known)
        for chosen in (SAVED.with_choices(layers="experts", fp8=name) for name in ("none", recipe)))
    scales_of_input = 4 if recipe in SCALED else elements // 32
    assert quantised - plain == (0 if recipe == "nvfp4" else scales_of_input - elements)


#: Where there are such layers: component, module, the choices with which it is there, and parts of its input's width.
PLACES: dict[str, list[tuple[str, str, dict[str, str], int]]] = {
    "normed": [("swiglu", "gate_up", {}, 1), ("attention", "qkv", {}, 1)],
    "row": [("swiglu", "down", {}, 1)],
    "column": [("latent_attention", "latent_q", {"heads": "latent"}, 1)],
    "experts": [("experts", "experts_up", {"layers": "experts"}, 1)],
}


@pytest.mark.parametrize("row", table("quantised_layers"), ids=lambda row: "-".join(row.values()))
def test_layers_of_transformer_engine_save_this(row: dict[str, str]) -> None:
    """Rows of single projections of ours, and states of their weights, against the library's own layers."""
    recipe, tokens, inputs, outputs, t, experts = (
        row["recipe"], *(int(row[name]) for name in ("tokens", "inputs", "outputs", "ranks", "experts")))
    adapters = "all_linear" if row["frozen"] == "1" else "none"
    whole = tokens * (t if row["layer"] in ("normed", "column") else 1)
    predicted = [("mtp", "projection", {"layers": "experts"}, 2)]  # which nothing keeps in FP4
    for component, module, choices, parts in [
            *PLACES[row["layer"]], *(predicted if row["layer"] == "column" and recipe != "nvfp4" else [])]:
        implementation = SAVED.with_choices(fp8=recipe, adapters=adapters, **choices)
        known = values({}, "", t=t, sp=int(t > 1), s=whole, h=inputs // parts, f=inputs, E=experts, q=1, k=t, a=t,
                       d=128)
        rows = [item for item in rows_of(implementation, component, module) if "fp8" in item.tensor.options]
        assert summed(implementation, rows, known) == int(row["saved"]), component
    high, wide = (outputs // t, inputs) if row["layer"] in ("normed", "column") else (outputs, inputs // t)
    assert experts * (size(recipe) * high * wide + scales(recipe, high, wide, known)) == int(row["copies"])


@pytest.mark.slow
@pytest.mark.parametrize("row", table("quantised_mlp"), ids=lambda row: "-".join(row.values()))
def test_moments_of_an_mlp_with_layers_of_transformer_engine(row: dict[str, str]) -> None:
    t, h, f, s = (int(row[letter]) for letter in "thfs")
    job = configured(
        Model(name="drawn", source="", hidden_size=h, ffn_hidden_size=f, num_layers=1, num_attention_heads=4,
              num_kv_heads=4, head_dim=128, vocab_size=64, tied_embeddings=False, qkv_bias=False, qk_norm=False,
              max_seq_length=8192),
        "b300", seq_length=s, micro_batch_size=1, tensor_parallel=t, num_gpus=t, recompute=row["recompute"],
        kernels={"fp8": row["recipe"]}).job
    account = account_of(job.evaluator, job.on_rank(0))
    again, gradients = (account[f"stage.{name}.layer_backward"] for name in ("recomputed_mlp", "mlp_gradients"))
    assert again + gradients == int(row["peak"])
    norm_input = 2 * h * s // t  # of which the checkpoint is the owner, where there is one
    assert account["swiglu.saved"] + account["ffn_norm.saved"] - norm_input == int(row["saved"])


@pytest.mark.slow
@pytest.mark.parametrize("recipe", RECIPES[:-1])
def test_weights_that_are_fp8_themselves(recipe: str) -> None:
    """Linear weights of one byte in a buffer of their own, transposed copies, scales; all else as it was."""
    draw = Random(recipe)
    for _ in range(10):
        known = {**shape(draw), "zero1": 0}
        (whole, states) = numbers(SAVED, known, "stage.weight", "stage.optimizer")
        primary = SAVED.with_choices(fp8=recipe, fp8_weights="primary")
        (own, same) = numbers(primary, known, "stage.weight", "stage.optimizer")
        extra = sum(scales(recipe, rows, columns, known) for rows, columns in matrices(known))
        assert (own - whole, same) == (known["L"] * extra, states)


@pytest.mark.slow
@pytest.mark.parametrize("recipe", RECIPES[1:])
def test_frozen_layers_beside_adapters(recipe: str) -> None:
    """Copies of frozen matrices alone; of inputs what a norm made and hands to an adapter, in place of its 16 bits."""
    draw, names = Random(recipe), ("stage.weight", "stage.optimizer", "layer.saved")
    for adapters, adapted in (("qkv", 1), ("all_linear", 2)):
        known = {**shape(draw), "zero1": 0, "rl": 4 * draw.randint(1, 4)}
        frozen = SAVED.with_choices(adapters=adapters)
        weight, states, saved = numbers(frozen, known, *names)
        quantised = numbers(frozen.with_choices(fp8=recipe), known, *names)
        copied = sum(size(recipe) * rows * columns for rows, columns in matrices(known))
        of_scales = sum(scales(recipe, rows, columns, known) for rows, columns in matrices(known))
        elements = adapted * known["s"] * known["b"] // known["t"] * known["h"]
        of_inputs = {"current": 4 * adapted, "nvfp4": elements // 16 + 4 * adapted}.get(recipe, elements // 32)
        handed_out = 2 * elements * (known["t"] > 1)
        assert quantised == [weight + known["L"] * (copied + of_scales), states,
                             saved + elements * size(recipe) // 2 + of_inputs - handed_out]
        if recipe != "nvfp4":
            primary = numbers(frozen.with_choices(fp8=recipe, fp8_weights="primary"), known, *names)
            assert primary == [weight + known["L"] * of_scales, *quantised[1:]]


@pytest.mark.parametrize("optimizer", ["muon", "dist_muon"])
def test_fp8_changes_no_state_of_muon(optimizer: str) -> None:
    """Quantised copies and FP8 weights are those that they are with AdamW, and states those that they are without."""
    draw = Random(optimizer)
    names = ("stage.weight", "stage.gradient", "stage.optimizer")
    for recipe in RECIPES:
        known = shape(draw) | {"zero1": 0}
        plain, adam, adam_copies = (numbers(SAVED.with_choices(**changed), known, *names) for changed in (
            {"optimizer": optimizer}, {}, {"fp8": recipe}))
        copies = numbers(SAVED.with_choices(optimizer=optimizer, fp8=recipe), known, *names)
        assert copies == [plain[0] + adam_copies[0] - adam[0], *plain[1:]]
        if recipe in SCALED:
            primary = {"fp8": recipe, "fp8_weights": "primary"}
            (weights,) = numbers(SAVED.with_choices(**primary), known, "stage.weight")
            assert numbers(SAVED.with_choices(optimizer=optimizer, **primary), known, *names) == [weights, *plain[1:]]


def test_fp16_keeps_what_bf16_does_and_a_scaler() -> None:
    known = shape(Random(1))
    names = ("stage.weight", "stage.gradient", "stage.optimizer", "stage.activation", "stage.buffer")
    mixed, fp16 = (numbers(SAVED.with_choices(precision=name), known, *names) for name in ("mixed", "fp16"))
    assert fp16[:-1] == mixed[:-1]
    assert fp16[-1] - mixed[-1] == 20


@pytest.mark.slow
def test_sizes_that_fp8_cannot_work_on_are_refused() -> None:
    for recipe in RECIPES:
        names = {rule.name for rule in rules_for(SAVED.with_choices(fp8=recipe))}
        assert {"fp8_h", "fp8_a", "fp8_f", "fp8_tokens"} <= names
    kernels = {"fp8": "block"}
    with pytest.raises(InputError, match="must give every rank a multiple of 128 tokens"):
        explain("llama-3.1-8b", "h100-80gb", seq_length=8184, kernels=kernels)
    found = explain("llama-3.1-8b", "h100-80gb", seq_length=8192, kernels=kernels, num_gpus=8)
    plain = explain("llama-3.1-8b", "h100-80gb", seq_length=8192, num_gpus=8)
    assert found.peak.by_role["activation"] < plain.peak.by_role["activation"]
    assert found.peak.by_role["weight"] > plain.peak.by_role["weight"]


@pytest.mark.parametrize(("changed", "text"), [
    ({"fp8": "delayed", "precision": "fp16"}, "FP8 with precision fp16"),
    ({"fp8": "delayed", "layers": "experts", "expert_products": "sequential"}, "FP8 with experts one after another"),
    ({"fp8": "delayed", "mlp": "geglu"}, "FP8 with mlp = geglu: counted are swiglu, swiglu_clamped, gelu, relu, relu2"),
    ({"fp8": "delayed", "adapters": "qkv"}, "adapters with FP8 and delayed scaling"),
    ({"fp8": "mx", "adapters": "all_linear", "layers": "experts", "expert_adapters": "each", "peak": "saved"},
     "an adapter for every expert with FP8, in which Megatron-Bridge quantises it too"),
    ({"fp8": "delayed", "peak": "megatron_local"}, "FP8 with peak = megatron_local: choose peak = megatron_te"),
    ({"fp8": "nvfp4", "fp8_weights": "primary"}, "NVFP4 weights without 16-bit ones"),
    ({"fp8": "mx", "fp8_weights": "primary", "optimizer": "dist_muon"}, "with whole-tensor optimizers: choose"),
    ({"fp8": "mx", "optimizer": "precision_aware"}, "precision_aware with FP8 recipe mx"),
])
def test_combinations_that_were_not_counted_are_refused(changed: dict[str, str], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        refuse_impossible({**SAVED.choices, **changed})
