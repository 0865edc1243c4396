"""Transients whose size is a sum of other terms: a recomputed layer, gathered parameters, temporaries of a step."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache

from sympy import Expr

from ..axis import fits
from ..choices import BY_NAME, MEGATRON_PEAKS
from ..components.quantised import EVERY as QUANTISED
from ..dimension import ONE
from ..expert_layers import FLEX
from ..functions import Max
from ..implementations import Implementation
from ..ledger import SITES, Held, Role
from ..parallel.data import bytes_per_element, states
from ..parallel.groups import GROUPS
from ..parallel.optimizers import DEALT
from ..parallel.pipeline import chunks
from ..parallel.schedules import SCHEDULES, SPLIT_BACKWARD
from ..parameters import symbols
from ..sources import BY_KEY
from ..systems import SYSTEMS
from ..systems.system import Transient
from ..terms import TermSet, product, total
from . import dealt, expert_layers
from .moments import autocast as autocast_moments
from .moments import balance as balance_moments
from .moments import combined as combined_moments
from .moments import deepspeed as deepspeed_moments
from .moments import experts as expert_moments
from .moments import frozen as frozen_moments
from .moments import megatron as megatron_moments
from .moments import megatron_fsdp as megatron_fsdp_moments
from .moments import nanotron as nanotron_moments
from .moments import quantised as quantised_moments
from .pytorch import gathered as torch_gathered
from .pytorch import gradients as torch_gradients
from .pytorch import pipeline as torch_pipeline
from .pytorch import temporaries as torch_temporaries
from .recomputed import recomputed_layer

rfull, Lr = symbols("rfull Lr")


@dataclass(frozen=True, eq=False)
class Aggregate:
    """One transient of rank r that is not a single tensor.

    ``size`` makes its expression from the terms that exist already; ``options`` restricts it to
    implementations that chose one of the given variants. ``walked`` are tensors that live on from earlier points of a
    step, so that whoever walks through it meets them there. ``pieces`` says how many tensors of one size they are.
    ``role`` is that of tensors which are held for a longer time, and of which this counts those that are left.
    """

    name: str
    title: str
    sites: tuple[str, ...]
    size: Callable[[TermSet, Implementation], Expr]
    source: str
    options: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    walked: bool = False
    pieces: Expr = ONE
    role: Role = Role.TRANSIENT

    def __post_init__(self) -> None:
        """Refuse an aggregate that cites nothing."""
        if self.source not in BY_KEY:
            raise ValueError(f"aggregate {self.name}: unknown source {self.source!r}")


def _awaiting_weight(terms: TermSet, implementation: Implementation) -> Expr:
    """Return the gradients that zero bubble keeps: those of the chunks between both halves of their backward pass.

    One of several moments of a schedule is the peak; each has its own numbers of chunks in flight and waiting.
    """
    choices = implementation.choices
    schedule = SCHEDULES[choices["schedule"]]
    chunk = Lr / chunks(choices)
    kinds = [layer for layer in ("layer", "expert_layer") if f"{layer}.saved" in terms]
    saved = Max(*(terms[f"{layer}.saved"].symbol for layer in kinds))
    gradients = Max(*(terms[f"{layer}.output_gradients"].symbol for layer in kinds))
    return Max(*(
        chunk * ((in_flight - schedule.in_flight) * saved * (1 - rfull) + awaiting * gradients)
        for in_flight, awaiting in schedule.peaks
    ))


def _gradient_copies(terms: TermSet, implementation: Implementation) -> Expr:
    """Return copies of gradients that the optimizer step makes for the states that the rank updates."""
    if implementation.choices["optimizer"] in DEALT:
        return product(bytes_per_element(states(implementation.choices), Role.TRANSIENT), terms[dealt.UPDATED].symbol)
    return total(*(
        product(bytes_per_element(states(implementation.choices, group), Role.TRANSIENT),
                terms[f"stage.{group.prefix}shard_elements"].symbol)
        for group in GROUPS if not group.frozen and f"stage.{group.prefix}shard_elements" in terms
    ))


def _of_system(item: Transient) -> Aggregate:
    return Aggregate(item.name, item.title, item.sites,
                     lambda terms, implementation: item.size(terms, implementation.choices), item.source, item.options)


#: Moments of the schedule's loop in any model, those of parameters that are shared out, and those of experts.
_DURING = ("after_forward", "loss_forward", "loss_backward", "head_backward", "stage_exchange", "layer_backward",
           "embedding_backward")
_OF_FSDP = ("backward_start", "head_reduce", "last_reduce")
_OF_EXPERTS = tuple(name for name in SITES if name not in {*_DURING, *_OF_FSDP, "optimizer_step"})
_LAYERS_OF_EXPERTS = tuple(name for name in _OF_EXPERTS if SITES[name].held is Held.LAYERS)

#: Transformer Engine's optimizer reads gradients of any width; the others copy 16-bit ones.
_WITH_COPIES = tuple(name for name in BY_NAME["optimizer"].options if name != "precision_aware")

AGGREGATES: tuple[Aggregate, ...] = (
    *(_of_system(item) for system in SYSTEMS for item in system.transients),
    *(Aggregate("recomputed_layer", "Layer recomputed from its input", ("layer_backward",), recomputed_layer,
                "korthikanti2022", {"recompute_method": ("each", "block", "every"), **options})
      for options in ({"peak": BY_NAME["peak"].without("torch")},
                      *({"layers": ("dense",), "peak": ("torch",), **apart} for apart in torch_gathered.NOT_UNITS))),
    Aggregate("recomputed_group", "Layers recomputed from one input", ("layer_backward",), recomputed_layer,
              "megatron_core", {"recompute_method": ("uniform",)}),
    Aggregate("awaiting_weight", "Output gradients kept for weight-backward passes",
              ("after_forward", "layer_backward"), _awaiting_weight, "pytorch", {"schedule": SPLIT_BACKWARD}),
    *(
        Aggregate(name, title, sites, size, "pytorch", options, False, *pieces)
        for name, title, sites, size, options, *pieces in torch_gradients.SIZES
    ),
    *(
        Aggregate(name, title, sites, size, "pytorch", {"peak": ("torch",), **options})
        for moments in (torch_gathered, torch_pipeline, torch_temporaries)
        for name, title, sites, size, options in moments.SIZES
    ),
    *(
        Aggregate(name, title, sites, size, "deepspeed", options, walked)
        for moments, walked in ((deepspeed_moments.SIZES, False), (deepspeed_moments.OF_STEP, True))
        for name, title, sites, size, options in moments
    ),
    *(
        Aggregate(name, title, sites, size, "megatron_fsdp", options)
        for name, title, sites, size, options in megatron_fsdp_moments.SIZES
    ),
    *(
        Aggregate(name, title, sites, size, "transformers", options)
        for name, title, sites, size, options in balance_moments.SIZES
    ),
    *(
        Aggregate(name, title, sites, size, "megatron_core", options)
        for name, title, sites, size, options in combined_moments.SIZES
    ),
    *(Aggregate(*item) for moments in (frozen_moments, autocast_moments) for item in moments.SIZES),
    *(
        Aggregate(name, title, sites, size, "nanotron", {"data_parallel": ("torch_ddp",)}, walked, *more)
        for name, title, sites, size, walked, *more in nanotron_moments.SIZES
    ),
    Aggregate("gradient_copies", "fp32 copies of bf16 gradients", ("optimizer_step",), _gradient_copies,
              "megatron_core", {"precision": ("mixed", "fp16"), "optimizer": _WITH_COPIES,
                                "data_parallel": ("ddp", "megatron_fsdp")}),
    Aggregate("listed_roots", "Roots of second moments, of all matrices at once", ("optimizer_step",),
              megatron_moments.listed_roots, "pytorch",
              {"optimizer_kernel": ("foreach",), "peak": ("megatron_local",)}),
    Aggregate("gathered_updates", "Updated parameters of all ranks, and the rank's own in one piece",
              ("optimizer_step",), dealt.gathered, "megatron_core", {"optimizer": DEALT}),
    *(Aggregate("sent_gradient", "Gradient that the rank has sent", sites, megatron_moments.sent_gradient,
                "megatron_training", {"peak": MEGATRON_PEAKS, "layers": (layers,)})
      for layers, sites in (("dense", _DURING), ("experts", (*_DURING, *_OF_EXPERTS)))),
    Aggregate("received_gradient", "Gradient that the rank has received", ("experts_forward",),
              megatron_moments.received_gradient, "megatron_training",
              {"peak": MEGATRON_PEAKS, "layers": ("experts",)}),
    *(Aggregate("input_before", "Input of the micro-batch before", sites, megatron_moments.input_before,
                "megatron_training", {"peak": MEGATRON_PEAKS, "layers": (layers,),
                                      "schedule": megatron_moments.BOUND_INPUTS})
      for layers, sites in (("dense", ("loss_forward",)), ("experts", ("loss_forward", "experts_forward")))),
    *(Aggregate(name, title, sites, size, "megatron_core", {
        "peak": MEGATRON_PEAKS, "layers": ("experts",), "recompute_method": ("each", "block", "every", "uniform")})
      for name, title, sites, size in (
          ("recomputed_experts", "Layer with experts recomputed from its input",
           ("combine_backward", "experts_backward"), expert_moments.recomputed_experts),
          ("recomputed_results", "Layer with experts while it is recomputed", ("experts_forward",),
           expert_moments.recomputed_results),
      )),
    *(Aggregate(name, title, sites, size, "megatron_core",
                {"peak": MEGATRON_PEAKS, "layers": ("experts",), "recompute_method": ("each",)}, walked=True)
      for name, title, sites, size in (
          ("bound_behind", "Gradients that recomputed layers with experts hold",
           ("experts_forward", "combine_backward", "experts_backward"), expert_layers.bound_behind),
          ("bound_at_first", "Inputs and gradients that recomputed layers with experts hold, all of them",
           ("embedding_backward",), expert_layers.bound_at_first),
          ("bound_in_the_end", "Inputs and gradients that recomputed layers with experts hold until the next step",
           ("optimizer_step",), expert_layers.bound_in_the_end),
      )),
    Aggregate("dense_behind", "Dense layers behind the last one with experts, which hold nothing",
              ("experts_forward", "combine_backward", "experts_backward"), expert_layers.dense_behind, "megatron_core",
              {"peak": MEGATRON_PEAKS, "layers": ("experts",)}, walked=True),
    Aggregate("combined_results", "Results of routed and shared experts, added", ("experts_forward",),
              expert_moments.combined_results, "megatron_core",
              {"peak": ("megatron_te",), "layers": ("experts",), "dispatch": ("alltoall",)}, walked=True),
    *(Aggregate(name, title, (site,), size, "transformer_engine", {
        "peak": ("megatron_te",), "layers": ("experts",), "dispatch": ("alltoall", *FLEX), "fp8": QUANTISED})
      for name, title, site, size in (
          ("quantised_inputs", "16-bit inputs of FP8 products of experts", "experts_forward",
           quantised_moments.expert_inputs),
          ("quantised_gradients", "Gradients in experts, 16-bit and in FP8", "experts_backward",
           quantised_moments.expert_gradients),
      )),
    Aggregate("last_input", "Inputs of the last micro-batch", ("optimizer_step",), megatron_moments.last_input,
              "megatron_training", {"peak": MEGATRON_PEAKS}),
    Aggregate("exchanged", "Output sent, gradients received", ("stage_exchange",), megatron_moments.exchanged,
              "megatron_training", {"peak": MEGATRON_PEAKS}),
    Aggregate("mlp_gradients", "Gradients in the MLP", ("layer_backward",), megatron_moments.mlp_gradients,
              "transformer_engine", {"peak": MEGATRON_PEAKS}),
    Aggregate("recomputed_mlp", "Recomputed MLP", ("layer_backward",), megatron_moments.recomputed_mlp,
              "megatron_training", {"peak": MEGATRON_PEAKS}),
    *(Aggregate("fuller_chunks", "Layers that other chunks have more than the last", sites,
                megatron_moments.fuller_chunks, "megatron_core",
                {"stages": ("uneven",), "schedule": ("interleaved",), **options}, walked=True)
      for sites, options in (
          (("layer_backward",), {"peak": ("saved",)}),
          (("stage_exchange", "layer_backward"), {"peak": MEGATRON_PEAKS, "layers": ("dense",)}),
          (("stage_exchange", "layer_backward", *_LAYERS_OF_EXPERTS), {"peak": MEGATRON_PEAKS, "layers": ("experts",)}),
      )),
    Aggregate("waiting_losses", "Losses of waiting micro-batches", ("head_backward",), megatron_moments.waiting_losses,
              "megatron_training", {"peak": MEGATRON_PEAKS}, walked=True, role=Role.ACTIVATION),
    Aggregate("waiting_activations", "Activations of waiting micro-batches", ("embedding_backward",),
              megatron_moments.waiting_activations, "megatron_training", {"peak": MEGATRON_PEAKS}, walked=True,
              role=Role.ACTIVATION),
)


@cache
def aggregates_of(implementation: Implementation) -> tuple[Aggregate, ...]:
    """Return the aggregates that ``implementation`` has."""
    return tuple(
        item for item in AGGREGATES
        if fits(item.options, implementation.choices)
    )
