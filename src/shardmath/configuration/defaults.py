"""Defaults that depend on the model: one place for accounts, tables, sweeps, spaces and calibrations."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from shardmath.configuration.fields import SEQ_LENGTH
from shardmath.configuration.model_classes import missing
from shardmath.generated.definitions import ARCHITECTURE, IMPLEMENTATIONS, UNTIMED

if TYPE_CHECKING:
    from shardmath.compiler.evaluators import Evaluator
    from shardmath.models.model import Model

#: Switches that hide the traffic of data parallelism: of gradients beside the backward pass, of weights beside the
#: forward pass.
GRADIENTS_AHEAD, WEIGHTS_AHEAD = "overlap_grad_reduce", "overlap_param_gather"
#: Those, and the switch that hides the traffic of tensor parallelism.
OVERLAPS = (GRADIENTS_AHEAD, WEIGHTS_AHEAD, "tp_comm_overlap")


def impossible_overlaps(
    evaluator: Evaluator, usual: Mapping[str, int], chosen: Collection[str], values: Mapping[str, int],
) -> dict[str, int]:
    """Return the switches that are on by default alone and that a run cannot have, each with 0.

    ``usual`` has all switches by name, ``chosen`` names those that somebody set, ``values`` are the job's. A single
    bucket has nothing to overlap, and nanotron has none where it shares out optimizer states. Where a run may share
    them out, weights are gathered by the buckets of the gradients if it does.
    """
    none = evaluator.choices["data_parallel"] == "torch_ddp" and values["distributed_optimizer"]
    single = GRADIENTS_AHEAD not in chosen and (values["single_bucket"] or none)
    reduced = usual[GRADIENTS_AHEAD] and not single
    shared = values["distributed_optimizer"] or "distributed_optimizer" in evaluator.fixed
    alone = WEIGHTS_AHEAD not in chosen and not (reduced and shared)
    return dict.fromkeys([GRADIENTS_AHEAD] * bool(single) + [WEIGHTS_AHEAD] * alone, 0)


def default_seq_length(model: Model | None) -> int:
    """Return tokens of a sequence of ``model``: no more than its table of learned positions has rows for."""
    if model is None or not model.learned_positions:
        return SEQ_LENGTH
    return min(SEQ_LENGTH, model.max_seq_length or model.learned_positions)


def default_implementation(model: Model | None) -> str:
    """Return the first implementation that has the architecture of ``model``; the first of all where none has.

    Megatron-Core without a step time comes last.
    """
    if model is None:
        return next(iter(IMPLEMENTATIONS))
    untimed = any(option in UNTIMED.get(axis, {}) for axis, option in model.bridge_kernels.items())
    having = [name for name in IMPLEMENTATIONS if has_architecture(name, model)] or list(IMPLEMENTATIONS)
    return min(having, key=lambda name: untimed and name == "megatron")


def has_architecture(implementation: str, model: Model) -> bool:
    """Tell whether layers as those of ``model`` are counted in an implementation."""
    allowed = IMPLEMENTATIONS[implementation]["allowed"]
    parts = {**{axis: model.architecture[axis] for axis in ARCHITECTURE}, "biases": model.biases}
    return (all(option in allowed.get(axis, (option,)) for axis, option in parts.items())
            and not missing(implementation, model))
