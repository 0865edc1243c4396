"""Optimizer states that follow from the shapes of tensors, against counted bytes; what is not counted is refused."""

from __future__ import annotations

from random import Random

import pytest
from counted import DEFAULTS, table, value, values
from oracles.instruments.traced import evaluated

from shardmath.compiler.evaluators import find
from shardmath.errors import InputError
from shardmath.symbolic.accounts import weight_tensors
from shardmath.symbolic.choices import BY_NAME
from shardmath.symbolic.implementations import HUGGINGFACE, IMPLEMENTATIONS, MEGATRON, Implementation
from shardmath.symbolic.ledger import Role
from shardmath.symbolic.parallel.data import fixed_by_choices, states
from shardmath.symbolic.parallel.legality import rules_for
from shardmath.symbolic.parallel.optimizers import ANY_WIDTH, OPTIMIZERS, WHOLE_TENSORS
from shardmath.symbolic.parallel.uncounted import refuse_impossible

#: Letters of the families in the counted table.
FAMILY = {"llama": {}, "qwen2": {"bias": 1}, "qwen3": {"qkn": 1}}
LETTERS = "h a k d f u L tied"


def bytes_of(implementation: Implementation, known: dict[str, int], *names: str) -> list[int]:
    counted = evaluated(implementation, names, known)
    assert all(counted[name] % 1 == 0 for name in names)
    return [counted[name] for name in names]


@pytest.mark.parametrize("row", table("optimizer_states"), ids=lambda row: " ".join(row.values()))
def test_8_bit_states(row: dict[str, str]) -> None:
    implementation = HUGGINGFACE.with_choices(optimizer=row["optimizer"], precision=row["precision"])
    known = values(row, LETTERS, s=4, **FAMILY[row["family"]])
    optimizer, parameters = bytes_of(implementation, known, "stage.optimizer", "stage.parameters")
    assert optimizer == int(row["states"])
    assert parameters == int(row["parameters"])
    if int(row["tables"]):
        assert bytes_of(implementation, known, "stage.optimizer_tables.buffer") == [int(row["tables"])]


@pytest.mark.parametrize("choices", [{"positions": "learned"}, {"adapters": "all_linear", "adapter_ends": "copies"}])
def test_the_trainer_keeps_moments_of_whatever_is_looked_up_in_fp32(choices: dict[str, str]) -> None:
    """Those of tokens, positions and trained copies; the head is no embedding. DeepSpeed's parts are none either."""
    both = ("adamw_8bit", "adamw_8bit_alone")
    trained, alone = (HUGGINGFACE.with_choices(optimizer=name, **choices) for name in both)
    known = {**DEFAULTS, "h": 256, "a": 16, "k": 4, "d": 16, "f": 512, "u": 160, "pos": 64, "s": 4, "L": 1, "tied": 0,
             "rl": 4}
    looked_up = known["h"] * (known["u"] + ("positions" in choices and known["pos"]))
    wide, narrow = (bytes_of(each, known, "stage.optimizer")[0] for each in (trained, alone))
    assert wide - narrow == 6 * looked_up - 8 * looked_up // 256
    shared = {"data_parallel": "deepspeed", "precision": "mixed"}
    assert bytes_of(trained.with_choices(**shared), known, "stage.optimizer") == bytes_of(
        alone.with_choices(**shared), known, "stage.optimizer")


@pytest.mark.slow
@pytest.mark.parametrize(("adapters", "rank", "states"), [
    ("q_v", 8, 159744), ("q_v", 16, 99456), ("all_linear", 8, 663744), ("all_linear", 16, 374016)])
def test_8_bit_states_of_adapters_beside_experts(adapters: str, rank: int, states: int) -> None:
    """States of the matrices that PEFT 0.21 adds to a Qwen2-MoE: in fp32 below 4096 elements, as in bitsandbytes."""
    implementation = HUGGINGFACE.with_choices(layers="experts", adapters=adapters, expert_adapters="none",
                                              router_precision="bf16", optimizer="adamw_8bit")
    known = {**DEFAULTS, "h": 256, "a": 8, "k": 2, "d": 32, "f": 512, "fe": 128, "fs": 256, "sgate": 1, "bias": 1,
             "E": 8, "q": 2, "u": 1024, "L": 3, "s": 4, "rl": rank, "tied": 0}
    assert bytes_of(implementation, known, "stage.optimizer") == [states]


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


def test_the_fullest_rank_keeps_the_states_of_whole_parameters() -> None:
    """Parameters go from the smallest on to rank 0, 1, ... and back; of one size matrices come first."""
    implementation = MEGATRON.with_choices(optimizer="dist_muon")
    known = {**DEFAULTS, "h": 4, "a": 1, "k": 1, "d": 4, "f": 8, "L": 1, "u": 4, "tied": 0, "s": 4, "zero1": 0}
    # Elements and bytes of each: three norms, output projection, embedding, head, down, queries to values, gate and up.
    for ranks, fullest, largest in (
        (1, 3 * 48 + 128 + 192 + 192 + 256 + 384 + 512, 204), (2, 48 + 128 + 192 + 384 + 512, 148),
        (4, 48 + 384 + 512, 116), (16, 512, 64),
    ):
        assert bytes_of(implementation, {**known, "D": ranks, "B": ranks}, "stage.optimizer", "stage.shard_elements",
                        "stage.gathered_updates.optimizer_step") == [
            fullest, largest, 0 if ranks == 1 else 2 * (204 + largest)]


def test_experts_are_dealt_to_the_ranks_that_hold_the_same_ones() -> None:
    """Two matrices of each expert by themselves, all else to all ranks; the fullest rank has most of both together."""
    implementation = MEGATRON.with_choices(optimizer="dist_muon", layers="experts")
    known = {**DEFAULTS, "h": 4, "a": 1, "k": 1, "d": 4, "f": 8, "L": 1, "u": 4, "tied": 0, "s": 4, "zero1": 0,
             "E": 8, "q": 2, "fe": 8, "ld": 0, "step": 1, "fs": 0, "mtp": 0}
    # All else: three norms, output projection, embedding, head, router, queries to values; then experts.
    all_else, experts = (3 * 4 + 16 + 16 + 16 + 32 + 48, 8 * (32 + 64))
    for ranks, groups, fullest, largest, gathered in (
        (1, 1, 3 * 48 + 128 + 192 + 192 + 256 + 384 + 8 * (256 + 512), all_else + experts, 0),
        (2, 1, 48 + 128 + 192 + 384 + 4 * (256 + 512), 468, all_else + experts + 468),
        (2, 2, 48 + 128 + 192 + 384 + 4 * (256 + 512), 84 + experts // 2, all_else + 84),
        (4, 2, 48 + 384 + 2 * (256 + 512), 52 + experts // 4, experts // 2 + experts // 4),
        (4, 4, 48 + 384 + 2 * (256 + 512), 52 + experts // 4, all_else + 52),
    ):
        known |= {"D": ranks, "B": ranks, "e": groups}
        assert bytes_of(implementation, known, "stage.optimizer", "stage.dealt_updated",
                        "stage.gathered_updates.optimizer_step") == [fullest, largest, 2 * gathered]


#: ``LETTERS`` of Llama 3.2 1B, 3.1 8B, an eighth of 70B, Llama 2 7B and Qwen3 0.6B without its norms.
SHAPES = ((2048, 32, 8, 64, 8192, 128256, 16, 1), (4096, 32, 8, 128, 14336, 128256, 32, 0),
          (8192, 64, 8, 128, 28672, 128256, 10, 0), (4096, 32, 32, 128, 11008, 32000, 32, 0),
          (1024, 16, 8, 128, 3072, 151936, 28, 1))


def deal(shape: tuple[int, ...], ranks: int) -> list[list[tuple[int, int]]]:
    """Deal elements and bytes of all parameters to the ranks and back, from the smallest on."""
    h, a, k, d, f, u, layers, tied = shape
    matrices = [(size, 8 * size) for size in (h * d * (a + 2 * k), h * d * a, 2 * h * f, h * f)] * layers
    others = [(h, 12 * h)] * (2 * layers + 1) + [(u * h, 12 * u * h)] * (2 - tied)
    own: list[list[tuple[int, int]]] = [[] for _ in range(ranks)]
    for place, one in enumerate(sorted(matrices + others, key=lambda one: one[0])):
        own[min(place % (2 * ranks), 2 * ranks - 1 - place % (2 * ranks))].append(one)
    return own


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_of_models_the_rank_with_most_bytes_has_most_elements(shape: tuple[int, ...]) -> None:
    implementation = MEGATRON.with_choices(optimizer="dist_muon")
    for ranks in (2, 3, 8, 12, 32, 48, 512):
        known = {**DEFAULTS, **dict(zip(LETTERS.split(), shape, strict=True)), "zero1": 0,
                 "s": 4, "D": ranks, "B": ranks}
        sums = [tuple(map(sum, zip(*own, strict=True))) or (0, 0) for own in deal(shape, ranks)]
        largest, fullest = (max(sizes) for sizes in zip(*sums, strict=True))
        assert bytes_of(implementation, known, "stage.optimizer", "stage.shard_elements") == [fullest, largest]
        assert (largest, fullest) in sums
    fullest = max(sum(size for _, size in own) for own in deal(SHAPES[1], 32))
    assert fullest * 32 / sum(size for own in deal(SHAPES[1], 32) for _, size in own) == pytest.approx(3.76, abs=0.01)


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
            0 if optimizer in WHOLE_TENSORS else 1 if optimizer in ANY_WIDTH else None)
    names = {rule.name for rule in rules_for(MEGATRON.with_choices(optimizer="precision_aware"))}
    assert {"distributed_optimizer", "first_moment", "second_moment", "master_weight"} <= names


@pytest.mark.parametrize("changed", [
    {"optimizer": "precision_aware", "precision": "bf16"}, {"optimizer": "muon", "precision": "fp16"},
    {"peak": "torch", "optimizer_kernel": "loop", "optimizer": "sgd"},
    {"peak": "torch", "optimizer_kernel": "foreach", "optimizer": "adamw_8bit"},
    {"layers": "experts", "optimizer": "adamw_8bit", "router": "huggingface"},
    {"optimizer_kernel": "foreach"}, {"peak": "megatron_local", "optimizer_kernel": "foreach", "optimizer": "sgd"},
    {"peak": "megatron_local", "optimizer_kernel": "foreach", "optimizer_offload": "cpu"},
    {"optimizer": "dist_muon", "adapters": "qkv"}, {"optimizer": "dist_muon", "precision": "fp16"},
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
