"""Megatron-Core's step with Transformer Engine: dense layers with SwiGLU, operation by operation.

By the source of Transformer Engine's ``LayerNormLinear`` and ``Linear`` and of Megatron-Core 0.16.1: a gathered input
is gathered again in the backward pass, and dummy gradients of weights are made when a weight first has a gradient.
"""

from __future__ import annotations

from collections.abc import Mapping

from sympy import Expr

from ..dimension import ONE, Dimension
from ..dimensions import BATCH, FFN, GATE_UP_FEATURES, QKV_FEATURES, SEQUENCE
from ..implementations import MEGATRON
from ..parameters import symbols
from .words import KEY, QUERY, SCATTERED, SHARE, WHOLE, Passing, Script

(rfull,) = symbols("rfull")
_QKV = (SEQUENCE, BATCH, QKV_FEATURES)
#: Steps that are replayed are those of these scripts.
_LAYERS: Mapping[str, tuple[str, ...]] = MEGATRON.replayed or {}


def _layers(name: str, shape: tuple[Dimension, ...], meaning: str, when: Expr = ONE) -> Passing:
    return Passing(name, shape, 2, meaning, "megatron_core", when, _LAYERS)


PASSING: tuple[Passing, ...] = (
    _layers("gathered", WHOLE, "input of a projection, gathered over ranks", SCATTERED),
    _layers("qkv.output", _QKV, "queries, keys and values as the projection has them"),
    _layers("o_proj.partial", WHOLE, "output of the rank's heads, before it is summed over ranks", SCATTERED),
    _layers("o_proj.output", SHARE, "output of attention, before it is added to the layer's input"),
    _layers("down.partial", WHOLE, "output of the rank's part of the MLP, before it is summed", SCATTERED),
    _layers("down.output", SHARE, "output of the MLP, before it is added"),
    _layers("recomputed.output", SHARE, "output of the recomputed layer", rfull),
    _layers("output_gradient", WHOLE, "gradient of an output, gathered over ranks", SCATTERED),
    _layers("down.input_gradient", (SEQUENCE, BATCH, FFN), "gradient of the down projection's input"),
    _layers("gate_up.gradient", (SEQUENCE, BATCH, GATE_UP_FEATURES), "gradient of gate and up projection"),
    _layers("input_gradient", WHOLE, "gradient of a projection's input"),
    _layers("reduced", SHARE, "the rank's share of its sum over ranks", SCATTERED),
    _layers("context.gradient", QUERY, "gradient of the output of core attention"),
    _layers("q.gradient", QUERY, "gradient of queries"),
    _layers("k.gradient", KEY, "gradient of keys"),
    _layers("v.gradient", KEY, "gradient of values"),
    _layers("qkv.gradient", _QKV, "the three of them as the projection has them"),
)

SCRIPTS: tuple[Script, ...] = (
    # The output of the layer before lives until it is added to that one's input.
    Script("layer_forward", "use:engine_workspace save:layer_input save:attention_norm -down.output +gathered"
           " +qkv.output -gathered save:attention -qkv.output +o_proj.partial +o_proj.output -o_proj.partial"
           " save:ffn_norm -o_proj.output +gathered save:swiglu -gathered end +down.partial =down.output"
           " -down.partial", _LAYERS),
    Script("head_forward", "save -down.output", _LAYERS),
    Script("after_forward", "-down.output +* -*", _LAYERS),
    Script("head_backward", "+* free use:head -*", _LAYERS),
    Script("layer_backward", "+* again +recomputed.output +output_gradient +down.input_gradient -output_gradient"
           " free:swiglu.down.input +gate_up.gradient -down.input_gradient free:swiglu.gate free:swiglu.up"
           " +gathered +input_gradient +reduced -gathered -gate_up.gradient -input_gradient use:mlp_dummies"
           " free:swiglu -reduced free:ffn_norm +output_gradient +context.gradient -output_gradient"
           " +q.gradient +k.gradient +v.gradient -context.gradient"
           " +qkv.gradient -q.gradient -k.gradient -v.gradient +gathered +input_gradient +reduced"
           " -gathered -qkv.gradient -input_gradient use:attention_dummies free:attention -reduced free:attention_norm"
           " free -recomputed.output -*", _LAYERS),
)
#: Sums that the scripts make one by one.
WALKED = ((_LAYERS, ("mlp_gradients", "recomputed_layer")),)
