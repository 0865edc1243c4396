"""Router: the norm before experts, the scores of all experts for every token, and what balances their loads."""

from __future__ import annotations

from typing import Any

from sympy import Eq, Expr

from ...choices import ADAPTED, BY_NAME, TRANSFORMERS_ROUTERS
from ...dimension import Dimension
from ...dimensions import (
    BATCH,
    BEST_OF_GROUP,
    CHOSEN_GROUPS,
    EXPERT_GROUPS,
    HIDDEN,
    ROUTED,
    SENT,
    SEQUENCE,
    SEQUENCE_SP,
    TOPK,
)
from ...functions import Iverson
from ...ledger import Component, Lifetime, Place, Role, Tensor, saved, weight
from ...parameters import symbols
from ...work import Stream
from ...work_rows import norm_work
from ..norms import norm_rows

q, gq, cf, rnorm, lbias, fs = symbols("q gq cf rnorm lbias fs")

_TOKENS = (SEQUENCE_SP, BATCH)
_RESIDUAL = (*_TOKENS, HIDDEN)
_ALL = (*_TOKENS, ROUTED)
_CHOSEN = (*_TOKENS, TOPK)
_GROUPED = Iverson(gq > 0)
_LOSS = ("loss", "both")
_SINKHORN: Any = {"balance": ("sinkhorn",)}
#: Whatever else balances experts, those with the best scores are chosen.
_BEST: Any = {"balance": tuple(option for option in BY_NAME["balance"].options if option != "sinkhorn")}
_AT = "router"
#: Routers of Transformers with logits in fp32, which keep a copy of the input: those with sigmoids, ERNIE 4.5's, and
#: DeepSeek-V2's, the only one with a softmax and latent attention.
COPYING: tuple[tuple[str, Any], ...] = (
    ("", {"heads": ("latent",), "scores": ("softmax", "softmax_all"), "router": ("huggingface",)}),
    ("_of_sigmoid", {"scores": ("sigmoid",), "router": ("huggingface",)}),
    ("_of_bounded", {"router": ("huggingface_bounded",)}),
)
#: Hunyuan's, where its weight is left in fp32.
_WIDE: Any = {"heads": ("grouped",), "scores": ("softmax", "softmax_all"), "router": ("huggingface",),
              "router_weights": ("fp32",)}
#: All others of Transformers.
READING: tuple[tuple[str, Any], ...] = (
    ("", {"heads": ("grouped",), "scores": ("softmax", "softmax_all"), "router": ("huggingface",)}),
    ("_of_low", {"router": ("huggingface_low",)}),
)
#: Who keeps the input itself: a router whose weight is trained, or shared experts, which ERNIE 4.5 may be without.
_READERS: tuple[tuple[str, Expr, Any], ...] = (
    ("", 1 - rnorm, {"adapters": ("none",), "router": tuple(
        option for option in BY_NAME["router"].options if option != "huggingface_bounded")}),
    (".of_frozen", 1 - rnorm, {"adapters": ADAPTED, "router": ("unfused", "fused")}),
    (".of_shared", (1 - rnorm) * Iverson(fs > 0), {"adapters": ("none",), "router": ("huggingface_bounded",)}),
)


def _by_precision(
    name: str, shape: tuple[Dimension, ...], meaning: str, source: str = "megatron_core", **more: Any
) -> tuple[Tensor, ...]:
    """Return the two rows of a tensor in the router's precision."""
    return (
        saved(name, _AT, shape, 4, source, f"{meaning}, fp32", router_precision=("fp32",), **more),
        saved(f"{name}_bf16", _AT, shape, 2, source, f"{meaning}, bf16", router_precision=("bf16",), **more),
    )


def _scores() -> tuple[Tensor, ...]:
    on: Any = {"router": ("unfused",), **_BEST}
    return (
        saved("probabilities", _AT, _CHOSEN, 4, "megatron_core", "fp32 softmax of the chosen logits",
              scores=("softmax",), **on),
        saved("all_probabilities", _AT, _ALL, 4, "megatron_core", "fp32 softmax of all logits",
              scores=("softmax_all",), **on),
        saved("all_scores", _AT, _ALL, 4, "megatron_core", "fp32 sigmoid of all logits", scores=("sigmoid",), **on),
        saved("chosen", _AT, _CHOSEN, 8, "megatron_core", "int64 numbers of the chosen experts", **on),
        # A single chosen score is not divided by the sum of the chosen ones.
        *_by_precision("chosen_scores", _CHOSEN, "sigmoids of the chosen experts", when=Iverson(q > 1),
                       scores=("sigmoid",), **on),
        *_by_precision("score_sums", _TOKENS, "their sums", when=Iverson(q > 1), scores=("sigmoid",), **on),
    )


def _groups() -> tuple[Tensor, ...]:
    on: Any = {"when": _GROUPED, "router": ("unfused",), "scores": ("softmax_all", "sigmoid"), **_BEST}
    return (
        saved("group_representatives", _AT, (*_TOKENS, EXPERT_GROUPS, BEST_OF_GROUP), 8, "megatron_core",
              "int64 numbers of the best experts of every group", **on),
        saved("chosen_groups", _AT, (*_TOKENS, CHOSEN_GROUPS), 8, "megatron_core",
              "int64 numbers of the groups that a token may use", **on),
        saved("group_mask", _AT, _ALL, 1, "megatron_core", "bool mask of the experts of other groups", **on),
    )


def _fused() -> tuple[Tensor, ...]:
    on: Any = {"router": ("fused",)}
    te = "transformer_engine"
    return (
        saved("chosen_map", _AT, _ALL, 1, te, "bool map of tokens to experts", **on, **_BEST),
        *_by_precision("fused_scores", _ALL, "scores of all experts", te, **on, **_BEST),
        *_by_precision("balance.fused_scores", _ALL, "scores for the auxiliary loss", te, balance=_LOSS, **on),
        saved("balance.coefficient", _AT, (), 4, te, "fp32 factor of the auxiliary loss", balance=_LOSS, **on),
    )


def _sinkhorn() -> tuple[Tensor, ...]:
    """Return the rows of scores where Sinkhorn's iteration, which has no gradient, chooses the experts."""
    on: Any = {"router": ("unfused", "fused"), **_SINKHORN}
    core = "megatron_core"
    return (
        *_by_precision("sinkhorn.scores", _ALL, "sigmoid of all logits", when=Iverson(Eq(q, 1)), **on),
        saved("sinkhorn.probabilities", _AT, _ALL, 4, core, "fp32 softmax of all logits", when=Iverson(q > 1), **on),
        saved("sinkhorn.map", _AT, _ALL, 1, core, "bool map of tokens to experts", **on),
    )


def _balance() -> tuple[Tensor, ...]:
    on: Any = {"router": ("unfused",), "balance": _LOSS}
    softmax, sigmoid = ("softmax", "softmax_all"), ("sigmoid",)
    both = ("unfused", "fused")
    return (
        Tensor("bias", _AT, Role.BUFFER, (ROUTED,), 4, Lifetime.ONCE, "megatron_core",
               "fp32 bias of every expert", options={"balance": ("bias", "both"), "router": both}),
        Tensor("tokens_per_expert", _AT, Role.BUFFER, (ROUTED,), 4, Lifetime.ONCE, "megatron_core",
               "fp32 tokens of every expert since the last step",
               options={"balance": ("bias", "both"), "router": both}),
        saved("balance.probabilities", _AT, _ALL, 4, "megatron_core", "fp32 softmax of all logits, once more",
              scores=softmax, **on),
        *_by_precision("balance.scores", _ALL, "sigmoid of all logits, once more", scores=sigmoid, **on),
        *_by_precision("balance.score_sums", _TOKENS, "their sums", scores=sigmoid, **on),
        saved("balance.chosen", _AT, _CHOSEN, 8, "megatron_core", "int64 numbers of the experts chosen by them", **on),
        saved("balance.tokens_per_expert", _AT, (ROUTED,), 8, "megatron_core", "int64 tokens of every expert",
              balance=_LOSS, router=both),
        saved("balance.loss", _AT, (), 4, "megatron_core", "fp32 auxiliary loss", scores=softmax, **on),
        *_by_precision("balance.sigmoid_loss", (), "auxiliary loss", scores=sigmoid, **on),
        *_by_precision("balance.fused_loss", (), "auxiliary loss", "transformer_engine", balance=_LOSS,
                       router=("fused",)),
    )


def _huggingface() -> tuple[Tensor, ...]:
    on: Any = {"router": ("huggingface", "huggingface_low", "huggingface_bounded")}
    chosen: Any = {"router": tuple(option for option in TRANSFORMERS_ROUTERS if option != "huggingface_mixer")}
    softmax: Any = {"scores": ("softmax", "softmax_all")}
    sigmoid: Any = {"scores": ("sigmoid",)}
    hf = "transformers"
    return (
        *(row for suffix, more in COPYING for row in (
            saved(f"hf.input_fp32{suffix}", _AT, _RESIDUAL, 4, hf, "fp32 copy of the input", adapters=("none",),
                  **more),
            saved(f"hf.weight_fp32{suffix}", _AT, (ROUTED, HIDDEN), 4, hf, "fp32 copy of the weight",
                  router_weights=("as_others",), **more),
        )),
        saved("hf.input_fp32_of_wide", _AT, _RESIDUAL, 4, hf, "fp32 copy of the input", **_WIDE),
        saved("hf.probabilities", _AT, _ALL, 4, hf, "fp32 softmax of all logits", **softmax, **on),
        saved("hf.scores", _AT, _ALL, 4, hf, "fp32 sigmoid of all logits", **sigmoid, **on),
        # Groups of experts are chosen by indices alone, so nothing of them is kept.
        saved("hf.chosen_scores", _AT, _CHOSEN, 4, hf, "fp32 scores of the chosen experts", **sigmoid, **on),
        saved("hf.score_sums", _AT, _TOKENS, 4, hf, "fp32 sums that they are divided by", **sigmoid, **on),
        *(Tensor(f"hf.correction{suffix}", _AT, Role.BUFFER, (ROUTED,), size, Lifetime.ONCE, hf,
                 f"{words} correction of every expert's score", options={"router": (router,), "scores": scores})
          for suffix, router, size, words, scores in (
              ("", "huggingface", 4, "fp32", ("sigmoid",)), ("_low", "huggingface_low", 2, "16-bit", ("sigmoid",)),
              ("_bounded", "huggingface_bounded", 4, "fp32", ("softmax",)))),
        saved("hf.chosen", _AT, _CHOSEN, 8, hf, "int64 numbers of the chosen experts", **chosen),
        *(saved(f"mixer.{name}_{turn}", _AT, shape, size, hf, f"{meaning}, of the {turn} expert",
                router=("huggingface_mixer",))
          for turn in ("first", "second")
          for name, shape, size, meaning in (
              ("mask", _ALL, 1, "bool mask of experts with low scores"),
              ("probabilities", _ALL, 2, "16-bit softmax of the others' logits"),
              ("drawn", _TOKENS, 8, "int64 number drawn"),
              ("probability", _TOKENS, 2, "its 16-bit probability"),
          )),
        saved("hf.chosen_softmax", _AT, _CHOSEN, 2, hf, "16-bit softmax of the chosen logits",
              router=("huggingface_chosen",)),
        saved("hf.top_softmax", _AT, _CHOSEN, 4, hf, "fp32 softmax of the chosen logits", router=("huggingface_top",)),
        saved("hf.chosen_probabilities", _AT, _CHOSEN, 4, hf, "fp32 probabilities of the chosen experts",
              scores=("softmax",), **on),
        saved("hf.sums", _AT, _TOKENS, 4, hf, "fp32 sums that they are divided by", scores=("softmax",), **on),
        saved("hf.sums_unbounded", _AT, _TOKENS, 4, hf, "fp32 sums before their bound",
              router=("huggingface_bounded",)),
    )


COMPONENTS = (
    Component(
        "expert_norm", "Norm before experts", 41, Place.EXPERTS,
        (
            *norm_rows("", "expert_norm", _TOKENS, HIDDEN, output_storage="experts.normed"),
            saved("checkpoint.input", "checkpoint", _RESIDUAL, 2, "megatron_core", "input of the norm",
                  checkpoint="layernorm"),
        ),
        options={"layers": ("experts",)},
        work=norm_work("norm", "expert_norm"),
    ),
    Component(
        "router", "Router", 45, Place.EXPERTS,
        (
            weight("weight", _AT, (ROUTED, HIDDEN), "megatron_core", "scores of every expert, on every rank",
                   tokens=_TOKENS),
            # Megatron-Core's product keeps it where its weight is frozen too, that of PyTorch does not.
            *(saved(f"input{suffix}", _AT, _RESIDUAL, 2, "megatron_core", "input of router and experts",
                    storage="experts.normed", when=when, gathered_input=("dropped",), **more)
              for suffix, when, more in _READERS),
            saved("input_gathered", _AT, (SEQUENCE, BATCH, HIDDEN), 2, "torchtitan",
                  "input of router and experts, gathered over the tensor-parallel ranks", gathered_input=("kept",)),
            saved("checkpoint.input", "checkpoint", _RESIDUAL, 2, "megatron_core", "input of router and experts",
                  storage="experts.normed", when=1 - rnorm, checkpoint="moe"),
            *_scores(), *_groups(), *_fused(), *_sinkhorn(), *_balance(), *_huggingface(),
            weight("scores.bias", _AT, (ROUTED,), "megatron_core", "bias of the scores, on every rank", lbias),
            saved("capacity_map", _AT, _ALL, 1, "megatron_core", "bool map of tokens within the capacity",
                  when=Iverson(cf > 0), router=("unfused", "fused")),
            saved("within_capacity", _AT, (SENT,), 8, "megatron_core",
                  "int64 numbers of the tokens that each expert takes", when=Iverson(cf > 0),
                  router=("unfused", "fused")),
        ),
        note="Scores of all experts for every token are kept once per layer and micro-batch: with many experts"
        " they are no small matter.",
        options={"layers": ("experts",)},
        work=(Stream("scores", _AT, _ALL, 24, 24, "megatron_core", "softmax or sigmoid of all scores, the best of them,"
                     " and the loss that balances them", 8),),
    ),
)
