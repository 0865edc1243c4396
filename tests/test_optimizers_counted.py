"""Optimizer states that follow from the shapes of tensors, against counted bytes; what is not counted is refused."""

from __future__ import annotations

from random import Random

import pytest
from counted import DEFAULTS, table, value, values

from shardmath.compiler.evaluators import find
from shardmath.errors import InputError
from shardmath.symbolic.accounts import build, weight_tensors
from shardmath.symbolic.choices import BY_NAME
from shardmath.symbolic.exact import evaluate
from shardmath.symbolic.implementations import HUGGINGFACE, IMPLEMENTATIONS, MEGATRON, Implementation
from shardmath.symbolic.ledger import Role
from shardmath.symbolic.parallel.data import fixed_by_choices, states
from shardmath.symbolic.parallel.demands import refuse_impossible
from shardmath.symbolic.parallel.legality import rules_for
from shardmath.symbolic.parallel.optimizers import OPTIMIZERS, WHOLE_TENSORS

#: Letters of the families in the counted table.
FAMILY = {"llama": {}, "qwen2": {"bias": 1}, "qwen3": {"qkn": 1}}
LETTERS = "h a k d f u L tied"


def bytes_of(implementation: Implementation, known: dict[str, int], *names: str) -> list[int]:
    found = evaluate(build(implementation).closure(names), known)
    assert all(found[name] == int(found[name]) for name in names)
    return [int(found[name]) for name in names]


@pytest.mark.parametrize("row", table("optimizer_states"), ids=lambda row: " ".join(row.values()))
def test_8_bit_states(row: dict[str, str]) -> None:
    implementation = HUGGINGFACE.with_choices(optimizer=row["optimizer"], precision=row["precision"])
    known = values(row, LETTERS, s=4, **FAMILY[row["family"]])
    optimizer, parameters = bytes_of(implementation, known, "stage.optimizer", "stage.parameters")
    assert optimizer == int(row["states"])
    assert parameters == int(row["parameters"])
    if int(row["tables"]):
        assert bytes_of(implementation, known, "stage.optimizer_tables.buffer") == [int(row["tables"])]


def test_every_option_has_states_and_some_implementation() -> None:
    assert set(OPTIMIZERS) == set(BY_NAME["optimizer"].options)
    assert set(OPTIMIZERS) == {option for item in IMPLEMENTATIONS.values() for option in item.options("optimizer")}


def test_muon_has_one_moment_for_matrices_and_two_for_all_else() -> None:
    draw = Random(7)
    for _ in range(10):
        known = {**DEFAULTS, **{letter: draw.randint(1, 9) for letter in "hkdfL"}, "u": 40, "s": 4, "zero1": 0}
        known["a"] = 2 * known["k"]
        elements = {
            name: bytes_of(MEGATRON, known, f"{name}.parameters")[0]
            for name in ("attention_norm", "ffn_norm", "embedding", "head", "final_norm")
        }
        others = known["L"] * (elements["attention_norm"] + elements["ffn_norm"]) + sum(
            elements[name] for name in ("embedding", "head", "final_norm"))
        summed, kept = bytes_of(MEGATRON.with_choices(optimizer="muon"), known, "stage.parameters", "stage.optimizer")
        assert kept == 4 * summed + 4 * summed + 4 * others  # master weights, one moment, another for vectors
    assert weight_tensors(MEGATRON)


@pytest.mark.parametrize(("m1", "m2", "wm", "bytes"), [(4, 4, 4, 12), (2, 2, 2, 6), (1, 1, 2, 4), (4, 4, 2, 10)])
def test_precision_aware_optimizer_keeps_what_it_is_told(m1: int, m2: int, wm: int, bytes: int) -> None:
    """Widths of Transformer Engine's FusedAdam: a 16-bit remainder or master weight, moments of 4, 2 or 1 bytes."""
    kept = states(MEGATRON.with_choices(optimizer="precision_aware").choices)
    each = [value(state.bytes, {**DEFAULTS, "m1": m1, "m2": m2, "wm": wm}) for state in kept
            if state.role is Role.OPTIMIZER]
    assert sum(each) == bytes


def test_whole_tensors_cannot_be_cut_by_the_distributed_optimizer() -> None:
    for optimizer in OPTIMIZERS:
        choices = {**MEGATRON.choices, "optimizer": optimizer}
        assert fixed_by_choices(choices).get("zero1") == (
            0 if optimizer in WHOLE_TENSORS else 1 if optimizer == "precision_aware" else None)
    names = {rule.name for rule in rules_for(MEGATRON.with_choices(optimizer="precision_aware"))}
    assert {"distributed_optimizer", "first_moment", "second_moment", "master_weight"} <= names


@pytest.mark.parametrize("changed", [
    {"optimizer": "precision_aware", "precision": "bf16"}, {"optimizer": "muon", "precision": "fp16"},
    {"peak": "torch", "optimizer_kernel": "loop", "optimizer": "sgd"},
    {"peak": "torch", "optimizer_kernel": "foreach", "optimizer": "adamw_8bit"},
    {"optimizer": "adafactor", "data_parallel": "fsdp"}, {"optimizer_offload": "cpu", "optimizer": "sgd"},
    {"layers": "experts", "heads": "latent", "router": "huggingface", "balance": "loss"},
])
def test_combinations_that_are_not_counted_are_refused(changed: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="not counted yet"):
        refuse_impossible({**MEGATRON.choices, **changed})


def test_a_person_is_told_what_is_refused() -> None:
    with pytest.raises(InputError, match="must be one of adamw, precision_aware"):
        find("megatron", {"optimizer": "adamw_8bit"})
    with pytest.raises(InputError, match="must be a combination that has been counted; not counted yet: "):
        find("megatron", {"optimizer": "muon", "precision": "fp16"})
