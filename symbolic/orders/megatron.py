"""Megatron-Core's step with Transformer Engine: layers with SwiGLU, dense or of experts, operation by operation.

By the source of Transformer Engine's ``LayerNormLinear`` and ``Linear`` and of Megatron-Core 0.16.1: a gathered input
is gathered again in the backward pass, and dummy gradients of weights are made when a weight first has a gradient.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from sympy import Expr

from ..components.mlp_rows import MLP_BIAS
from ..dimension import ONE, Dimension
from ..dimensions import (
    BATCH,
    EXPERT_FFN,
    EXPERTS,
    FFN,
    GATE_UP_FEATURES,
    HIDDEN,
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
from . import grouped, latent
from .words import SCATTERED, SHARE, WHOLE, Passing, Script, of_weight

E, e, et, fs, rfull, rmlp = symbols("E e et fs rfull rmlp")
#: Steps that are replayed are those of these scripts.
_LAYERS: Mapping[str, tuple[str, ...]] = MEGATRON.replayed or {}
_GATED: Mapping[str, tuple[str, ...]] = {**_LAYERS, "mlp": ("swiglu", "geglu")}
_UNGATED: Mapping[str, tuple[str, ...]] = {**_LAYERS, "mlp": ("gelu", "relu", "relu2"), "layers": ("dense",)}
#: MLPs whose activation no kernel fuses with the bias.
_UNFUSED: Mapping[str, tuple[str, ...]] = {**_UNGATED, "mlp": ("relu", "relu2")}
_EXPERTS: Mapping[str, tuple[str, ...]] = {**_LAYERS, "mlp": ("swiglu",), "layers": ("experts",)}
#: 1 where tokens leave the rank, where they are sorted among its experts, and where some experts are shared.
_AFAR, _SEVERAL, _SHARED = Iverson(e > 1), Iverson(e < E), Iverson(fs > 0)
#: 1 where tokens are gathered from ranks that share an expert's width, and where they are that or sorted.
_WIDE = Iverson(et > 1)
_REARRANGED = _SEVERAL + _WIDE - _SEVERAL * _WIDE


def _layers(name: str, shape: tuple[Dimension, ...], meaning: str, when: Expr = ONE,
            options: Mapping[str, tuple[str, ...]] = _LAYERS) -> Passing:
    return Passing(name, shape, 2, meaning, "megatron_core", when, options)


def _experts(name: str, shape: tuple[Dimension, ...], meaning: str, when: Expr = ONE, size: int = 2,
             router: tuple[str, ...] = ("fp32", "bf16")) -> Passing:
    return Passing(name, shape, size, meaning, "megatron_core", when, {**_EXPERTS, "router_precision": router})


#: MLPs of dense layers: component, projection before the activation, and what is kept of its output.
_MLPS = (("swiglu", "swiglu", "gate_up", "gate_up.output"), ("geglu", "swiglu", "gate_up", "gate_up.output"),
         ("gelu", "gelu", "up", "hidden"), ("relu", "gelu", "up", ""), ("relu2", "gelu", "up", "root"))
PASSING: tuple[Passing, ...] = (
    *grouped.PASSING,
    *latent.PASSING,
    _layers("embedding.partial", WHOLE, "embeddings of the rank's words, before they are summed over ranks", SCATTERED),
    _layers("norm.gradient", SHARE, "gradient of a norm's input"),
    _layers("norm.scale_gradient", (HIDDEN,), "gradient of a norm's scale"),
    _layers("norm.shift_gradient", (HIDDEN,), "gradient of a norm's shift",
            options={**_LAYERS, "normalisation": ("layer",)}),
    _layers("gathered", WHOLE, "input of a projection, gathered over ranks", SCATTERED),
    _layers("o_proj.partial", WHOLE, "output of the rank's heads, before it is summed over ranks", SCATTERED),
    _layers("o_proj.output", SHARE, "output of attention, before it is added to the layer's input"),
    _layers("down.partial", WHOLE, "output of the rank's part of the MLP, before it is summed", SCATTERED),
    _layers("down.output", SHARE, "output of the MLP, before it is added"),
    _layers("recomputed.output", SHARE, "output of the recomputed layer", rfull),
    _layers("down.remade", SHARE, "output of the recomputed MLP", rmlp),
    _layers("output_gradient", WHOLE, "gradient of an output, gathered over ranks", SCATTERED),
    _layers("down.input_gradient", (SEQUENCE, BATCH, FFN), "gradient of the down projection's input"),
    _layers("gate_up.gradient", (SEQUENCE, BATCH, GATE_UP_FEATURES), "gradient of gate and up projection",
            options=_GATED),
    _layers("input_gradient", WHOLE, "gradient of a projection's input"),
    _layers("reduced", SHARE, "the rank's share of its sum over ranks", SCATTERED),
    _layers("up.gradient", (SEQUENCE, BATCH, FFN), "gradient of the one projection before the activation",
            options=_UNGATED),
    _layers("up.output", (SEQUENCE, BATCH, FFN), "output of the up projection, before ReLU", 1 - MLP_BIAS, _UNFUSED),
    _layers("up.unbiased", (SEQUENCE, BATCH, FFN), "the same before its bias is added", MLP_BIAS, _UNFUSED),
    _layers("up.biased", (SEQUENCE, BATCH, FFN), "their sum", MLP_BIAS, _UNFUSED),
    of_weight("down", (HIDDEN, FFN), _LAYERS), of_weight("gate_up", (GATE_UP_FEATURES, HIDDEN), _GATED),
    of_weight("up", (FFN, HIDDEN), _UNGATED),
    _experts("shared.gathered", WHOLE, "input of the shared experts, gathered over ranks", SCATTERED * _SHARED),
    _experts("shared.partial", WHOLE, "result of the rank's part of the shared experts", SCATTERED * _SHARED),
    _experts("tokens.gathered", (RECEIVED, HIDDEN), "tokens that arrived, gathered before they are sorted",
             _SEVERAL * _WIDE),
    _experts("results.share", (RECEIVED_SHARE, HIDDEN), "bf16 copy of the share of summed results",
             _WIDE, router=("fp32",)),
    _experts("results.returned", (SENT, HIDDEN), "results sent back", _AFAR * _REARRANGED),
    _experts("results.summed", SHARE, "sum of a token's results, before that of shared experts is added", _SHARED),
    _experts("results.gradient", (SENT, HIDDEN), "gradient of the results before it is sent", _AFAR * _REARRANGED),
    _experts("results.share_gradient", (RECEIVED_SHARE, HIDDEN), "the same before it is gathered", _WIDE,
             router=("fp32",)),
    _experts("results.share_gradient", (RECEIVED_SHARE, HIDDEN), "the same before it is gathered", _SEVERAL * _WIDE,
             router=("bf16",)),
    _experts("results.share_gradient_fp32", (RECEIVED_SHARE, HIDDEN), "its fp32 copy", _WIDE, 4, ("fp32",)),
    _experts("results.sorted_gradient", (RECEIVED, HIDDEN), "the same in bf16, gathered and sorted", _SEVERAL * _WIDE,
             router=("fp32",)),
    _experts("experts.down.input_gradient", (RECEIVED, EXPERT_FFN), "gradient of the input of the down projections"),
    _experts("experts.input_gradient", (RECEIVED, HIDDEN), "gradient of the experts' input", _SEVERAL),
    _experts("experts.sorted_gradient", (RECEIVED, HIDDEN), "the same on a rank with one expert, as it is sent back",
             1 - _SEVERAL),
    _experts("experts.gathered_gradient", (RECEIVED, HIDDEN), "the same before it is summed over ranks",
             _SEVERAL * _WIDE),
    _experts("experts.unsorted_gradient", (RECEIVED_SHARE, HIDDEN), "the same in the order in which tokens arrived",
             _REARRANGED),
    _experts("experts.returned_gradient", (SENT, HIDDEN), "the same, sent back", _AFAR),
    _experts("experts.token_gradient", SHARE, "gradient of tokens, summed over their experts"),
    _experts("shared.gathered_gradient", WHOLE, "gradient of the result of shared experts", SCATTERED * _SHARED),
    _experts("shared.down.input_gradient", (SEQUENCE, BATCH, SHARED_FFN),
             "gradient of the input of their down projection", _SHARED),
    _experts("shared.gate_up.gradient", (SEQUENCE, BATCH, SHARED_GATE_UP), "gradient of their gate and up projections",
             _SHARED),
    _experts("shared.input_gradient", WHOLE, "gradient of their input", _SHARED),
)


#: Tensors that all-to-alls of a forward pass use: tokens and their weights, and results. A rank with one whole expert
#: need not sort them: tokens arrive as its input, and its results are sent.
_TOKENS_SENT = ("sent:dispatch.sent/dispatch.arrived/dispatch.arrived_weights/dispatch.arrived_weights_bf16"
                " if:dispatch.results_returned:sent:experts.gate_up.input")
_RESULTS_SENT = ("if:dispatch.gradient_unsorted:sent:dispatch.results_sorted sent:dispatch.results_reduced_bf16"
                 " if:dispatch.results_returned:sent:dispatch.results/dispatch.results_returned")


#: Where ranks share an expert's width its results are summed over them, and the gradient of the sum is gathered: in the
#: precision of the router, with copies.
_SUMMED = ("-dispatch.results_fp32 +results.share -dispatch.results_reduced if:results.share:-dispatch.results_sorted"
           " if:dispatch.results_reduced_bf16:-dispatch.results_sorted sent:results.share")
_GATHERED_GRADIENT = (
    "+results.share_gradient_fp32 if:results.share_gradient_fp32:-results.share_gradient +dispatch.gradient_fp32"
    " -results.share_gradient_fp32 +dispatch.gradient_gathered -results.share_gradient +*"
    " if:results.sorted_gradient:-dispatch.gradient_fp32 +results.sorted_gradient"
    " if:results.sorted_gradient:-dispatch.gradient"
)


class _Norms(NamedTuple):
    """Words of norms behind attention and MLP, which read what these return, and whose result is added instead."""

    attention: str = ""
    mlp: str = ""

    def forward(self, words: str) -> str:
        """Return the words of attention's forward pass, with the norm's input where its output was."""
        made = "+o_proj.output"
        return f"{words.replace(made, f'save:{self.attention}')} {made}" if self.attention else words

    def backward(self, name: str, words: str, last: str) -> str:
        """Return the words of a backward pass behind that of a norm, whose gradient lives until the word ``last``."""
        if not name:
            return words
        return (f"+norm.gradient +norm.scale_gradient +norm.shift_gradient free:{name} -norm.scale_gradient"
                f" -norm.shift_gradient {words.replace(last, f'{last} -norm.gradient', 1)}")


#: Such words by the norms of a layer.
_NORMS: Mapping[str, _Norms] = {"pre": _Norms(), "both": _Norms("attention_post_norm", "ffn_post_norm")}


def _layer_with(
    mlp: str, component: str, first: str, hidden: str, forward: str, backward: str,
    options: Mapping[str, tuple[str, ...]], norms: _Norms,
) -> tuple[Script, ...]:
    """Return the scripts of a dense layer, whose MLP has a first projection and keeps its output as ``hidden``.

    ReLU keeps its own output alone, which is the down projection's input, so that one lives until its gradient is made.
    An activation that no kernel fuses with the bias reads a sum of both.
    """
    dummies, own = f"mlp_dummies.dummy.{options['heads'][0]}.{component}", {**options, "mlp": (mlp,)}
    kept, freed = (f"save:{component}.{hidden}", f" free:{component}.{hidden}") if hidden else ("", "")
    read, gradient = f"free:{component}.down.input", f"+{first}.gradient"
    activated = f"{read} {gradient}" if hidden else f"{gradient} {read}"
    before, behind = "", ""
    if mlp in _UNFUSED["mlp"]:
        before, behind = "+up.output +up.unbiased -gathered +up.biased -up.unbiased ", " -up.output -up.biased"
    to_mlp = grouped.column_backward(first, component, "ffn_norm", f"{dummies}.{first}")
    inner = f"save:{component}.{first}.input +gathered {before}{kept} -gathered save:{component}{behind}"
    down = "+down.partial {} -down.partial"
    made, remade = down.format("=down.output"), down.format("+down.remade")
    if norms.mlp:
        kept = down.format(f"save:{norms.mlp}")
        made, remade = f"{kept} end =down.output", f"{kept} +down.remade"
    again = f"save:ffn_norm {inner} {remade}".replace("save:", "remake:").split()
    to_inner = (f"+output_gradient +down.input_gradient +down.weight_gradient -output_gradient use:{dummies}.down"
                " -down.weight_gradient")
    return (
        # The output of the layer before lives until it is added to that one's input.
        Script("layer_forward", f"{norms.forward(forward)} save:ffn_norm -o_proj.output {inner}"
               f"{' end' * (not norms.mlp)} {made}", own),
        Script("layer_backward", f"+* again {' '.join(f'if:down.remade:{word}' for word in again)}"
               f" {norms.backward(norms.mlp, to_inner, '-down.weight_gradient')}"
               f" {activated} -down.input_gradient{freed} {to_mlp} -down.remade"
               f" {norms.backward(norms.attention, backward, '-o_proj.weight_gradient')}"
               " bind free -recomputed.output -*", own),
    )


def _layers_with(forward: str, backward: str, options: Mapping[str, tuple[str, ...]]) -> tuple[Script, ...]:
    """Return the scripts of both kinds of layers, of which attention has these words."""
    with_experts = {**options, "mlp": ("swiglu",), "layers": ("experts",)}
    return (
        *(script for norms, words in _NORMS.items() for mlp in _MLPS
          for script in _layer_with(*mlp, forward, backward, {**options, "norms": (norms,)}, words)),
        # The block of experts binds tokens on their way until it returns; results are sent back when that of the
        # function that made them is gone.
        Script("expert_layer_forward", f"{forward} save:expert_norm -o_proj.output +shared.gathered"
               " save:shared_experts -shared.gathered at:experts_forward +dispatch.shared_results +shared.partial"
               " -shared.partial save:router unbind +dispatch.sent wait:tokens use:expert_workspace +dispatch.arrived"
               " +tokens.gathered +dispatch.arrived_weights +dispatch.arrived_weights_bf16"
               " if:tokens.gathered:save:experts.gate_up.input -tokens.gathered"
               f" save:experts {_TOKENS_SENT} end"
               f" +dispatch.results +dispatch.results_sorted +* {_RESULTS_SENT}"
               f" {_SUMMED} -dispatch.results"
               " +results.returned sent:results.returned -dispatch.results_sorted -dispatch.results_reduced_bf16"
               " -results.share +results.summed =down.output"
               " -results.summed -results.returned -dispatch.results_sorted_here -*", with_experts),
        Script("expert_layer_backward", "at:combine_backward +residual_gradient.gradient_beside_experts again"
               " +results.gradient +dispatch.gradient_unsorted +results.share_gradient"
               " sent:results.gradient/dispatch.gradient_unsorted/results.share_gradient -results.gradient"
               f" {_GATHERED_GRADIENT} sent:dispatch.gradient_sent/dispatch.gradient_share"
               " if:dispatch.gradient_sent:sent:dispatch.gradient"
               " -dispatch.gradient_unsorted -dispatch.gradient_fp32 -dispatch.gradient_gathered"
               " -dispatch.gradient_share -dispatch.gradient_sent at:experts_backward +experts.down.input_gradient"
               " -dispatch.gradient -results.sorted_gradient free:experts.down.input +*"
               " -experts.down.input_gradient free:experts.gate_up"
               " +experts.input_gradient +experts.sorted_gradient use:expert_dummies -dispatch.gate_up_gradient"
               " free:experts.gate_up.input"
               " +experts.gathered_gradient if:experts.gathered_gradient:-experts.input_gradient"
               " +experts.unsorted_gradient -experts.gathered_gradient -experts.input_gradient"
               " if:results.share_gradient:-experts.sorted_gradient +experts.returned_gradient"
               " sent:experts.unsorted_gradient/experts.returned_gradient"
               " if:dispatch.gradient_sent:sent:experts.sorted_gradient"
               " -experts.unsorted_gradient -experts.sorted_gradient"
               " +experts.token_gradient -experts.returned_gradient -* free:experts free:router"
               " at:layer_backward +* +shared.gathered_gradient +shared.down.input_gradient -shared.gathered_gradient"
               " free:shared_experts.down.input +shared.gate_up.gradient -shared.down.input_gradient"
               " free:shared_experts.gate_up.output +shared.gathered +shared.input_gradient"
               " -shared.gathered -shared.gate_up.gradient"
               " free:shared_experts -shared.input_gradient -experts.token_gradient free:expert_norm"
               f" {backward} bind free -recomputed.output -*", with_experts),
    )


SCRIPTS: tuple[Script, ...] = (
    Script("embedding_forward", "=embedding.partial save", _LAYERS),
    Script("head_forward", "save:final_norm -embedding.partial -down.output save use:head_workspace.forward"
           " use:head.gathered_input", _LAYERS),
    Script("loss_backward", "+* -* free =loss.head_output_gradient", {**_LAYERS, "loss": ("te_fused",)}),
    Script("after_forward", "-down.output +* -*", _LAYERS),
    Script("head_backward", "+* free use:head_workspace.backward use:head -* -loss.head_output_gradient"
           " =head.tied_gradient", _LAYERS),
    Script("embedding_backward", "+* free -*", _LAYERS),
    # The norm of all gradients is a number that the host reads.
    Script("last_reduce", "unshare +* -* wait", _LAYERS),
    *_layers_with(grouped.FORWARD, grouped.BACKWARD, grouped.GROUPED),
    *_layers_with(grouped.EXCHANGED_FORWARD, grouped.EXCHANGED_BACKWARD, grouped.EXCHANGED),
    *_layers_with(latent.FORWARD, latent.BACKWARD, latent.FUSED),
    *_layers_with(latent.FORWARD_UNFUSED, latent.BACKWARD_UNFUSED, latent.UNFUSED),
)
#: Dimensions of which every index is a parameter of its own, in Transformer Engine's ``GroupedLinear`` too.
APART = (_EXPERTS, frozenset({EXPERTS}))
#: Sums that the scripts make one by one.
WALKED = ((_LAYERS, ("mlp_gradients", "recomputed_layer", "recomputed_mlp")),
          (_EXPERTS, ("recomputed_experts", "recomputed_results")))
