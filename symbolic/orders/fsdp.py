"""FSDP2's step as torchtitan has it: units of parameters, and its layers operation by operation.

The order is that of PyTorch's autograd, recorded below it with tensors without memory.
"""

from __future__ import annotations

from collections.abc import Mapping

from sympy import Expr

from ..dimension import ONE, Dimension
from .words import GRADIENTS, KEY, QUERY, SCATTERED, SHARE, WHOLE, Passing, Script

#: Embedding, each layer, and final norm with head are units of FSDP2, as torchtitan makes them.
UNITS: Mapping[str, tuple[str, ...]] = {
    "data_parallel": ("fsdp",), "units": ("apart",), "pipeline": ("own",), "peak": ("torch",), "layers": ("dense",),
    "gathered_input": ("kept",),
}
#: The same where the loss is compiled.
_COMPILED: Mapping[str, tuple[str, ...]] = {**UNITS, "loss": ("dtensor_compiled",)}


def _ends(name: str, shape: tuple[Dimension, ...], meaning: str, when: Expr = ONE, bytes: int = 2) -> Passing:
    return Passing(name, shape, bytes, meaning, "torchtitan", when, UNITS)


PASSING: tuple[Passing, ...] = (
    _ends("q.projected", QUERY, "queries before RoPE"),
    _ends("k.projected", KEY, "keys before RoPE"),
    _ends("q.fp32", QUERY, "fp32 queries", bytes=4),
    _ends("k.fp32", KEY, "fp32 keys", bytes=4),
    _ends("q.rotated", QUERY, "fp32 queries after RoPE", bytes=4),
    _ends("k.rotated", KEY, "fp32 keys after RoPE", bytes=4),
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

SCRIPTS: tuple[Script, ...] = (
    Script("embedding_forward", "open:embedding next close:embedding", UNITS),
    Script("layer_forward", "open:layer save:attention_norm save:attention.qkv.input_gathered +q.projected"
           " +k.projected save:attention.v +q.fp32 +k.fp32 +q.rotated +k.rotated save:attention.q save:attention.k"
           " -k.projected -q.projected -q.fp32 -k.fp32 -q.rotated -k.rotated save:attention.logsumexp"
           " save:attention.context drop +partial +output -partial save:ffn_norm.rms save:ffn_norm.input -output drop"
           " save:swiglu.gate_up.input_gathered save:swiglu.gate save:swiglu.silu save:swiglu.up save:swiglu.down.input"
           " end drop +partial +output -partial next -output drop:all close:layer", UNITS),
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
    Script("layer_backward", "reopen:layer again +gathered.copy +gathered.gradient -gathered.copy"
           " grad:swiglu.down.weight +down.input_gradient -gathered.gradient free:swiglu.down.input +up.gradient"
           " +silu.gradient -down.input_gradient free:swiglu.up free:swiglu.silu grad:swiglu.up.weight =input.gradient"
           " -up.gradient +gate.gradient -silu.gradient free:swiglu.gate grad:swiglu.gate.weight =input.gradient"
           " -gate.gradient free:swiglu =input.sum -input.gradient -input.gradient +input.reduced -input.sum"
           " +norm.input_gradient grad:ffn_norm -input.reduced free:ffn_norm =residual.gradient -residual.gradient"
           " -norm.input_gradient"
           " +gathered.copy +gathered.gradient -gathered.copy grad:attention.o_proj.weight +context.gradient"
           " -gathered.gradient +q.gradient +k.gradient +v.gradient -context.gradient free:attention.k"
           " free:attention.q free:attention.v free:attention.logsumexp free:attention.context"
           " +k.fp32 -k.gradient +q.fp32 -q.gradient +k.rotated -k.fp32 +q.rotated -q.fp32 +k.gradient -k.rotated"
           " +q.gradient -q.rotated"
           " grad:attention.v.weight =input.gradient -v.gradient grad:attention.k.weight =input.gradient -k.gradient"
           " =input.sum -input.gradient -input.gradient grad:attention.q.weight =input.gradient -q.gradient"
           " free:attention =input.sum -input.sum -input.gradient +input.reduced -input.sum +norm.input_gradient"
           " grad:attention_norm -input.reduced free:attention_norm =residual.gradient -residual.gradient"
           " -norm.input_gradient free reduce:layer", UNITS),
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
    "attention.v": "saved_ops.v", "attention.context": "saved_ops.context",
    "attention.logsumexp": "saved_ops.logsumexp", "swiglu.gate": "saved_ops.gate", "attention.q": "saved_ops.q",
}
