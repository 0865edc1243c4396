"""PyTorch's training step against bytes that memory trackers counted: FSDP2, plain, autocast, master weights."""

from functools import cache
from typing import Any

import pytest
from counted import DEFAULTS, table
from oracles.instruments.traced import evaluated
from sympy import Integer

from shardmath.configuration.choosing import evaluator_for
from shardmath.models.model import Model
from shardmath.symbolic.accounts import build, kept_rows
from shardmath.symbolic.exact import evaluate, number
from shardmath.symbolic.implementations import HUGGINGFACE, Implementation
from shardmath.symbolic.parallel.legality import fixed_values
from shardmath.symbolic.parameters import symbol

pytestmark = pytest.mark.slow

MODELS = {row["model"]: row for row in table("parameter_counts")}
TORCH = HUGGINGFACE.with_choices(peak="torch", loss="huggingface_freed", optimizer_kernel="loop")
#: All that is outside of the layers is one unit.
SHARDED = {"data_parallel": "fsdp", "units": "root", "reshard": "always"}
FSDP = TORCH.with_choices(**SHARDED, precision="mixed")
#: The moments of the ledger that are a row's; none for what is there between the moments.
SITES: dict[str, tuple[str, ...]] = {
    "start": (), "peak in forward": ("loss_forward",), "after forward (logits held)": ("after_forward",),
    "after forward": ("after_forward",),
    "peak in backward": ("backward_start", "loss_backward", "head_backward", "norm_backward", "layer_backward",
                         "embedding_backward", "last_reduce"),
    "after backward": (), "peak in step": ("optimizer_step",), "after step": (),
}
#: Gradients are there from the backward pass to the step; before the first step there are no states.
WITH_GRADIENT = ("after backward", "after step")
OF_LAYERS = ("layer_part_steps.", "mlp_steps.")
STEPS = (*OF_LAYERS, "first_steps.", "last_steps.final_norm", "last_steps.head")
#: Counted on tensors without memory, of which cuBLAS multiplies none.
NO_CUBLAS = {"wt": 0}
#: Elements of the vocabulary matrix, of which DTensor makes three fp32 ones while it finds out how to shard.
FAKES = 3 * 4


def implementation_of(row: dict[str, str]) -> Implementation:
    mode, *others = row["mode"].split("+")
    if mode == "r32":
        return FSDP.with_choices(reshard={"True": "always", "False": "never"}[row["raf"]])
    precision = {"bf16": "bf16", "autocast": "autocast", "master": "mixed"}[mode]
    kernel = next((kernel for kernel in ("foreach", "fused") if kernel in others), "loop")
    held = "huggingface" if row["when"] == "after forward (logits held)" else "huggingface_freed"
    return TORCH.with_choices(precision=precision, optimizer_kernel=kernel, loss=held)


def known_of(row: dict[str, str]) -> dict[str, int]:
    model = MODELS[row["model"]]
    shape = {letter: int(model[letter]) for letter in "hakdfL"}
    ranks = int(row.get("N", "1"))
    return {
        **DEFAULTS, **NO_CUBLAS, **shape, "u": int(model["v"]), "tied": int(model["tied"]), "s": int(row["s"]),
        "D": ranks, "B": ranks, "rfull": int("ckpt" in row["mode"]), **fixed_values(implementation_of(row)),
    }


@cache
def numbers(implementation: Implementation, known: tuple[tuple[str, int], ...]) -> dict[str, Any]:
    """Every term by name, and the bytes of the step counters of the optimizer."""
    terms = build(implementation)
    found = evaluate(tuple(terms.terms.values()), dict(known))
    values = {terms[name].symbol: value for name, value in found.items()}
    values |= {symbol(letter): Integer(value) for letter, value in known}
    steps = Integer(0)
    for row in kept_rows(implementation):
        name = f"{row.component.name}.{row.tensor.name}"
        if row.tensor.module == "optimizer" and name.startswith(STEPS):
            layers = values[symbol("L")] if name.startswith(OF_LAYERS) else 1
            steps += layers * number(row.expression, values)
    return {**found, "steps": steps}


def of(row: dict[str, str]) -> dict[str, Any]:
    return numbers(implementation_of(row), tuple(sorted(known_of(row).items())))


def total(row: dict[str, str]) -> int:
    """What the ledger says of the last column of a row."""
    found, when = of(row), row["when"]
    first = row["iteration"] == "0"
    lasting = found["stage.static"]  # weights, states, and gradients where they are never freed
    if first and when not in ("peak in step", "after step"):
        lasting -= found["stage.optimizer"] + found["steps"]
        if "master" in row["mode"]:  # of the states the master weights exist from the start
            lasting += found["stage.optimizer"] / 3
    if when in WITH_GRADIENT and "master" not in row["mode"]:
        lasting += found["stage.gradient"]
    moments = [found[f"stage.{site}.all"] for site in SITES[when] if f"stage.{site}.all" in found]
    if first and when == "peak in step" and "N" in row:
        known = known_of(row)
        fakes = FAKES * found["padded_vocab_size"] * known["h"] + found["stage.gradient"]
        largest = 4 * found["padded_vocab_size"] * known["h"] / known["D"]
        moments.append(fakes + largest)
    return int(lasting + max(moments, default=0))


@pytest.mark.parametrize("name", ["fsdp2_memtracker_8b", "memtracker_1b_8b"])
def test_total_at_every_moment(name: str) -> None:
    rows = table(name)
    wrong = {
        (row["model"], row.get("N"), row.get("raf"), row["mode"], row["iteration"], row["when"]):
        total(row) - int(row["Total"])
        for row in rows if total(row) != int(row["Total"])
    }
    assert len(rows) in (70, 192)
    assert not wrong


def test_what_fsdp_shards_and_gathers() -> None:
    for row in table("fsdp2_memtracker_8b"):
        found, when = of(row), row["when"]
        site = {"peak in forward": "loss_forward", "peak in backward": "loss_backward"}.get(when)
        assert int(row["Sharded Param"]) == found["stage.weight"]
        assert int(row["Sharded Grad"]) == found["stage.gradient"] * (when in ("peak in step", *WITH_GRADIENT))
        if when == "after step" or (row["iteration"] == "1" and when != "peak in step"):
            assert int(row["OptState"]) == found["stage.optimizer"] + found["steps"]
        if site:
            assert int(row["Unsharded Param"]) == found[f"stage.gathered.{site}"]
            assert int(row["All Gather"]) == found.get(f"stage.gather_buffer.{site}", 0)


def test_peaks_of_small_steps() -> None:
    """The largest moment of whole steps: 60 models, shards, dtypes, recompute, accumulation, both kernels."""
    rows = table("torch_step_peaks")
    for row in rows:
        chosen = {
            "plain bf16": {}, "fsdp bf16": SHARDED, "fsdp mixed": {**SHARDED, "precision": "mixed"},
        }[row["sharding"]]
        if row["reshard"]:
            chosen = {**chosen, "reshard": row["reshard"]}
        implementation = TORCH.with_choices(optimizer_kernel=row["kernel"], **chosen)
        known = {**DEFAULTS, **NO_CUBLAS, **{letter: int(row[letter]) for letter in "hakdfLsb"}, "u": int(row["v"])}
        known |= {"tied": int(row["tied"]), "D": int(row["N"]), "rfull": int(row["recompute"] == "full")}
        known["B"] = known["b"] * known["D"] * int(row["micro_batches"])
        known |= {"w": 2 if row["sharding"].endswith("bf16") else 4, **fixed_values(implementation)}
        ours = evaluated(implementation, ["stage.total"], known)["stage.total"]
        assert ours == int(row["peak"]), row
    assert len(rows) == 60


@pytest.mark.parametrize(("model", "kernels", "expected"), [
    ("llama-3.1-8b", {}, ("ends", "default")), ("llama-3.2-1b", {}, ("ends", "default")),
    ("mixtral-8x7b", {}, ("ends", "default")), ("llama-3.1-8b", {"reshard": "never"}, ("ends", "never")),
    ("llama-3.1-8b", {"units": "root"}, ("root", "always")), ("gpt2", {}, ("root", "always")),
    ("llama-3.1-8b", {"adapters": "all_linear"}, ("root", "always")),
])
def test_units_are_those_of_accelerate_where_these_are_counted(
    model: str, kernels: dict[str, str], expected: tuple[str, str],
) -> None:
    choices = evaluator_for("huggingface", {"data_parallel": "fsdp", **kernels}, Model.named(model), {}).choices
    assert (choices["units"], choices["reshard"]) == expected
