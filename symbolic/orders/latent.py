"""Latent attention in Megatron-Core's step with Transformer Engine, operation by operation.

By Megatron-Core 0.16.1's ``MLASelfAttention``, recorded on its own code. The output of the second down projection is
held until attention returns, and the two gradients of the normalised input are added to a third.
"""

from __future__ import annotations

from collections.abc import Mapping

from sympy import Eq, Expr

from ..choices import FUSED_ROPE, UNFUSED_ROPE
from ..dimension import ONE, Dimension
from ..dimensions import (
    BATCH,
    HEADS,
    HIDDEN,
    KEY_VALUE_DIM,
    KEY_VALUE_FEATURES,
    LATENT_KV,
    LATENT_KV_ROTARY,
    LATENT_Q,
    QUERY_FEATURES,
    ROTARY_DIM,
    SEQUENCE,
    SEQUENCE_SP,
    VALUE_DIM,
    VALUE_FEATURES,
)
from ..functions import Iverson
from ..implementations import MEGATRON
from ..parameters import symbols
from .words import QUERY, SCATTERED, SHARE, WHOLE, Passing, of_weight

a, lq, t = symbols("a lq t")
_ANY: Mapping[str, tuple[str, ...]] = {**(MEGATRON.replayed or {}), "peak": ("megatron_te",), "heads": ("latent",)}
#: Kernels with which each of the two orders is that of a layer.
FUSED: Mapping[str, tuple[str, ...]] = {**_ANY, "rope": FUSED_ROPE}
UNFUSED: Mapping[str, tuple[str, ...]] = {**_ANY, "rope": UNFUSED_ROPE}
_OWN, _ALL = (SEQUENCE_SP, BATCH), (SEQUENCE, BATCH)
_COMPRESSED = Iverson(lq > 0)
_PLAIN = Iverson(Eq(lq, 0))


def _latent(name: str, shape: tuple[Dimension, ...], meaning: str, when: Expr = ONE, bytes: int = 2,
            options: Mapping[str, tuple[str, ...]] = _ANY) -> Passing:
    return Passing(f"latent.{name}", shape, bytes, meaning, "megatron_core", when, options)


def _turned(name: str, tokens: tuple[Dimension, ...]) -> tuple[Passing, ...]:
    return (
        _latent(f"{name}.turned", (*tokens, ROTARY_DIM), "rotary part at a step of RoPE", options=UNFUSED),
        _latent(f"{name}.half", (*tokens, ROTARY_DIM), "half of it with its sign turned", bytes=1, options=UNFUSED),
    )


def _up(name: str, width: Dimension, when: Expr = ONE) -> tuple[Passing, ...]:
    """Return what passes at an up projection with its norm."""
    return (
        _latent(f"{name}.gathered", (*_ALL, width), "normalised compressed tokens, gathered", SCATTERED * when),
        _latent(f"{name}.input_gradient", (*_ALL, width), "their gradient", when),
        _latent(f"{name}.reduced", (*_OWN, width), "the rank's share of its sum over ranks", SCATTERED * when),
        _latent(f"{name}.norm_gradient", (*_OWN, width), "gradient of compressed tokens", when),
    )


PASSING: tuple[Passing, ...] = (
    _latent("kv_combined", (*_OWN, LATENT_KV_ROTARY), "compressed keys and values beside the rotary part of keys"),
    _latent("rotary.gathered", (*_ALL, ROTARY_DIM), "rotary part of keys, gathered", SCATTERED),
    _latent("rotary.share", (*_OWN, ROTARY_DIM), "the rank's part of it", SCATTERED),
    _latent("rotary.gradient", (*_ALL, ROTARY_DIM), "its gradient", 1 - SCATTERED),
    _latent("rotary.whole_gradient", (*_ALL, ROTARY_DIM), "the same before it is summed over ranks", SCATTERED),
    _latent("hidden.gathered", WHOLE, "input of the projection of queries, gathered", SCATTERED * _PLAIN),
    _latent("hidden.whole_gradient", WHOLE, "its gradient", SCATTERED * _PLAIN),
    _latent("hidden.gradient", SHARE, "gradient of the normalised input, from the projection of keys and values"),
    _latent("hidden.plain_gradient", SHARE, "the same from the projection of queries", _PLAIN),
    _latent("hidden.compressed_gradient", SHARE, "the same from that of compressed queries", _COMPRESSED),
    _latent("hidden.sum", SHARE, "sum of both"),
    *_up("q", LATENT_Q, _COMPRESSED), *_up("kv", LATENT_KV),
    _latent("kv_heads", (*_ALL, HEADS, KEY_VALUE_DIM), "keys and values of all heads, and their gradient"),
    _latent("q.gradient", QUERY, "gradient of queries"),
    _latent("k.gradient", QUERY, "gradient of keys"),
    _latent("v.gradient", (*_ALL, HEADS, VALUE_DIM), "gradient of values"),
    _latent("output_gradient", WHOLE, "gradient of the output, gathered over ranks", SCATTERED),
    _latent("context.gradient", (*_ALL, HEADS, VALUE_DIM), "gradient of the output of core attention"),
    _latent("q.linear", QUERY, "queries before RoPE", options=UNFUSED),
    _latent("table", (SEQUENCE, ROTARY_DIM), "fp32 cosines or sines", bytes=4, options=UNFUSED),
    *_turned("q", (*_ALL, HEADS)), *_turned("k", _ALL),
    _latent("k.summed", (*_ALL, ROTARY_DIM), "gradient of the rotary part of keys, summed over heads", Iverson(a > t),
            options=UNFUSED),
    *(of_weight(f"latent.{name}", shape, _ANY, when) for name, shape, when in (
        ("q", (QUERY_FEATURES, HIDDEN), _PLAIN), ("q_down", (LATENT_Q, HIDDEN), _COMPRESSED),
        ("kv_down", (LATENT_KV_ROTARY, HIDDEN), _COMPRESSED), ("last_kv_down", (LATENT_KV_ROTARY, HIDDEN), _PLAIN),
        ("q_up", (QUERY_FEATURES, LATENT_Q), _COMPRESSED), ("kv_up", (KEY_VALUE_FEATURES, LATENT_KV), ONE),
        ("o_proj", (HIDDEN, VALUE_FEATURES), ONE),
    )),
)


def _table(row: str) -> str:
    return f"+latent.table +latent.table -latent.table save:latent_attention.rope.{row} -latent.table"


def _rope(name: str) -> str:
    turned = f"latent.{name}.turned"
    return (f"+{turned} {_table(f'{name}_cos')} {_table(f'{name}_sin')} +{turned} +latent.{name}.half +{turned}"
            f" -latent.{name}.half +{turned} -{turned} +{turned} -{turned} -{turned} -{turned} +{turned} -{turned}")


def _rope_backward(name: str, last: str) -> str:
    """Return the words of RoPE's backward pass, of which the last slices end with ``last``."""
    turned = f"latent.{name}.turned"
    return (f"+{turned} free:latent_attention.rope.{name}_sin +latent.{name}.half +{turned} -{turned}"
            f" -latent.{name}.half +{turned} free:latent_attention.rope.{name}_cos +{turned} -{turned} -{turned}"
            f" +{turned} +{turned} -{turned} +{turned} -{turned} -{turned} {last.replace('*', turned)}")


def _up_backward(name: str) -> str:
    return (f"+latent.{name}.gathered +latent.{name}.input_gradient +latent.{name}.reduced"
            f" +latent.{name}_up.weight_gradient free:latent_attention.{name}_up.input -latent.{name}.gathered"
            f" use:attention_dummies.dummy.latent.{name}_up +latent.{name}.norm_gradient -latent.{name}.reduced"
            f" -latent.{name}.input_gradient free:latent_attention.{name}_norm.input"
            f" free:latent_attention.{name}_norm.rms")


def _forward(up: str) -> str:
    return ("use:engine_workspace save:layer_input save:latent_norm -embedding.partial -down.output"
            " save:latent_attention.down.input save:latent_attention.q_norm.input +latent.kv_combined"
            " +latent.rotary.gathered +latent.rotary.share"
            " -latent.rotary.share save:latent_attention.q_norm.rms save:latent_attention.q_up.input +latent.q.gathered"
            f" +latent.hidden.gathered {up} -latent.rotary.gathered save:latent_attention.context"
            " save:latent_attention.logsumexp save:latent_attention +o_proj.partial +o_proj.output -o_proj.partial"
            " -latent.kv_combined")


def _keys(made: str) -> str:
    """Return the words of the up projection of keys and values, and of what is made of them."""
    return ("-latent.q.gathered -latent.hidden.gathered save:latent_attention.kv_norm.input"
            " save:latent_attention.kv_norm.rms save:latent_attention.kv_up.input +latent.kv.gathered +latent.kv_heads"
            f" -latent.kv.gathered {made}")


FORWARD = _forward("save:latent_attention.q " + _keys(
    "save:latent_attention.k save:latent_attention.v -latent.kv_heads"))
FORWARD_UNFUSED = _forward("+latent.q.linear " + _keys(
    f"{_rope('q')} {_rope('k')} save:latent_attention.q save:latent_attention.k save:latent_attention.v"
    " -latent.k.turned -latent.q.linear -latent.q.turned -latent.kv_heads"))


def _backward(rope: str) -> str:
    return ("+latent.output_gradient +latent.context.gradient +latent.o_proj.weight_gradient -latent.output_gradient"
            " use:attention_dummies.dummy.latent.o_proj -latent.o_proj.weight_gradient"
            " remake:latent_attention.logsumexp remake:latent_attention.context +latent.q.gradient +latent.k.gradient"
            " +latent.v.gradient -latent.context.gradient free:latent_attention.q free:latent_attention.k"
            " free:latent_attention.v free:latent_attention.context free:latent_attention.o_proj.input"
            f" free:latent_attention.logsumexp {rope} {_up_backward('kv')} -latent.kv_heads"
            f" -latent.kv_up.weight_gradient {_up_backward('q')} +latent.hidden.gathered +latent.hidden.whole_gradient"
            " +latent.hidden.plain_gradient +latent.q.weight_gradient use:attention_dummies.dummy.latent.q"
            " -latent.hidden.gathered -latent.hidden.whole_gradient -latent.q.gradient -latent.q_up.weight_gradient"
            " -latent.q.weight_gradient +latent.rotary.share -latent.rotary.whole_gradient +latent.kv_combined"
            " -latent.kv.norm_gradient -latent.rotary.gradient -latent.rotary.share +latent.hidden.gradient"
            " +latent.kv_down.weight_gradient +latent.last_kv_down.weight_gradient"
            " use:attention_dummies.dummy.latent.kv_down -latent.kv_combined -latent.kv_down.weight_gradient"
            " +latent.hidden.compressed_gradient +latent.q_down.weight_gradient"
            " use:attention_dummies.dummy.latent.q_down -latent.q.norm_gradient free:latent_attention"
            " +latent.hidden.sum -latent.hidden.gradient -latent.hidden.plain_gradient"
            " -latent.hidden.compressed_gradient -latent.q_down.weight_gradient -latent.last_kv_down.weight_gradient"
            " +norm.gradient -latent.hidden.sum free:latent_norm -norm.gradient")


#: Gradient of the rotary part of keys: a rank without shares of tokens frees it later.
_ROTARY = "+latent.rotary.gradient +latent.rotary.whole_gradient"
BACKWARD = _backward(f"+latent.kv_heads {_ROTARY} -latent.k.gradient -latent.v.gradient")
BACKWARD_UNFUSED = _backward(
    f"+latent.k.summed {_rope_backward('k', f'+* -latent.k.summed {_ROTARY} -* -*')}"
    f" {_rope_backward('q', '+* +* -* -*')} +latent.kv_heads -latent.k.gradient -latent.v.gradient"
    " +latent.q.gradient -latent.q.gradient -latent.q.turned")
