"""Tensors that torchtitan's selective checkpointing keeps of a layer: its input and the outputs of some operations.

Every second matmul is computed again. Of grouped heads these are q, k, v and output projection, of latent ones that
of queries or two of them, two of keys and values, and output projection; then gate, up and down projection of the MLP,
or of shared experts. The router's matmul (``per_op_sac_force_recompute_mm_shapes_by_fqns``) and the grouped products of
routed experts are none of these. Outputs of attention, of reduce-scatters and of exchanges between experts are kept.
"""

from __future__ import annotations

from typing import Any

from sympy import Eq, Expr

from ..dimension import ONE, Dimension
from ..dimensions import (
    BATCH,
    DISPATCHED,
    FFN,
    HEAD_DIM,
    HEADS,
    HIDDEN,
    KEY_VALUE_DIM,
    KV_HEADS,
    LATENT_KV_ROTARY,
    LATENT_Q,
    RECEIVED,
    ROUTED,
    SEQUENCE,
    SEQUENCE_SP,
    SHARED_FFN,
    VALUE_DIM,
)
from ..functions import Iverson
from ..ledger import Component, Place, Tensor, saved
from ..parameters import symbols
from ..recompute import WHOLE_LAYER

t, e, lq, fs = symbols("t e lq fs")

_SHARDED = Iverson(t > 1)
_TOKENS = (SEQUENCE, BATCH)
_QUERY = (*_TOKENS, HEADS, HEAD_DIM)
_REDUCED = (SEQUENCE_SP, BATCH, HIDDEN)
_AT = "checkpoint"
_SRC = "torchtitan"
_ON: Any = {"checkpoint": WHOLE_LAYER}
_GROUPED: Any = {"heads": ("grouped",), **_ON}
_LATENT: Any = {"heads": ("latent",), **_ON}
#: No backward pass reads the last outputs of a layer, which a compiler sees.
_UNREAD: Any = {"compile": ("none",)}
#: Four matmuls in attention, or five where queries are compressed.
_FOUR, _FIVE = Iverson(Eq(lq, 0)), Iverson(lq > 0)


def _reduced(name: str, meaning: str, **options: Any) -> Tensor:
    """Return the row of what a reduce-scatter returns."""
    return saved(name, _AT, _REDUCED, 2, _SRC, meaning, when=_SHARDED, **_ON, **options)


def _attention() -> tuple[Tensor, ...]:
    first = "output of the query projection, first matmul"
    return (
        saved("q", _AT, _QUERY, 2, _SRC, first, **_GROUPED),
        saved("v", _AT, (*_TOKENS, KV_HEADS, HEAD_DIM), 2, _SRC, "output of the value projection, third matmul",
              **_GROUPED),
        saved("context", _AT, _QUERY, 2, _SRC, "output of attention", **_GROUPED),
        saved("latent.q", _AT, _QUERY, 2, _SRC, first, when=_FOUR, **_LATENT),
        saved("latent.kv_up", _AT, (*_TOKENS, HEADS, KEY_VALUE_DIM), 2, _SRC,
              "up projection of keys and values, third matmul", when=_FOUR, **_LATENT),
        saved("latent.q_down", _AT, (*_TOKENS, LATENT_Q), 2, _SRC, "compressed queries, first matmul", when=_FIVE,
              **_LATENT),
        saved("latent.kv_down", _AT, (*_TOKENS, LATENT_KV_ROTARY), 2, _SRC,
              "compressed keys and values, third matmul", when=_FIVE, **_LATENT),
        saved("latent.o_proj", _AT, (*_TOKENS, HIDDEN), 2, _SRC,
              "output of the output projection before it is reduced, fifth matmul", when=_FIVE, **_LATENT),
        saved("latent.context", _AT, (*_TOKENS, HEADS, VALUE_DIM), 2, _SRC, "output of attention", **_LATENT),
        saved("logsumexp", _AT, (*_TOKENS, HEADS), 4, _SRC, "fp32 logarithm of the softmax denominators", **_ON),
        _reduced("o_proj.reduced", "reduced output of the output projection"),
    )


def _mlp(prefix: str, width: Dimension, when: Expr = ONE) -> tuple[Tensor, ...]:
    """Return the outputs of a gated MLP's projections: gate and down behind four matmuls, up behind five."""
    inner, outer = (*_TOKENS, width), (*_TOKENS, HIDDEN)
    gate, up = f"output of the {prefix}gate projection", f"output of the {prefix}up projection"
    down = f"output of the {prefix}down projection before it is reduced"
    return (
        saved("gate", _AT, inner, 2, _SRC, f"{gate}, fifth matmul", when=when, **_GROUPED),
        saved("down", _AT, outer, 2, _SRC, f"{down}, seventh matmul", when=when, **_GROUPED, **_UNREAD),
        saved("latent.gate", _AT, inner, 2, _SRC, f"{gate}, fifth matmul", when=when * _FOUR, **_LATENT),
        saved("latent.down", _AT, outer, 2, _SRC, f"{down}, seventh matmul", when=when * _FOUR, **_LATENT),
        saved("latent.up", _AT, inner, 2, _SRC, f"{up}, seventh matmul", when=when * _FIVE, **_LATENT),
    )


def _experts() -> tuple[Tensor, ...]:
    afar: Any = {"when": Iverson(e > 1), **_ON}
    return (
        *_mlp("shared ", SHARED_FFN, Iverson(fs > 0)),
        saved("counts", _AT, (ROUTED,), 8, _SRC, "int64 tokens that every rank sends to the rank's experts", **afar),
        saved("arrived", _AT, (RECEIVED, HIDDEN), 2, _SRC, "tokens that arrived", **afar),
        saved("returned", _AT, (DISPATCHED, HIDDEN), 2, _SRC, "results sent back", **afar),
        _reduced("experts.reduced", "reduced sum of shared and routed experts"),
    )


COMPONENTS = tuple(
    Component(f"saved_ops{suffix}", f"Outputs kept by selective checkpointing{words}", order, place, rows,
              options={"recompute_saves": ("ops",), **options})
    for suffix, words, order, place, rows, options in (
        ("", "", 16, Place.LAYER, _attention(), {}),
        ("_mlp", ", of the MLP", 17, Place.DENSE,
         (*_mlp("", FFN), _reduced("down.reduced", "reduced output of the down projection", **_UNREAD)), {}),
        ("_experts", ", of experts", 18, Place.EXPERTS, _experts(), {"layers": ("experts",)}),
    )
)
