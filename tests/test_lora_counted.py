"""Low-rank adapters on full and on 4-bit weights (LoRA, QLoRA): weights, gradients, states and saved tensors."""

from __future__ import annotations

import pytest
from counted import table, values

from shardmath import explain
from shardmath.errors import InputError
from shardmath.symbolic.accounts import build
from shardmath.symbolic.exact import evaluate
from shardmath.symbolic.implementations import HUGGINGFACE
from shardmath.symbolic.parallel.demands import refuse_impossible
from shardmath.symbolic.parameters import symbol
from shardmath.symbolic.terms import Term

FAMILY = {"llama": {}, "qwen2": {"bias": 1}, "qwen3": {"qkn": 1}}
NAMES = ("stage.weight", "stage.gradient", "stage.optimizer", "stage.activation", "stage.buffer",
         "stage.frozen_parameters")


def needed(adapters: str, base_weights: str) -> list[Term]:
    terms = build(HUGGINGFACE.with_choices(adapters=adapters, base_weights=base_weights))
    return terms.closure(name for name in NAMES if name in terms)


@pytest.mark.parametrize("row", table("lora"), ids=lambda row: " ".join(row.values()))
def test_adapters(row: dict[str, str]) -> None:
    known = values(row, "h a k d f u L tied s b rl", **FAMILY[row["family"]])
    found = evaluate(needed(row["adapters"], row["base_weights"]), known)
    assert found["stage.weight"] == int(row["weights"]) + int(row["adapter_weights"])
    assert found["stage.gradient"] == int(row["gradients"]) == int(row["adapter_weights"])
    assert found["stage.optimizer"] == int(row["states"])
    # The loss keeps the labels too: shifted ones, or for b = 1 the padded ones that they are a view of.
    labels = 8 * known["b"] * (known["s"] + (known["b"] == 1))
    assert found["stage.activation"] + found["stage.buffer"] + labels == int(row["saved"])


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
    ({"adapters": "attention", "layers": "experts"}, "adapters for experts"),
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
    with pytest.raises(InputError, match="must be one of none with megatron"):
        explain("llama-3.1-8b", "h100-80gb", lora_rank=16)
