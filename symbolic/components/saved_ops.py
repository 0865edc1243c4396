"""Tensors that torchtitan's selective checkpointing keeps of a layer: its input and the outputs of some operations.

Every second matmul is computed again: of q, k, v, output, gate, up and down projection the second, fourth and
sixth. Outputs of attention and of reduce-scatters are kept.
"""

from __future__ import annotations

from typing import Any

from ..dimensions import BATCH, FFN, HEAD_DIM, HEADS, HIDDEN, KV_HEADS, SEQUENCE, SEQUENCE_SP
from ..functions import Iverson
from ..ledger import Component, Place, saved
from ..parameters import symbol
from ..recompute import WHOLE_LAYER

_SHARDED = Iverson(symbol("t") > 1)
_QUERY = (SEQUENCE, BATCH, HEADS, HEAD_DIM)
_KEY = (SEQUENCE, BATCH, KV_HEADS, HEAD_DIM)
_REDUCED = (SEQUENCE_SP, BATCH, HIDDEN)
_AT = "checkpoint"
_SRC = "torchtitan"
_ON: Any = {"checkpoint": WHOLE_LAYER}

COMPONENTS = (
    Component(
        "saved_ops", "Outputs kept by selective checkpointing", 16, Place.LAYER,
        (
            saved("q", _AT, _QUERY, 2, _SRC, "output of the query projection, first matmul", **_ON),
            saved("v", _AT, _KEY, 2, _SRC, "output of the value projection, third matmul", **_ON),
            saved("context", _AT, _QUERY, 2, _SRC, "output of attention", **_ON),
            saved("logsumexp", _AT, (SEQUENCE, BATCH, HEADS), 4, _SRC,
                  "fp32 logarithm of the softmax denominators", **_ON),
            saved("o_proj.reduced", _AT, _REDUCED, 2, _SRC, "reduced output of the output projection",
                  when=_SHARDED, **_ON),
            saved("gate", _AT, (SEQUENCE, BATCH, FFN), 2, _SRC, "output of the gate projection, fifth matmul", **_ON),
            saved("down", _AT, (SEQUENCE, BATCH, HIDDEN), 2, _SRC,
                  "output of the down projection before it is reduced, seventh matmul", **_ON),
            saved("down.reduced", _AT, _REDUCED, 2, _SRC, "reduced output of the down projection",
                  when=_SHARDED, **_ON),
        ),
        options={"recompute_saves": ("ops",)},
    ),
)
