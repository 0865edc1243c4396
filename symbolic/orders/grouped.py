"""Attention with grouped heads in Megatron-Core's step with Transformer Engine, operation by operation.

By Megatron-Core 0.16.1's ``SelfAttention`` and Transformer Engine 2.11's ``LayerNormLinear`` and
``AttnFuncWithCPAndQKVOA2A``. Values are a view of the joint projection, which lives until attention returns. Context
parallelism by all-to-all lays each tensor out by ranks, sends it, and puts what arrives in order on a stream of its
own, whose memory no other stream can use.
"""

from __future__ import annotations

from collections.abc import Mapping

from sympy import Expr

from ..dimension import ONE, Dimension
from ..dimensions import BATCH, HIDDEN, QKV_FEATURES, QUERY_FEATURES, SEQUENCE
from ..functions import Iverson
from ..implementations import MEGATRON
from ..parameters import symbols
from .words import KEY, QUERY, Passing, of_weight

a, c, k, kt = symbols("a c k kt")
_REPLAYED: Mapping[str, tuple[str, ...]] = MEGATRON.replayed or {}
#: Kernels with which these orders are those of a layer; those of the exchange need context parallelism by it.
GROUPED: Mapping[str, tuple[str, ...]] = {**_REPLAYED, "heads": ("grouped",)}
EXCHANGED: Mapping[str, tuple[str, ...]] = {**GROUPED, "peak": ("megatron_te",), "context": ("all_to_all",)}
_TURNED: Mapping[str, tuple[str, ...]] = {**GROUPED, "positions": ("rotary", "partial")}
_QKV = (SEQUENCE, BATCH, QKV_FEATURES)
#: 1 where queries are copied out of the joint projection, as several groups of them lie between keys and values.
_REGROUPED = Iverson(a > k) * Iverson(kt > 1)
_SLICED = Iverson(c > 1)


def _grouped(name: str, shape: tuple[Dimension, ...], meaning: str, when: Expr = ONE,
             options: Mapping[str, tuple[str, ...]] = GROUPED) -> Passing:
    return Passing(name, shape, 2, meaning, "megatron_core", when, options)


def _exchanged(name: str, shape: tuple[Dimension, ...], meaning: str, *stages: str) -> tuple[Passing, ...]:
    """Return what passes as a tensor goes through the exchange: laid out by ranks, as it arrived, and ``stages``."""
    meanings = {"own": "before it", "heads": "for the rank's heads", "parts": "laid out by ranks",
                "arrived": "as it arrived"}
    return tuple(Passing(f"{name}.{stage}", shape, 2, f"{meaning} in an exchange: {meanings[stage]}",
                         "transformer_engine", _SLICED, EXCHANGED) for stage in (*stages, "parts", "arrived"))


PASSING: tuple[Passing, ...] = (
    _grouped("qkv.output", _QKV, "queries, keys and values as the projection has them"),
    _grouped("q.linear", QUERY, "queries before they are turned", _REGROUPED, _TURNED),
    _grouped("context.gradient", QUERY, "gradient of the output of core attention"),
    _grouped("q.gradient", QUERY, "gradient of queries"),
    _grouped("k.gradient", KEY, "gradient of keys"),
    _grouped("v.gradient", KEY, "gradient of values"),
    _grouped("q.linear_gradient", QUERY, "gradient of queries before they are turned", options=_TURNED),
    _grouped("k.linear_gradient", KEY, "gradient of keys before they are turned", options=_TURNED),
    _grouped("qkv.gradient", _QKV, "the three of them as the projection has them"),
    of_weight("o_proj", (HIDDEN, QUERY_FEATURES), GROUPED), of_weight("qkv", (QKV_FEATURES, HIDDEN), GROUPED),
    *_exchanged("q", QUERY, "queries", "own"), *_exchanged("k", KEY, "keys", "own"),
    *_exchanged("v", KEY, "values", "own"), *_exchanged("context", QUERY, "output of core attention"),
    *_exchanged("context.gradient", QUERY, "its gradient", "heads"),
    *_exchanged("q.gradient", QUERY, "gradient of queries", "heads"),
    *_exchanged("k.gradient", KEY, "gradient of keys", "heads"),
    *_exchanged("v.gradient", KEY, "gradient of values", "heads"),
)


def _sent(names: str, made: str) -> str:
    """Return the words of an exchange of three tensors, one behind the other; ``made`` of each name makes a result."""
    q, k, v = names.split()
    return (f"+{q}.parts +{q}.arrived +{k}.parts +{k}.arrived on:exchange {made.format(q)} on: -{q}.arrived +{v}.parts"
            f" +{v}.arrived on:exchange {made.format(k)} on: -{k}.arrived on:exchange {made.format(v)} on:"
            f" -{v}.arrived -{q}.parts -{k}.parts -{v}.parts")


def column_backward(projection: str, component: str, norm: str, dummy: str) -> str:
    """Return the words of the backward pass of a norm and the projection behind it, as ``LayerNormLinear`` runs it."""
    return (f"+gathered +input_gradient +reduced +{projection}.weight_gradient free:{component}.{projection}.input"
            f" -gathered +norm.gradient +norm.scale_gradient +norm.shift_gradient -reduced use:{dummy} -input_gradient"
            f" -{projection}.gradient -{projection}.weight_gradient free:{component} free:{norm}"
            " -norm.scale_gradient -norm.shift_gradient -norm.gradient")


_PROJECTED = ("use:engine_workspace save:layer_input save:attention_norm -embedding.partial -down.output"
              " save:attention.qkv.input +gathered +qkv.output -gathered")
_RETURNED = "save:attention +o_proj.partial +o_proj.output -o_proj.partial -qkv.output"
FORWARD = f"{_PROJECTED} +q.linear save:attention.q -q.linear save:attention.k save:attention.v {_RETURNED}"
EXCHANGED_FORWARD = (
    f"{_PROJECTED} +q.linear +q.own -q.linear +k.own +v.own {_sent('q k v', 'save:attention.{}')}"
    " save:attention.context.of_heads save:attention.logsumexp +context.parts +context.arrived on:exchange"
    f" save:attention.context on: -context.arrived -context.parts -v.own {_RETURNED} -q.own -k.own"
)

_TO_HEADS = ("+output_gradient +context.gradient +o_proj.weight_gradient -output_gradient"
             " use:attention_dummies.dummy.grouped.o_proj -o_proj.weight_gradient")
_OF_CORE = "free:attention.q free:attention.k free:attention.v free:attention.logsumexp"
_FROM_HEADS = (
    "+k.linear_gradient -k.gradient +q.linear_gradient -q.gradient +qkv.gradient -q.gradient -q.linear_gradient"
    " -k.gradient -k.linear_gradient -v.gradient "
    + column_backward("qkv", "attention", "attention_norm", "attention_dummies.dummy.grouped.qkv")
)
BACKWARD = (f"{_TO_HEADS} +q.gradient +k.gradient +v.gradient -context.gradient {_OF_CORE} free:attention.context"
            f" {_FROM_HEADS}")
EXCHANGED_BACKWARD = (
    f"{_TO_HEADS} free:attention.context +context.gradient.parts +context.gradient.arrived on:exchange"
    " +context.gradient.heads on: -context.gradient.arrived -context.gradient.parts +q.gradient.heads +k.gradient.heads"
    f" +v.gradient.heads {_sent('q.gradient k.gradient v.gradient', '+{}')} -q.gradient.heads -k.gradient.heads"
    f" -v.gradient.heads -context.gradient.heads -context.gradient {_OF_CORE} free:attention.context.of_heads"
    f" {_FROM_HEADS}"
)
