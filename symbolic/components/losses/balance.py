"""Load-balancing loss of Transformers: what it keeps of all layers' routers, beside the cross entropy.

Megatron-Core adds its auxiliary loss inside of every layer; see ``router``.
"""

from __future__ import annotations

from typing import Any

from ...choices import TRANSFORMERS_ROUTERS
from ...dimension import Dimension
from ...dimensions import BATCH, EXPERT_LAYERS, ROUTED, SEQUENCE, TOPK
from ...ledger import Component, Place, Tensor, transient

#: A score of every expert, for every token and layer.
SCORES = (EXPERT_LAYERS, SEQUENCE, BATCH, ROUTED)
_AFTER, _FORWARD, _BACKWARD = ("after_forward",), ("loss_forward",), ("loss_backward",)


def _row(
    name: str, shape: tuple[Dimension, ...], size: int, meaning: str, sites: tuple[str, ...], **options: Any,
) -> Tensor:
    return transient(name, "loss", shape, size, "transformers", meaning, sites, **options)


COMPONENTS = (
    Component(
        "balance_loss", "Load-balancing loss", 91, Place.LAST,
        (
            _row("router_logits", SCORES, 2, "bf16 logits of all routers, about to be returned", _FORWARD),
            _row("returned_logits", SCORES, 2, "bf16 logits of all routers in the returned object",
                 (*_AFTER, *_BACKWARD), loss=("huggingface",)),
            _row("routing_weights", SCORES, 2, "bf16 softmax of the logits, kept for the backward pass", _AFTER),
            _row("gradient_logits", SCORES, 2, "bf16 gradient of the logits, made before that of the cross entropy",
                 _BACKWARD),
            _row("tokens_per_expert", (ROUTED,), 4, "fp32 share of tokens of every expert", _AFTER, balance=("loss",)),
            _row("tokens_per_choice", (TOPK, ROUTED), 4, "fp32 share of tokens of every expert, by choice", _AFTER,
                 balance=("loss_one_hot",)),
            _row("value", (), 4, "fp32 auxiliary loss", (*_AFTER, *_BACKWARD)),
        ),
        note="Made after the cross entropy, whose log-softmax exists then; all layers wait for it, recomputed or not.",
        options={"layers": ("experts",), "router": TRANSFORMERS_ROUTERS, "balance": ("loss", "loss_one_hot")},
    ),
)
