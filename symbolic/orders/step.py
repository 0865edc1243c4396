"""Scripts of a whole step: those of all frameworks that nothing else is known of, and the births of what lasts."""

from __future__ import annotations

from collections.abc import Mapping

from sympy import Expr, Integer

from ..axis import fits
from ..dimension import Dimension
from . import fsdp, megatron, megatron_fsdp, megatron_local, nanotron, partitioned, taped, transformers
from .words import Birth, Passing, Script

PASSING: tuple[Passing, ...] = (*nanotron.PASSING, *fsdp.PASSING, *megatron.PASSING,
                                *megatron_local.PASSING, *transformers.PASSING, *partitioned.PASSING)
_KEPT_GRADIENTS: Mapping[str, Expr] = {"torch_ddp": 1 - nanotron.IN_BUCKETS, "fsdp": Integer(1)}

#: Points of a step in their order; of those of one implementation the last script that fits holds.
SCRIPTS: tuple[Script, ...] = (
    *(Script(point, events) for point, events in {
        "step_begin": "share",
        "chunk_forward": "",
        "embedding_forward": "save",
        "layer_forward": "save",
        "expert_layer_forward": "save",
        "experts_forward": "+* -*",
        "head_forward": "save",
        "loss_forward": "+* save -*",
        "after_forward": "+* -*",
        "stage_exchange": "+* -*",
        "backward_start": "+* -*",
        "loss_backward": "+* -* free",
        "head_backward": "+* free -*",
        "norm_backward": "+* -*",
        "head_reduce": "+* -*",
        "combine_backward": "+* -*",
        "experts_backward": "+* -*",
        "layer_backward": "+* free -*",
        "expert_layer_backward": "+* free -*",
        "embedding_backward": "free +* -*",
        "backward_end": "-all",
        "last_reduce": "unshare +* -*",
        "optimizer_step": "+* -*",
    }.items()),
    *nanotron.SCRIPTS,
    *fsdp.SCRIPTS,
    *megatron.SCRIPTS,
    *megatron_local.SCRIPTS,
    *megatron_fsdp.SCRIPTS,
    *transformers.SCRIPTS,
    *partitioned.SCRIPTS,
)

_MOMENTS = ("exp_avg", "exp_avg_sq")
#: Births in PyTorch's own step.
_LATE = (Birth("bucket", "reducer"), *(Birth(name, late=True) for name in _MOMENTS))

#: Births of states by the kind of data parallelism, as a framework makes them that does not step as PyTorch alone
#: does; a state that is not named is made tensor by tensor at the start, an optimizer's state in the first step.
_BIRTHS: Mapping[str, tuple[Birth, ...]] = {
    "torch_ddp": (Birth("main_gradient", "whole"), Birth("bucket", "bucket"), Birth("master_weight", "whole"),
                  *(Birth(name, late=True) for name in _MOMENTS)),
    "ddp": (Birth("main_gradient", "whole"), Birth("weight", "moved"), Birth("master_weight", "shard"),
            *(Birth(name, "shard", late=True) for name in _MOMENTS)),
    "megatron_fsdp": (Birth("main_gradient", "whole"), Birth("weight", "moved"), Birth("master_weight", "whole"),
                      *(Birth(name, "shard", late=True) for name in _MOMENTS)),
    "fsdp": _LATE,
    "deepspeed": (Birth("weight", "moved"), Birth("master_weight", "whole"),
                  *(Birth(name, "whole", late=True) for name in _MOMENTS)),
}


#: Tensors of which rows are parts, by the choices with which they are.
_JOINED: Mapping[tuple[str, tuple[str, ...]], Mapping[str, tuple[str, ...]]] = {
    ("projections", ("fused", "gate_up")): {
        f"{name}.gate_up.output": (f"{name}.gate", f"{name}.up") for name in ("swiglu", "shared_experts")},
    ("rope", ("cast",)): {"attention.rope.table_cast": ("attention.rope.cos_cast", "attention.rope.sin_cast"),
                          "layer_input.rope.table": ("layer_input.rope.cos", "layer_input.rope.sin")},
    ("value", ("view",)): {
        f"attention.{name}.output": (f"attention.{name}.q_part", f"attention.{name}.kv_part")
        for name in ("v", "checkpoint.v")},
}


def births(choices: Mapping[str, str]) -> tuple[Birth, ...]:
    """Return the births of states under these choices."""
    kind = choices["data_parallel"]
    return _LATE if choices["peak"] == "torch" and kind != "deepspeed" else _BIRTHS[kind]


#: Parameters of a layer in the order of its modules, by the choices with which it is known.
_MODULES = ((transformers.ANY, transformers.MODULES), (fsdp.UNITS, fsdp.MODULES),
            (megatron_fsdp.FSDP, megatron_fsdp.MODULES))


def modules(choices: Mapping[str, str]) -> tuple[str, ...]:
    """Return the parameters of a layer in the order of its modules under these choices; empty where it is not known."""
    if taped.is_taped(choices):
        return transformers.MODULES
    return next((names for options, names in _MODULES if fits(options, choices)), ())


def passing(choices: Mapping[str, str]) -> tuple[Passing, ...]:
    """Return the tensors that live between moments only under these choices."""
    is_taped = taped.is_taped(choices)
    return tuple(item for item in PASSING if fits(item.options, choices) or (is_taped and item.name in taped.PASSING))


def parameters(shape: tuple[Dimension, ...], choices: Mapping[str, str]) -> tuple[Dimension, ...]:
    """Return the dimensions of a weight of which every index is a parameter of its own."""
    options, apart = megatron.APART
    return tuple(dimension for dimension in shape if dimension in apart) if fits(options, choices) else ()


def joined(choices: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """Return the tensors of which several rows are parts, as one product makes them: the rows of each."""
    return {name: rows for (axis, options), tensors in _JOINED.items() if choices[axis] in options
            for name, rows in tensors.items()}


def kept_gradients(choices: Mapping[str, str]) -> Expr:
    """Return 1 where ``grad`` keeps 16-bit gradients, and 0 elsewhere."""
    return Integer(1) if choices["peak"] == "torch" else _KEPT_GRADIENTS.get(choices["data_parallel"], Integer(0))


def walked(choices: Mapping[str, str]) -> frozenset[str]:
    """Name the sums of terms that the scripts for these choices make one by one."""
    return frozenset(name for options, names in (*fsdp.WALKED, *megatron.WALKED, *megatron_local.WALKED,
                                                    *megatron_fsdp.WALKED, *transformers.WALKED)
                     for name in names
                     if fits(options, choices)).union(taped.walked(choices))


def scripts(choices: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """Return the events at every point of a step under these choices."""
    fitting = {item.point: tuple(item.events.split()) for item in SCRIPTS if fits(item.options, choices)}
    return fitting | taped.scripts(choices)
