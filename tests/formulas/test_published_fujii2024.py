"""Fujii et al. 2024: the authors' own values to the last digit, and both readings of the norms."""

from __future__ import annotations

import csv
from fractions import Fraction
from pathlib import Path

import pytest

from shardmath.symbolic.accounts import build
from shardmath.symbolic.exact import evaluate
from shardmath.symbolic.implementations import MEGATRON
from shardmath.symbolic.parameters import PARAMETERS
from shardmath.symbolic.published import all_published

SETS = {item.name: item for item in all_published() if item.source == "fujii2024"}
LEDGER = build(MEGATRON)
with (Path(__file__).parents[1] / "data" / "fujii2024_golden.csv").open(newline="") as table:
    GOLDEN = list(csv.DictReader(table))

LLAMA_8B = {"h": 4096, "a": 32, "k": 8, "d": 128, "f": 14336, "L": 32, "u": 128256, "tied": 0}
TRAINING = {"s": 8192, "B": 1024, "g": 1, "w": 4, "zero1": 1}
LAYOUT = {"t": 2, "c": 1, "p": 1, "D": 2, "b": 1, "sp": 1, "V": 1}
PLAIN = {item.letter: item.default for item in PARAMETERS if item.default is not None} | {
    "rfull": 0, "rcore": 0, "rmlp": 0, "bias": 0, "qkn": 0,
}


def values(name: str, **changes: int) -> dict[str, Fraction]:
    found = evaluate(SETS[name].terms.terms.values(), {**LLAMA_8B, **TRAINING, **LAYOUT, **changes})
    return {
        term.removeprefix(f"{name}."): Fraction(int(value.p), int(value.q)) for term, value in found.items()
    }


def ledger(**changes: int) -> dict[str, Fraction]:
    names = ("first.activation", "first.input", "first.weight", "first.gradient", "first.optimizer")
    found = evaluate(LEDGER.closure(names), {**PLAIN, **LLAMA_8B, **TRAINING, **LAYOUT, **changes})
    return {name: Fraction(int(found[name].p), int(found[name].q)) for name in names}


def layout(row: dict[str, str]) -> dict[str, int]:
    columns = {"s": "seq_length", "t": "tp", "c": "cp", "p": "pp", "b": "micro_batch_size", "D": "dp"}
    return {letter: int(row[column]) for letter, column in columns.items()}


def test_golden_rows_are_llama_8b_on_whole_jobs() -> None:
    assert len(GOLDEN) == 4
    for row in GOLDEN:
        at = layout(row)
        assert row["model"] == "llama-3.1-8b"
        assert at["t"] * at["c"] * at["p"] * at["D"] == int(row["gpus"])


@pytest.mark.parametrize("row", GOLDEN)
class TestGolden:
    def test_static_to_the_last_digit(self, row: dict[str, str]) -> None:
        static = values("fujii2024", **layout(row))["static"]
        assert repr(float(static / 2**30)) == row["weights_gradients_optimizer_gib"]

    def test_activations_to_the_last_digit(self, row: dict[str, str]) -> None:
        activations = values("fujii2024", **layout(row))["activations"]
        assert repr(float(activations / 2**30)) == row["activations_gib"]

    def test_whole_norms_add_their_bytes_where_t_is_above_1(self, row: dict[str, str]) -> None:
        at = layout(row)
        one, other = (values(name, **at) for name in SETS)
        per_parameter = 6 + Fraction(12, at["D"] * at["c"])
        norms = Fraction(32 * 2 * 4096, at["p"])
        assert other["static"] - one["static"] == per_parameter * norms * (1 - Fraction(1, at["t"]))
        assert other["activations"] == one["activations"]


def test_golden_rows_were_computed_for_at_least_p_micro_batches() -> None:
    """Their search has 1024 sequences per step; with one micro-batch the row with p = 2 would be half."""
    (row,) = (row for row in GOLDEN if row["pp"] == "2")
    one = values("fujii2024", **layout(row), B=int(row["dp"]) * int(row["micro_batch_size"]))
    assert one["num_microbatches"] == 1
    assert float(one["activations"] / 2**30) == float(row["activations_gib"]) / 2


@pytest.mark.parametrize("name", SETS)
class TestFormulas:
    def test_parameters_of_llama_8b(self, name: str) -> None:
        assert values(name)["parameters"] == 8_030_261_248

    def test_a_layer_is_the_sum_of_its_parts(self, name: str) -> None:
        found = values(name, s=4096, b=3)
        parts = sum(found[f"{part}_activations"] for part in ("attention", "mlp", "norm"))
        assert parts == found["layer_activations"] == 4096 * 3 * 4096 * (12 + 1 + 28)

    @pytest.mark.parametrize(
        ("zero1", "w", "per_parameter"),
        [(0, 4, Fraction(18)), (1, 4, 6 + Fraction(12, 8)), (1, 2, 4 + Fraction(12, 8))],
    )
    def test_bytes_per_parameter(self, name: str, zero1: int, w: int, per_parameter: Fraction) -> None:
        found = values(name, zero1=zero1, w=w, D=4, c=2)
        assert found["static"] == per_parameter * found["gpu_parameters"]

    def test_tied_embeddings_are_one_matrix(self, name: str) -> None:
        matrix = 128256 * 4096
        untied, tied = values(name, tied=0), values(name, tied=1)
        assert untied["parameters"] - tied["parameters"] == matrix
        assert untied["gpu_parameters"] - tied["gpu_parameters"] == Fraction(matrix, 2)
        assert values(name, p=2, tied=0)["gpu_parameters"] == values(name, p=2, tied=1)["gpu_parameters"]

    def test_one_rank_holds_the_model(self, name: str) -> None:
        found = values(name, t=1)
        assert found["gpu_parameters"] == found["parameters"]

    def test_pipeline_keeps_all_layers_on_the_first_stage(self, name: str) -> None:
        one, four = values(name, p=1), values(name, p=4)
        sbh = 8192 * 4096
        assert one["head_activations"] == 4 * sbh + 4 * 8192 * 128256
        more = Fraction(8 * sbh * (4 - 1), 2) - one["head_activations"] / 2
        assert four["activations"] - one["activations"] == more

    def test_few_micro_batches_keep_less(self, name: str) -> None:
        full, half = values(name, p=4, B=2 * 4), values(name, p=4, B=2 * 2)
        assert half["num_microbatches"] == 2
        assert half["activations"] == full["activations"] / 2

    def test_interleaving_keeps_more_and_does_not_ask_for_micro_batches(self, name: str) -> None:
        plain = values(name, p=4)["activations"]
        assert values(name, p=4, V=2)["activations"] == plain * (1 + Fraction(3, 8))
        assert values(name, p=4, V=2, B=4)["activations"] == plain * (1 + Fraction(3, 8))

    def test_interleaving_leaves_the_head_alone(self, name: str) -> None:
        assert values(name, p=1, V=4)["activations"] == values(name, p=1)["activations"]

    def test_context_parallelism_divides_activations(self, name: str) -> None:
        assert values(name, c=4)["activations"] == values(name, c=1)["activations"] / 4


class TestBesideTheLedger:
    @pytest.mark.parametrize("t", [1, 2, 8])
    @pytest.mark.parametrize("p", [1, 2, 4])
    def test_norms_variant_has_the_static_bytes_of_the_first_stage(self, t: int, p: int) -> None:
        counted = ledger(t=t, p=p, zero1=0)
        static = counted["first.weight"] + counted["first.gradient"] + counted["first.optimizer"]
        assert values("fujii2024_norms", t=t, p=p, zero1=0)["static"] == static

    def test_first_stage_activations_differ_as_the_remarks_say(self) -> None:
        s, b, h, a, f, L, t, p = 8192, 2, 4096, 32, 14336, 32, 2, 4
        counted = ledger(t=t, p=p, b=b)
        layers = Fraction(L * (2 * s * b * f - 4 * s * b * a - 8 * s * b), t)
        embedding = Fraction(8 * s * b * h * p, t) - 9 * s * b * p
        published = values("fujii2024", t=t, p=p, b=b)["activations"]
        assert published - counted["first.activation"] - counted["first.input"] == layers + embedding
