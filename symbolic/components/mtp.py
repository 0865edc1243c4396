"""Multi-token prediction (MTP): what each further prediction keeps beside a layer with experts of its own."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ..choices import MTP_LOSSES
from ..dimension import ONE
from ..dimensions import (
    BATCH,
    HIDDEN,
    HIDDEN_FEATURES,
    HIDDEN_TWICE,
    HIDDEN_TWICE_SCALES,
    SEQUENCE,
    SEQUENCE_OF_OTHERS,
    SEQUENCE_SP,
    VOCAB,
)
from ..functions import Iverson
from ..ledger import Component, Lifetime, Place, Role, Tensor, saved, weight
from ..parameters import symbols
from ..work import Product, Ranks, Stream, Transfer
from ..work_rows import column_parallel, norm_work
from .losses.cross_entropy import loss_work
from .norms import norm_rows
from .quantised import BLOCKS, SCALED, quantised

t, p, mtp, rfull, sp = symbols("t p mtp rfull sp")

_TOKENS = (SEQUENCE_SP, BATCH)
_RESIDUAL = (*_TOKENS, HIDDEN)
_ALL_TOKENS = (SEQUENCE, BATCH)
_WHOLE = (*_ALL_TOKENS, HIDDEN)
_LOGITS = (SEQUENCE, BATCH, VOCAB)
#: The layer is recomputed with all that leads to it and its final norm; head and loss are not.
_KEPT = 1 - rfull
_ONCE: Any = {"lifetime": Lifetime.ONCE}
#: Saved for the gradient of a weight alone: a frozen one has none.
_TRAINED: Any = {"adapters": ("none",), **_ONCE}


def _without_gradient(rows: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Return the rows of a norm of what a frozen embedding made, which needs no gradient."""
    return tuple(row if row.role is Role.WEIGHT else replace(row, options={**row.options, "adapters": ("none",)})
                 for row in rows)


def _input() -> tuple[Tensor, ...]:
    core = "megatron_core"
    return (
        saved("ids", "embedding", _ALL_TOKENS, 8, core, "int64 ids, one token further", **_TRAINED),
        saved("ids_mask", "embedding", _ALL_TOKENS, 1, core, "bool mask of the ids of other vocabulary shards",
              when=Iverson(t > 1), **_TRAINED),
        *_without_gradient(norm_rows("embedding_norm.", "norms", _TOKENS, HIDDEN, kept=_KEPT, **_ONCE)),
        *norm_rows("hidden_norm.", "norms", _TOKENS, HIDDEN, kept=_KEPT, **_ONCE),
        weight("projection.weight", "projection", (HIDDEN_FEATURES, HIDDEN_TWICE), "deepseek2024v3",
               "projection of hidden state and embedding to the layer's input", tokens=_ALL_TOKENS),
        saved("projection.input", "projection", (*_TOKENS, HIDDEN_TWICE), 2, core,
              "normalised embedding and hidden state", when=_KEPT, fp8=("none",), **_TRAINED),
        *quantised("projection.input", "projection", _TOKENS, (HIDDEN_TWICE, HIDDEN_TWICE_SCALES),
                   recipes=(*SCALED, *BLOCKS), when=_KEPT, **_ONCE),
        # The layer's input is a part of the gathered projection, which its norm keeps whole.
        saved("layer_input.others", "projection", (SEQUENCE_OF_OTHERS, BATCH, HIDDEN), 2, core,
              "input of the layer, the parts of the other sequence-parallel ranks", when=_KEPT, **_ONCE),
        saved("checkpoint.embedding", "checkpoint", _RESIDUAL, 2, core,
              "embedding, kept beside the layer's input by full recompute", when=rfull, **_ONCE),
    )


def _output() -> tuple[Tensor, ...]:
    core = "megatron_core"
    on: Any = {"loss": MTP_LOSSES, **_ONCE}
    own: Any = {"loss": ("vocab_parallel", "native_fused"), **_ONCE}
    return (
        *norm_rows("final_norm.", "norms", _TOKENS, HIDDEN, kept=_KEPT, **_ONCE),
        saved("head.input", "head", _RESIDUAL, 2, core, "input of the head, one of several in a row", **_TRAINED),
        saved("softmax", "loss", _LOGITS, 4, core, "fp32 softmax of the rank's vocabulary", **own),
        saved("masked_target", "loss", _ALL_TOKENS, 8, core, "int64 labels relative to the rank's vocabulary", **own),
        saved("target_mask", "loss", _ALL_TOKENS, 1, core, "bool mask of labels of other ranks", **own),
        saved("logits_gradient", "loss", _LOGITS, 2, "transformer_engine",
              "bf16 logits, overwritten by their gradient", loss=("te_fused",), **_ONCE),
        saved("logits_gradient_fp32", "loss", _LOGITS, 4, "transformer_engine", "fp32 gradient of the logits",
              loss=("te_fused_fp32",), **_ONCE),
        saved("loss_mask", "loss", _ALL_TOKENS, 4, core, "fp32 mask of the tokens that count, one further", **on),
        saved("loss_by_token", "loss", _ALL_TOKENS, 4, core, "fp32 loss of every token", **on),
        saved("counted_tokens", "loss", (), 4, core, "fp32 number of tokens that count", **on),
    )


COMPONENTS = (
    Component(
        "mtp", "Multi-token prediction", 65, Place.MTP, (*_input(), *_output()),
        note="Its layer with experts is counted among the layers of the last stage.",
        work=(
            *norm_work("embedding_norm", "norms"), *norm_work("hidden_norm", "norms"),
            *norm_work("final_norm", "norms"),
            Stream("lookup", "embedding", _WHOLE, 4, 8, "megatron_core", "rows looked up; their gradients added up"),
            Transfer("embedding", "embedding", Ranks.TENSOR, _WHOLE, 2, sp + 2 * (1 - sp), sp, "megatron_core",
                     "rows of all vocabulary shards summed, their gradient gathered"),
            *column_parallel("projection", "projection", width=HIDDEN_TWICE),
            Transfer("projected", "projection", Ranks.TENSOR, _WHOLE, 2, ONE, sp, "megatron_core",
                     "columns gathered; with sequence parallelism so is the gradient of the rank's tokens"),
            *column_parallel("head", "head"),
            Product("logits", "head", _ALL_TOKENS, (HIDDEN,), (VOCAB,), "megatron_core",
                    "hidden states times the output matrix"),
            *loss_work(),
        ),
        options={"layers": ("experts",)},
    ),
    Component(
        "mtp_embedding", "Embedding of multi-token prediction", 64, Place.LAST,
        (
            weight("weight", "embedding", (VOCAB, HIDDEN), "megatron_core",
                   "embedding matrix, once more where the first stage is another rank",
                   Iverson(mtp > 0) * Iverson(p > 1)),
        ),
        options={"layers": ("experts",)},
    ),
)
