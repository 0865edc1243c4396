"""Recompute: regions whose saved tensors are made again in the backward pass, and what is kept instead."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sympy import Expr, Integer

from .ledger import IN_LAYER, Component, Role, Tensor
from .parameters import symbol


@dataclass(frozen=True)
class Region:
    """A part of a layer that one switch recomputes.

    ``modules`` are the modules whose saved tensors are dropped; an empty tuple is the whole layer, whose
    dropped rows are counted by layers (``parallel.pipeline``) rather than by a factor in every row.
    Rows with ``checkpoint`` equal to the region's name are kept instead. ``again`` are the modules that run once
    more, where these are not the same. ``inside`` are modules whose saved tensors are dropped besides, and ``norm`` is
    one that runs once more, where the region begins with a layer that has its norm inside. ``behind`` are modules of a
    norm that ends the region where layers have norms behind alone; they are dropped, and it runs once more.
    """

    name: str
    switch: str
    modules: tuple[str, ...]
    meaning: str
    source: str
    again: tuple[str, ...] = ()
    inside: tuple[str, ...] = ()
    norm: tuple[str, ...] = ()
    behind: tuple[str, ...] = ()

    def repeated(self, choices: Mapping[str, str]) -> tuple[str, ...]:
        """Return the modules that run once more in the backward pass."""
        inside_or_behind = has_norm_inside(choices) or choices["norms"] == "post"
        return (*(self.again or self.modules), *(self.norm if inside_or_behind else ()))

    def dropped(self, choices: Mapping[str, str]) -> tuple[str, ...]:
        """Return the modules whose saved tensors are dropped."""
        return (*self.modules, *(self.inside if has_norm_inside(choices) else ()),
                *(self.behind if choices["norms"] == "post" else ()))


def has_norm_inside(choices: Mapping[str, str]) -> bool:
    """Tell whether the first projection of a dense MLP normalises its input itself, as ``LayerNormLinear`` does.

    Megatron-Core has it in its layers of Transformer Engine. In its local ones the norm stands alone: those are known
    by the moments of their steps, by their core attention, or by another norm.
    """
    local = choices["peak"] == "megatron_local" or choices["attention"] in ("unfused", "fused_softmax")
    before = choices["norms"] != "post" and choices["norm"] == "fused"
    return choices["data_parallel"] in ("ddp", "megatron_fsdp") and before and not local


REGIONS: tuple[Region, ...] = (
    Region("layer", "rfull", (), "every layer keeps only its input", "korthikanti2022"),
    Region("core_attention", "rcore", ("core_attention", "softmax"),
           "core attention keeps its arguments", "korthikanti2022"),
    Region("mlp", "rmlp", ("activation", "down", "ffn_post_norm"), "the MLP keeps only its input", "megatron_core",
           again=("gate_up", "up", "activation", "down", "ffn_post_norm"),
           inside=("ffn_norm_statistics", "gate_up", "up"), norm=("ffn_norm",),
           behind=("ffn_norm", "ffn_norm_statistics")),
    Region("layernorm", "rnorm", ("latent_norm", "expert_norm"),
           "norms that stand alone keep only their input; what reads their output keeps nothing", "megatron_core"),
    Region("mla_up_proj", "rup", ("latent_up",),
           "latent attention keeps compressed queries, keys and values, not the heads", "megatron_core",
           again=("latent_q", "latent_up")),
    Region("moe_act", "ract", ("experts_product", "experts_down"),
           "routed experts keep the arguments of the activation", "megatron_core", again=("experts_activation",)),
    Region("shared_experts", "rshared", ("shared_gate_up", "shared_activation", "shared_down", "shared_gate"),
           "shared experts keep only their input", "megatron_core"),
    Region("moe", "rmoe",
           ("router", "dispatch", "experts_up", "experts_activation", "experts_product", "experts_down",
            "shared_gate_up", "shared_activation", "shared_down", "shared_gate"),
           "router and experts keep only their input", "megatron_core"),
)

#: The region that is a whole layer: its rows stand for the layer, not beside the others.
WHOLE_LAYER = "layer"

#: The combinations of switches that a user can ask for, by name.
MODES: dict[str, tuple[str, ...]] = {
    "none": (),
    "core_attention": ("rcore",),
    "mlp": ("rmlp",),
    "core_attention+mlp": ("rcore", "rmlp"),
    "full": ("rfull",),
}


def keep(component: Component, tensor: Tensor, choices: Mapping[str, str]) -> Expr:
    """Return a 0/1 expression in the recompute switches: whether the tensor is still kept."""
    if component.place not in IN_LAYER or tensor.role is not Role.ACTIVATION or tensor.checkpoint == WHOLE_LAYER:
        return Integer(1)
    factor: Expr = Integer(1)
    for region in REGIONS:
        switch = symbol(region.switch)
        if tensor.checkpoint == region.name:
            factor *= switch
        elif tensor.module in region.dropped(choices):
            factor *= 1 - switch
    return factor
