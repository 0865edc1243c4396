"""Megatron-Core's step with Transformer Engine: layers with SwiGLU, dense or of experts, operation by operation.

By the source of Transformer Engine's ``LayerNormLinear`` and ``Linear`` and of Megatron-Core 0.16.1: a gathered input
is gathered again in the backward pass, and dummy gradients of weights are made when a weight first has a gradient.
"""

from __future__ import annotations

from collections.abc import Mapping

from sympy import Expr

from ..dimension import ONE, Dimension
from ..dimensions import (
    BATCH,
    EXPERT_FFN,
    FFN,
    GATE_UP_FEATURES,
    HIDDEN,
    QKV_FEATURES,
    QUERY_FEATURES,
    RECEIVED,
    RECEIVED_SHARE,
    SENT,
    SEQUENCE,
    SHARED_FFN,
    SHARED_GATE_UP,
)
from ..functions import Iverson
from ..implementations import MEGATRON
from ..parameters import symbols
from . import latent
from .words import KEY, QUERY, SCATTERED, SHARE, WHOLE, Passing, Script

E, e, fs, rfull = symbols("E e fs rfull")
_QKV = (SEQUENCE, BATCH, QKV_FEATURES)
#: Steps that are replayed are those of these scripts.
_LAYERS: Mapping[str, tuple[str, ...]] = MEGATRON.replayed or {}
_EXPERTS: Mapping[str, tuple[str, ...]] = {**_LAYERS, "layers": ("experts",)}
_GROUPED: Mapping[str, tuple[str, ...]] = {**_LAYERS, "heads": ("grouped",)}
#: 1 where tokens leave the rank, where they are sorted among its experts, and where some experts are shared.
_AFAR, _SEVERAL, _SHARED = Iverson(e > 1), Iverson(e < E), Iverson(fs > 0)


def _layers(name: str, shape: tuple[Dimension, ...], meaning: str, when: Expr = ONE) -> Passing:
    return Passing(name, shape, 2, meaning, "megatron_core", when, _LAYERS)


def _grouped(name: str, shape: tuple[Dimension, ...], meaning: str) -> Passing:
    return Passing(name, shape, 2, meaning, "megatron_core", options=_GROUPED)


def _of_weight(
    name: str, shape: tuple[Dimension, ...], options: Mapping[str, tuple[str, ...]] = _LAYERS
) -> Passing:
    """Return the gradient of a weight that is made apart from the gradient buffer."""
    return Passing(f"{name}.weight_gradient", shape, 2, "gradient of a weight, until it is added to the buffer",
                   "megatron_core", options={**options, "weight_gradient": ("separate",)})


def _experts(name: str, shape: tuple[Dimension, ...], meaning: str, when: Expr = ONE) -> Passing:
    return Passing(name, shape, 2, meaning, "megatron_core", when, _EXPERTS)


PASSING: tuple[Passing, ...] = (
    *latent.PASSING,
    _layers("gathered", WHOLE, "input of a projection, gathered over ranks", SCATTERED),
    _grouped("qkv.output", _QKV, "queries, keys and values as the projection has them"),
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
    _grouped("context.gradient", QUERY, "gradient of the output of core attention"),
    _grouped("q.gradient", QUERY, "gradient of queries"),
    _grouped("k.gradient", KEY, "gradient of keys"),
    _grouped("v.gradient", KEY, "gradient of values"),
    _grouped("qkv.gradient", _QKV, "the three of them as the projection has them"),
    _of_weight("down", (HIDDEN, FFN)), _of_weight("gate_up", (GATE_UP_FEATURES, HIDDEN)),
    _of_weight("o_proj", (HIDDEN, QUERY_FEATURES), _GROUPED), _of_weight("qkv", (QKV_FEATURES, HIDDEN), _GROUPED),
    _experts("shared.gathered", WHOLE, "input of the shared experts, gathered over ranks", SCATTERED * _SHARED),
    _experts("shared.partial", WHOLE, "result of the rank's part of the shared experts", SCATTERED * _SHARED),
    _experts("results.returned", (SENT, HIDDEN), "results sent back", _AFAR * _SEVERAL),
    _experts("results.summed", SHARE, "sum of a token's results, before that of shared experts is added", _SHARED),
    _experts("results.gradient", (SENT, HIDDEN), "gradient of the results before it is sent", _AFAR * _SEVERAL),
    _experts("experts.down.input_gradient", (RECEIVED, EXPERT_FFN), "gradient of the input of the down projections"),
    _experts("experts.input_gradient", (RECEIVED, HIDDEN), "gradient of the experts' input", _SEVERAL),
    _experts("experts.sorted_gradient", (RECEIVED, HIDDEN), "the same on a rank with one expert, as it is sent back",
             1 - _SEVERAL),
    _experts("experts.unsorted_gradient", (RECEIVED_SHARE, HIDDEN), "the same in the order in which tokens arrived",
             _SEVERAL),
    _experts("experts.returned_gradient", (SENT, HIDDEN), "the same, sent back", _AFAR),
    _experts("experts.token_gradient", SHARE, "gradient of tokens, summed over their experts"),
    _experts("shared.gathered_gradient", WHOLE, "gradient of the result of shared experts", SCATTERED * _SHARED),
    _experts("shared.down.input_gradient", (SEQUENCE, BATCH, SHARED_FFN),
             "gradient of the input of their down projection", _SHARED),
    _experts("shared.gate_up.gradient", (SEQUENCE, BATCH, SHARED_GATE_UP), "gradient of their gate and up projections",
             _SHARED),
    _experts("shared.input_gradient", WHOLE, "gradient of their input", _SHARED),
)

_ATTENTION_FORWARD = (
    "use:engine_workspace save:layer_input save:attention_norm -down.output +gathered +qkv.output -gathered"
    " save:attention -qkv.output +o_proj.partial +o_proj.output -o_proj.partial"
)
_ATTENTION_BACKWARD = (
    "+output_gradient +context.gradient +o_proj.weight_gradient -output_gradient -o_proj.weight_gradient +q.gradient"
    " +k.gradient +v.gradient -context.gradient +qkv.gradient -q.gradient -k.gradient -v.gradient +gathered"
    " +input_gradient +reduced +qkv.weight_gradient -gathered -qkv.gradient -input_gradient use:attention_dummies"
    " -qkv.weight_gradient free:attention -reduced free:attention_norm"
)

def _layers_with(forward: str, backward: str, options: Mapping[str, tuple[str, ...]]) -> tuple[Script, ...]:
    """Return the scripts of both kinds of layers, of which attention has these words."""
    with_experts = {**options, "layers": ("experts",)}
    return (
        # The output of the layer before lives until it is added to that one's input.
        Script("layer_forward", f"{forward} save:ffn_norm -o_proj.output +gathered save:swiglu -gathered end"
               " +down.partial =down.output -down.partial", options),
        Script("layer_backward", "+* again remake:swiglu +output_gradient +down.input_gradient"
               " +down.weight_gradient -output_gradient free:swiglu.down.input -down.weight_gradient +gate_up.gradient"
               " -down.input_gradient free:swiglu.gate free:swiglu.up +gathered +input_gradient +reduced"
               " +gate_up.weight_gradient -gathered -gate_up.gradient -input_gradient use:mlp_dummies"
               " -gate_up.weight_gradient free:swiglu -reduced free:ffn_norm"
               f" {backward} bind free -recomputed.output -*", options),
        # The block of experts binds tokens on their way until it returns; results are sent back when that of the
        # function that made them is gone.
        Script("expert_layer_forward", f"{forward} save:expert_norm -o_proj.output +shared.gathered"
               " save:shared_experts -shared.gathered at:experts_forward +dispatch.shared_results +shared.partial"
               " -shared.partial save:router unbind +dispatch.sent use:expert_workspace +dispatch.arrived"
               " +dispatch.arrived_weights +dispatch.arrived_weights_bf16 save:experts end +dispatch.results"
               " +dispatch.results_sorted +* -dispatch.results -dispatch.results_fp32 -dispatch.results_reduced"
               " +results.returned -dispatch.results_sorted -dispatch.results_reduced_bf16 +results.summed =down.output"
               " -results.summed -results.returned -dispatch.results_sorted_here -*", with_experts),
        Script("expert_layer_backward", "at:combine_backward +residual_gradient.gradient_beside_experts again"
               " +results.gradient +dispatch.gradient_unsorted -results.gradient +*"
               " -dispatch.gradient_unsorted -dispatch.gradient_fp32 -dispatch.gradient_gathered"
               " -dispatch.gradient_share -dispatch.gradient_sent at:experts_backward +experts.down.input_gradient"
               " -dispatch.gradient free:experts.down.input +* -experts.down.input_gradient free:experts.gate_up"
               " +experts.input_gradient +experts.sorted_gradient use:expert_dummies -dispatch.gate_up_gradient"
               " free:experts.gate_up.input"
               " +experts.unsorted_gradient -experts.input_gradient +experts.returned_gradient"
               " -experts.unsorted_gradient -experts.sorted_gradient"
               " +experts.token_gradient -experts.returned_gradient -* free:experts free:router"
               " at:layer_backward +* +shared.gathered_gradient +shared.down.input_gradient -shared.gathered_gradient"
               " free:shared_experts.down.input +shared.gate_up.gradient -shared.down.input_gradient"
               " free:shared_experts.gate free:shared_experts.up +shared.gathered +shared.input_gradient"
               " -shared.gathered -shared.gate_up.gradient"
               " free:shared_experts -shared.input_gradient -experts.token_gradient free:expert_norm"
               f" {backward} bind free -recomputed.output -*", with_experts),
    )


SCRIPTS: tuple[Script, ...] = (
    Script("head_forward", "save -down.output", _LAYERS),
    Script("after_forward", "-down.output +* -*", _LAYERS),
    Script("head_backward", "+* free use:head -* =head.tied_gradient", _LAYERS),
    Script("embedding_backward", "+* free -*", _LAYERS),
    *_layers_with(_ATTENTION_FORWARD, _ATTENTION_BACKWARD, _GROUPED),
    *_layers_with(latent.FORWARD, latent.BACKWARD, latent.FUSED),
    *_layers_with(latent.FORWARD_UNFUSED, latent.BACKWARD_UNFUSED, latent.UNFUSED),
)
#: Sums that the scripts make one by one.
WALKED = ((_LAYERS, ("mlp_gradients", "recomputed_layer", "recomputed_mlp")),
          (_EXPERTS, ("recomputed_experts", "recomputed_results")))
