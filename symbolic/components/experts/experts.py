"""Routed experts: how tokens reach them, their two projections, and the gated activation between these."""

from __future__ import annotations

from typing import Any

from sympy import Eq, Gt, Integer

from ...choices import BY_NAME, GATED, UNGATED
from ...dimension import ONE, Dimension
from ...dimensions import (
    BATCH,
    EXPERT_FFN,
    EXPERT_FFN_SCALES,
    EXPERT_GATE_UP,
    EXPERT_RANKS,
    EXPERTS,
    HIDDEN,
    HIDDEN_SCALES,
    LOCAL_ROW_MAP,
    RECEIVED,
    RECEIVED_SHARE,
    ROUTED,
    ROW_MAP,
    SENT,
    SEQUENCE_SP,
)
from ...expert_layers import FLEX
from ...functions import Iverson
from ...ledger import Component, Lifetime, Place, Role, Tensor, saved, weight
from ...parameters import symbols
from ...work import NONE, Ranks, Stream, Transfer, Work
from ...work_rows import bounded_work, gated_work, residual_work, ungated_work
from ..quantised import AGAIN, quantised

E, e, cf, lbias = symbols("E e cf lbias")

_TOKENS = (SEQUENCE_SP, BATCH)
_GATHERED = (*_TOKENS, EXPERT_RANKS)
_MEGATRON = ("alltoall", "allgather")
_NONE = ("none",)
_GATED: Any = {"mlp": GATED}
_UNBOUNDED: Any = {"mlp": tuple(BY_NAME["mlp"].words)}
_BOUNDED: Any = {"mlp": ("swiglu_clamped",)}
_UNGATED: Any = {"mlp": UNGATED}
_NOT_KEPT = tuple(option for option in BY_NAME["balance"].options if option != "sinkhorn")
_DROPLESS = Iverson(Eq(cf, 0))
#: Ranks with a single expert need not sort the tokens that they receive.
_SEVERAL = Iverson(Gt(E, e))


def _by_precision(
    name: str, module: str, shape: tuple[Dimension, ...], meaning: str, source: str, **options: Any
) -> tuple[Tensor, ...]:
    """Return the two rows of weights of experts' results, which are in the router's precision."""
    return (
        saved(name, module, shape, 4, source, f"{meaning}, fp32", router_precision=("fp32",), **options),
        saved(f"{name}_bf16", module, shape, 2, source, f"{meaning}, bf16", router_precision=("bf16",), **options),
    )


def _alltoall() -> tuple[Tensor, ...]:
    at = "dispatch"
    fused: Any = {"dispatch": ("alltoall",), "permute": ("fused",)}
    unfused: Any = {"dispatch": ("alltoall",), "permute": ("unfused",)}
    te, core = "transformer_engine", "megatron_core"
    return (
        saved("row_map", at, (*_TOKENS, ROW_MAP), 4, te, "int32 places of every token among those sent", **fused),
        saved("sort_map", at, (RECEIVED,), 4, te, "int32 places that received tokens are sorted to",
              when=_SEVERAL * _DROPLESS, **fused),
        saved("unsort_map", at, (RECEIVED,), 4, te, "int32 places that results are sorted back to",
              when=_SEVERAL * _DROPLESS, **fused),
        *_by_precision("arrived_weights", at, (RECEIVED_SHARE,), "weights of tokens as they arrived", core,
                       dispatch=("alltoall",), expert_passes=("combined",)),
        saved("map_transposed", at, (*_TOKENS, ROUTED), 1, core, "bool map of experts to tokens", when=_DROPLESS,
              **unfused),
        *_by_precision("weights_transposed", at, (*_TOKENS, ROUTED), "weights of all experts, by expert", core,
                       when=_DROPLESS, **unfused),
        saved("sent_indices", at, (SENT,), 8, core, "int64 numbers of the tokens sent", **unfused),
        saved("sent_weight_indices", at, (SENT,), 8, core, "int64 places of their weights", when=1 - _DROPLESS,
              **unfused),
        # The dispatcher of every layer remembers its last micro-batch, in flight or not.
        *(Tensor(f"last_weights{suffix}", at, Role.BUFFER, (*_TOKENS, ROUTED), size, Lifetime.ONCE, core,
                 f"weights of all experts in the layer's last micro-batch, {precision}",
                 options={"dispatch": ("alltoall",), "router_precision": (precision,)})
          for suffix, size, precision in (("", 4, "fp32"), ("_bf16", 2, "bf16"))),
        # Sinkhorn's scores keep it for all micro-batches in flight.
        Tensor("last_map", at, Role.BUFFER, (*_TOKENS, ROUTED), 1, Lifetime.ONCE, core,
               "bool map of tokens to experts in the layer's last micro-batch",
               options={"dispatch": ("alltoall",), "balance": _NOT_KEPT}),
    )


def _allgather() -> tuple[Tensor, ...]:
    at = "dispatch"
    on: Any = {"dispatch": ("allgather",)}
    return (
        saved("local_row_map", at, (*_GATHERED, LOCAL_ROW_MAP), 4, "transformer_engine",
              "int32 places of every gathered token among those of the rank", permute=("fused",), **on),
        saved("local_map", at, (*_GATHERED, EXPERTS), 1, "megatron_core", "bool map of the rank's experts to tokens",
              **on),
        *_by_precision("local_weights", at, (*_GATHERED, EXPERTS), "weights of the rank's experts, by expert",
                       "megatron_core", **on),
        saved("local_indices", at, (RECEIVED,), 8, "megatron_core", "int64 numbers of the tokens taken",
              permute=("unfused",), **on),
    )


def _sorted() -> tuple[Tensor, ...]:
    at = "dispatch"
    on: Any = {"dispatch": ("huggingface",)}
    hf = "transformers"
    return (
        saved("order", at, (SENT,), 8, hf, "int64 places of tokens sorted by expert", **on),
        saved("token_numbers", at, (SENT,), 8, hf, "int64 numbers of the tokens sorted", **on),
        saved("order_back", at, (SENT,), 8, hf, "int64 places that results are sorted back to", **on),
        saved("offsets", at, (ROUTED,), 4, hf, "int32 ends of the experts' tokens", **on),
        saved("sorted_numbers", at, (SENT,), 8, hf, "int64 experts of the tokens sorted, whose biases are taken",
              when=lbias, adapters=_NONE, **on),
    )


def _sent() -> tuple[Tensor, ...]:
    """Return the rows of Transformers' exchange, after which every token that arrived has one expert and no weight."""
    at = "dispatch"
    on: Any = {"dispatch": ("huggingface_sent",)}
    hf = "transformers"
    return (
        saved("sent_numbers", at, (SENT,), 8, hf, "int64 numbers of the tokens sent", **on),
        saved("sent_order", at, (SENT,), 8, hf, "int64 places that results are sorted back to", **on),
        saved("sent_results", at, (SENT, HIDDEN), 2, hf, "results before they are weighted", **on),
        *_by_precision("sent_weights", at, (SENT,), "weights of the results", hf, **on),
        saved("received_numbers", at, (RECEIVED,), 8, hf, "int64 places of tokens sorted by expert", **on),
        saved("received_order", at, (RECEIVED,), 8, hf, "int64 places that their results are sorted back to", **on),
        saved("received_weights", at, (RECEIVED,), 2, hf, "16-bit ones that their results are multiplied with", **on),
        saved("received_mask", at, (RECEIVED,), 1, hf, "bool mask of tokens for other ranks' experts", **on),
        saved("received_offsets", at, (EXPERTS,), 4, hf, "int32 ends of the tokens of the rank's experts", **on),
    )


def _projections() -> tuple[Tensor, ...]:
    core, hf = "megatron_core", "transformers"
    received, inner = (RECEIVED, HIDDEN), (RECEIVED, EXPERT_FFN)
    own: Any = {"dispatch": ("huggingface",)}
    return (
        weight("gate_up.weight", "experts_up", (EXPERTS, EXPERT_GATE_UP, HIDDEN), core,
               "fused gate and up projection of every expert", tokens=(RECEIVED,), **_GATED),
        weight("gate_up.bias", "experts_up", (EXPERTS, EXPERT_GATE_UP), core,
               "bias of the gate and up projections of every expert", lbias, **_GATED),
        weight("up.weight", "experts_up", (EXPERTS, EXPERT_FFN, HIDDEN), core, "up projection of every expert",
               tokens=(RECEIVED,), **_UNGATED),
        weight("up.bias", "experts_up", (EXPERTS, EXPERT_FFN), core, "bias of the up projection of every expert",
               lbias, **_UNGATED),
        weight("down.weight", "experts_down", (EXPERTS, HIDDEN, EXPERT_FFN), core, "down projection of every expert",
               tokens=(RECEIVED,)),
        weight("down.bias", "experts_down", (EXPERTS, HIDDEN), core,
               "bias of the down projection of every expert", lbias),
        saved("gate_up.input", "experts_up", received, 2, core, "tokens, sorted by expert", fp8=_NONE,
              adapters=_NONE, module_offload=_NONE),
        *quantised("gate_up.input", "experts_up", (RECEIVED,), (HIDDEN, HIDDEN_SCALES), tensors=(EXPERTS,),
                   module_offload=_NONE),
        saved("gate_up.offloaded", "experts_up", received, 2, core,
              "tokens, sorted by expert, in 16 bits: FP8 quantises them once more in the backward pass", fp8=AGAIN,
              adapters=_NONE, module_offload=("expert_fc1",)),
        saved("gate_up", "experts_activation", (RECEIVED, EXPERT_GATE_UP), 2, core, "gate and up projections",
              **_GATED),
        saved("up", "experts_activation", inner, 2, core, "up projection, input of the activation", **_UNGATED),
        *_by_precision("weights", "experts_activation", (RECEIVED,), "weight of every token's result", core,
                       dispatch=(*_MEGATRON, *FLEX, "huggingface")),
        saved("silu", "experts_product", inner, 2, hf, "SiLU of the gate projection", swiglu=("eager", "unfused"),
              **_UNBOUNDED),
        saved("up_copy", "experts_product", inner, 2, core, "up projection plus an offset of 0", swiglu=("unfused",),
              **_UNBOUNDED),
        saved("product", "experts_product", inner, 2, core, "gated activation before it is weighted",
              swiglu=("unfused",), dispatch=(*_MEGATRON, *FLEX), **_UNBOUNDED),
        saved("bounded", "experts_activation", (RECEIVED, EXPERT_GATE_UP), 2, core,
              "gate and up projections within their bounds", swiglu=("fused",), **_BOUNDED),
        *(saved(f"offset{suffix}", "experts_activation", shape, 2, core, "16-bit offset of the up projection",
                swiglu=("fused",), expert_products=(products,), **_BOUNDED)
          for products, suffix, shape in (("grouped", "", ()), ("sequential", "_of_each", (EXPERTS,)))),
        *(saved(name, "experts_product", inner, 2, hf, meaning, swiglu=("eager",), **_BOUNDED) for name, meaning in (
            ("gate_bounded", "gate projection within its bound"), ("gate_sigmoid", "sigmoid of its multiple"),
            ("gate_product", "product of both"), ("up_shifted", "up projection within its bounds, plus 1"),
        )),
        saved("activated", "experts_product", inner, 2, core, "activation before it is weighted",
              weighting=("separate",), dispatch=(*_MEGATRON, *FLEX), **_UNGATED),
        saved("down.input", "experts_down", inner, 2, core, "input of the down projection", fp8=_NONE,
              adapters=_NONE),
        *quantised("down.input", "experts_down", (RECEIVED,), (EXPERT_FFN, EXPERT_FFN_SCALES), tensors=(EXPERTS,)),
        saved("results", "experts_down", received, 2, hf, "results before they are weighted", **own),
    )


def _with_weights(
    name: str, ranks: Ranks, tokens: tuple[Dimension, ...], summed: tuple[Dimension, ...], dispatch: str
) -> tuple[Work, ...]:
    """Return the weights of tokens that move to their experts, in the router's precision.

    Where ``tokens`` are gathered, they go along in 16 bits, and their results are summed in the router's precision.
    """
    core, at = "megatron_core", "dispatch"
    weights = (*tokens, ROUTED) if dispatch == "allgather" else tokens
    work: list[Work] = [] if not summed else [
        Transfer(f"{name}.tokens", at, ranks, (*tokens, *summed), 2, ONE, ONE, core,
                 "tokens gathered, their gradients summed", options={"dispatch": (dispatch,)}),
    ]
    for precision, size in (("fp32", 4), ("bf16", 2)):
        chosen = {"dispatch": (dispatch,), "router_precision": (precision,)}
        work.append(Transfer(f"{name}.weights_{precision}", at, ranks, weights, size, ONE, ONE, core,
                              f"{precision} weights of tokens", pairs=not summed, options=chosen))
        if summed:
            work.append(Transfer(f"{name}.results_{precision}", at, ranks, (*tokens, *summed), size, ONE, ONE, core,
                                  f"results summed in {precision}, their gradients gathered", options=chosen))
    return tuple(work)


def _work() -> tuple[Work, ...]:
    at, core = "dispatch", "megatron_core"
    sent: Any = {"options": {"dispatch": ("alltoall",)}}
    return (
        Stream("permute", at, (SENT, HIDDEN), 8, 8, core, "tokens sorted by expert, and results sorted back", 2,
               options={"dispatch": tuple(option for option in BY_NAME["dispatch"].options if option not in FLEX)}),
        Stream("sort", at, (RECEIVED_SHARE, HIDDEN), 8, 8, core, "received tokens sorted, and results sorted back", 2,
               when=_SEVERAL, **sent),
        Transfer("exchange", at, Ranks.EXPERT, (SENT, HIDDEN), 2, Integer(2), Integer(2), core,
                 "tokens sent to experts, and results sent back", pairs=True, **sent),
        Transfer("counts", at, Ranks.EXPERT_ALL, (EXPERT_RANKS, ROUTED), 8, ONE, NONE, core,
                 "int64 tokens of every rank for every expert", **sent),
        *_with_weights("exchange", Ranks.EXPERT, (SENT,), (), "alltoall"),
        *_with_weights("share", Ranks.EXPERT_TENSOR, (RECEIVED,), (HIDDEN,), "alltoall"),
        *_with_weights("gather", Ranks.EXPERT_ALL, _GATHERED, (HIDDEN,), "allgather"),
        Transfer("map", at, Ranks.EXPERT_ALL, (*_GATHERED, ROUTED), 1, ONE, NONE, core, "bool map of experts to tokens",
                 options={"dispatch": ("allgather",)}),
        *gated_work("experts_activation", (RECEIVED, EXPERT_FFN), **_UNBOUNDED),
        *bounded_work("experts_activation", (RECEIVED, EXPERT_FFN), **_BOUNDED),
        *ungated_work("experts_activation", (RECEIVED, EXPERT_FFN), weighted=True, **_UNGATED),
        *residual_work("residual"),
    )


COMPONENTS = (
    Component(
        "experts", "Routed experts", 50, Place.EXPERTS,
        (*_alltoall(), *_allgather(), *_sorted(), *_sent(), *_projections()),
        note="Tokens are weighted by the router between the activation and the down projection, so the results are"
        " not kept (Megatron-Core); Hugging Face weights the results.",
        options={"layers": ("experts",), "dispatch": (*_MEGATRON, *FLEX, "huggingface", "huggingface_sent")},
        work=_work(),
    ),
)
