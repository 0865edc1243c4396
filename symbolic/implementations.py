"""Implementations: named choices of kernel variants, with what the framework cannot do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from hashlib import sha256

from .choices import (
    ACTORS,
    ADDED,
    AXES,
    BY_NAME,
    FALCON,
    MEGATRON_PEAKS,
    MEGATRON_ROPE,
    PREFERENCES,
    SCORES,
    TORCHTUNE,
    TORCHTUNE_LINEAR,
    TRANSFORMERS_ROUTERS,
    VOCAB_ACTORS,
)
from .parallel.optimizers import DEALT, optimizers_of
from .reserved import Reserved, Share
from .systems import SYSTEMS
from .systems.system import Aspect


@dataclass(frozen=True, eq=False)
class Implementation:
    """A named set of choices, one for every axis.

    ``fixed`` gives letters that have only one legal value here; ``defaults`` gives the values of
    training parameters that a user of the framework gets without asking, and the switches that an expert sets, as
    published recipes do. ``unset`` has switches among them that options of an axis forbid. ``uncounted`` says of fixed
    letters what else the framework has. ``allowed`` lists, for axes of which not every
    option is counted in the framework, those that are. ``lacking`` has, by axis, options that the framework itself does
    not have, and what it has instead. ``reserved`` has the shares of reserved memory.
    ``replayed`` has the options with which the order in which its steps allocate is known well enough to replay them,
    by axis, and is None where that is so with none; docs/validation.md has how well. ``partly`` has options with which
    the moments of a step are counted for some values of parameters alone, so that whoever wants them asks for them.
    """

    name: str
    version: str
    title: str
    choices: Mapping[str, str]
    reserved: Reserved
    fixed: Mapping[str, int] = field(default_factory=dict)
    defaults: Mapping[str, int] = field(default_factory=dict)
    unset: Mapping[str, tuple[str, tuple[str, ...]]] = field(default_factory=dict)
    allowed: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    lacking: Mapping[str, tuple[tuple[str, ...], str]] = field(default_factory=dict)
    uncounted: Mapping[str, str] = field(default_factory=dict)
    framework: str = ""
    replayed: Mapping[str, tuple[str, ...]] | None = None
    partly: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse a missing axis and an unknown option; the framework is the name before any other choice."""
        if not self.framework:
            object.__setattr__(self, "framework", self.name)
        without = {item.axis.name: (item.absent,) for item in SYSTEMS if self.framework not in item.frameworks}
        object.__setattr__(self, "allowed", {**without, **self.allowed})
        for axis in AXES:
            if self.choices.get(axis.name) not in axis.options:
                raise ValueError(
                    f"{self.name}: {axis.name} = {self.choices.get(axis.name)!r}; must be one of {list(axis.options)}"
                )
            if self.choices[axis.name] not in self.options(axis.name):
                raise ValueError(f"not counted yet: {axis.name} = {self.choices[axis.name]} in {self.title};"
                                 f" counted are {', '.join(self.options(axis.name))}")
        unknown = set(self.choices) - set(BY_NAME)
        if unknown:
            raise ValueError(f"{self.name}: unknown choices {sorted(unknown)}")

    @property
    def forbidden(self) -> dict[str, int]:
        """Return the default switches that are off with these choices, by letter."""
        return {letter: 0 for letter, (axis, options) in self.unset.items() if self.choices[axis] in options}

    @property
    def predicting(self) -> Implementation:
        """Return the implementation of layers of further predictions: this one, unless they have other options."""
        if self.choices["layers"] != "experts":
            return self
        return self.with_choices(**{axis.name: axis.predicted[option] for axis in AXES
                                    if (option := self.choices[axis.name]) in axis.predicted})

    def options(self, axis: str) -> tuple[str, ...]:
        """Return the options of an axis that the framework has."""
        return self.allowed.get(axis, tuple(BY_NAME[axis].options))

    def with_choices(self, **choices: str) -> Implementation:
        """Return the same implementation with some choices made differently, and a name that says so.

        The same choices give the same object. Raises ValueError for an unknown axis or option.
        """
        changed = {axis: option for axis, option in choices.items() if self.choices.get(axis) != option}
        return _changed(self, tuple(sorted(changed.items()))) if changed else self


#: Characters of a name that is that of a file too; with more choices a digest stands for them.
_LONGEST_NAME = 200


@cache
def _changed(implementation: Implementation, changes: tuple[tuple[str, str], ...]) -> Implementation:
    name = "_".join([implementation.name, *(f"{axis}_{option}" for axis, option in changes)])
    if len(name) > _LONGEST_NAME:
        name = f"{implementation.name}_{sha256(name.encode()).hexdigest()[:32]}"
    return replace(implementation, name=name, choices={**implementation.choices, **dict(changes)})


#: Choices of a plain Llama on an even pipeline; what is left open is the framework's.
LLAMA: dict[str, str] = {
    "optimizer": "adamw", "fp8": "none", "fp8_weights": "copy", "projections": "fused", "adapters": "none",
    "adapter_parts": "joined", "expert_adapters": "shared", "adapter_kind": "lora", "adapter_precision": "low",
    "adapter_ends": "frozen", "base_weights": "full", "qk_order": "each",
    **{system.axis.name: system.absent for system in SYSTEMS}, "pinned": "all",
    "schedule": "1f1b", "stages": "even", "recompute_method": "each",
    "normalisation": "rms", "norms": "pre", "qk_norms": "head", "capping": "none", "window": "none",
    "documents": "one", "sinks": "none", "embedding_norm": "none", "softmax": "fp32",
    "mlp": "swiglu", "heads": "grouped", "layers": "dense", "predictions": "experts", "positions": "rotary",
    "residual": "sequential", "dropout": "none", "biases": "qkv",
    "context": "ring", "weight_gradient": "fused", "mask": "kernel",
    "scores": "softmax", "balance": "none", "router": "unfused", "router_precision": "fp32",
    "router_weights": "as_others",
    "dispatch": "alltoall", "permute": "fused", "weighting": "separate", "shared_sum": "low",
    "expert_products": "grouped",
    "gathered_input": "dropped", "token_ids": "masked", "position_ids": "batch", "recompute_saves": "input",
    "loading": "none", "compile": "none", "collectives": "current",
    "units": "root", "reshard": "always", "optimizer_kernel": "fused", "pipeline": "own", "gelu": "fused",
}

#: Options of other frameworks, which no class of Megatron-Core has and no flag of Megatron-LM asks for. Programs of
#: their own beside it have attention in single operations (Hagemann's runs).
_NOT_IN_MEGATRON: dict[str, tuple[str, ...]] = {
    "value": ("repacked", "picked"), "attention": ("sdpa", *FALCON), "peak": ("torch",),
    "norm": ("eager", "eager_fp32", "eager_scale", "eager_power"), "heads": ("two_widths",),
    "rope": BY_NAME["rope"].without(*MEGATRON_ROPE),
    "precision": ("autocast", "fp32"),
    "softmax": ("low",), "gelu": ("new", "fast", "python"),
    "loss": ("float", "bf16", "huggingface", "huggingface_freed", "dtensor", "dtensor_compiled", "nanotron", "liger",
             "trl", "cut", *TORCHTUNE, *TORCHTUNE_LINEAR, "log_probs_sft", *PREFERENCES, *SCORES, *ACTORS),
    "router": (*TRANSFORMERS_ROUTERS, "torchtitan"),
    "dispatch": ("huggingface", "huggingface_sent", "torchtitan"),
    "weighting": ("results", "input"), "balance": ("loss_one_hot",),
}
#: Options that only frameworks with many model classes have, and what the others have.
_FEW_LAYERS_LACK: dict[str, tuple[tuple[str, ...], str]] = {
    "mlp": (("xielu",), "activations have no weights there"),
    "positions": (("alibi",), "scores have no slopes there"),
    "embedding_norm": (("norm",), "no norm stands behind the embedding there"),
    "residual": (("parallel", "parallel_one"), "an MLP reads what attention has been added to there"),
}
#: Options that no layer of Megatron-Core 0.16.1 and of Megatron-Bridge 0.3.1 has, and what they have.
_MEGATRON_LACKS: dict[str, tuple[tuple[str, ...], str]] = {
    "normalisation": (("layer_unbiased", "layer_plain"), "LayerNorm has a scale and a bias there"),
    "qk_norms": (("heads",), "all heads share the scale of their norm there"),
    **_FEW_LAYERS_LACK,
    "biases": (("head",), "the LM head has no bias there"),
}
_MEGATRON_ONLY: dict[str, tuple[str, ...]] = {
    **{axis: (LLAMA[axis],) for axis in ("projections", "gathered_input", "token_ids", "position_ids",
                                         "recompute_saves", "units", "reshard", "pipeline", "compile",
                                         "router_weights", "shared_sum", "qk_order", "pinned")},
    **{axis: tuple(option for option in BY_NAME[axis].options
                   if option not in (*_NOT_IN_MEGATRON.get(axis, ()), *_MEGATRON_LACKS.get(axis, ((), ""))[0]))
       for axis in {**_NOT_IN_MEGATRON, **_MEGATRON_LACKS}},
    "data_parallel": ("ddp", "megatron_fsdp"), "optimizer_kernel": ("fused", "foreach"),
    "loading": ("none", "sharded"),
}

#: Aspects of training that change memory, or the order of its allocations.
_OF_MEMORY = {*Aspect} - {Aspect.LINKS, Aspect.MACHINES}

MEGATRON = Implementation(
    "megatron", "megatron-core 0.16.1", "Megatron-Core with fused kernels",
    {
        **LLAMA, "norm": "fused", "swiglu": "fused", "attention": "flash", "value": "copy", "rope": "fused",
        "loss": "vocab_parallel", "precision": "mixed", "data_parallel": "ddp", "peak": "megatron_te",
        "loading": "sharded",
    },
    Reserved((Share(1065, 955, 1027), Share(1038, 957, 1039), Share(1029, 957, 1039)), "simumax"),
    fixed={"zero2": 0, "zero3": 0},
    defaults={"w": 4, "zero1": 1, "g": 128, "sp": 1, "og": 1, "ow": 1},
    unset=dict.fromkeys(("og", "ow"), ("optimizer", ("muon", "dist_muon"))),
    lacking=_MEGATRON_LACKS,
    allowed={
        **_MEGATRON_ONLY, "schedule": ("1f1b", "interleaved"), "recompute_method": ("each", "uniform", "block"),
        "optimizer": optimizers_of("megatron"), "base_weights": ("full",), "adapter_kind": ("lora",),
        "adapter_precision": ("low",), "adapter_ends": ("frozen",), "expert_adapters": ("none", "shared", "each"),
        "adapters": ("none", "qkv", "attention", "all_linear"),
    },
    replayed={
        "peak": MEGATRON_PEAKS, "heads": ("grouped", "latent"), "mlp": ("swiglu", "geglu", "gelu", "relu", "relu2"),
        "norms": ("pre", "both"), "capping": ("none",),
        "dropout": ("none",), "dispatch": ("alltoall",),
        "adapters": ("none",), "fp8": ("none",), "data_parallel": ("ddp", "megatron_fsdp"),
        "loss": tuple(loss for loss in _MEGATRON_ONLY["loss"] if loss not in VOCAB_ACTORS),
        "optimizer": tuple(name for name in optimizers_of("megatron") if name not in DEALT),
        **{system.axis.name: (system.absent,) for system in SYSTEMS if _OF_MEMORY.intersection(system.changes)},
    },
)
#: Options of other frameworks that no class of Transformers has, and no library that trains one.
_NOT_IN_TRANSFORMERS: dict[str, tuple[str, ...]] = {
    "norm": ("keeps_output", "torch"), "swiglu": ("unfused",), "value": ("repacked",),
    "attention": ("flash_bshd", "unfused", "fused_softmax", "te_unfused", "flex"),
    "rope": (*MEGATRON_ROPE, "complex", "cast", "cached"),
    "loss": ("vocab_parallel", "native_fused", "te_fused", "te_fused_fp32", "gathered", *VOCAB_ACTORS, "dtensor",
             "dtensor_compiled", "nanotron"),
    "data_parallel": ("torch_ddp", "megatron_fsdp"),
}

HUGGINGFACE = Implementation(
    "huggingface", "transformers 5, PyTorch 2.13", "Hugging Face Transformers, eager kernels and sdpa",
    {
        **LLAMA, "norm": "eager", "swiglu": "eager", "attention": "sdpa", "value": "copy", "rope": "shared",
        "loss": "huggingface", "precision": "bf16", "data_parallel": "ddp", "peak": "saved",
        "router": "huggingface", "dispatch": "huggingface", "projections": "separate", "position_ids": "shared",
        "adapter_parts": "apart", "expert_adapters": "none", "loading": "trainer", "units": "ends",
        "reshard": "default",
    },
    Reserved((Share(1028, 905, 1075),) * 3, "transformers",
             ("head_gradients.layer_backward", "made_before_norm.norm_backward"), 1500,
             saved=MEGATRON.reserved.shares),  # no step of saved tensors alone is replayed
    fixed={"t": 1, "c": 1, "p": 1, "e": 1, "et": 1, "sp": 0, "rcore": 0, "rmlp": 0,
           "zero1": 0, "zero2": 0, "zero3": 0,
           "cf": 0, "rnorm": 0, "rup": 0, "ract": 0, "rshared": 0, "rmoe": 0},
    defaults={"g": 1, "og": 1, "ow": 1, "ovl": 1},
    uncounted={
        "t": "tensor parallelism of Transformers (tp_size)",
        "e": "expert parallelism of Transformers with dispatch = huggingface (choose huggingface_sent)",
        "c": "context parallelism of Transformers",
    },
    allowed={"schedule": ("1f1b",), "stages": ("even",), "recompute_method": ("each",), "recompute_saves": ("input",),
             "pipeline": ("own",), "units": ("root", "ends"), "adapter_parts": ("apart",),
             "expert_adapters": ("none", *ADDED),
             "gathered_input": ("dropped",), "token_ids": ("masked",), "position_ids": ("shared", "shifted"),
             "collectives": ("current",),
             "router": TRANSFORMERS_ROUTERS, "dispatch": ("huggingface", "huggingface_sent"),
             "weighting": ("separate",),
             "expert_products": ("grouped",), "peak": ("saved", "torch"),
             **{axis: BY_NAME[axis].without(*others) for axis, others in _NOT_IN_TRANSFORMERS.items()},
             "context": ("ring",), "mask": ("kernel",), "compile": ("none",),
             "precision": ("bf16", "autocast", "mixed", "fp32"), "balance": ("none", "loss", "loss_one_hot"),
             "optimizer": optimizers_of("huggingface"),
             "fp8": ("none",), "fp8_weights": ("copy",)},
    replayed={
        "peak": ("torch",), "loss": ("huggingface", "huggingface_freed"), "precision": ("bf16", "mixed"),
        "attention": ("sdpa", "flash", "eager"), "optimizer": ("adamw", "sgd_momentum", "sgd"),
        "data_parallel": ("ddp", "fsdp", "deepspeed"), "base_weights": ("full",),
        **{system.axis.name: (system.absent,) for system in SYSTEMS if _OF_MEMORY.intersection(system.changes)},
    },
    partly={"data_parallel": ("deepspeed",)},
)

#: Switches that are 0 where a framework recomputes whole layers or nothing.
_NO_REGIONS = dict.fromkeys(("rcore", "rmlp", "rnorm", "rup", "ract", "rshared", "rmoe"), 0)
#: Options of plain Llamas, the only models counted on other frameworks.
_LLAMA_ONLY: dict[str, tuple[str, ...]] = {
    axis: (LLAMA[axis],)
    for axis in ("normalisation", "norms", "qk_norms", "window", "sinks", "capping", "mlp", "gelu", "heads",
                 "layers", "predictions", "documents", "positions", "position_ids", "residual", "dropout",
                 "embedding_norm", "softmax", "biases", "mask", "context", "fp8", "fp8_weights", "adapters",
                 "adapter_parts", "expert_adapters", "adapter_kind", "adapter_precision", "adapter_ends",
                 "base_weights", "loading", "router_weights", "shared_sum", "qk_order", "pinned")
}

#: Options that torchtitan's models (Llama 3 and 4, DeepSeek-V3, Qwen3, GPT-OSS) and nanotron's (Llama, Qwen 2,
#: StarCoder 2) lack, and what they have.
_FEW_MODELS_LACK: dict[str, tuple[tuple[str, ...], str]] = {
    "normalisation": (("layer_unbiased", "layer_plain"), "no model has LayerNorm without a bias there"),
    "norms": (("post", "both"), "models have norms before attention and MLP there"),
    "capping": (("tanh", "logits"), "nothing bounds scores and logits there"),
    "heads": (("two_widths",), "all layers have heads of one width there"),
    **_FEW_LAYERS_LACK,
}
_TORCHTITAN_LACKS: dict[str, tuple[tuple[str, ...], str]] = {
    **_FEW_MODELS_LACK,
    "normalisation": (("layer", "layer_unbiased", "layer_plain"), "language models have RMSNorm there"),
    "qk_norms": (("heads", "width"), "queries and keys are normalised by head there"),
    "mlp": (("geglu", "gelu", "relu", "relu2", "xielu"), "MLPs are SwiGLU there"),
    "positions": (("alibi", "partial", "learned"), "whole heads are turned there"),
    "biases": (("head",), "the LM head has no bias there"),
}

_NANOTRON_LACKS: dict[str, tuple[tuple[str, ...], str]] = {
    **_FEW_MODELS_LACK,
    "heads": (("latent", "two_widths"), "no model compresses keys and values there, and heads are of one width"),
    "mlp": (("xielu", "swiglu_clamped"), "activations have no weights and no bounds there"),
    "positions": (("alibi", "partial"), "whole heads are turned there, and scores have no slopes"),
    "qk_norms": (("heads", "width"), "queries and keys have no norms there"),
    "sinks": (("trained",), "attention has no sinks there"),
}

TORCHTITAN = Implementation(
    "torchtitan", "torchtitan 0.2.2, PyTorch 2.13", "torchtitan: FSDP2 and DTensor, eager",
    {
        **LLAMA, "norm": "fused", "swiglu": "eager", "attention": "sdpa", "value": "copy", "rope": "complex",
        "loss": "dtensor", "precision": "mixed", "data_parallel": "fsdp", "peak": "torch",
        "projections": "separate", "gathered_input": "kept", "token_ids": "whole", "units": "apart",
        "reshard": "default", "router": "torchtitan", "dispatch": "torchtitan", "weighting": "results",
        "balance": "bias", "loading": "distributed",
    },
    Reserved((Share(1016, 890, 1164), Share(1018, 839, 1028), Share(1022, 893, 1078)),
             "torchtitan", ("last_steps.head_backward", "reduced_last.last_reduce"), 830,
             saved=(Share(1190, 865, 1133), Share(1181, 870, 1105), Share(1137, 898, 1172))),
    fixed={"cf": 0, "bias": 0, "sgate": 0, **_NO_REGIONS},
    lacking=_TORCHTITAN_LACKS,
    defaults={"w": 4, "g": 1, "sp": 1, "og": 1, "ow": 1},
    allowed={
        **_LLAMA_ONLY, "optimizer": optimizers_of("torchtitan"),
        "stages": ("even", "uneven", "listed"), "recompute_method": ("each", "every"),
        "recompute_saves": ("input", "ops"), "precision": ("mixed", "bf16"), "data_parallel": ("fsdp",),
        "projections": ("separate",), "gathered_input": ("kept",), "token_ids": ("whole",), "units": ("apart",),
        "peak": ("saved", "torch"), "loss": ("dtensor", "dtensor_compiled"), "rope": ("complex", "cast"),
        "swiglu": ("eager",), "value": ("copy",), "norm": ("fused", "torch"), "attention": ("sdpa",),
        "heads": ("grouped", "latent"), "layers": ("dense", "experts"), "router": ("torchtitan",),
        "router_precision": ("fp32",), "dispatch": ("torchtitan",), "weighting": ("results", "input"),
        "permute": ("fused",), "balance": ("none", "bias"), "expert_products": ("grouped",),
        "collectives": ("current",), "loading": ("none", "distributed", "distributed_copied"),
    },
    replayed={"optimizer_step": ("after",)},
)
NANOTRON = Implementation(
    "nanotron", "nanotron 2411b022", "nanotron with flash-attn kernels",
    {
        **LLAMA, "norm": "fused", "swiglu": "eager", "attention": "flash_bshd", "value": "repacked",
        "rope": "cached", "loss": "nanotron", "precision": "mixed", "data_parallel": "torch_ddp", "peak": "saved",
        "collectives": "own",
    },
    Reserved((Share(1044, 952, 1092), Share(1111, 928, 1114), Share(1154, 877, 1655)), "ultrascale",
             ("optimizer_step",), 540),
    fixed={"w": 4, "c": 1, "e": 1, "et": 1, "cf": 0, "bias": 0, "qkn": 0, "zero2": 0, "zero3": 0, **_NO_REGIONS},
    defaults={"zero1": 0, "g": 1, "sp": 1, "og": 1},
    lacking=_NANOTRON_LACKS,
    allowed={
        **_LLAMA_ONLY, "optimizer": optimizers_of("nanotron"),
        "schedule": ("1f1b", "gpipe"), "stages": ("even", "listed"), "recompute_method": ("each",),
        "precision": ("mixed",), "data_parallel": ("torch_ddp",), "loss": ("nanotron",), "value": ("repacked",),
        "norm": ("fused",), "rope": ("cached",), "swiglu": ("eager",), "attention": ("flash_bshd",), "peak": ("saved",),
        "projections": ("fused",), "gathered_input": ("dropped",), "token_ids": ("masked",),
        "recompute_saves": ("input",), "pipeline": ("own",), "compile": ("none",),
    },
    replayed={},
)

IMPLEMENTATIONS: dict[str, Implementation] = {
    item.name: item for item in (MEGATRON, HUGGINGFACE, TORCHTITAN, NANOTRON)
}
