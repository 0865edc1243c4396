"""Ends of a model beside adapters: embedding, head and scores that are trained in copies of their own.

PEFT wraps a module of ``modules_to_save`` and trains a copy of it in the type of its weights, also where adapters are
fp32. The module itself stays frozen beside it, and is not run. A head of scores has a copy wherever there are adapters.
"""

from __future__ import annotations

from typing import Any

from ..choices import ADAPTED, SCORES, WITH_LOGITS
from ..dimensions import BATCH, HIDDEN, SCORE, SEQUENCE_SP, VOCAB
from ..ledger import Component, Lifetime, Place, Tensor, saved, weight
from ..parameters import symbols

(hbias,) = symbols("hbias")

_COPIES: Any = {"adapters": ADAPTED, "adapter_ends": ("copies",)}
_SCORES: Any = {"adapters": ADAPTED, "loss": SCORES}


def _input(losses: tuple[str, ...]) -> Tensor:
    return saved("input", "head", (SEQUENCE_SP, BATCH, HIDDEN), 2, "peft", "input of the trained copy of the head",
                 storage="head.normed", lifetime=Lifetime.ONCE, loss=losses)


COMPONENTS = (
    Component(
        "embedding_copy", "Trained copy of the embedding", 11, Place.FIRST,
        (weight("weight", "embedding", (VOCAB, HIDDEN), "peft", "copy of the embedding matrix, a tied one too"),),
        options=_COPIES,
    ),
    Component(
        "head_copy", "Trained copy of the head", 81, Place.LAST,
        (
            weight("weight", "head", (VOCAB, HIDDEN), "peft", "copy of the output matrix, a tied one too"),
            weight("bias", "head", (VOCAB,), "peft", "copy of the bias of the logits", hbias),
            _input(WITH_LOGITS),
        ),
        options=_COPIES,
    ),
    Component(
        "score_copy", "Trained copy of the head of scores", 82, Place.LAST,
        (weight("score", "head", (SCORE, HIDDEN), "peft", "copy of the output matrix of one row"), _input(SCORES)),
        options=_SCORES,
    ),
)
