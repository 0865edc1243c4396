"""Latent attention of Transformers as the operations of its forward pass: DeepSeek-V2, DeepSeek-V3 and MiniCPM3.

Queries, keys and values are made from compressed ones. Part of each head is turned; the turned part of the keys is that
of all heads, and is copied beside the rest of every key.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from sympy import Eq, Expr, Integer

from ...components.attention import SCORES
from ...components.latent_attention import COPIED, ONE_BATCH
from ...dimensions import (
    HEAD_DIM,
    HEADS,
    KEY_DIM,
    KEY_VALUE_DIM,
    LATENT_KV,
    LATENT_KV_ROTARY,
    LATENT_Q,
    ROTARY_DIM,
    VALUE_DIM,
)
from ...functions import Iverson
from ...parameters import symbols
from .autograd import Storage, Value, Walk
from .operations import HIGH, LOW, TOKENS, WHOLE, Shape

if TYPE_CHECKING:
    from .transformers import Layer

(lq,) = symbols("lq")

AT = "latent_attention"
QUERY: Shape = (*TOKENS, HEADS, HEAD_DIM)
VALUE: Shape = (*TOKENS, HEADS, VALUE_DIM)
STILL: Shape = (*TOKENS, HEADS, KEY_DIM)
TURNED: Shape = (*TOKENS, HEADS, ROTARY_DIM)
OF_ALL: Shape = (*TOKENS, ROTARY_DIM)
BOTH: Shape = (*TOKENS, HEADS, KEY_VALUE_DIM)


def switches(choices: Mapping[str, str]) -> tuple[Expr, ...]:
    """Return the switches that change the operations: compressed queries, and values that stay a view."""
    return (Iverson(lq > 0), *((ONE_BATCH,) if choices["attention"] == "eager" else ()))


def attend(layer: Layer, value: Value) -> Value:
    """Record latent attention and its projections."""
    is_compressed, *viewed = layer.switched[-len(switches(layer.choices)):]
    whole = queries(layer, value, is_compressed)
    still, turning = layer.split(layer.simple("heads", whole, view=True), STILL, TURNED)
    compressed = layer.linear(value, f"{AT}.kv_down.weight", (*TOKENS, LATENT_KV_ROTARY))
    latent, shared = layer.split(compressed, (*TOKENS, LATENT_KV), OF_ALL)
    latent = layer.norm(latent, f"{AT}.kv_norm", (*TOKENS, LATENT_KV))
    query, key = _turned(layer, turning, shared)
    query = layer.joined(QUERY, [still, query])
    both = layer.linear(latent, f"{AT}.kv_up.weight", BOTH)
    key_still, values = layer.split(layer.simple("heads", both, view=True), STILL, VALUE)
    keys = _joined_keys(layer, key_still, key)
    is_eager = layer.choices["attention"] == "eager"
    read = _eager(layer, query, keys, values, any(viewed)) if is_eager else _in_one_kernel(layer, query, keys, values)
    layer.tape.name(whole, compressed, both, query, keys)
    return layer.linear(read, f"{AT}.o_proj.weight", WHOLE)


def queries(layer: Layer, value: Value, is_compressed: bool) -> Value:
    """Record the projection of queries, or both of compressed ones with the norm between."""
    if is_compressed:
        down = layer.linear(value, f"{AT}.q_down.weight", (*TOKENS, LATENT_Q))
        return layer.linear(layer.norm(down, f"{AT}.q_norm", (*TOKENS, LATENT_Q)), f"{AT}.q_up.weight", QUERY)
    name = f"{AT}.q.weight"
    layer.weights[name] = layer.weights[name].xreplace({Iverson(Eq(lq, 0)): Integer(1)})
    return layer.linear(value, name, QUERY)


def _turned(layer: Layer, query: Value, key: Value) -> tuple[Value, Value]:
    """Record the rotary embedding of queries and of the part of keys that all heads have."""
    if layer.choices["rope"].startswith("joined"):
        return layer.turn(query), layer.turn(key)
    if layer.choices["scores"] == "sigmoid":
        halves = [[layer.simple("slice", each, bytes=1, view=True) for _ in range(2)] for each in (query, key)]
        first, second = (layer.turn_halves(each, *parts) for each, parts in zip((query, key), halves, strict=True))
        layer.tape.name(first)
        return first, second
    wide = [layer.cast(each, HIGH) for each in (query, key)]
    turned = [layer.cast(layer.with_table(each, HIGH, ()), LOW) for each in wide]
    layer.tape.name(*wide, turned[0])
    return turned[0], turned[1]


def _joined_keys(layer: Layer, still: Value, turned: Value) -> Value:
    """Record copies of both parts into new keys; each makes the gradient of all of them once more."""
    heads = layer.simple("expand", turned, TURNED, view=True)

    def first(walk: Walk, gradients: list[Storage]) -> list[Storage]:
        whole, part = walk.make(layer.bytes_of(QUERY, LOW)), walk.make(layer.bytes_of(STILL, LOW))
        walk.drop(whole)
        return [part]

    def second(walk: Walk, gradients: list[Storage]) -> list[Storage]:
        whole = walk.make(layer.bytes_of(QUERY, LOW))
        part, zeros = (walk.make(layer.bytes_of(TURNED, LOW)) for _ in range(2))
        walk.drop(zeros)
        return [whole, part]
    keys = layer.value("copy", [still], QUERY, backward=first)
    made = layer.value("copy", [keys, heads], QUERY, backward=second)
    made.storage = keys.storage
    return made


def _in_one_kernel(layer: Layer, *read: Value) -> Value:
    """Record attention in one kernel, whose values as wide as keys are copied behind it."""
    out = layer.core([*read], VALUE)
    out = layer.simple("tokens", out, passed=True)
    out.storage = Storage({COPIED * product: number for product, number in layer.bytes_of(VALUE, LOW).items()})
    return out


def _eager(layer: Layer, query: Value, key: Value, values: Value, viewed: bool) -> Value:
    """Record attention in single operations; values that lie beside the keys of their heads are copied."""
    read = values if viewed else layer.simple("copy", values, passed=True)
    shares = layer.shares(query, key)
    out = layer.value("context", [shares, read], VALUE, backward=layer.making(SCORES, VALUE),
                      saved=[shares.storage, read.storage])
    return layer.simple("tokens", out, passed=True)
