"""Losses without logits of all tokens: bytes kept behind the forward pass, sizes of chunks, and what they save."""

from __future__ import annotations

import pytest
from counted import table, values
from oracles.instruments.traced import evaluated, summed
from sympy import Integer, Symbol

from shardmath import explain
from shardmath.errors import InputError
from shardmath.symbolic.accounts import kept_rows
from shardmath.symbolic.functions import power_of_two_from
from shardmath.symbolic.implementations import HUGGINGFACE
from shardmath.symbolic.parallel.uncounted import refuse_impossible

COUNTED = table("fused_heads")
FAMILY = {"llama": {}, "qwen2": {"bias": 1}, "qwen3": {"qkn": 1}}


@pytest.mark.parametrize("loss", ["liger", "trl", "cut"])
def test_bytes_kept_behind_the_forward_pass(loss: str) -> None:
    rows = [row for row in COUNTED if row["loss"] == loss]
    assert {row["head"] for row in rows} == {"trained", "frozen"}
    implementation = HUGGINGFACE.with_choices(loss=loss)
    for row in rows:
        known = values(row, "h a k d f u L tied s b", **FAMILY[row["family"]])
        counted = evaluated(implementation, ["stage.activation", "stage.buffer", "stage.after_forward"], known)
        kept = counted["stage.activation"] + counted["stage.buffer"] + counted["stage.after_forward"]
        if loss == "liger" and row["head"] == "frozen":  # the ledger's own head is frozen with adapters alone
            kept -= 2 * known["u"] * known["h"]
        assert kept == int(row["kept"]), row


#: Bytes of passes beside rows: the loss, its gradient and how many labels count; in TRL's backward pass each
#: log-probability has a gradient.
OF_LOSSES, OF_TOKENS = 12, {("trl", "backward"): 4}
MOMENTS = {"kept": "after_forward", "forward": "loss_forward", "backward": "loss_backward"}


@pytest.mark.parametrize("row", table("fused_head_moments"), ids=lambda row: "-".join(list(row.values())[:13]))
def test_the_most_in_both_passes(row: dict[str, str]) -> None:
    """All but passes of a frozen head; a CPU makes Liger's gradient of the head's matrix beside their sum."""
    loss, trained = row["loss"], row["head"] == "trained"
    implementation = HUGGINGFACE.with_choices(loss=loss)
    known = values(row, "h a k d f u L tied s b", **FAMILY[row["family"]])
    terms = ["stage.activation", "stage.buffer", *(f"stage.{moment}" for moment in MOMENTS.values())]
    counted = evaluated(implementation, terms, known)
    scored = (known["s"] - 1) * known["b"]
    gradient = 2 * known["u"] * known["h"] if loss == "liger" and not trained else 0
    for column, moment in MOMENTS.items():
        if (trained and (loss, column) != ("liger", "forward")) or (not trained and column == "forward"):
            alive = counted["stage.activation"] + counted["stage.buffer"] + counted[f"stage.{moment}"] - gradient
            few = 0 if column == "kept" else OF_LOSSES + OF_TOKENS.get((loss, column), 0) * scored
            assert abs(int(row[column]) - alive) <= few, column


@pytest.mark.parametrize(("loss", "column"), [("liger", "kept"), ("trl", "backward"), ("cut", "backward")])
def test_gradients_of_a_trained_copy_of_the_head(loss: str, column: str) -> None:
    """A head that adapters train whole costs as much more than a frozen one as any trained head."""
    implementation = HUGGINGFACE.with_choices(loss=loss, adapters="q_v", adapter_ends="copies")
    gradients = [row for row in kept_rows(implementation)
                 if row.component.name == "fused_head" and row.tensor.name.endswith("_of_copy")]
    both = [row for row in table("fused_head_moments") if row["loss"] == loss]
    for trained, frozen in zip(both[::2], both[1::2], strict=True):
        assert (trained["head"], frozen["head"]) == ("trained", "frozen")
        of_copy = summed(implementation, gradients, values(trained, "h s b", v=int(trained["u"])))
        assert of_copy == int(trained[column]) - int(frozen[column])


def test_powers_of_two() -> None:
    size = Symbol("size", integer=True, positive=True)
    formula = power_of_two_from(size, 12)
    for number in (1, 2, 3, 4, 5, 63, 64, 65, 2047, 2048, 4095, 4096):
        assert formula.xreplace({size: Integer(number)}).doit() == 1 << (number - 1).bit_length()


@pytest.mark.parametrize(("changed", "words"), [
    ({"precision": "autocast"}, "loss = liger under autocast or with the moments"),
    ({"peak": "torch"}, "loss = liger under autocast or with the moments"),
    ({"normalisation": "layer"}, "loss = liger with LayerNorm"),
])
def test_what_was_not_counted_is_refused(changed: dict[str, str], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        refuse_impossible({**HUGGINGFACE.choices, "loss": "liger", **changed})


@pytest.mark.slow
def test_logits_of_a_large_vocabulary_are_never_there() -> None:
    """Llama 3.1 8B, one sequence of 2048 tokens: 128,256 logits of a token, 64 tokens of a chunk in Liger."""
    run = {"implementation": "huggingface", "seq_length": 2048, "num_gpus": 1}
    losses = {loss: explain("llama-3.1-8b", "h200-141gb", **run, kernels={"loss": loss, "peak": "saved"})
              for loss in ("huggingface", "liger", "trl")}
    sizes = {loss: {line.term: line.bytes for line in answer.peak.lines} for loss, answer in losses.items()}
    vocabulary, hidden, tokens = 128256, 4096, 2048
    assert sizes["huggingface"]["stage.loss.activation"] > 4 * vocabulary * tokens
    assert sizes["liger"]["stage.fused_head.activation"] == 2 * hidden * tokens + 2 * vocabulary * hidden
    # A chunk has 2048 / ceil(128256 / 4096) = 64 tokens, a power of two already; labels of one sequence are one tensor.
    assert sizes["liger"]["stage.fused_head.loss_forward"] == (
        2 * 64 * vocabulary + 2 * hidden * tokens + 8 * (tokens + 1) + 5 * tokens + 4)
    assert losses["liger"].peak.total < losses["huggingface"].peak.total - 7 * tokens * vocabulary
    scored = tokens - 1
    assert sizes["trl"]["stage.fused_head.activation"] == scored * (2 * hidden + 17) + 8
    assert sizes["trl"]["stage.fused_head.loss_backward"] == (
        2 * scored * 32768 + 6 * hidden * (scored + vocabulary) + 4)
    adapted = explain("llama-3.1-8b", "rtx-4090-24gb", **run, recompute="full", lora_rank=16,
                      kernels={"loss": "liger", "base_weights": "nf4"})
    assert adapted.peak.verdict == "fits"
    with pytest.raises(InputError, match="liger"):
        explain("llama-3.1-8b", "h100-80gb", kernels={"loss": "liger"})
