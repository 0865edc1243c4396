"""Rules of precisions, optimizers, adapters and systems, and combinations that have not been counted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType

from sympy import And, Eq, Expr, Ge, Integer, Or, Symbol
from sympy.logic.boolalg import Boolean

from ..choices import (
    ACTORS,
    ADDED,
    FALCON,
    FUSED_HEADS,
    GATED,
    MEGATRON_PEAKS,
    MEGATRON_ROPE,
    PAIRED,
    PREFERENCES,
    SCORES,
    TRANSFORMERS_ROUTERS,
    UNGATED,
)
from ..components.quantised import PACKED
from ..expert_layers import FLEX
from ..functions import Divides
from ..parameters import symbol, symbols
from ..systems import SYSTEMS, refusals
from ..systems.system import Aspect
from .optimizers import ANY_WIDTH, DEALT, IN_PARTS, NOT_SHARDED, WHOLE_TENSORS
from .rules import Rule
from .walked_layers import has_experts_of_torchtitan, not_walked

m1, m2, wm, rl = symbols("m1 m2 wm rl")
L, p, t, c, ts, s, doc, b, h, A, f, rfull, rcore, rmlp = symbols("L p t c ts s doc b h A f rfull rcore rmlp")
a, k, fe, et, fs, lq, lk, mtp = symbols("a k fe et fs lq lk mtp")
rnorm, ract, rshared, rmoe, zero3 = symbols("rnorm ract rshared rmoe zero3")

#: Elements of a token, and tokens of a rank, that FP8 and FP4 come in: as matrix products need them, and whole tiles
#: of scales.
_FP8_SIZES: Mapping[str, tuple[int, int]] = {
    "delayed": (16, 8), "current": (16, 8), "block": (128, 128), "mx": (128, 128), "nvfp4": (128, 128),
}
#: Elements of hidden states and inside of MLPs and experts where saved tensors alone are counted, padding and all.
_FP8_PARTS: Mapping[str, int] = {"mx": 32, "nvfp4": 64}

#: MLPs that are counted in FP8, one with a bounded gate in experts alone, as everywhere.
_IN_FP8: tuple[str, ...] = ("swiglu", "swiglu_clamped", "gelu", "relu", "relu2")

#: Precisions and kinds of data parallelism that adapters were counted with.
_ADAPTED = (("bf16", "ddp"), ("mixed", "ddp"), ("bf16", "fsdp"), ("mixed", "fsdp"), ("mixed", "deepspeed"),
            ("fp32", "ddp"), ("fp32", "deepspeed"))


def state_rules(choices: Mapping[str, str]) -> tuple[Rule, ...]:
    """Return the rules of the choices that are not the usual ones."""
    return (*_optimizer(choices), *_fp8(choices), *_adapters(choices), *_pairs(choices), *_documents(choices),
            *_whole_norms(choices),
            *(rule for system in SYSTEMS for rule in system.rules(choices)))


def _one_of(letter: Symbol, values: tuple[int, ...]) -> Boolean:
    return Or(*(Eq(letter, value) for value in values))


def _optimizer(choices: Mapping[str, str]) -> tuple[Rule, ...]:
    if choices["optimizer"] not in ANY_WIDTH:
        return ()
    moments = (
        Rule("first_moment", "m1", _one_of(m1, (1, 2, 4)), "must be 4, 2 or 1"),
        Rule("second_moment", "m2", _one_of(m2, (1, 2, 4)), "must be 4, 2 or 1"),
    )
    if choices["optimizer"] == "precision_aware_core":
        return moments
    return (*moments, Rule("master_weight", "wm", _one_of(wm, (2, 4)), "must be 4 or 2"))


def _pairs(choices: Mapping[str, str]) -> tuple[Rule, ...]:
    if choices["loss"] not in ("reward", *PAIRED):
        return ()
    return (Rule("pairs", "b", Divides(Integer(2), b), f"must be even with loss = {choices['loss']}: of every pair both"
                 " sequences"),)


def _documents(choices: Mapping[str, str]) -> tuple[Rule, ...]:
    if choices["documents"] == "one":
        return ()
    return (
        Rule("document_length", "doc", And(Ge(doc, 1), Ge(s, doc)),
             "must be from 1 to seq_length with packed documents"),
        Rule("packed_batch", "b", Eq(b, 1), "must be 1 with packed documents, which are one sequence: give all their"
             " tokens as seq_length"),
        Rule("packed_context", "c", Eq(c, 1),
             "must be 1: packed documents with context parallelism are not counted yet"),
    )


def _whole_norms(choices: Mapping[str, str]) -> tuple[Rule, ...]:
    """Return the rules of norms over all heads in Megatron-Bridge, whose scales are those of all queries."""
    if choices["qk_norms"] != "width" or choices["router"] in TRANSFORMERS_ROUTERS:
        return ()
    return (
        Rule("whole_norms_ranks", "t", Eq(t, 1), "must be 1 with norms of whole queries and keys (Megatron-Bridge)"),
        Rule("whole_norms_heads", "k", Eq(k, a),
             "must be num_attention_heads with norms of whole queries and keys (Megatron-Bridge)"),
    )


def _fp8(choices: Mapping[str, str]) -> tuple[Rule, ...]:
    recipe = choices["fp8"]
    if recipe == "none":
        return ()
    elements, tokens = _FP8_SIZES[recipe]
    with_padding = elements if choices["peak"] != "saved" else _FP8_PARTS.get(recipe, elements)
    sizes: tuple[tuple[str, Expr, str], ...] = (
        ("h", h, "must be a multiple of {} for FP8"),
        ("a", A / t, "times head_dim must give every rank a multiple of {} for FP8"),
        ("f", f / t, "must give every rank a multiple of {} for FP8"),
    )
    return (
        *(Rule(f"fp8_{letter}", letter, Divides(Integer(multiple), size), text.format(multiple))
          for letter, size, text in (*sizes, *_inner_sizes(choices))
          for multiple in (with_padding if letter in _PADDED else elements,)),
        *(_FP4 if recipe in PACKED else ()),
        *(_SHARED_FP8 if choices["data_parallel"] == "megatron_fsdp" else ()),
        Rule("fp8_recompute", "rcore", Eq(rcore, 0), "must be 0 with FP8, where it is not counted yet"),
        *(_delayed(choices) if recipe == "delayed" else ()),
        Rule("fp8_tokens", "s", Divides(tokens * c * ts, s * b),
             f"times micro_batch_size must give every rank a multiple of {tokens} tokens for FP8"),
    )


#: Sizes of which the padding of scales is counted.
_PADDED = ("h", "f", "fe", "fs")

_FP4 = (Rule("fp4_mtp", "mtp", Eq(mtp, 0), "must be 0 with NVFP4: Megatron-Core leaves further predictions in 16 bits,"
             " which is not counted yet"),)

_SHARED_FP8 = (Rule("fp8_shared", "zero3", Eq(zero3, 1), "must be 1 with FP8 in Megatron-FSDP: FP8 weights that every"
                    " rank has whole are not counted yet"),)

#: Switches of recompute after which layers of Transformer Engine keep a 16-bit input and quantise it once more.
_READ_AGAIN = ("rnorm", "ract")


def _delayed(choices: Mapping[str, str]) -> Iterator[Rule]:
    """Yield the rules of scales from earlier steps, of which a checkpoint keeps copies for its second forward pass."""
    yield Rule("fp8_rmlp", "rmlp", Eq(rmlp, 0), "must be 0 with delayed scaling: copies of scales for the second"
               " forward pass are not counted yet")
    for letter in _READ_AGAIN if _has_parts_apart(choices) else ():
        yield Rule(f"fp8_{letter}", letter, Eq(symbol(letter), 0), "must be 0 with delayed scaling: layers that read a"
                   " recomputed tensor again cannot quantise it a second time (Transformer Engine)")


def _has_parts_apart(choices: Mapping[str, str]) -> bool:
    """Tell whether layers have norms that stand alone, or experts, which can be recomputed by themselves."""
    return choices["layers"] == "experts" or choices["heads"] == "latent"


def _inner_sizes(choices: Mapping[str, str]) -> tuple[tuple[str, Expr, str], ...]:
    """Return sizes of experts and of latent attention that FP8 products need as multiples, with the rule for each."""
    experts: tuple[tuple[str, Expr, str], ...] = (
        ("fe", fe / et, "must give every rank a multiple of {} for FP8"),
        ("fs", fs / t, "must give every rank a multiple of {} for FP8"),
    )
    latent: tuple[tuple[str, Expr, str], ...] = (
        ("lq", lq, "must be a multiple of {} for FP8"), ("lk", lk, "must be a multiple of {} for FP8"),
    )
    return (*(experts if choices["layers"] == "experts" else ()), *(latent if choices["heads"] == "latent" else ()))


def _adapters(choices: Mapping[str, str]) -> tuple[Rule, ...]:
    if choices["adapters"] == "none":
        return ()
    return (
        Rule("adapter_rank", "rl", Ge(rl, 1), "must be 1 or more with adapters"),
        Rule("adapter_ranks", "rl", Divides(t, rl), "must be a multiple of tensor_parallel"),
        Rule("adapter_rows", "t", Divides(t, h), "must divide hidden_size with adapters"),
        Rule("adapter_recompute", "rmlp", Eq(rmlp, 0), "must be 0 with adapters"),
        *(_expert_adapters(choices) if choices["layers"] == "experts" else ()),
    )


def _expert_adapters(choices: Mapping[str, str]) -> tuple[Rule, ...]:
    """Return the rules of adapters beside experts."""
    return (
        Rule("adapter_expert_ranks", "rl", Divides(et, rl), "must be a multiple of expert_tensor_parallel"),
        Rule("adapter_expert_rows", "et", Divides(et, h), "must divide hidden_size with adapters"),
        *(Rule(f"adapter_recompute_{switch}", str(switch), Eq(switch, 0), "must be 0 with adapters: not counted yet")
          for switch in (rnorm, ract, rshared, rmoe)),
        Rule("adapter_mtp", "mtp", Eq(mtp, 0), "must be 0 with adapters: further predictions are not counted yet"),
    )


def refuse_impossible(choices: Mapping[str, str]) -> None:
    """Refuse combinations of choices that have not been counted.

    Raises ValueError with the combination.
    """
    if reasons := uncounted_in(choices):
        raise ValueError(f"not counted yet: {reasons[0]}")


def uncounted_in(choices: Mapping[str, str]) -> list[str]:
    """Return the combinations among these choices that have not been counted."""
    refused = (
        *_of_models(choices), *_of_routers(choices), *_of_fp32(choices), *_of_pipelines(choices),
        *_of_optimizers(choices), *_of_fp8(choices), *_of_adapters(choices), *_of_deepspeed(choices),
        *_of_megatron_fsdp(choices), *_of_compiled(choices), *refusals(choices),
    )
    return [text for text, holds in refused if holds]


#: Axes of which some options are counted with a plain training step alone: none of FP8, adapters, autocast, moments.
_PLAIN_ONLY: Mapping[str, tuple[str, ...]] = {
    "normalisation": ("layer_unbiased", "layer_plain"), "norms": ("post", "both"), "qk_norms": ("heads", "width"),
    "residual": ("parallel_one",), "capping": ("tanh",), "mlp": ("geglu", "relu", "relu2", "xielu"),
    "norm": ("eager_fp32", "eager_scale"), "projections": ("qkv", "gate_up"),
    "rope": ("shared_half", "shared_twice", "shared_fp32", "shared_fp32_twice", "repeated", "repeated_fp32",
             "joined_repeated"),
    "sinks": ("trained",), "positions": ("alibi",), "embedding_norm": ("norm",), "value": ("picked",),
}
#: Those that are counted with experts.
_WITH_EXPERTS: Mapping[str, tuple[str, ...]] = {
    "qk_norms": ("width",), "norm": ("eager_fp32",), "norms": ("post",),
    "rope": ("shared_half", "shared_twice", "shared_fp32", "repeated_fp32"),
    "projections": ("gate_up",), "sinks": ("trained",), "mlp": UNGATED,
}

#: Those that are counted with adapters in models with experts.
_WITH_ADAPTERS: Mapping[str, tuple[str, ...]] = {
    "qk_norms": ("width",), "norm": ("eager_fp32",), "rope": ("shared_half", "repeated_fp32"),
    "sinks": ("trained",),
}
#: Those that are counted beside adapters of PEFT in dense models, on one GPU and with DistributedDataParallel.
_DENSE_WITH_ADAPTERS: Mapping[str, tuple[str, ...]] = {
    "normalisation": ("layer_plain",), "norms": ("post", "both"), "qk_norms": ("width",), "capping": ("tanh",),
    "mlp": ("geglu",), "norm": ("eager_fp32", "eager_scale"),
    "rope": ("shared_twice", "shared_fp32", "shared_fp32_twice", "repeated", "repeated_fp32"),
}

#: Those that are counted beside adapters in dense models of Megatron-Core.
_BEHIND_WITH_ADAPTERS: Mapping[str, tuple[str, ...]] = {"norms": ("post", "both")}


def _of_dense_adapters(choices: Mapping[str, str]) -> bool:
    """Tell whether adapters lie beside dense layers as they were counted in many families of Transformers."""
    plain = {"layers": ("dense",), "precision": ("bf16",), "data_parallel": ("ddp",), "adapter_kind": ("lora",),
             "base_weights": ("full", "nf4"), "router": TRANSFORMERS_ROUTERS}
    return all(choices[axis] in options for axis, options in plain.items())


#: Those that Megatron-Core has with all that it has at all.
_AS_USUAL = (*UNGATED, "relu", "geglu", "width")


def _special(choices: Mapping[str, str], counted: Mapping[str, tuple[str, ...]] = MappingProxyType({})) -> str:
    """Name the first choice beside ``counted`` that needs a plain training step; "" if there is none.

    Megatron-Core's fused square of ReLU keeps its input as its GELU does, with all that GELU is counted with, and its
    ReLU its output; its GeGLU keeps what its SwiGLU keeps, and norms over all heads what those of each keep.
    """
    special = (axis for axis, options in _PLAIN_ONLY.items()
               if choices[axis] in options and choices[axis] not in counted.get(axis, ())
               and not (choices[axis] in _AS_USUAL and choices["router"] not in TRANSFORMERS_ROUTERS))
    return next((f"{axis} = {choices[axis]}" for axis in special), "")


def _of_fp32(choices: Mapping[str, str]) -> tuple[tuple[str, bool], ...]:
    """Refuse what is not counted in fp32: other layers than Llama's, frozen 4-bit weights, moments of a step."""
    counted = {
        "normalisation": ("rms",), "mlp": ("swiglu",), "positions": ("rotary",), "heads": ("grouped",),
        "layers": ("dense",), "peak": ("saved",), "base_weights": ("full",), "norm": ("eager", "fused"),
        "rope": ("shared", "shared_first"), "loss": ("huggingface", "huggingface_freed"), "adapter_kind": ("lora",),
        "optimizer": IN_PARTS, "zero_offload": ("none",),
    }
    return tuple((f"precision = fp32 with {axis} = {choices[axis]}", choices["precision"] == "fp32"
                  and (choices[axis] not in options or bool(_special(choices)))) for axis, options in counted.items())


def _of_unknown_moments(choices: Mapping[str, str], special: str) -> str:
    """Name what a layer has whose backward pass is neither walked nor that of a Llama; "" if there is nothing."""
    if choices["peak"] != "torch" or not (unwalked := not_walked(choices)):
        return ""
    kinds = {axis: choices[axis] for axis in ("layers", "heads", "mlp")}
    others = [f"{axis} = {kind}" for axis, kind in kinds.items() if kind not in ("dense", "grouped", "swiglu")]
    if has_experts_of_torchtitan(choices):
        return unwalked
    if choices["router"] in TRANSFORMERS_ROUTERS:
        return unwalked if others or special or choices["attention"] == "eager" else ""
    return (*others, special)[0]


def _of_models(choices: Mapping[str, str]) -> tuple[tuple[str, bool], ...]:
    grouped, joined = choices["heads"] == "grouped", choices["rope"].startswith("joined")
    parts = tuple(choices[axis] for axis in ("normalisation", "mlp", "layers"))
    special, of_dense = _special(choices), _special(choices, _WITH_EXPERTS)
    unknown, learned = _of_unknown_moments(choices, special), choices["positions"] == "learned"
    behind = _BEHIND_WITH_ADAPTERS if choices["router"] not in TRANSFORMERS_ROUTERS else {}
    dense_adapters = _DENSE_WITH_ADAPTERS if _of_dense_adapters(choices) else behind
    of_adapters = _special(choices, _WITH_ADAPTERS if choices["layers"] == "experts" else dense_adapters)
    packed, picked = choices["documents"] == "packed", choices["value"] == "picked"
    plain_alone = choices["loss"] in (*FUSED_HEADS, *SCORES, *ACTORS)
    split = joined and choices["projections"] in ("separate", "gate_up") and choices["value"] == "copy"
    return (
        ("two norms of one tensor in other models than GPT-NeoX and Falcon: with LayerNorm, GELU and rotary positions",
         choices["residual"] == "parallel" and not (
             (joined or picked) and grouped and parts == ("layer", "gelu", "dense"))),
        ("this kernel of attention in Falcon: choose attention = eager, sdpa_masked or sdpa_steps",
         picked and choices["attention"] not in ("eager", *FALCON)),
        (f"attention = {choices['attention']} in other models than Falcon",
         not picked and choices["attention"] in FALCON),
        ("rotary embedding of a part of each head with this kernel of it: choose rope = joined",
         choices["positions"] == "partial" and not (grouped and (joined or choices["rope"] in MEGATRON_ROPE))),
        (f"dispatch = {choices['dispatch']} with router_precision = bf16: choose fp32, which it sends all the same",
         choices["dispatch"] in FLEX and choices["router_precision"] != "fp32"),
        (f"experts with mlp = {choices['mlp']}",
         choices["layers"] == "experts"
         and (choices["mlp"] not in (*GATED, *UNGATED) or choices["mlp"] == "geglu")),
        ("biases of latent attention in Transformers",
         choices["router"] in TRANSFORMERS_ROUTERS and choices["heads"] == "latent" and choices["biases"] == "linear"),
        ("experts without a gate in Transformers",
         choices["router"] in TRANSFORMERS_ROUTERS and choices["layers"] == "experts" and choices["mlp"] in UNGATED),
        ("experts or latent attention with norms in single operations in torchtitan: choose norm = fused",
         choices["router"] == "torchtitan" and choices["norm"] != "fused" and (
             choices["layers"], choices["heads"]) != ("dense", "grouped")),
        ("balance = loss with latent attention, sigmoid scores or this router in Transformers: choose balance = none",
         choices["balance"] != "none" and choices["router"] in TRANSFORMERS_ROUTERS
         and (choices["heads"] == "latent" or choices["scores"] == "sigmoid"
              or choices["router"] in ("huggingface_mixer", "huggingface_top", "huggingface_bounded"))),
        ("balance = loss where Transformers sends tokens to other ranks' experts: choose balance = none",
         choices["balance"] != "none" and choices["dispatch"] == "huggingface_sent"),
        (f"{special} under autocast: choose precision = bf16", bool(special) and choices["precision"] == "autocast"),
        (f"{unknown} with the moments of PyTorch's own step: choose peak = saved", bool(unknown)),
        ("learned positions with the moments of PyTorch's own step, and FSDP2 or an optimizer that goes from parameter"
         " to parameter: choose peak = saved", learned and choices["peak"] == "torch" and (
             choices["data_parallel"] == "fsdp" or choices["optimizer_kernel"] == "loop")),
        ("scores that are bounded by tanh in PyTorch's scaled dot product attention, which has no such kernel: choose"
         " attention = eager or flash", choices["capping"] == "tanh" and choices["attention"] == "sdpa"),
        (f"{of_adapters} with adapters", bool(of_adapters) and choices["adapters"] != "none"),
        (f"{of_dense} with experts", bool(of_dense) and choices["layers"] == "experts"),
        ("norms behind attention and MLP with dropout in Megatron-Core",
         choices["norms"] != "pre" and choices["dropout"] != "none" and choices["peak"] in MEGATRON_PEAKS),
        ("norms behind attention and experts in Megatron-Core",
         choices["norms"] == "post" and choices["layers"] == "experts"
         and choices["router"] not in TRANSFORMERS_ROUTERS),
        ("mlp = swiglu_clamped in dense layers, and without fusion in Megatron-Core",
         choices["mlp"] == "swiglu_clamped" and (
             choices["layers"] == "dense"
             or (choices["swiglu"] != "fused" and choices["router"] not in TRANSFORMERS_ROUTERS))),
        ("mlp = swiglu_clamped with the moments of Megatron-Core's step: choose peak = saved",
         choices["mlp"] == "swiglu_clamped" and choices["peak"] in MEGATRON_PEAKS),
        ("latent attention with keys and values gathered: choose context = ring or all_to_all",
         choices["heads"] == "latent" and choices["context"] == "all_gather"),
        ("windows in kernels of Megatron-Core that keep 16-bit scores: choose attention = flash or unfused",
         choices["window"] == "sliding" and choices["attention"] in ("fused_softmax", "te_unfused")),
        ("packed documents without FlashAttention: choose attention = flash",
         packed and choices["attention"] != "flash"),
        ("packed documents with sinks, latent attention or FP8", packed and tuple(
            choices[axis] for axis in ("sinks", "heads", "fp8")) != ("none", "grouped", "none")),
        ("packed documents with learned positions", packed and learned),
        (f"packed documents with loss = {choices['loss']}: its answers are sequences of their own",
         packed and choices["loss"] in ("reward", *PREFERENCES)),
        (f"packed documents with peak = {choices['peak']}: choose peak = saved", packed and choices["peak"] == "torch"),
        ("sinks of attention with this kernel of it: choose attention = eager in Transformers, flash or unfused in"
         " Megatron-Core", choices["sinks"] == "trained" and choices["attention"] not in (
             ("eager",) if choices["router"] in TRANSFORMERS_ROUTERS else ("flash", "unfused"))),
        ("positions as a slope of the scores (ALiBi) with this kernel of attention: choose attention = eager",
         choices["positions"] == "alibi" and choices["attention"] != "eager"),
        (f"{special} with DeepSpeed", bool(special) and choices["data_parallel"] == "deepspeed"),
        (f"loss = {choices['loss']} with a load-balancing loss: choose balance = none",
         plain_alone and choices["balance"] != "none"),
        (f"loss = {choices['loss']} under autocast or with the moments of PyTorch's own step: choose precision = bf16"
         " or mixed, and peak = saved",
         plain_alone and (choices["precision"] == "autocast", choices["peak"]) != (False, "saved")),
        (f"loss = {choices['loss']} with LayerNorm",
         plain_alone and choices["normalisation"] != "rms" and choices["loss"] not in ACTORS),
        ("rope = joined with value = view without projections = fused, or the other way round",
         joined and not split and (choices["value"], choices["projections"]) != ("view", "fused")),
    )


#: With which choices Transformers leaves routers' weights in fp32.
_LEFT_WIDE: Mapping[str, tuple[str, ...]] = {
    "precision": ("bf16",), "data_parallel": ("ddp",), "adapters": ("none",), "layers": ("experts",),
    "router": ("huggingface", "huggingface_bounded"),
}


def _of_routers(choices: Mapping[str, str]) -> tuple[tuple[str, bool], ...]:
    wide = choices["router_weights"] == "fp32"
    return tuple((f"router_weights = fp32 with {axis} = {choices[axis]}: choose router_weights = as_others",
                  wide and choices[axis] not in options) for axis, options in _LEFT_WIDE.items())


def _of_pipelines(choices: Mapping[str, str]) -> tuple[tuple[str, bool], ...]:
    torch = choices["pipeline"] == "torch"
    return (
        ("PyTorch's pipeline with parameters that are freed after every forward pass",
         torch and choices["reshard"] == "always"),
        ("PyTorch's pipeline with an optimizer that goes from parameter to parameter",
         torch and choices["optimizer_kernel"] == "loop"),
        ("PyTorch's pipeline with an explicit list of layers in another schedule than 1F1B",
         torch and choices["stages"] == "listed" and choices["schedule"] != "1f1b"),
        ("PyTorch's pipeline with uneven stages in another schedule than 1F1B and interleaved",
         torch and choices["stages"] == "uneven" and choices["schedule"] not in ("1f1b", "interleaved")),
        ("a compiled loss in PyTorch's pipeline, which holds the logits too: choose loss = dtensor",
         torch and choices["loss"] == "dtensor_compiled"),
        ("PyTorch's pipeline without FSDP2", torch and choices["data_parallel"] != "fsdp"),
        ("FSDP2 with this schedule in a program's own pipeline",
         not torch and choices["data_parallel"] == "fsdp" and choices["schedule"] != "1f1b"),
    )


def _of_optimizers(choices: Mapping[str, str]) -> tuple[tuple[str, bool], ...]:
    optimizer, precision, fsdp = choices["optimizer"], choices["precision"], choices["data_parallel"] == "fsdp"
    listed = choices["peak"] == "megatron_local" and choices["optimizer_kernel"] != "fused"
    return (
        (f"optimizer {optimizer} on the sharded matrices of FSDP2", fsdp and optimizer in NOT_SHARDED),
        (f"optimizer {optimizer} with precision {precision}",
         optimizer in ANY_WIDTH and precision not in ("mixed", "fp16")),
        ("optimizer muon with precision fp16", optimizer == "muon" and precision == "fp16"),
        *_only(f"optimizer {optimizer}", optimizer in DEALT, choices, {
            "precision": ("mixed",), "data_parallel": ("ddp",), "adapters": ("none",)}),
        (f"temporaries of optimizer {optimizer} with optimizer_kernel {choices['optimizer_kernel']}: choose"
         " optimizer_kernel = fused",
         (choices["peak"] in ("torch", "megatron_local") or choices["data_parallel"] == "deepspeed")
         and choices["optimizer_kernel"] != "fused" and optimizer != "adamw"),
        *_only("an optimizer of PyTorch in Megatron-Core", listed, choices, {
            "precision": ("mixed", "fp16"), "data_parallel": ("ddp",), "adapters": ("none",)}),
        ("Transformer Engine without its fused optimizer: choose optimizer_kernel = fused or peak = megatron_local",
         choices["peak"] == "megatron_te" and choices["optimizer_kernel"] != "fused"),
        (f"optimizer {optimizer} with the experts of Hugging Face, which are one tensor",
         optimizer in WHOLE_TENSORS and choices["layers"] == "experts" and choices["router"] in TRANSFORMERS_ROUTERS
         and (choices["adapters"] == "none" or choices["expert_adapters"] in ADDED)),
    )


def _of_fp8(choices: Mapping[str, str]) -> tuple[tuple[str, bool], ...]:
    recipe, precision = choices["fp8"], choices["precision"]
    fp8 = recipe != "none"
    return (
        (f"FP8 with precision {precision}", fp8 and precision != "mixed"),
        ("NVFP4 weights without 16-bit ones (--fp4-param-gather): choose fp8_weights = copy",
         recipe in PACKED and choices["fp8_weights"] != "copy"),
        (f"FP8 with mlp = {choices['mlp']}: counted are {', '.join(_IN_FP8)}", fp8 and choices["mlp"] not in _IN_FP8),
        ("FP8 with norms behind attention and MLP", fp8 and choices["norms"] != "pre"),
        ("FP8 with experts one after another", fp8 and choices["expert_products"] != "grouped"),
        ("FP8 with other norms and attention than Transformer Engine's",
         fp8 and (choices["norm"], choices["attention"]) != ("fused", "flash")),
        (f"FP8 with peak = {choices['peak']}: choose peak = megatron_te",
         fp8 and choices["peak"] not in ("saved", "megatron_te")),
        ("FP8 with FSDP2", fp8 and choices["data_parallel"] == "fsdp"),
        ("FP8 weights without 16-bit ones with whole-tensor optimizers: choose fp8_weights = copy",
         fp8 and choices["fp8_weights"] != "copy" and choices["optimizer"] in WHOLE_TENSORS),
        (f"optimizer precision_aware with FP8 recipe {recipe}: choose optimizer = precision_aware_core",
         recipe not in ("none", "delayed") and choices["optimizer"] == "precision_aware"),
        ("optimizer precision_aware_core with FP8 recipe delayed: choose optimizer = precision_aware",
         recipe == "delayed" and choices["optimizer"] == "precision_aware_core"),
    )


def _of_adapters(choices: Mapping[str, str]) -> tuple[tuple[str, bool], ...]:
    frozen, nf4 = choices["adapters"] != "none", choices["base_weights"] == "nf4"
    precision, wide = choices["precision"], choices["adapter_precision"]
    return (
        ("4-bit weights without adapters", nf4 and not frozen),
        *_of_8_bits(choices),
        (f"adapter_precision = {wide} without adapters", wide != "low" and not frozen),
        (f"adapter_precision = {wide} with another precision than bf16, shared-out weights or DoRA",
         wide != "low" and (precision, choices["data_parallel"], choices["adapter_kind"]) != ("bf16", "ddp", "lora")),
        ("adapter_precision = fp32 beside quantised weights, where PEFT copies no inputs under a GPU's autocast: choose"
         " adapter_precision = fp32_uncopied", wide == "fp32" and choices["base_weights"] != "full"),
        ("adapter_precision = fp32_uncopied beside weights that are not quantised: choose adapter_precision = fp32",
         wide == "fp32_uncopied" and choices["base_weights"] == "full"),
        ("adapter_kind = dora without adapters", choices["adapter_kind"] == "dora" and not frozen),
        (f"adapter_kind = dora with data_parallel = {choices['data_parallel']}",
         choices["adapter_kind"] == "dora" and choices["data_parallel"] not in ("ddp", "fsdp")),
        ("4-bit weights beside fp32 shards of FSDP2: choose precision = bf16",
         nf4 and (precision, choices["data_parallel"]) == ("mixed", "fsdp")),
        (f"adapters with precision {precision} and data_parallel = {choices['data_parallel']}",
         frozen and (precision, choices["data_parallel"]) not in _ADAPTED),
        *_of_adapted_moments(choices),
        ("adapters with FP8 in models with experts or with delayed scaling", frozen and choices["fp8"] != "none" and (
            choices["layers"] != "dense" or choices["fp8"] == "delayed")),
        ("adapters beside a head that scores, which is trained in a copy of its own",
         frozen and choices["loss"] in SCORES),
        ("adapters for latent attention or another MLP than SwiGLU",
         frozen and (choices["heads"], choices["mlp"]) not in (("grouped", "swiglu"), ("grouped", "swiglu_clamped"))
         and not (choices["mlp"] == "geglu" and _of_dense_adapters(choices))),
        (f"expert_adapters = {choices['expert_adapters']} without experts: choose expert_adapters = none",
         choices["expert_adapters"] in ADDED and choices["layers"] != "experts"),
        *_of_adapted_experts(choices),
        ("FSDP1 with layers of experts: choose loading = trainer",
         choices["loading"] in ("fsdp1", "fsdp1_whole") and choices["layers"] != "dense"),
        ("adapters with norms that keep their output", frozen and choices["norm"] == "keeps_output"),
    )


def _of_8_bits(choices: Mapping[str, str]) -> tuple[tuple[str, bool], ...]:
    """Refuse what 8-bit weights are not counted with: their products keep inputs that only adapters keep elsewhere."""
    counted = {"adapters": "all_linear", "precision": "bf16", "data_parallel": "ddp", "adapter_kind": "lora"}
    return tuple((f"8-bit weights with {axis} = {choices[axis]}: choose {axis} = {option}",
                  choices["base_weights"] == "int8" and choices[axis] != option) for axis, option in counted.items())


#: Options by axis with which the moments of PyTorch's own step are counted beside adapters.
_ADAPTED_MOMENTS: Mapping[str, tuple[str, ...]] = {
    "peak": ("torch",), "router": TRANSFORMERS_ROUTERS, "layers": ("dense",), "projections": ("separate",),
    "positions": ("rotary",), "normalisation": ("rms",), "precision": ("bf16",),
    "data_parallel": ("ddp", "fsdp"), "adapter_kind": ("lora",), "adapter_precision": ("low",),
    "base_weights": ("full", "nf4"), "optimizer_kernel": ("fused", "foreach"),
}


def _of_adapted_moments(choices: Mapping[str, str]) -> tuple[tuple[str, bool], ...]:
    """Refuse moments of a step beside adapters where they are not counted."""
    frozen = choices["adapters"] != "none" and choices["peak"] != "saved"
    others = [f"{axis} = {choices[axis]}" for axis, options in _ADAPTED_MOMENTS.items()
              if choices[axis] not in options]
    unknown = (*others, *filter(None, (not_walked(choices),))) if frozen else ()
    return tuple((f"the moments of a step with adapters and {name}: choose peak = saved", True) for name in unknown)


#: Routers of classes in Transformers of which PEFT takes no experts.
_LEFT_AS_THEY_ARE = ("huggingface_chosen", "huggingface_top", "huggingface_mixer")


def _of_adapted_experts(choices: Mapping[str, str]) -> tuple[tuple[str, bool], ...]:
    if choices["adapters"] == "none" or choices["layers"] != "experts":
        return ()
    everywhere, transformers = choices["adapters"] == "all_linear", choices["router"] in TRANSFORMERS_ROUTERS
    kind = (choices["precision"], choices["adapter_kind"])
    return (
        ("adapters for models with experts in Transformers with this precision, sharing and kind: choose precision ="
         " bf16, data_parallel = ddp or fsdp and adapter_kind = lora",
         transformers and (kind != ("bf16", "lora") or choices["data_parallel"] not in ("ddp", "fsdp"))),
        ("adapters beside quantised layers of experts, which bitsandbytes leaves in 16 bits",
         choices["base_weights"] != "full"),
        (f"adapters of experts and router = {choices['router']}: choose expert_adapters = none",
         everywhere and choices["expert_adapters"] in ADDED and choices["router"] in _LEFT_AS_THEY_ARE),
        ("adapter_precision = fp32 with sigmoid scores of fp32 logits: choose adapter_precision = low",
         (choices["adapter_precision"], choices["router"], choices["scores"]) == ("fp32", "huggingface", "sigmoid")),
        ("adapters of all linear layers with router = huggingface_mixer, a linear layer that PEFT cannot take: choose"
         " adapters = attention", everywhere and choices["router"] == "huggingface_mixer"),
        ("adapters where Transformers sends tokens to other ranks' experts: choose dispatch = huggingface",
         choices["dispatch"] == "huggingface_sent"),
        ("adapters with a load-balancing loss in Transformers: choose balance = none",
         transformers and choices["balance"] != "none"),
        ("adapters of separate projections for experts: choose adapter_parts = joined",
         everywhere and not transformers and choices["adapter_parts"] == "apart"),
        ("one adapter for experts that are computed one after another: choose expert_adapters = each",
         everywhere and (choices["expert_adapters"], choices["expert_products"]) == ("shared", "sequential")),
    )


def _of_deepspeed(choices: Mapping[str, str]) -> tuple[tuple[str, bool], ...]:
    deepspeed = choices["data_parallel"] == "deepspeed"
    precision, optimizer = choices["precision"], choices["optimizer"]
    return (
        (f"DeepSpeed with precision {precision}: choose precision = mixed or fp32",
         deepspeed and precision not in ("mixed", "fp32")),
        (f"DeepSpeed with optimizer {optimizer}", deepspeed and optimizer not in IN_PARTS),
        ("DeepSpeed with experts that are sent to other ranks",
         deepspeed and choices["layers"] != "dense" and choices["dispatch"] == "huggingface_sent"),
        *_only("the moments of PyTorch's own step with DeepSpeed", deepspeed and choices["peak"] != "saved", choices, {
            "precision": ("mixed",), "layers": ("dense",), "adapters": ("none",), "optimizer": ("adamw",),
            "optimizer_kernel": ("fused",), "norm": ("eager",), "normalisation": ("rms",), "norms": ("pre",),
            "mlp": ("swiglu",), "heads": ("grouped",), "attention": ("sdpa",), "residual": ("sequential",),
            "rope": ("shared",), "positions": ("rotary",), "loss": ("huggingface", "huggingface_freed")}),
    )


def _of_megatron_fsdp(choices: Mapping[str, str]) -> tuple[tuple[str, bool], ...]:
    counted = {
        "precision": ("mixed", "fp16"), "optimizer": ("adamw", "sgd_momentum", "sgd"), "layers": ("dense",),
        "heads": ("grouped",), "norms": ("pre",), "fp8": ("none", "current"), "adapters": ("none",),
        "schedule": ("1f1b",), "recompute_method": ("each",),
    }
    chosen = choices["data_parallel"] == "megatron_fsdp"
    return (
        *_only("Megatron-FSDP", chosen, choices, counted, ("data_parallel", "megatron_fsdp")),
        ("Megatron-FSDP with FP8 copies of 16-bit weights: choose fp8_weights = primary",
         chosen and choices["fp8"] != "none" and choices["fp8_weights"] != "primary"),
    )


def _of_compiled(choices: Mapping[str, str]) -> tuple[tuple[str, bool], ...]:
    counted = {"layers": ("dense",), "heads": ("grouped",), "norm": ("fused",)}
    return _among("compiled layers", choices["compile"] != "none", choices, counted)


def _only(
    words: str, chosen: bool, choices: Mapping[str, str], counted: Mapping[str, tuple[str, ...]],
    own: tuple[str, str] = ("", ""),
) -> tuple[tuple[str, bool], ...]:
    """Refuse all but some options of some axes, and systems that change more than links and machines.

    Not those that name ``own``, an axis and its option, among what they were counted with.
    """
    machines = {Aspect.LINKS, Aspect.MACHINES}
    others = {system.axis.name: (system.absent,) for system in SYSTEMS if not machines.issuperset(system.changes)
              and own[1] not in system.counted.get(own[0], ())}
    return _among(words, chosen, choices, {**counted, **others})


def _among(
    words: str, chosen: bool, choices: Mapping[str, str], counted: Mapping[str, tuple[str, ...]]
) -> tuple[tuple[str, bool], ...]:
    """Refuse all but some options of some axes."""
    return tuple((f"{words} with {axis} = {choices[axis]}: counted are {', '.join(options)}",
                  chosen and choices[axis] not in options) for axis, options in counted.items())
