"""LM head: the vocabulary matrix of the last stage, or the embedding's own when tied on one stage."""

from __future__ import annotations

from typing import Any

from sympy import Eq, Integer

from ..choices import ADAPTED, MEGATRON_PEAKS, OF_WORDS, RECOMPUTED_LOGITS, SCORES, WITH_LOGITS
from ..dimension import ONE
from ..dimensions import BATCH, HIDDEN, SCORE, SEQUENCE, SEQUENCE_SP, VOCAB
from ..functions import Iverson
from ..ledger import Component, Lifetime, Place, Role, Tensor, saved, transient, weight
from ..parameters import symbols
from ..work import Product
from ..work_rows import column_parallel, over_vocabulary

p, tied, ts, hbias = symbols("p tied ts hbias")

#: 1 where the head is the embedding itself: a tied one on one stage.
IS_EMBEDDING = tied * Iverson(Eq(p, 1))
_BACKWARD = ("head_backward",)
_WHOLE = (SEQUENCE, BATCH, HIDDEN)
_SHARE = (SEQUENCE_SP, BATCH, HIDDEN)
_PEAK: Any = {"peak": MEGATRON_PEAKS}
_SCATTERED = Iverson(ts > 1)


def _backward() -> tuple[Tensor, ...]:
    """Return the transient tensors and the lasting buffers of Megatron's output layer in its backward pass."""
    src = "megatron_training"
    return (
        Tensor("gathered_input", "head", Role.BUFFER, _WHOLE, 2, Lifetime.SHARED, src,
               "bf16 input gathered from the sequence-parallel ranks, in the global memory buffer",
               when=_SCATTERED, options=_PEAK),
        transient("input_gradient", "head", _WHOLE, 2, src, "bf16 gradient of the whole input", _BACKWARD, **_PEAK),
        transient("scattered_gradient", "head", _SHARE, 2, src, "its sum over ranks, of the rank's share of the tokens",
                  _BACKWARD, when=_SCATTERED, **_PEAK),
        transient("weight_gradient", "head", (VOCAB, HIDDEN), 2, src, "bf16 gradient of the output matrix", _BACKWARD,
                  weight_gradient=("separate",), **_PEAK),
        transient("tied_gradient", "head", (VOCAB, HIDDEN), 2, src,
                  "bf16 gradient of the tied matrix as the head has it, until the embedding has its own",
                  ("layer_backward", "embedding_backward"), when=IS_EMBEDDING,
                  weight_gradient=("separate",), **_PEAK),
        *(transient(name, "head", shape, 2, "nanotron", meaning, _BACKWARD, when=when, data_parallel=("torch_ddp",))
          for name, shape, meaning, when in (
              ("whole_gradient", _WHOLE, "bf16 gradient of the whole input, of nanotron", ONE),
              ("reduced_gradient", _SHARE, "its sum over ranks, of the rank's share of the tokens", _SCATTERED),
              ("matrix_gradient", (VOCAB, HIDDEN), "bf16 gradient of the output matrix, of nanotron", ONE),
          )),
    )


COMPONENTS = (
    Component(
        "head", "LM head", 80, Place.LAST,
        (
            weight(
                "weight", "head", (VOCAB, HIDDEN), "megatron_core",
                "output matrix; a tied one is the embedding itself on one stage and a copy on two",
                Integer(1) - IS_EMBEDDING, loss=OF_WORDS,
            ),
            weight("score", "head", (SCORE, HIDDEN), "trl", "output matrix of one row, never tied", loss=SCORES),
            weight("score_bias", "head", (SCORE,), "verl", "bias of the one output", loss=("value",)),
            weight("bias", "head", (VOCAB,), "transformers", "bias of the logits", hbias, loss=OF_WORDS),
            saved("input", "head", _SHARE, 2, "megatron_core", "input of the head",
                  storage="head.normed", lifetime=Lifetime.ONCE, gathered_input=("dropped",),
                  adapters=("none",), loss=WITH_LOGITS),
            saved("input_gathered", "head", (SEQUENCE, BATCH, HIDDEN), 2, "torchtitan",
                  "input of the head, gathered over the tensor-parallel ranks", lifetime=Lifetime.ONCE,
                  gathered_input=("kept",)),
            saved("weight_cast", "head", (VOCAB, HIDDEN), 2, "pytorch", "bf16 copy of the weight",
                  lifetime=Lifetime.ONCE, precision=("autocast",)),
            transient("hidden_fp32", "head", (SEQUENCE_SP, BATCH, HIDDEN), 4, "transformers",
                      "fp32 output of the final norm, held by the model while the loss runs", ("loss_forward",),
                      loss=("huggingface", "huggingface_freed"), precision=("autocast",)),
            # The backward pass of the loss has more, unless FSDP2 lets go of what it gathered in between.
            transient("frozen_input", "head", (SEQUENCE_SP, BATCH, HIDDEN), 2, "transformers",
                      "input of a frozen head, held by the model while the loss runs", ("loss_forward",),
                      loss=("huggingface", "huggingface_freed"), adapters=ADAPTED, peak=("torch",),
                      data_parallel=("fsdp",)),
            *_backward(),
        ),
        work=(
            Product("logits", "head", (SEQUENCE, BATCH), (HIDDEN,), (VOCAB,), "megatron_core",
                    "hidden states times the output matrix, which may be the embedding's", weights=True,
                    options={"loss": tuple(loss for loss in OF_WORDS if loss not in RECOMPUTED_LOGITS)}),
            Product("scores", "head", (SEQUENCE, BATCH), (HIDDEN,), (SCORE,), "trl",
                    "hidden states times the one row that scores them", weights=True, options={"loss": SCORES}),
            Product("logits_again", "head", (SEQUENCE, BATCH), (HIDDEN,), (VOCAB,), "trl",
                    "the same, once more in the backward pass", weights=True, backward=3,
                    options={"loss": RECOMPUTED_LOGITS}),
            *over_vocabulary(column_parallel("head", "head", width=HIDDEN)),
        ),
    ),
)
