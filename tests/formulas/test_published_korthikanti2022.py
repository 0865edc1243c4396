"""Korthikanti et al. 2022: the rows of table 2, and the identities between them."""

from __future__ import annotations

from fractions import Fraction

import pytest

from shardmath.symbolic.exact import evaluate
from shardmath.symbolic.published import all_published

(SET,) = (item for item in all_published() if item.source == "korthikanti2022")
GPT_175B = {"s": 2048, "b": 1, "h": 12288, "a": 96, "L": 96, "u": 51200, "g": 1, "t": 8, "p": 8, "V": 1}
GPT_530B = {"s": 2048, "b": 1, "h": 20480, "a": 128, "L": 105, "u": 51200, "g": 1, "t": 8, "p": 35, "V": 3}
CHOICES = {"sp": 1, "rcore": 0, "rfull": 0}


def values(model: dict[str, int], **changes: int) -> dict[str, Fraction]:
    found = evaluate(SET.terms.terms.values(), {**model, **CHOICES, **changes})
    return {name.rpartition(".")[2]: Fraction(int(value.p), int(value.q)) for name, value in found.items()}


def test_scores_of_gpt3_are_80_bytes_beside_34() -> None:
    """5as/h is 80 for GPT-3 and 64 for MT-NLG: selective recompute saves 70 % and 65 % of a layer."""
    gpt, mt_nlg = values(GPT_175B), values(GPT_530B)
    assert gpt["layer_none"] == 2048 * 12288 * (34 + 80)
    assert mt_nlg["layer_none"] == 2048 * 20480 * (34 + 64)
    assert round(float(1 - gpt["layer_sequence_selective"] / gpt["layer_sequence"]), 2) == 0.70
    assert round(float(1 - mt_nlg["layer_sequence_selective"] / mt_nlg["layer_sequence"]), 2) == 0.65


@pytest.mark.parametrize("model", [GPT_175B, GPT_530B])
class TestTable2:
    def test_rows(self, model: dict[str, int]) -> None:
        s, b, h, a, t = (model[letter] for letter in "sbhat")
        found = values(model)
        scores = Fraction(5 * a * s, h)
        assert found["layer_none"] == s * b * h * (34 + scores)
        assert found["layer_tensor"] == s * b * h * (10 + Fraction(24, t) + scores / t)
        assert found["layer_sequence"] == s * b * h * (Fraction(34, t) + scores / t)
        assert found["layer_tensor_selective"] == s * b * h * (10 + Fraction(24, t))
        assert found["layer_sequence_selective"] == Fraction(s * b * h * 34, t)
        assert found["layer_full"] == 2 * s * b * h

    def test_parts_make_a_layer(self, model: dict[str, int]) -> None:
        found = values(model)
        parts = sum(found[f"{part}_activations"] for part in ("attention", "mlp", "norm"))
        assert parts == found["layer_none"]

    def test_on_one_rank_parallelism_changes_nothing(self, model: dict[str, int]) -> None:
        found = values(model, t=1)
        assert found["layer_none"] == found["layer_tensor"] == found["layer_sequence"]
        assert found["layer_tensor_selective"] == found["layer_sequence_selective"]

    def test_selective_drops_the_scores(self, model: dict[str, int]) -> None:
        found = values(model)
        scores = Fraction(5 * model["a"] * model["s"] ** 2 * model["b"], model["t"])
        assert found["layer_sequence"] - found["layer_sequence_selective"] == scores
        assert found["layer_tensor"] - found["layer_tensor_selective"] == scores

    @pytest.mark.parametrize(
        ("sp", "rcore", "rfull", "row"),
        [
            (0, 0, 0, "layer_tensor"), (1, 0, 0, "layer_sequence"), (0, 1, 0, "layer_tensor_selective"),
            (1, 1, 0, "layer_sequence_selective"), (0, 0, 1, "layer_full"), (1, 0, 1, "layer_full"),
        ],
    )
    def test_choices(self, model: dict[str, int], sp: int, rcore: int, rfull: int, row: str) -> None:
        found = values(model, sp=sp, rcore=rcore, rfull=rfull)
        assert found["layer_activations"] == found[row]


class TestFirstStage:
    def test_layers_without_interleaving(self) -> None:
        assert values(GPT_175B)["inside_layers"] == Fraction(2048 * 12288 * 96 * 114, 8)

    def test_interleaving(self) -> None:
        factor = 1 + Fraction(34, 35 * 3)
        plain, interleaved = values(GPT_530B, V=1), values(GPT_530B)
        assert interleaved["inside_layers"] == plain["inside_layers"] * factor
        assert interleaved["outside_layers"] == plain["outside_layers"]

    def test_outside_the_layers(self) -> None:
        sbh = 2048 * 12288
        assert values(GPT_175B)["outside_layers"] == Fraction(sbh * 8, 8)
        head = 4 * sbh + 4 * 2048 * 51200
        assert values(GPT_175B, p=1)["outside_layers"] == Fraction(sbh + head, 8)

    def test_total_has_activations_only(self) -> None:
        found = values(GPT_175B)
        assert found["total"] == found["activations"] == found["inside_layers"] + found["outside_layers"]

    def test_what_is_outside_the_layers_is_small(self) -> None:
        gpt_22b = {"s": 2048, "b": 4, "h": 6144, "a": 64, "L": 48, "u": 51200, "g": 1, "t": 8, "p": 1, "V": 1}
        found = values(gpt_22b)
        assert found["outside_layers"] / found["total"] < Fraction(1, 100)
