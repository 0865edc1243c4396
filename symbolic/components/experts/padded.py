"""torchtitan's routed experts: tokens sorted into padded groups, three projections, results weighted in fp32."""

from __future__ import annotations

from typing import Any

from sympy import Eq, Gt

from ...dimension import ONE
from ...dimensions import (
    BATCH,
    DISPATCHED,
    EXPERT_FFN,
    EXPERTS,
    HIDDEN,
    PADDED_RECEIVED,
    RECEIVED,
    ROUTED,
    SENT,
    SEQUENCE,
    TOPK,
)
from ...functions import Iverson
from ...ledger import Component, Lifetime, Place, Role, Tensor, saved, weight
from ...parameters import symbols
from ...work import NONE, Ranks, Stream, Transfer, Work
from ...work_rows import column_parallel, gated_work, residual_work, row_parallel

q, t, e, et, fs, rfull = symbols("q t e et fs rfull")

#: Tensor-parallel ranks all score the tokens of all of them.
_TOKENS = (SEQUENCE, BATCH)
_ALL, _CHOSEN = (*_TOKENS, ROUTED), (*_TOKENS, TOPK)
_SRC = "torchtitan"
_AFTER: Any = {"weighting": ("results",)}
_BEFORE: Any = {"weighting": ("input",)}
#: Gate and up projection of experts are matrices of their own.
_APART: Any = {"projections": ("separate",)}
#: Ranks that share the width of other layers, but not of experts, take a part of the tokens each.
_PARTS = Iverson(Gt(t, 1)) * Iverson(Gt(e, 1)) * Iverson(Eq(et, 1))


#: Shared experts read and return the same tokens, with their own transfers.
_NOT_SHARED = Iverson(Eq(fs, 0))


def _router() -> tuple[Tensor, ...]:
    at = "router"
    softmax: Any = {"scores": ("softmax", "softmax_all")}
    sigmoid: Any = {"scores": ("sigmoid",)}
    divided: tuple[tuple[str, Any], ...] = (
        ("", {"scores": ("softmax",)}), ("_of_sigmoid", {"when": Iverson(q > 1), **sigmoid}),
    )
    return (
        saved("probabilities", at, _ALL, 4, _SRC, "fp32 softmax of all logits", **softmax),
        saved("scores", at, _ALL, 4, _SRC, "fp32 sigmoid of all logits", **sigmoid),
        saved("chosen", at, _CHOSEN, 8, _SRC, "int64 numbers of the chosen experts"),
        *(row for suffix, options in divided for row in (
            saved(f"chosen_scores{suffix}", at, _CHOSEN, 4, _SRC, "fp32 scores of the chosen experts", **options),
            saved(f"score_sums{suffix}", at, _TOKENS, 4, _SRC, "fp32 sums that they are divided by", **options),
        )),
        Tensor("bias", at, Role.BUFFER, (ROUTED,), 4, Lifetime.ONCE, _SRC, "fp32 bias of every expert",
               options={"balance": ("bias",)}),
        Tensor("tokens_per_expert", at, Role.BUFFER, (ROUTED,), 4, Lifetime.ONCE, _SRC,
               "fp32 tokens of every expert since the last step"),
    )


def _dispatch() -> tuple[Tensor, ...]:
    at = "dispatch"
    sent = (DISPATCHED, HIDDEN)
    return (
        saved("order", at, (DISPATCHED,), 8, _SRC, "int64 places of tokens sorted by expert"),
        saved("order_of_rank", at, (DISPATCHED,), 8, _SRC, "the same among the tokens of the rank alone", when=_PARTS,
              **_BEFORE),
        saved("token_numbers", at, (DISPATCHED,), 8, _SRC, "int64 numbers of the tokens sorted"),
        saved("sent_fp32", at, sent, 4, _SRC, "fp32 copy of the tokens, before they are weighted", **_BEFORE),
        saved("sent_weights", at, (DISPATCHED,), 4, _SRC, "their weights, fp32", **_BEFORE),
        saved("places", at, (PADDED_RECEIVED,), 4, _SRC, "int32 places of received tokens in padded groups"),
        # The dispatcher of every layer remembers those of its last micro-batch, in flight or not.
        Tensor("last_places", at, Role.BUFFER, (PADDED_RECEIVED,), 4, Lifetime.ONCE, _SRC,
               "int32 places in the layer's last micro-batch, which full recompute keeps too",
               when=rfull * Iverson(Gt(e, 1))),
        saved("weights", at, _CHOSEN, 4, _SRC, "weights of the chosen experts' results, fp32", **_AFTER),
        saved("results_fp32", at, (*_CHOSEN, HIDDEN), 4, _SRC, "fp32 copy of the results, in the order of tokens",
              **_AFTER),
    )


def _projections() -> tuple[Tensor, ...]:
    rows, inner = (PADDED_RECEIVED, HIDDEN), (PADDED_RECEIVED, EXPERT_FFN)
    return (
        weight("gate.weight", "experts_up", (EXPERTS, EXPERT_FFN, HIDDEN), _SRC, "gate projection of every expert",
               tokens=(RECEIVED,), **_APART),
        weight("up.weight", "experts_up", (EXPERTS, EXPERT_FFN, HIDDEN), _SRC, "up projection of every expert",
               tokens=(RECEIVED,), **_APART),
        weight("down.weight", "experts_down", (EXPERTS, HIDDEN, EXPERT_FFN), _SRC, "down projection of every expert",
               tokens=(RECEIVED,), **_APART),
        saved("gate_up.input", "experts_up", rows, 2, _SRC, "tokens in padded groups, one for each expert"),
        saved("ends", "experts_up", (EXPERTS,), 4, _SRC, "int32 ends of the groups"),
        saved("gate", "experts_activation", inner, 2, _SRC, "gate projection, input of SiLU"),
        saved("up", "experts_activation", inner, 2, _SRC, "up projection"),
        saved("silu", "experts_product", inner, 2, _SRC, "SiLU of the gate projection"),
        saved("down.input", "experts_down", inner, 2, _SRC, "input of the down projection"),
    )


def _work() -> tuple[Work, ...]:
    at = "dispatch"
    return (
        Stream("permute", at, (DISPATCHED, HIDDEN), 8, 8, _SRC, "tokens sorted by expert, and results sorted back", 2),
        Stream("pad", at, (PADDED_RECEIVED, HIDDEN), 12, 12, _SRC, "received tokens copied, put into padded groups,"
               " and results taken out of them", 3),
        Stream("weigh", at, (DISPATCHED, HIDDEN), 12, 20, _SRC, "tokens multiplied with their weights in fp32", 3,
               options=_BEFORE),
        Stream("weigh.results", at, (*_CHOSEN, HIDDEN), 10, 14, _SRC, "fp32 copy of the results, times their weights",
               2, options=_AFTER),
        Transfer("exchange", at, Ranks.EXPERT, (SENT, HIDDEN), 2, 2 * et * ONE, 2 * et * ONE, _SRC,
                 "tokens sent to experts, and results sent back"),
        Transfer("counts", at, Ranks.EXPERT, (ROUTED,), 8, ONE, NONE, _SRC, "int64 tokens for every expert"),
        *column_parallel("tokens", at, _NOT_SHARED), *row_parallel("results", at, _NOT_SHARED),
        *gated_work("experts_activation", (RECEIVED, EXPERT_FFN)),
        *residual_work("residual"),
    )


COMPONENTS = (
    Component(
        "padded_experts", "Routed experts in padded groups", 50, Place.EXPERTS,
        (*_router(), *_dispatch(), *_projections()),
        note="Groups of tokens are padded for a grouped product: eight rows more for every expert of a rank.",
        options={"layers": ("experts",), "dispatch": ("torchtitan",), "router": ("torchtitan",)},
        work=_work(),
    ),
)
