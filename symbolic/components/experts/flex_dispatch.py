"""Megatron-Core's flex dispatcher: what DeepEP and HybridEP keep of tokens, and the tokens that they send.

Every token is sent once to each rank that has experts of it, and sorted by expert where it arrives. Handles of DeepEP
are those of ``intranode_dispatch`` and ``internode_dispatch`` (servers of eight), of HybridEP those of one NVLink
domain: each further domain has 2 bytes of a token more. Where DeepEP forwards tokens inside of servers, all are taken
to be.
"""

from __future__ import annotations

from typing import Any

from sympy import Expr, Gt

from ...choices import BY_NAME
from ...dimension import ONE, Dimension
from ...dimensions import (
    ALL_CHOICES,
    ALL_ROUTED,
    ARRIVED,
    BATCH,
    EXPERT_NODES,
    EXPERT_RANKS,
    EXPERTS,
    HIDDEN,
    HIDDEN_SCALES,
    LOCAL_ROW_MAP,
    RECEIVED,
    ROUTED,
    SEQUENCE_SP,
)
from ...expert_layers import FLEX, SEVERAL
from ...functions import Iverson
from ...ledger import Component, Lifetime, Place, Role, Tensor, saved, transient
from ...parameters import symbols
from ...work import NONE, Ranks, Stream, Transfer, Work
from ..quantised import EVERY as QUANTISED

E, e, et, o8 = symbols("E e et o8")

_AT = "dispatch"
_TOKENS = (SEQUENCE_SP, BATCH)
_CHOICES = (*_TOKENS, ALL_CHOICES)
_DEEPEP: Any = {"dispatch": ("deepep",)}
_HYBRIDEP: Any = {"dispatch": ("hybridep",)}
_RESIDUAL = (*_TOKENS, HIDDEN)
#: Ranks beyond one server, whose tokens RDMA brings.
_FAR = Iverson(Gt(e * et, 8))
_NEAR = 1 - _FAR


def _last(name: str, shape: tuple[Dimension, ...], size: int, meaning: str, when: Expr = ONE, **options: Any) -> Tensor:
    """Return a tensor that the dispatcher of every layer remembers of its last micro-batch, in flight or not."""
    return Tensor(name, _AT, Role.BUFFER, shape, size, Lifetime.ONCE, "megatron_core",
                  f"{meaning} of the layer's last micro-batch", when=when, options=options)


def _row(
    name: str, shape: tuple[Dimension, ...], meaning: str, site: str, size: int = 2, **options: Any
) -> Tensor:
    return transient(name, _AT, shape, size, "megatron_core", meaning, (site,), peak=("megatron_te",), **options)


def _deepep() -> tuple[Tensor, ...]:
    core, deepep, arrived = "megatron_core", "deepep", (ARRIVED, EXPERTS)
    unfused: Any = {"permute": ("unfused",), **_DEEPEP}
    return (
        saved("token_indices", _AT, _CHOICES, 8, core, "int64 numbers of every token's experts", **_DEEPEP),
        saved("token_in_rank", _AT, (*_TOKENS, EXPERT_RANKS), 1, deepep, "bool map of tokens to ranks", **_DEEPEP),
        saved("send_head", _AT, (*_TOKENS, EXPERT_RANKS), 4, deepep,
              "int32 places of sent tokens, or of tokens that are forwarded inside of servers", **_DEEPEP),
        saved("send_rdma_head", _AT, (*_TOKENS, EXPERT_NODES), 4, deepep, "int32 places of tokens sent to servers",
              when=_FAR, **_DEEPEP),
        saved("source", _AT, (ARRIVED,), 4, deepep, "int32 numbers of arrived tokens", when=_NEAR, **_DEEPEP),
        saved("source_ranks", _AT, (ARRIVED,), 8, deepep, "servers and ranks of arrived tokens", when=_FAR, **_DEEPEP),
        saved("rank_sums", _AT, (EXPERT_RANKS, EXPERT_RANKS), 4, deepep, "int32 sums of tokens by rank", when=_NEAR,
              **_DEEPEP),
        saved("channel_sums", _AT, (EXPERT_RANKS,), 80, deepep, "int32 sums of tokens by rank, 10 channels each way",
              **_DEEPEP),
        saved("server_sums", _AT, (EXPERT_NODES,), 84, deepep, "int32 sums of tokens by server", when=_FAR, **_DEEPEP),
        saved("all_rank_sums", _AT, (EXPERT_RANKS,), 4, deepep, "int32 sums of arrived tokens by rank", when=_FAR,
              **_DEEPEP),
        saved("arrived_mask", _AT, (ARRIVED, ALL_CHOICES), 1, core, "bool mask of the experts of this rank", **_DEEPEP),
        saved("arrived_rows", _AT, (RECEIVED,), 8, core, "int64 numbers of arrived tokens, one for each expert",
              **_DEEPEP),
        saved("arrived_experts", _AT, (RECEIVED,), 8, core, "int64 experts of them", **_DEEPEP),
        saved("arrived_row_map", _AT, (ARRIVED, LOCAL_ROW_MAP), 4, "transformer_engine",
              "int32 places of every arrived token", permute=("fused",), **_DEEPEP),
        saved("arrived_map", _AT, arrived, 1, core, "bool map of the rank's experts to tokens", **unfused),
        saved("arrived_weights", _AT, arrived, 4, core, "fp32 weights of the rank's experts, by expert", **unfused),
        saved("arrived_indices", _AT, (RECEIVED,), 8, core, "int64 numbers of arrived tokens, sorted by expert",
              **unfused),
        _last("last_token_weights", _CHOICES, 4, "fp32 weights of every token's experts", **_DEEPEP),
        _last("last_arrived_experts", (ARRIVED, ALL_CHOICES), 8, "int64 experts of arrived tokens", **_DEEPEP),
        *(_last(f"{name}{suffix}", arrived, size, meaning, when=when, permute=(permute,), **_DEEPEP)
          for permute, suffix, when in (("fused", "", ONE), ("unfused", "_unfused", SEVERAL))
          for name, size, meaning in (("last_arrived_weights", 4, "fp32 weights of arrived tokens"),
                                      ("last_arrived_map", 1, "bool map of arrived tokens to experts"))),
    )


def _hybridep() -> tuple[Tensor, ...]:
    hybrid = "deepep"
    arriving = (*_TOKENS, EXPERT_RANKS, EXPERTS)
    return (
        saved("sparse_to_dense", _AT, (*_TOKENS, EXPERT_RANKS), 4, hybrid, "int32 places of tokens on every rank",
              **_HYBRIDEP),
        saved("forwarded", _AT, _TOKENS, 1, hybrid, "bool map of tokens that go on inside of the domain", **_HYBRIDEP),
        saved("local_routing", _AT, arriving, 1, hybrid, "bool map of all ranks' tokens to the rank's experts",
              **_HYBRIDEP),
        saved("dense_to_expert", _AT, arriving, 4, hybrid, "int32 places of all ranks' tokens among those sorted",
              **_HYBRIDEP),
        _last("last_all_weights", (*_TOKENS, ALL_ROUTED), 4, "fp32 weights of all experts", **_HYBRIDEP),
        # Sinkhorn's scores keep it for all micro-batches in flight.
        _last("last_all_map", (*_TOKENS, ALL_ROUTED), 1, "bool map of tokens to experts", **_HYBRIDEP, balance=tuple(
            option for option in BY_NAME["balance"].options if option != "sinkhorn")),
    )


def _moments() -> tuple[Tensor, ...]:
    """Return the tensors on their way, beside what all dispatchers have: each is held until another takes its place."""
    forward, backward = "experts_forward", "combine_backward"
    return (
        _row("arrived", (ARRIVED, HIDDEN), "tokens that arrived, before they are sorted", forward, **_DEEPEP),
        _row("arrived_sorted", (RECEIVED, HIDDEN), "tokens sorted by expert as they arrived, which experts quantise",
             forward, fp8=QUANTISED, **_HYBRIDEP),
        _row("arrived_choices", (ARRIVED, ALL_CHOICES), "their fp32 weights as they arrived", forward, 4, **_DEEPEP),
        _row("chosen_map", (*_TOKENS, ROUTED), "bool map of tokens to experts", forward, 1, **_DEEPEP),
        _row("chosen_map_spread", (*_TOKENS, ROUTED), "the same before it is spread over ranks that share experts",
             forward, 1, when=Iverson(Gt(et, 1)), **_HYBRIDEP),
        _row("results_summed", (ARRIVED, HIDDEN), "sums of results for every arrived token", forward, **_DEEPEP),
        _row("results_returned", _RESIDUAL, "results sent back", forward, **_HYBRIDEP),
        _row("gradient_arrived", (ARRIVED, HIDDEN), "gradient of the experts' results before it is sorted", backward,
             **_DEEPEP),
    )


def _work() -> tuple[Work, ...]:
    """Return the tokens sent once to each rank, their weights, and how they are sorted where they arrive."""
    core = "megatron_core"
    return (
        Stream("arrived", _AT, (RECEIVED, HIDDEN), 8, 8, core, "arrived tokens sorted by expert, and results summed",
               2),
        Transfer("tokens", _AT, Ranks.EXPERT_ALL, (ARRIVED, HIDDEN), 2, 2 - o8, 2 - o8, "deepep",
                 "tokens sent once to each rank, and sums of results sent back; with FP8 the sums alone", pairs=True),
        # 128 elements have 128 bytes and an fp32 scale: for each byte of scales 33 are sent.
        Transfer("tokens_fp8", _AT, Ranks.EXPERT_ALL, (ARRIVED, HIDDEN_SCALES), 33, o8, o8, "deepep",
                 "tokens, and gradients of the results, in FP8 with fp32 scales of 128 elements", pairs=True,
                 kernels=o8),
        Transfer("indices", _AT, Ranks.EXPERT_ALL, (ARRIVED, ALL_CHOICES), 8, ONE, NONE, "deepep",
                 "int64 numbers of every token's experts", pairs=True, options=_DEEPEP),
        Transfer("weights", _AT, Ranks.EXPERT_ALL, (ARRIVED, ALL_CHOICES), 4, ONE, ONE, "deepep",
                 "fp32 weights of every token's experts", pairs=True, options=_DEEPEP),
        Transfer("all_weights", _AT, Ranks.EXPERT_ALL, (ARRIVED, EXPERTS), 4, ONE, ONE, "deepep",
                 "fp32 weights of all experts of a rank", pairs=True, options=_HYBRIDEP),
        Transfer("map", _AT, Ranks.EXPERT_ALL, (*_TOKENS, EXPERT_RANKS, ALL_ROUTED), 1, ONE, NONE, "deepep",
                 "bool map of experts to tokens, gathered from all ranks", options=_HYBRIDEP),
    )


COMPONENTS = (
    Component(
        "flex_dispatch", "Dispatch by DeepEP or HybridEP", 48, Place.EXPERTS,
        (*_deepep(), *_hybridep(), *_moments()),
        note="How many tokens arrive depends on how their experts lie on ranks; here is the most.",
        options={"layers": ("experts",), "dispatch": FLEX}, work=_work(),
    ),
)
