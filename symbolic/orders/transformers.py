"""Hugging Face Transformers in PyTorch's own step: layers with eager norms and SwiGLU, operation by operation.

Attention is sdpa or flash-attn, or eager without adapters. The order is that of traces of an H100
(``tests/data/snapshots``). The norm computes in fp32, and the gradient of the residual stream is one tensor from the
final norm to the embedding.
"""

from __future__ import annotations

from collections.abc import Mapping

from sympy import Expr

from ..choices import ADAPTED
from ..dimension import ONE, Dimension
from ..dimensions import BATCH, HALF_HEAD, HEAD_DIM, HEADS, HIDDEN, KV_HEADS, SEQUENCE, VOCAB
from ..functions import Iverson
from ..parallel.data import SEEKS_UNUSED, TIED
from ..parameters import symbols
from . import adapted, attended
from .words import GRADIENTS, KEY, QUERY, WHOLE, Passing, Script

a, bias, k, qkn, rfull = symbols("a bias k qkn rfull")

_HEAD: Mapping[str, tuple[str, ...]] = {"peak": ("torch",), "loss": ("huggingface", "huggingface_freed")}
LAYERS: Mapping[str, tuple[str, ...]] = {
    **_HEAD, "data_parallel": ("ddp", "fsdp", "deepspeed"), "precision": ("bf16", "mixed"),
    "units": ("root", "ends"), "layers": ("dense",), "gathered_input": ("dropped",), "norm": ("eager",),
    "normalisation": ("rms",),
    "norms": ("pre",), "qk_norms": ("head",), "qk_order": ("each",), "residual": ("sequential",),
    "attention": ("sdpa", "flash", "eager"), "heads": ("grouped",), "rope": ("shared",), "mlp": ("swiglu",),
    "swiglu": ("eager",), "dropout": ("none",), "adapters": ("none",), "optimizer_step": ("after",),
}
#: With FSDP2: every layer is a unit, and the model with all that is outside of them another.
_SHARDED: Mapping[str, tuple[str, ...]] = {**LAYERS, "data_parallel": ("fsdp",)}
#: The same, and with adapters of PEFT beside frozen weights of 16 bits.
ANY: Mapping[str, tuple[str, ...]] = {
    **LAYERS, "adapters": ("none", *ADAPTED), "adapter_kind": ("lora",), "adapter_precision": ("low",),
    "base_weights": ("full",), "expert_adapters": ("none",),
}
_FROZEN: Mapping[str, tuple[str, ...]] = {
    **ANY, **attended.OPTIONS["fused"], "data_parallel": ("ddp",), "precision": ("bf16",)}
_TOKENS = (SEQUENCE, BATCH)


def _modules(component: str, *names: str) -> tuple[str, ...]:
    """Return the weights of projections, each with the matrices of its adapter behind it."""
    return tuple(row for name in names for row in (
        f"{component}.{name}.weight", f"{component}.{name}.bias",
        f"{component}_adapters.{name}.adapter_a", f"{component}_adapters.{name}.adapter_b"))


#: Parameters of a layer in the order of its modules.
MODULES = (
    *_modules("attention", "q", "k", "v", "o_proj"), "attention.q_norm.weight", "attention.k_norm.weight",
    *_modules("swiglu", "gate", "up", "down"), "attention_norm.weight", "ffn_norm.weight",
)


def _layers(name: str, shape: tuple[Dimension, ...], meaning: str, when: Expr = ONE, bytes: int = 2) -> Passing:
    return Passing(name, shape, bytes, meaning, "transformers", when, ANY)


def _of_norm(
    name: str, tokens: tuple[Dimension, ...], width: Dimension, when: Expr = ONE, heads: Expr | None = None,
) -> tuple[Passing, ...]:
    """Return the tensors of a norm, of a number of ``heads`` if it is one of each head."""
    shape, several = (*tokens, width), ONE if heads is None else Iverson(heads > 1)
    return (
        _layers(f"{name}.fp32", shape, "fp32 temporary of a norm", when, 4),
        _layers(f"{name}.sum", shape, "fp32 gradient of a norm's input, summed over its two paths", when, 4),
        _layers(f"{name}.statistic", tokens, "fp32 number of each token", when, 4),
        _layers(f"{name}.gradient", shape, "gradient of the normalised input", when),
        _layers(f"{name}.weighted", shape, "product whose sum is the gradient of a norm's weight", when),
        _layers(f"{name}.input_gradient", shape, "gradient of a norm's input", when * several),
        *(() if heads is None else (
            _layers(f"{name}.input_gradient_alone", shape, "the same of one head", when * (1 - several)),)),
        _layers(f"{name}.narrow", shape, "normalised input, which a frozen weight does not save", when),
    )


def _rotated(name: str, heads: Dimension, shape: tuple[Dimension, ...], number: Expr) -> tuple[Passing, ...]:
    """Return the tensors of ``number`` heads; those of one head lie side by side as they are."""
    several = Iverson(number > 1)
    return (
        _layers(f"{name}.linear", shape, "output of a projection, before its norm", qkn),
        _layers(f"{name}.projected", shape, "before RoPE"),
        _layers(f"{name}.cosine", shape, "product with cosines"),
        _layers(f"{name}.half", (SEQUENCE, BATCH, heads, HALF_HEAD), "half of each head with its sign turned"),
        _layers(f"{name}.rotated", shape, "halves of heads exchanged"),
        _layers(f"{name}.sine", shape, "product with sines"),
        _layers(f"{name}.slice", shape, "gradient of half of each head among zeros"),
        _layers(f"{name}.gradient", shape, "gradient after RoPE"),
        _layers(f"{name}.turned_back", shape, "gradient before RoPE", (1 - qkn) * several),
        _layers(f"{name}.turned_back_alone", shape, "the same of one head", (1 - qkn) * (1 - several)),
        _layers(f"{name}.normed_gradient", shape, "gradient before RoPE, of the output of a norm", qkn),
        _layers(f"{name}.joined", shape, "gradient before RoPE, heads side by side", several),
    )


PASSING: tuple[Passing, ...] = (
    *attended.passing(LAYERS),
    Passing("copied", (), 1, "1 where DistributedDataParallel looks for unused parameters and copies what is returned",
            "pytorch", SEEKS_UNUSED, {**_HEAD, "data_parallel": ("ddp",)}),
    *(Passing(f"units.{name}", (), 1, f"1 where {units}", "pytorch", when,
              {**LAYERS, "data_parallel": ("fsdp",), "units": ("ends",)})
      for name, units, when in (
          ("apart", "the embedding is a unit of FSDP2, and final norm with head another", 1 - TIED),
          ("joined", "final norm, embedding and head are one unit of FSDP2", TIED))),
    *_of_norm("norm", _TOKENS, HIDDEN), *_of_norm("q_norm", (*_TOKENS, HEADS), HEAD_DIM, qkn, a),
    *_of_norm("k_norm", (*_TOKENS, KV_HEADS), HEAD_DIM, qkn, k),
    *_rotated("q", HEADS, QUERY, a), *_rotated("k", KV_HEADS, KEY, k),
    _layers("output", WHOLE, "output of a layer, which the next one keeps where it is recomputed", rfull),
    _layers("hidden", WHOLE, "output of a layer, until the next one has added to it", 1 - rfull),
    Passing("positions", (SEQUENCE,), 8, "numbers of positions, which the model holds and recompute saves",
            "transformers", 1 - rfull, {**ANY, "documents": ("one",)}),
    _layers("embedded", WHOLE, "output of the embedding, which the model holds and recompute saves", 1 - rfull),
    _layers("o_proj.output", WHOLE, "output of attention, before it is added"),
    _layers("attention.sum", WHOLE, "the layer's input with it"),
    _layers("down.output", WHOLE, "output of the MLP, before it is added"),
    _layers("mlp.input", WHOLE, "input of an MLP without adapters, which frozen matrices do not save"),
    _layers("mlp.product", adapted.INNER, "input of its down projection"),
    _layers("head.read", WHOLE, "input of a frozen head, which the model holds"),
    _layers("head.input_gradient", WHOLE, "gradient of the head's input"),
    _layers("residual.gradient", WHOLE, "gradient of the residual stream", TIED),
    _layers("residual.gradient_apart", WHOLE, "the same where the head is no embedding", 1 - TIED),
    _layers("tied.gradient", (VOCAB, HIDDEN), "gradient of the tied matrix as the head has it", TIED),
    _layers("tied.embedding_gradient", (VOCAB, HIDDEN), "gradient of the tied matrix as the embedding has it", TIED),
    *(_layers(*row) for row in GRADIENTS),
    _layers("input.gradient_weighed", WHOLE, "the same, made behind the gradient of a matrix without bias", 1 - bias),
    _layers("input.gradient_biased", WHOLE, "the same, made before the gradient of a matrix with a bias", bias),
    _layers("input.sum", WHOLE, "sum of all of them"),
    _layers("input.sum_weighed", WHOLE, "sum of those of attention without biases", 1 - bias),
    _layers("input.sum_biased", WHOLE, "the same with biases, made behind the sums of gradients", bias),
    *adapted.passing(ANY),
)


def _norm(row: str, output: str, kind: str = "norm", frozen: bool = False) -> str:
    """Return the words of an eager norm whose saved tensors begin with ``row``; a frozen one does not save its output.

    ``output`` makes the output times the weight.
    """
    normalised = "+{kind}.narrow {output} -{kind}.narrow" if frozen else (
        "save:{row}.normalised {output} drop:{row}.normalised")
    return (f"save:{row}.input_fp32 +{kind}.fp32 +{kind}.statistic -{kind}.fp32 +{kind}.statistic save:{row}.rms"
            f" -{kind}.statistic +{kind}.fp32 drop:{row}.rms drop:{row}.input_fp32"
            f" {normalised.format(kind=kind, row=row, output=output)} -{kind}.fp32 -{kind}.statistic")


def _norm_backward(
    row: str, freed: str, result: str, kind: str = "norm", frozen: bool = False, last: str = "",
) -> str:
    """Return the words of its backward pass: ``freed`` frees the gradient of its output, ``last`` what goes with all.

    ``result`` makes the gradient of its input.
    """
    weight = "" if frozen else f" +{kind}.weighted grad:{row}.weight -{kind}.weighted"
    return (f"+{kind}.gradient{weight} {freed}{'' if frozen else f' free:{row}.normalised added'}"
            f" +{kind}.fp32 -{kind}.gradient +{kind}.fp32 +{kind}.sum +{kind}.statistic -{kind}.fp32 -{kind}.fp32"
            + 3 * f" +{kind}.statistic" + 3 * f" -{kind}.statistic"
            + f" free:{row}.rms +{kind}.fp32 -{kind}.statistic" + 3 * f" +{kind}.fp32" + 3 * f" -{kind}.fp32"
            + f" free:{row}.input_fp32{last} -{kind}.fp32 {result} -{kind}.sum")


def norm_of_heads(name: str, frozen: bool = False) -> str:
    """Return the words of a norm of each head of queries or keys."""
    return _norm(f"attention.{name}_norm", f"+{name}.projected", f"{name}_norm", frozen)


def norm_of_heads_backward(name: str, frozen: bool = False) -> str:
    """Return the words of its backward pass."""
    result = f"+{name}_norm.input_gradient +{name}_norm.input_gradient_alone"
    return _norm_backward(f"attention.{name}_norm", f"-{name}.normed_gradient", result, f"{name}_norm", frozen)


def _rope(name: str, output: str) -> str:
    return (f"+{name}.cosine +{name}.half +{name}.rotated -{name}.half +{name}.sine -{name}.rotated"
            f" {output} -{name}.cosine -{name}.sine")


def _rope_backward(name: str) -> str:
    """Return the words after which ``turned_back`` or ``normed_gradient`` is the gradient of what was turned."""
    return (f"+{name}.sine +{name}.half +{name}.turned_back +{name}.turned_back_alone"
            f" +{name}.normed_gradient -{name}.half +{name}.slice"
            f" -{name}.sine -{name}.slice"
            f" +{name}.cosine -{name}.gradient -{name}.cosine")


#: Words that free gradients before RoPE, of several heads or of one.
TURNED_BACK = {name: f"-{name}.joined -{name}.turned_back_alone -{name}_norm.input_gradient_alone" for name in "qk"}


def _biased(weight: str) -> str:
    """Return the words of the gradients of a matrix and its input: one with a bias has that of its input first.

    The bias's own comes last.
    """
    bias = weight.replace(".weight", ".bias")
    return f"+input.gradient_biased grad:{weight} grad:{bias} +input.gradient_weighed"


#: Word that adds gradients of a matrix and its bias, before there is a sum of those of the input.
ADDED_BIASED = "if:input.sum_biased:added"
#: Words that free the older of such gradients of the input.
_MADE = "-input.gradient_biased -input.gradient_weighed"
#: Words that free their sum.
_SUMMED = "-input.sum_weighed -input.sum_biased"


class Layer:
    """The words of a layer in which ``names`` have adapters; without any, all weights are trained."""

    def __init__(self, names: tuple[str, ...], attention: type[attended.Kernel]) -> None:
        self._names, self._frozen, self._attention = names, bool(names), attention
        self._mlp_input, self._mlp_output = "save:swiglu.gate_up.input", "save:swiglu.down.input"
        self._qkv_input = "save:attention.qkv.input"
        if names:
            self._qkv_input = "save:attention_adapters.qkv.adapter_input"
            adapted = "down" in names
            self._mlp_input = "save:swiglu_adapters.gate_up.adapter_input" if adapted else "+mlp.input"
            self._mlp_output = "save:swiglu_adapters.down.adapter_input" if adapted else "+mlp.product"

    def norm(self, row: str, output: str) -> str:
        """Return the words of a norm of hidden states."""
        return _norm(row, output, frozen=self._frozen)

    def norm_backward(self, row: str, freed: str, result: str, last: str = "") -> str:
        """Return the words of its backward pass."""
        return _norm_backward(row, freed, result, frozen=self._frozen, last=last)

    def forward(self) -> str:
        """Return the words of the forward pass."""
        read, core = " -mlp.product -mlp.input" if self._frozen else "", self._attention
        # The model holds the first layer's input until its final norm, and autograd one that is a leaf.
        return (
            f"save:layer_input {self.norm('attention_norm', self._qkv_input)} {self._attend()} {core.left}"
            f" +attention.sum -o_proj.output {self.norm('ffn_norm', self._mlp_input)} {self._multiply()}"
            f"{read} {core.dropped} =hidden next -down.output -attention.sum{core.ended} later:-hidden")

    def module(self, name: str, words: str) -> str:
        """Return the words of a module, or of the one whose weight is ``name``, with those that begin and end it."""
        return words

    def _attend(self) -> str:
        core = self._attention
        return self.module("attention", (
            f"{self._turned('q')} {self._turned('k')} {self._linear('v', core.values)}"
            f" {_rope('q', core.turned['q'])} {_rope('k', core.turned['k'])} -q.projected -k.projected {core.forward}"
            f" {self._linear('o_proj', '+o_proj.output')}"))

    def _multiply(self) -> str:
        return self.module("mlp", (
            f"{self._linear('gate', 'save:swiglu.gate')} {self.module('activation', 'save:swiglu.silu')}"
            f" drop:swiglu.gate {self._linear('up', 'save:swiglu.up')} {self._mlp_output} drop:swiglu.silu"
            f" drop:swiglu.up {self.module('swiglu.down.weight', self._down())}"))

    def _down(self) -> str:
        if "down" in self._names:
            return adapted.forward("down", "+down.output", self._names, last=True)
        return "end +down.output"

    def _linear(self, name: str, output: str) -> str:
        component = "swiglu" if name in ("gate", "up") else "attention"
        return self.module(f"{component}.{name}.weight", adapted.forward(name, output, self._names))

    def _turned(self, name: str) -> str:
        """Return the words of queries or keys before RoPE: a projection and a norm, if the model has that."""
        normed = norm_of_heads(name, self._frozen)
        words = adapted.forward(name, f"+{name}.linear", self._names, normed)
        return f"{self.module(f'attention.{name}.weight', words)} -{name}.linear"

    def backward(self) -> str:
        """Return the words of the backward pass."""
        mlp = self.module("mlp", (
            f"{self._down_backward()} +up.gradient +silu.gradient {self._freed('down')} free:swiglu.up"
            f" free:swiglu.silu {self._up_backward()}"
            f" {self.module('activation', '+gate.gradient -silu.gradient free:swiglu.gate')} {self._gate_backward()}"))
        attention = self.module("attention", (
            f"{self._attended_backward()} {self._attention.backward.format(freed=self._freed('o_proj'))}"
            f" {_rope_backward('k')} {_rope_backward('q')} {self._v_backward()}"
            f" {self._normed_backward('k')} {self._k_backward()} {self._normed_backward('q')} {self._q_backward()}"))
        return (
            f"{mlp} {self.norm_backward('ffn_norm', '-input.sum', '+norm.input_gradient')}"
            f" -norm.input_gradient {attention} "
            + self.norm_backward("attention_norm", self._summed(), "+norm.input_gradient", " free:layer_input")
            + " -norm.input_gradient free")

    def _summed(self) -> str:
        """Return the words that free the sum of the gradients of attention's input."""
        return "-input.sum" if self._frozen else _SUMMED

    def _freed(self, name: str) -> str:
        """Return the word that frees the gradient of the only input of a projection."""
        if name in self._names:
            return f"-{name}.input_sum"
        return {"down": "-down.input_gradient", "o_proj": "-context.gradient"}[name]

    def _alone(self, name: str, freed: str, started: str = "") -> str:
        """Return the words of a projection with an adapter whose input no other one has."""
        matrices = adapted.of_matrices(name, freed, scaled=not started)
        return (f"{started} {matrices} +{name}.frozen_gradient +{name}.input_sum -{name}.adapter_gradient"
                f" -{name}.frozen_gradient").strip()

    def _first(self, name: str, gradient: str) -> str:
        """Return the words of the projection with an adapter that first makes a gradient of a common input."""
        return (f"{adapted.of_matrices(name)} +input.gradient -{gradient} +input.sum -{name}.adapter_gradient"
                " -input.gradient")

    def _later(self, name: str, gradient: str, freed: str = "") -> str:
        """Return the words of one that adds gradients of its input, in place, to what there is.

        ``gradient`` frees that of its output, ``freed`` its input.
        """
        matrices = f"{adapted.of_matrices(name, freed)} -{name}.adapter_gradient " if name in self._names else ""
        return f"{matrices}+input.gradient {gradient} -input.gradient"

    def _down_backward(self) -> str:
        if "down" in self._names:
            started = "+down.scaled_gradient again:kept -down.base -attention.sum"
            return self._alone("down", "free:swiglu_adapters.down.adapter_input", started)
        again = "again:kept -mlp.product -mlp.input -attention.sum" if self._frozen else "again:kept -attention.sum"
        weight = "" if self._frozen else " grad:swiglu.down.weight"
        return f"{again}{weight} +down.input_gradient" + ("" if self._frozen else " free:swiglu.down.input added")

    def _up_backward(self) -> str:
        if "up" in self._names:
            return self._first("up", "up.gradient")
        if self._frozen:
            return "+input.gradient -up.gradient"
        return "grad:swiglu.up.weight +input.gradient -up.gradient added"

    def _gate_backward(self) -> str:
        if "gate" in self._names:
            return self._later("gate", "-gate.gradient", "free:swiglu_adapters.gate_up.adapter_input")
        added = "+input.gradient -gate.gradient{} +input.sum -input.gradient -input.gradient"
        if self._frozen:
            return added.format("")
        return f"grad:swiglu.gate.weight {added.format(' free:swiglu')} added"

    def _attended_backward(self) -> str:
        if "o_proj" in self._names:
            return self._alone("o_proj", "")
        return "+context.gradient" if self._frozen else "grad:attention.o_proj.weight +context.gradient added"

    def _v_backward(self) -> str:
        if self._frozen:
            return self._first("v", "v.gradient")
        return f"{self._attention.values_joined}{_biased('attention.v.weight')} -v.joined -v.gradient added"

    def _normed_backward(self, name: str) -> str:
        normed = norm_of_heads_backward(name, self._frozen)
        weight = "" if self._frozen else " " + _biased(f"attention.{name}.weight")
        return f"{normed} +{name}.joined -{name}.turned_back -{name}_norm.input_gradient{weight}"

    def _k_backward(self) -> str:
        if self._frozen:
            return self._later("k", TURNED_BACK["k"])
        return (f"{TURNED_BACK['k']} +input.sum_weighed {ADDED_BIASED} +input.sum_biased"
                f" {_MADE} {_MADE} added")

    def _q_backward(self) -> str:
        if self._frozen:
            later = self._later("q", TURNED_BACK["q"], "free:attention_adapters.qkv.adapter_input")
            return f"{later} free:attention"
        return f"{TURNED_BACK['q']} free:attention {_MADE} added"


def scripts_of(
    names: tuple[str, ...], attention: str, options: Mapping[str, tuple[str, ...]], kind: type[Layer] = Layer,
) -> tuple[Script, ...]:
    """Return the scripts of a model in which some projections have adapters, or without any all weights are trained."""
    kernel, frozen = attended.KERNELS[attention], bool(names)
    layer, options = kind(names, kernel), {**options, **attended.OPTIONS[attention]}
    final = layer.norm_backward("final_norm", "-head.input_gradient",
                                "=residual.gradient =residual.gradient_apart")
    read = "=head.read" if frozen else "save:head.input"
    embedded, passed = ("next", "") if frozen else (
        f"=embedded next =positions{kernel.mask}", f" -positions -embedded{kernel.unmask}")
    head = ("=last_steps.loss use:step_workspace.backward +head.input_gradient -last_steps.logits_gradient" if frozen
            else "=last_steps.loss grad:head =tied.gradient use:step_workspace.backward"
            " +head.input_gradient -last_steps.logits_gradient free:head.input added")
    embedding = ("unshare -residual.gradient -residual.gradient_apart free -last_steps.loss" if frozen
                 else "unshare +tied.embedding_gradient -residual.gradient grad:embedding"
                 " -residual.gradient_apart -tied.gradient -tied.embedding_gradient added free -last_steps.loss")
    return (
        Script("step_begin", "", options),
        # The first product of a forward pass is that of RoPE's angles.
        Script("embedding_forward", f"save {embedded} share use:step_workspace.forward", options),
        Script("layer_forward", layer.forward(), options),
        Script("head_forward", f"{layer.norm('final_norm', read)} end -hidden -next{passed} =loss.held_by_caller"
               " =loss.logits_in_model", options),
        *((Script("loss_forward", f"{_LOGITS} -head.read {_RETURNED}", options),) if frozen else ()),
        Script("head_backward", f"{head} {final} free", options),
        Script("norm_backward", "", options),
        Script("layer_backward", layer.backward(), options),
        Script("embedding_backward", embedding, options),
        Script("backward_end", "-loss.held_by_caller sum", options),
        Script("optimizer_step", "+* -* -all", options),
    )


#: Words of the loss's forward pass, and behind it: the model returns its logits when it has its loss, and the caller
#: holds them until its next forward pass, or does not.
_LOGITS = "+loss.logits_fp32 +loss.padded_labels save +* -*"
_RETURNED = "copied:loss.held_by_caller copied:loss.logits_in_model -loss.logits_in_model"
_UNSHARDED: tuple[Script, ...] = (
    Script("head_forward", "save =loss.held_by_caller =loss.logits_in_model", _HEAD),
    Script("loss_forward", f"{_LOGITS} {_RETURNED}", _HEAD),
    Script("loss_backward", "+loss.gradient_log_softmax +* -loss.gradient_log_softmax free =last_steps.logits_gradient"
           " -*", _HEAD),
    Script("head_backward", "+* free:head -last_steps.logits_gradient -*", _HEAD),
    Script("norm_backward", "free +* -*", _HEAD),
    *(script for attention in attended.KERNELS for script in scripts_of((), attention, LAYERS)),
)

#: Words at the points of a step that FSDP2 puts before those of a step without it, and behind them.
_OF_LAYERS: Mapping[str, tuple[str, str]] = {
    "backward_start": ("", ""), "last_reduce": ("", ""),
    **{f"{kind}_forward": (f"open:{kind}", f"close:{kind}") for kind in ("layer", "expert_layer")},
    **{f"{kind}_backward": (f"reopen:{kind}", f"unshare:first reduce:{kind}") for kind in ("layer", "expert_layer")},
}
#: Conditions of weights that are not tied, and that are: one unit has final norm, embedding and head then.
_APART, _JOINED = "if:units.apart:", "if:units.joined:"
_OF_UNITS: Mapping[str, Mapping[str, tuple[str, str]]] = {
    "root": {
        **_OF_LAYERS, "embedding_forward": ("open:root", ""), "loss_forward": ("", "close:root finish"),
        "loss_backward": ("at:backward_start +* reopen:root -* at:loss_backward", ""),
        "embedding_backward": ("", "reduce:root -last_steps.loss -loss.held_by_caller_root"),
    },
    # The loss is a part of the model: until it is there, so is the buffer of the last unit. The model itself has no
    # parameters, so nothing is gathered before the loss's backward pass.
    "ends": {
        **_OF_LAYERS, "embedding_forward": (f"{_APART}open:embedding {_JOINED}open:joined", ""),
        "head_forward": (f"{_APART}open:last", f"{_APART}close:last"),
        "loss_forward": ("", f"{_JOINED}close:joined finish"),
        "head_backward": (f"{_APART}reopen:last {_JOINED}reopen:joined", ""),
        "head_reduce": ("", f"{_APART}reduce:last"),
        "embedding_backward": (
            f"{_APART}reopen:embedding",
            f"{_APART}reduce:embedding {_JOINED}reduce:joined -last_steps.loss -loss.held_by_caller_ends"),
    },
}


def with_units(units: str, events: Mapping[str, str]) -> dict[str, str]:
    """Return the events at every point with FSDP2, which reduces gradients of each micro-batch, so it adds none."""
    result = {}
    for point in dict.fromkeys((*events, *_OF_UNITS[units])):
        before, behind = _OF_UNITS[units].get(point, ("", ""))
        kept = [word.replace("held_by_caller", f"held_by_caller_{units}") for word in events.get(point, "").split()
                if word != "sum" and (point, word) != ("embedding_backward", "-last_steps.loss")]
        if (units, point) == ("ends", "embedding_forward"):
            made = next(place for place, word in enumerate(kept) if word in _EMBEDDED)
            kept.insert(made + 1, f"{_APART}close:embedding")
        result[point] = " ".join((before, *kept, behind)).strip()
    return result


#: Words that make the output of the embedding.
_EMBEDDED = ("next", "begin")
#: Events without FSDP2 at every point, by kernel of attention.
EVENTS: Mapping[str, Mapping[str, str]] = {
    attention: {item.point: item.events for item in _UNSHARDED
                if {*own["attention"]} <= {*item.options.get("attention", own["attention"])}}
    for attention, own in attended.OPTIONS.items()
}
SCRIPTS: tuple[Script, ...] = (
    *_UNSHARDED,
    *(Script(point, words, {**_SHARDED, "units": (units,), **attended.OPTIONS[attention]})
      for units in _OF_UNITS for attention, events in EVENTS.items()
      for point, words in with_units(units, events).items()),
    *(script for option, names in adapted.ADAPTERS.items() if names
      for script in scripts_of(names, "fused", {**_FROZEN, "adapters": (option,)})),
)

#: Sums of terms whose parts these scripts make one by one.
WALKED: tuple[tuple[Mapping[str, tuple[str, ...]], tuple[str, ...]], ...] = (
    (ANY, ("recomputed_layer", "accumulated_gradients", "passed_gradients", "all_gradients", "kept_gradients",
               "layer_temporaries")),
    (_SHARDED, ("gathered", "gathered_forward", "gather_buffer", "gathered_norm", "gathered_at_norm", "gathered_after",
                "gathered_start", "gathered_head", "layers_at_work", "gathered_embedding", "reduced_last",
                "head_gradients", "made_before_norm", "reduced_gradients", "embedding_gradients")),
)
