"""FSDP2's step as torchtitan has it: units of parameters, and its layers operation by operation.

The order is that of PyTorch's autograd, recorded below it with tensors without memory.
"""

from __future__ import annotations

from collections.abc import Mapping

from sympy import Expr

from ..dimension import ONE, Dimension
from ..dimensions import BATCH, HALF_HEAD, HEADS, KV_HEADS, SEQUENCE
from ..parameters import symbols
from .words import GRADIENTS, KEY, QUERY, SCATTERED, SHARE, WHOLE, Passing, Script

(qkn,) = symbols("qkn")
#: Embedding, each layer, and final norm with head are units of FSDP2, as torchtitan makes them.
UNITS: Mapping[str, tuple[str, ...]] = {
    "data_parallel": ("fsdp",), "units": ("apart",), "pipeline": ("own",), "peak": ("torch",), "layers": ("dense",),
    "gathered_input": ("kept",),
}
#: The same where pairs are turned as complex numbers, and where each layer casts a table of RoPE, as Qwen3's do.
_COMPLEX: Mapping[str, tuple[str, ...]] = {**UNITS, "rope": ("complex",)}
_CAST: Mapping[str, tuple[str, ...]] = {**UNITS, "rope": ("cast",)}
#: The same where the loss is compiled.
_COMPILED: Mapping[str, tuple[str, ...]] = {**UNITS, "loss": ("dtensor_compiled",)}


def _ends(name: str, shape: tuple[Dimension, ...], meaning: str, when: Expr = ONE, bytes: int = 2,
          options: Mapping[str, tuple[str, ...]] = UNITS) -> Passing:
    return Passing(name, shape, bytes, meaning, "torchtitan", when, options)


def _turned(name: str, heads: Dimension, shape: tuple[Dimension, ...]) -> tuple[Passing, ...]:
    """Return what passes as queries or keys are normalised and turned by a table in 16 bits."""
    tensors = (
        ("half", (SEQUENCE, BATCH, heads, HALF_HEAD), "half of each head with its sign turned", ONE),
        ("cosine", shape, "product with cosines, or its gradient", ONE),
        ("rotated", shape, "halves of heads exchanged", ONE),
        ("sine", shape, "product with sines, or its gradient", ONE),
        ("first", shape, "gradient of the first half, with zeros", ONE),
        ("second", shape, "gradient of the second half, with zeros", ONE),
        ("crossed", shape, "sum of both", ONE),
        ("turned", shape, "gradient before RoPE", ONE),
        ("normed", shape, "output of a norm of heads", qkn),
        ("unnormed", shape, "output of a projection without one", 1 - qkn),
        ("norm_gradient", shape, "gradient of the input of a norm of heads", qkn),
    )
    return tuple(_ends(f"{name}.{part}", own, meaning, when, options=_CAST) for part, own, meaning, when in tensors)


PASSING: tuple[Passing, ...] = (
    _ends("q.projected", QUERY, "queries before RoPE", options=_COMPLEX),
    _ends("k.projected", KEY, "keys before RoPE", options=_COMPLEX),
    _ends("q.fp32", QUERY, "fp32 queries", bytes=4, options=_COMPLEX),
    _ends("k.fp32", KEY, "fp32 keys", bytes=4, options=_COMPLEX),
    _ends("q.rotated", QUERY, "fp32 queries after RoPE", bytes=4, options=_COMPLEX),
    _ends("k.rotated", KEY, "fp32 keys after RoPE", bytes=4, options=_COMPLEX),
    *_turned("q", HEADS, QUERY), *_turned("k", KV_HEADS, KEY),
    _ends("partial", WHOLE, "output of the rank's heads or part of the MLP, before it is summed", SCATTERED),
    _ends("output", SHARE, "output of attention or the MLP, before it is added"),
    _ends("residual.gradient", SHARE, "gradient of a residual sum"),
    _ends("gathered.gradient", WHOLE, "gradient of an output, gathered over ranks", SCATTERED),
    _ends("gathered.copy", WHOLE, "the same before its parts are joined", SCATTERED),
    *(_ends(*row) for row in GRADIENTS),
    _ends("input.sum", WHOLE, "sum of two of them"),
    _ends("input.reduced", SHARE, "the rank's share of its sum over ranks", SCATTERED),
    _ends("norm.gradient", SHARE, "gradient of the final norm's output"),
    _ends("norm.input_gradient", SHARE, "gradient of a norm's input"),
    _ends("q.gradient", QUERY, "gradient of queries"),
    _ends("k.gradient", KEY, "gradient of keys"),
)


def _layer(
    before: str, turn: str, turn_back: str, keys: str, queries: str, options: Mapping[str, tuple[str, ...]],
) -> tuple[Script, ...]:
    """Return the scripts of a layer, with words before it and those that turn queries and keys, and gradients back.

    The words ``keys`` and ``queries`` free their gradients.
    """
    return (
        Script("layer_forward", f"{before} open:layer save:attention_norm save:attention.qkv.input_gathered {turn}"
               " save:attention.logsumexp save:attention.context drop +partial +output -partial save:ffn_norm.rms"
               " save:ffn_norm.input -output drop save:swiglu.gate_up.input_gathered save:swiglu.gate save:swiglu.silu"
               " save:swiglu.up save:swiglu.down.input end drop +partial +output -partial next -output drop:all"
               " close:layer", options),
        Script("layer_backward", "reopen:layer again +gathered.copy +gathered.gradient -gathered.copy"
               " grad:swiglu.down.weight +down.input_gradient -gathered.gradient free:swiglu.down.input +up.gradient"
               " +silu.gradient -down.input_gradient free:swiglu.up free:swiglu.silu grad:swiglu.up.weight"
               " =input.gradient -up.gradient +gate.gradient -silu.gradient free:swiglu.gate grad:swiglu.gate.weight"
               " =input.gradient -gate.gradient free:swiglu =input.sum -input.gradient -input.gradient +input.reduced"
               " -input.sum +norm.input_gradient grad:ffn_norm -input.reduced free:ffn_norm =residual.gradient"
               " -residual.gradient -norm.input_gradient"
               " +gathered.copy +gathered.gradient -gathered.copy grad:attention.o_proj.weight +context.gradient"
               " -gathered.gradient +q.gradient +k.gradient +v.gradient -context.gradient free:attention.k"
               f" free:attention.q free:attention.v free:attention.logsumexp free:attention.context {turn_back}"
               f" grad:attention.v.weight =input.gradient -v.gradient grad:attention.k.weight =input.gradient {keys}"
               f" =input.sum -input.gradient -input.gradient grad:attention.q.weight =input.gradient {queries}"
               " free:attention =input.sum -input.sum -input.gradient +input.reduced -input.sum +norm.input_gradient"
               " grad:attention_norm -input.reduced free:attention_norm =residual.gradient -residual.gradient"
               " -norm.input_gradient free reduce:layer", options),
    )


def _cast(name: str) -> str:
    """Return the words that turn queries or keys by a table in 16 bits."""
    return (f"+{name}.cosine +{name}.half +{name}.rotated -{name}.half +{name}.sine -{name}.rotated"
            f" save:attention.{name} -{name}.cosine -{name}.sine")


def _cast_back(name: str, freed: str = "") -> str:
    """Return the words that turn their gradient back; ``freed`` frees what is read last."""
    return (f"+{name}.sine +{name}.half +{name}.second -{name}.half +{name}.first -{name}.sine +{name}.crossed"
            f" -{name}.second -{name}.first +{name}.cosine -{name}.gradient {freed} +{name}.turned -{name}.crossed"
            f" -{name}.cosine")


def _norm_back(name: str) -> str:
    norm = f"attention.{name}_norm"
    return (f"+{name}.norm_gradient if:{name}.norm_gradient:grad:{norm}.weight if:{name}.norm_gradient:-{name}.turned"
            f" free:{norm}.input free:{norm}.rms")


SCRIPTS: tuple[Script, ...] = (
    Script("embedding_forward", "open:embedding next close:embedding", UNITS),
    *_layer(
        "", "+q.projected +k.projected save:attention.v +q.fp32 +k.fp32 +q.rotated +k.rotated save:attention.q"
        " save:attention.k -k.projected -q.projected -q.fp32 -k.fp32 -q.rotated -k.rotated",
        "+k.fp32 -k.gradient +q.fp32 -q.gradient +k.rotated -k.fp32 +q.rotated -q.fp32 +k.gradient -k.rotated"
        " +q.gradient -q.rotated", "-k.gradient", "-q.gradient", _COMPLEX),
    *_layer(
        "save:attention.rope.table_cast",
        "save:attention.q_norm.input +q.unnormed save:attention.k_norm.input +k.unnormed save:attention.v"
        " save:attention.q_norm.rms +q.normed save:attention.k_norm.rms +k.normed"
        f" {_cast('q')} {_cast('k')} -q.unnormed -q.normed -k.unnormed -k.normed",
        f"{_cast_back('k')} {_cast_back('q', 'free:attention.rope.table_cast')}"
        f" {_norm_back('k')} {_norm_back('q')}",
        "-k.norm_gradient -k.turned", "-q.norm_gradient -q.turned", _CAST),
    Script("head_forward", "open:last save =loss.logits_shard close:last finish", UNITS),
    Script("loss_forward", "=loss.scalars =loss.logits_shard_fp32 =loss.logits_shifted"
           " =loss.shard_statistics save -loss.shard_statistics -loss.logits_shifted -loss.logits_shard_fp32"
           " -loss.logits_shard =loss.scalars_after", UNITS),
    Script("after_forward", "", UNITS),
    Script("loss_backward", "-loss.scalars_after =loss.scalars_backward =loss.label_masks =loss.gradient_shard/2"
           " =loss.exponentials =loss.gradient_shard/2 -loss.gradient_shard/2 -loss.exponentials -loss.label_masks free"
           " -loss.scalars_backward -loss.scalars =last_steps.loss =last_steps.logits_gradient"
           " -loss.gradient_shard/2", UNITS),
    Script("head_backward", "reopen:last grad:final_norm grad:head =last_steps.input_gradient"
           " -last_steps.logits_gradient free:head", UNITS),
    Script("head_reduce", "-last_steps.input_gradient =norm.gradient =residual.gradient free:final_norm -norm.gradient"
           " reduce:last", UNITS),
    Script("embedding_backward", "reopen:embedding grad:embedding -residual.gradient reduce:embedding -last_steps.loss",
           UNITS),
    Script("last_reduce", "unshare", UNITS),
    Script("optimizer_step", "+* -*", UNITS),
    Script("head_forward", "open:last save =loss.compiled_logits_held close:last finish", _COMPILED),
    Script("loss_forward", "=loss.compiled_value =loss.compiled_sums =loss.compiled_shifted save"
           " -loss.compiled_shifted -loss.compiled_sums -loss.compiled_logits_held", _COMPILED),
    Script("loss_backward", "-loss.compiled_value =loss.compiled_value_backward =loss.compiled_scales"
           " =last_steps.logits_gradient -loss.compiled_scales free -loss.compiled_value_backward =last_steps.loss",
           _COMPILED),
)

#: Parameters of a layer in the order of its modules.
MODULES = (
    *(f"attention.{name}" for name in ("q.weight", "k.weight", "v.weight", "o_proj.weight", "q_norm.weight",
                                       "k_norm.weight")),
    *(f"swiglu.{name}.weight" for name in ("gate", "down", "up")), "attention_norm.weight", "ffn_norm.weight",
)

#: Sums of terms whose parts the scripts for the given choices make one by one.
WALKED: tuple[tuple[Mapping[str, tuple[str, ...]], tuple[str, ...]], ...] = (
    (UNITS, ("gathered", "gathered_head", "gathered_norm", "gathered_forward", "layers_at_work", "gathered_embedding",
             "reduced_last", "accumulated_gradients", "reduced_gradients", "embedding_gradients", "kept_gradients")),
)
#: Saved tensors of a recomputed layer in the memory of those that its checkpoint kept.
SAME_MEMORY: Mapping[str, str] = {
    "attention_norm.input": "layer_input.input", "latent_norm.input": "layer_input.input",
    "attention.rope.table_cast": "layer_input.rope.table",
    "attention.v": "saved_ops.v", "attention.context": "saved_ops.context",
    "attention.logsumexp": "saved_ops.logsumexp", "swiglu.gate": "saved_ops.gate", "attention.q": "saved_ops.q",
}
