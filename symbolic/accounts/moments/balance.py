"""The moments inside of Transformers' load-balancing loss at which most is alive, behind and before the cross entropy.

Before pull request 48131 of Transformers a mask of all layers, tokens, choices and experts was made at once, in int64
and again in fp32; since then every layer's tokens are counted by themselves. Counted operation by operation.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sympy import Expr, Gt, Integer

from ...choices import TRANSFORMERS_ROUTERS
from ...components.losses.balance import SCORES
from ...dimension import Dimension
from ...dimensions import BATCH, EXPERT_LAYERS, ROUTED, SEQUENCE, TOPK, VOCAB
from ...functions import Iverson, Max
from ...implementations import Implementation
from ...terms import TermSet, product, total
from ..rows import local_shape

_TOKENS = (SEQUENCE, BATCH)
_LAYERS = (EXPERT_LAYERS, *_TOKENS, TOPK)
_SEVERAL = Iverson(Gt(EXPERT_LAYERS.size, 1))
_CHOICES = Iverson(Gt(TOPK.size, 1))
_NUMBER = Integer(4)


def _bytes(size: int, *shape: Dimension) -> Expr:
    return product(Integer(size), *local_shape(shape))


def _forward_by_layer() -> Expr:
    """Softmax of all layers; chosen experts of the last one beside those of the layer before, or an fp32 copy.

    Of one or two tokens, the sums by expert and their product are more.
    """
    chosen = _bytes(10, *_TOKENS, TOPK)
    return total(_bytes(2, *SCORES), chosen, Max(
        total(product(_SEVERAL, chosen), _bytes(8, ROUTED)),
        total(_bytes(4, *_TOKENS, ROUTED), _bytes(12, ROUTED)),
        total(_bytes(20, ROUTED), _NUMBER),
    ))


def _forward_one_hot() -> Expr:
    """Joined logits and their softmax, chosen experts, and the mask: int64, then fp32 beside it, and its mean."""
    return total(_bytes(4, *SCORES), _bytes(10, *_LAYERS), _bytes(8, *_LAYERS, ROUTED), _bytes(4, TOPK, ROUTED), Max(
        _bytes(4, *_LAYERS, ROUTED), total(_bytes(4, TOPK, ROUTED), _bytes(2, ROUTED), _NUMBER),
    ))


def _backward_by_layer() -> Expr:
    """Return gradients of a layer's softmax and logits; that of the sums waits for the other layers."""
    return Max(
        total(_bytes(4, *_TOKENS, ROUTED), product(_SEVERAL, _bytes(4, ROUTED)), _NUMBER),
        total(_bytes(8, ROUTED), 2 * _NUMBER),
    )


def _backward_one_hot() -> Expr:
    """Return the gradients of softmax and logits of all layers, or of the means' product, summed over choices."""
    return Max(
        total(_bytes(4, *SCORES), _NUMBER),
        total(_bytes(8, TOPK, ROUTED), _bytes(2, ROUTED), product(_CHOICES, _bytes(2, ROUTED)), 2 * _NUMBER),
    )


_SIZES = {"loss": (_forward_by_layer, _backward_by_layer), "loss_one_hot": (_forward_one_hot, _backward_one_hot)}


def in_forward(terms: TermSet, implementation: Implementation) -> Expr:
    """Return bytes by which the balancing loss exceeds the cross entropy before it, if it does."""
    choices = implementation.choices
    # Until the model returns, it holds the logits, whatever the caller keeps of them.
    logits = _bytes(2, *_TOKENS, VOCAB) if choices["loss"] == "huggingface_freed" else Integer(0)
    own = _SIZES[choices["balance"]][0]()
    return Max(Integer(0), total(terms["loss.after_forward"].symbol, logits, own, -terms["loss.loss_forward"].symbol))


def in_backward(terms: TermSet, implementation: Implementation) -> Expr:
    """Return bytes by which the balancing loss exceeds the cross entropy behind it, if it does."""
    own = _SIZES[implementation.choices["balance"]][1]()
    return Max(Integer(0), total(
        terms["loss.after_forward"].symbol, own, -terms["loss.loss_backward"].symbol,
    ))


_CHOSEN: Mapping[str, tuple[str, ...]] = {
    "layers": ("experts",), "router": TRANSFORMERS_ROUTERS, "balance": tuple(_SIZES),
}

#: Name, title, moments, size and options of each.
SIZES: tuple[Any, ...] = (
    ("balance_forward", "Load-balancing loss, beyond the cross entropy", ("loss_forward",), in_forward, _CHOSEN),
    ("balance_backward", "Its backward pass, beyond that of the cross entropy", ("loss_backward",), in_backward,
     _CHOSEN),
)
