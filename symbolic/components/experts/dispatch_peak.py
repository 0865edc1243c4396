"""Transient tensors of dispatch and routed experts in one layer: tokens on their way, and their gradients."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sympy import Expr

from ...choices import GATED, UNGATED
from ...dimension import ONE, Dimension
from ...dimensions import BATCH, EXPERT_FFN, EXPERT_GATE_UP, HIDDEN, RECEIVED, RECEIVED_SHARE, SENT, SEQUENCE_SP
from ...expert_layers import AFAR, FLEX, GATHERED, LEAVE, SEVERAL
from ...functions import Iverson
from ...ledger import Component, Place, Tensor, transient
from ...parameters import symbol
from ..quantised import EVERY as QUANTISED

fs = symbol("fs")

_SENT, _RECEIVED, _SHARE = (SENT, HIDDEN), (RECEIVED, HIDDEN), (RECEIVED_SHARE, HIDDEN)
_ONE, _ALONE = 1 - SEVERAL, 1 - GATHERED
#: Dispatchers behind which experts and their results are alike.
_ANY: Any = {"dispatch": ("alltoall", *FLEX)}
#: With passes of two micro-batches in turns, what a part of a layer returns is saved, or let go of.
_APART: Any = {"expert_passes": ("apart",)}
_COMBINED: Any = {"expert_passes": ("combined",)}
#: In FP8 experts do not keep the 16-bit tokens that they read, and a variable holds those that arrived.
_KEPT: Any = {"fp8": ("none",)}
#: Bytes of an element of an activation without a gate that is weighted apart, where its gradients are made: that of the
#: product and those of both factors. In fp32 that of the activation is cast before that of the weights is summed.
PRODUCT_GRADIENTS: Mapping[str, int] = {"fp32": 4 + 4 + 4 + 2, "bf16": 2 + 2 + 2}


def _row(
    name: str, shape: tuple[Dimension, ...], size: int, meaning: str, site: str, when: Expr = ONE, **more: Any
) -> Tensor:
    on: Any = {"peak": ("megatron_te",), "dispatch": ("alltoall",), **more}
    return transient(name, "dispatch", shape, size, "megatron_core", meaning, (site,), when=when, **on)


def _forward() -> tuple[Tensor, ...]:
    """Return the tensors on their way, each held by a variable until the layer returns."""
    at = "experts_forward"
    fp32, bf16 = {"router_precision": ("fp32",)}, {"router_precision": ("bf16",)}
    not_the_experts_input = SEVERAL + GATHERED - SEVERAL * GATHERED
    return (
        _row("sent", _SENT, 2, "tokens about to be sent", at, **_APART),
        _row("arrived", _SHARE, 2, "tokens that arrived, before they are gathered and sorted", at,
             AFAR * not_the_experts_input, **_KEPT),
        _row("arrived_quantised", _SHARE, 2, "tokens that arrived, before they are gathered, sorted and quantised", at,
             AFAR, fp8=QUANTISED),
        _row("arrived_weights", (RECEIVED_SHARE,), 4, "their weights, fp32", at, not_the_experts_input, **fp32,
             **_APART),
        _row("arrived_weights_bf16", (RECEIVED_SHARE,), 2, "their weights, bf16", at, not_the_experts_input, **bf16,
             **_APART),
        _row("results", _RECEIVED, 2, "results of the experts", at, **_ANY),
        _row("results_sorted", _RECEIVED, 2, "results sorted by where they go", at,
             SEVERAL * LEAVE),
        # On one rank they are what is summed, and live as long.
        _row("results_sorted_here", _RECEIVED, 2, "results sorted by token", at, SEVERAL * (1 - LEAVE)),
        _row("results_fp32", _RECEIVED, 4, "fp32 copy of them, about to be reduced", at, GATHERED, **fp32),
        _row("results_reduced", _SHARE, 4, "their sums over the ranks that share an expert's width, fp32", at,
             GATHERED, **fp32),
        _row("results_reduced_bf16", _SHARE, 2, "the same, bf16", at, GATHERED, **bf16),
        _row("results_returned", _SENT, 2, "results sent back", at, _ONE * _ALONE * AFAR),
        _row("shared_results", (SEQUENCE_SP, BATCH, HIDDEN), 2, "result of the shared experts", at, Iverson(fs > 0),
             **_ANY, **_APART),
    )


def _weights_gradient(**options: tuple[str, ...]) -> tuple[Tensor, ...]:
    name, meaning, at = "weights_gradient", "gradient of the tokens' weights", "experts_backward"
    return (
        _row(name, (RECEIVED,), 4, f"{meaning}, fp32", at, router_precision=("fp32",), **_ANY, **options),
        _row(f"{name}_bf16", (RECEIVED,), 2, f"{meaning}, bf16", at, router_precision=("bf16",), **_ANY, **options),
    )


def _ungated() -> tuple[Tensor, ...]:
    """Return the gradients of an activation without a gate, less the freed input of the down projection.

    Where one kernel weights the activation, most is there before: behind the down projection, whose input still is.
    """
    at, inner = "experts_backward", (RECEIVED, EXPERT_FFN)
    fused: Any = {"mlp": UNGATED, "weighting": ("fused",), **_ANY, **_KEPT}
    apart: Any = {"mlp": UNGATED, "weighting": ("separate",), **_ANY, **_KEPT}
    return (
        _row("results_gradient", _RECEIVED, 2, "gradient of the experts' results", at, **fused),
        _row("activation_gradient", inner, 2, "gradient of the down projection's input", at, **fused),
        _row("product_gradients", inner, PRODUCT_GRADIENTS["fp32"] - 2,
             "fp32 gradients of the weighted activation and of its factors, and a bf16 copy", at,
             router_precision=("fp32",), **apart),
        _row("product_gradients_bf16", inner, PRODUCT_GRADIENTS["bf16"] - 2,
             "bf16 gradients of the weighted activation and of its factors", at, router_precision=("bf16",), **apart),
        _row("summed_weights_gradient_bf16", (RECEIVED,), 2, "gradient of the tokens' weights, bf16", at,
             router_precision=("bf16",), **apart),
    )


def _held() -> tuple[Tensor, ...]:
    """Return what is held while experts go backward in a graph of their own, and that of shared experts waits."""
    combine, inside = "combine_backward", "experts_backward"
    stream, some = (SEQUENCE_SP, BATCH, HIDDEN), Iverson(fs > 0)
    return (
        *(_row(f"{name}{suffix}", stream, 2, meaning, at, when, **_COMBINED)
          for suffix, at in (("", combine), ("_inside", inside)) for name, meaning, when in (
              ("output_gradient", "gradient of the layer's output, beside that of what goes around the experts", ONE),
              ("shared_gradient", "gradient of the shared experts' result", some))),
        _row("down_gradient", (RECEIVED, EXPERT_FFN), 2, "gradient of the down projection's input", combine,
             mlp=GATED, **_COMBINED),
        _row("gradient_held", _RECEIVED, 2, "gradient of the experts' results before it is sorted", inside,
             **_COMBINED),
    )


def _backward() -> tuple[Tensor, ...]:
    at = "combine_backward"
    fp32, bf16 = {"router_precision": ("fp32",)}, {"router_precision": ("bf16",)}
    return (
        _row("gradient", _RECEIVED, 2, "gradient of the experts' results", at, **_ANY),
        _row("gradient_unsorted", _RECEIVED, 2, "the same before it is sorted", at, SEVERAL * _ALONE),
        _row("gradient_sent", _SENT, 2, "the same before it is sent", at, _ONE * _ALONE * AFAR),
        _row("gradient_fp32", _RECEIVED, 4, "the same, gathered in fp32", at, GATHERED, **fp32),
        _row("gradient_gathered", _RECEIVED, 2, "the same before it is sorted, gathered in bf16", at,
             SEVERAL * GATHERED, **bf16),
        _row("gradient_share", _SHARE, 2, "the same before it is gathered", at, _ONE * GATHERED, **bf16),
        # The gradient of the activation's result takes the place of the input of the down projection.
        _row("gate_up_gradient", (RECEIVED, EXPERT_GATE_UP), 2, "gradient of gate and up projections",
             "experts_backward", mlp=GATED, **_ANY, **_KEPT),
        *_ungated(),
        *_weights_gradient(mlp=GATED, **_KEPT),
    )


COMPONENTS = (
    Component(
        "dispatch", "Dispatch of tokens", 49, Place.EXPERTS, (*_forward(), *_backward(), *_held()),
        note="With a fuller rank than others the first of these moments is the one that counts: what the forward"
        " pass of one layer holds besides is four times the tokens of its experts.",
        options={"layers": ("experts",), "peak": ("megatron_te",)},
    ),
)
