"""Hugging Face Transformers in PyTorch's own step: layers with eager norms, SwiGLU and sdpa, operation by operation.

The order is that of a step's trace on one H100 (``tests/data/snapshots``). The norm computes in fp32, and the gradient
of the residual stream is one tensor from the final norm to the embedding.
"""

from __future__ import annotations

from collections.abc import Mapping

from sympy import Eq, Expr

from ..dimension import ONE, Dimension
from ..dimensions import BATCH, HALF_HEAD, HEAD_DIM, HEADS, HIDDEN, KV_HEADS, SEQUENCE, VOCAB
from ..functions import Iverson
from ..parallel.data import SEEKS_UNUSED
from ..parameters import symbols
from .words import GRADIENTS, KEY, QUERY, WHOLE, Passing, Script

p, qkn, rfull, tied = symbols("p qkn rfull tied")

_HEAD: Mapping[str, tuple[str, ...]] = {"peak": ("torch",), "loss": ("huggingface", "huggingface_freed")}
LAYERS: Mapping[str, tuple[str, ...]] = {
    **_HEAD, "data_parallel": ("ddp", "fsdp"), "precision": ("bf16", "mixed"), "units": ("root",), "layers": ("dense",),
    "norm": ("eager",),
    "normalisation": ("rms",), "norms": ("pre",), "qk_norms": ("head",), "residual": ("sequential",),
    "attention": ("sdpa",), "heads": ("grouped",), "rope": ("shared",), "mlp": ("swiglu",), "swiglu": ("eager",),
    "dropout": ("none",), "adapters": ("none",), "optimizer_step": ("after",),
}
#: With FSDP2: every layer is a unit, and the model with all that is outside of them another.
_SHARDED: Mapping[str, tuple[str, ...]] = {**LAYERS, "data_parallel": ("fsdp",)}
_TOKENS = (SEQUENCE, BATCH)
_TIED = tied * Iverson(Eq(p, 1))


#: Parameters of a layer in the order of its modules. Biases of queries, keys and values are one row.
MODULES = (
    "attention.q.weight", "attention.qkv.bias", "attention.k.weight", "attention.v.weight", "attention.o_proj.weight",
    "attention.q_norm.weight", "attention.k_norm.weight", "swiglu.gate.weight", "swiglu.up.weight",
    "swiglu.down.weight", "attention_norm.weight", "ffn_norm.weight",
)


def _layers(name: str, shape: tuple[Dimension, ...], meaning: str, when: Expr = ONE, bytes: int = 2) -> Passing:
    return Passing(name, shape, bytes, meaning, "transformers", when, LAYERS)


def _of_norm(name: str, tokens: tuple[Dimension, ...], width: Dimension, when: Expr = ONE) -> tuple[Passing, ...]:
    shape = (*tokens, width)
    return (
        _layers(f"{name}.fp32", shape, "fp32 temporary of a norm", when, 4),
        _layers(f"{name}.sum", shape, "fp32 gradient of a norm's input, summed over its two paths", when, 4),
        _layers(f"{name}.statistic", tokens, "fp32 number of each token", when, 4),
        _layers(f"{name}.gradient", shape, "gradient of the normalised input", when),
        _layers(f"{name}.weighted", shape, "product whose sum is the gradient of a norm's weight", when),
        _layers(f"{name}.input_gradient", shape, "gradient of a norm's input", when),
    )


def _rotated(name: str, heads: Dimension, shape: tuple[Dimension, ...]) -> tuple[Passing, ...]:
    return (
        _layers(f"{name}.linear", shape, "output of a projection, before its norm", qkn),
        _layers(f"{name}.projected", shape, "before RoPE"),
        _layers(f"{name}.cosine", shape, "product with cosines"),
        _layers(f"{name}.half", (SEQUENCE, BATCH, heads, HALF_HEAD), "half of each head with its sign turned"),
        _layers(f"{name}.rotated", shape, "halves of heads exchanged"),
        _layers(f"{name}.sine", shape, "product with sines"),
        _layers(f"{name}.slice", shape, "gradient of half of each head among zeros"),
        _layers(f"{name}.gradient", shape, "gradient after RoPE"),
        _layers(f"{name}.turned_back", shape, "gradient before RoPE", 1 - qkn),
        _layers(f"{name}.normed_gradient", shape, "gradient before RoPE, of the output of a norm", qkn),
        _layers(f"{name}.joined", shape, "gradient before RoPE, heads side by side"),
    )


PASSING: tuple[Passing, ...] = (
    Passing("copied", (), 1, "1 where DistributedDataParallel looks for unused parameters and copies what is returned",
            "pytorch", SEEKS_UNUSED, {**_HEAD, "data_parallel": ("ddp",)}),
    *_of_norm("norm", _TOKENS, HIDDEN), *_of_norm("q_norm", (*_TOKENS, HEADS), HEAD_DIM, qkn),
    *_of_norm("k_norm", (*_TOKENS, KV_HEADS), HEAD_DIM, qkn),
    *_rotated("q", HEADS, QUERY), *_rotated("k", KV_HEADS, KEY),
    _layers("output", WHOLE, "output of a layer, which the next one keeps where it is recomputed", rfull),
    _layers("hidden", WHOLE, "output of a layer, until the next one has added to it", 1 - rfull),
    _layers("positions", (SEQUENCE,), "numbers of positions, which the model holds and recompute saves", 1 - rfull, 8),
    _layers("embedded", WHOLE, "output of the embedding, which the model holds and recompute saves", 1 - rfull),
    _layers("o_proj.output", WHOLE, "output of attention, before it is added"),
    _layers("attention.sum", WHOLE, "the layer's input with it"),
    _layers("down.output", WHOLE, "output of the MLP, before it is added"),
    _layers("head.input_gradient", WHOLE, "gradient of the head's input"),
    _layers("residual.gradient", WHOLE, "gradient of the residual stream", _TIED),
    _layers("residual.gradient_apart", WHOLE, "the same where the head is no embedding", 1 - _TIED),
    _layers("tied.gradient", (VOCAB, HIDDEN), "gradient of the tied matrix as the head has it", _TIED),
    _layers("tied.embedding_gradient", (VOCAB, HIDDEN), "gradient of the tied matrix as the embedding has it", _TIED),
    *(_layers(*row) for row in GRADIENTS),
    _layers("input.sum", WHOLE, "sum of all of them"),
)


def _norm(row: str, output: str, kind: str = "norm") -> str:
    """Return the words of an eager norm whose saved tensors begin with ``row``."""
    return (f"save:{row}.input_fp32 +{kind}.fp32 +{kind}.statistic -{kind}.fp32 +{kind}.statistic save:{row}.rms"
            f" -{kind}.statistic +{kind}.fp32 drop:{row}.rms drop:{row}.input_fp32 save:{row}.normalised {output}"
            f" drop:{row}.normalised -{kind}.fp32 -{kind}.statistic")


def _norm_backward(row: str, freed: str, result: str, kind: str = "norm") -> str:
    """Return the words of its backward pass: ``freed`` frees the gradient of its output."""
    return (f"+{kind}.gradient +{kind}.weighted grad:{row}.weight -{kind}.weighted added {freed} free:{row}.normalised"
            f" +{kind}.fp32 -{kind}.gradient +{kind}.fp32 +{kind}.sum +{kind}.statistic -{kind}.fp32 -{kind}.fp32"
            + 3 * f" +{kind}.statistic" + 3 * f" -{kind}.statistic"
            + f" free:{row}.rms +{kind}.fp32 -{kind}.statistic" + 3 * f" +{kind}.fp32" + 3 * f" -{kind}.fp32"
            + f" free:{row}.input_fp32 -{kind}.fp32 {result} -{kind}.sum")


def _projected(name: str) -> str:
    return f"+{name}.linear {_norm(f'attention.{name}_norm', f'+{name}.projected', f'{name}_norm')} -{name}.linear"


def _rope(name: str) -> str:
    return (f"+{name}.cosine +{name}.half +{name}.rotated -{name}.half +{name}.sine -{name}.rotated"
            f" save:attention.{name} -{name}.cosine -{name}.sine")


def _rope_backward(name: str) -> str:
    """Return the words after which ``turned_back`` or ``normed_gradient`` is the gradient of what was turned."""
    return (f"+{name}.sine +{name}.half +{name}.turned_back +{name}.normed_gradient -{name}.half +{name}.slice"
            f" -{name}.sine -{name}.slice"
            f" +{name}.cosine -{name}.gradient -{name}.cosine")


def _normed_backward(name: str) -> str:
    normed = _norm_backward(f"attention.{name}_norm", f"-{name}.normed_gradient", f"+{name}_norm.input_gradient",
                            f"{name}_norm")
    return f"{normed} +{name}.joined -{name}.turned_back -{name}_norm.input_gradient grad:attention.{name}.weight"


_UNSHARDED: tuple[Script, ...] = (
    # The model returns its logits when it has its loss; the caller holds them until its next forward pass, or does not.
    Script("head_forward", "save =loss.held_by_caller =loss.logits_in_model", _HEAD),
    Script("loss_forward", "+loss.logits_fp32 +loss.padded_labels save +* -* copied:loss.held_by_caller"
           " copied:loss.logits_in_model -loss.logits_in_model", _HEAD),
    Script("loss_backward", "+loss.gradient_log_softmax +* -loss.gradient_log_softmax free =last_steps.logits_gradient"
           " -*", _HEAD),
    Script("head_backward", "+* free:head -last_steps.logits_gradient -*", _HEAD),
    Script("norm_backward", "free +* -*", _HEAD),
    Script("step_begin", "", LAYERS),
    # The first product of a forward pass is that of RoPE's angles.
    Script("embedding_forward", "save =hidden next share use:step_workspace.forward", LAYERS),
    Script("layer_forward", f"save:layer_input {_norm('attention_norm', 'save:attention.qkv.input')}"
           f" {_projected('q')} {_projected('k')} save:attention.v {_rope('q')} {_rope('k')} -q.projected -k.projected"
           " save:attention.context save:attention.logsumexp drop:attention.logsumexp +o_proj.output drop:all"
           f" +attention.sum -o_proj.output {_norm('ffn_norm', 'save:swiglu.gate_up.input')}"
           " save:swiglu.gate save:swiglu.silu drop:swiglu.gate save:swiglu.up save:swiglu.down.input"
           " drop:swiglu.silu drop:swiglu.up end +down.output drop:all =hidden next -down.output -attention.sum"
           " -hidden", LAYERS),
    Script("head_forward", f"{_norm('final_norm', 'save:head.input')} end -hidden =loss.held_by_caller"
           " =loss.logits_in_model", LAYERS),
    Script("head_backward", "=last_steps.loss grad:head =tied.gradient use:step_workspace.backward"
           " +head.input_gradient -last_steps.logits_gradient free:head.input added "
           + _norm_backward("final_norm", "-head.input_gradient", "=residual.gradient =residual.gradient_apart")
           + " free", LAYERS),
    Script("norm_backward", "", LAYERS),
    Script("layer_backward", "again:kept -attention.sum grad:swiglu.down.weight +down.input_gradient"
           " free:swiglu.down.input added +up.gradient +silu.gradient -down.input_gradient free:swiglu.up"
           " free:swiglu.silu grad:swiglu.up.weight +input.gradient -up.gradient added +gate.gradient -silu.gradient"
           " free:swiglu.gate grad:swiglu.gate.weight +input.gradient -gate.gradient free:swiglu added +input.sum"
           f" -input.gradient -input.gradient {_norm_backward('ffn_norm', '-input.sum', '+norm.input_gradient')}"
           " -norm.input_gradient grad:attention.o_proj.weight +context.gradient added +q.gradient +k.gradient"
           " +v.gradient -context.gradient free:attention.k free:attention.q free:attention.v free:attention.logsumexp"
           f" free:attention.context {_rope_backward('k')} {_rope_backward('q')} grad:attention.v.weight"
           f" +input.gradient -v.gradient added {_normed_backward('k')} grad:attention.qkv.bias +input.gradient"
           f" -k.joined +input.sum -input.gradient -input.gradient added {_normed_backward('q')} +input.gradient"
           " -q.joined free:attention added -input.gradient "
           + _norm_backward("attention_norm", "-input.sum", "+norm.input_gradient")
           + " -norm.input_gradient free", LAYERS),
    Script("embedding_backward", "unshare +tied.embedding_gradient -residual.gradient grad:embedding"
           " -residual.gradient_apart -tied.gradient -tied.embedding_gradient added free -last_steps.loss", LAYERS),
    Script("backward_end", "-loss.held_by_caller sum", LAYERS),
    Script("optimizer_step", "+* -* -all", LAYERS),
)

#: Words at the points of a step that FSDP2 puts before those of a step without it, and behind them.
_OF_UNITS: Mapping[str, tuple[str, str]] = {
    "embedding_forward": ("open:root", "=positions"), "head_forward": ("", "-positions -embedded"),
    "layer_forward": ("open:layer", "close:layer first:embedded"),
    "loss_forward": ("", "close:root"), "backward_start": ("", ""),
    "loss_backward": ("at:backward_start +* reopen:root -* at:loss_backward", ""),
    "layer_backward": ("reopen:layer", "unshare:first reduce:layer"), "last_reduce": ("", ""),
    "embedding_backward": ("", "reduce:root -last_steps.loss -loss.held_by_caller_root"),
}


def _sharded(point: str, events: str) -> Script:
    """Return the script of a point with FSDP2, which reduces gradients of each micro-batch, so it adds none."""
    before, behind = _OF_UNITS.get(point, ("", ""))
    kept = [word.replace("held_by_caller", "held_by_caller_root") for word in events.split()
            if word != "sum" and (point, word) != ("embedding_backward", "-last_steps.loss")]
    return Script(point, " ".join((before, *kept, behind)).strip(), _SHARDED)


_EVENTS = {item.point: item.events for item in _UNSHARDED}
SCRIPTS: tuple[Script, ...] = (
    *_UNSHARDED,
    *(_sharded(point, _EVENTS.get(point, "")) for point in dict.fromkeys((*_EVENTS, *_OF_UNITS))),
)

#: Sums of terms whose parts these scripts make one by one.
WALKED: tuple[tuple[Mapping[str, tuple[str, ...]], tuple[str, ...]], ...] = (
    (LAYERS, ("recomputed_layer", "accumulated_gradients", "passed_gradients", "all_gradients", "kept_gradients",
               "layer_temporaries")),
    (_SHARDED, ("gathered", "gathered_forward", "gather_buffer", "gathered_norm", "gathered_after", "gathered_start",
                "layers_at_work", "gathered_embedding", "reduced_last", "head_gradients", "made_before_norm",
                "reduced_gradients", "embedding_gradients")),
)
