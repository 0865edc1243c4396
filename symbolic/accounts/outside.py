"""Peaks outside of a step: weights brought onto a rank, gathered to be saved, and an evaluation without gradients.

FSDP1 flattens one unit after another: all its parameters lie twice beside the shards of earlier ones. Accelerate sends
FSDP2 each parameter whole from the first rank, and a full state dict gathers one after another: two of them live at a
time. Both are exact where the ranks divide the rows of all matrices, and parameters are multiples of 16 bytes.
Megatron-Core reads a sharded checkpoint into the tensors of the rank. It has gate and up projections apart, which are
joined in new tensors before any of them is copied. To save, each rank copies its shards of states to the host, and of
the weights that ranks have alike those that fall to it: every weight, the largest first, falls to the rank that has
least so far. torchtitan loads into states that a step with gradients of zero has made, one chunk of layers after
another, and saves while the gradients of the step are still there. An evaluation computes logits of all tokens with any
loss; those of earlier batches stay if they are asked for, of all ranks together, and lie twice while the next ones are
appended.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from sympy import Expr, Integer, Symbol

from ..choices import SCORES
from ..dimensions import EXPERT_GATE_UP, GATE_UP_FEATURES, SHARED_GATE_UP
from ..functions import CeilDiv, Iverson, Max, pad_to
from ..implementations import Implementation
from ..ledger import Lifetime, Role
from ..parallel.data import bytes_per_element, gradients_are_freed, share_on_gpu, states
from ..parallel.deepspeed import compute_bytes
from ..parallel.groups import GROUPS, group_of
from ..parallel.optimizers import DEALT
from ..parallel.pipeline import instances
from ..parallel.weights import State
from ..parameters import symbols
from ..terms import TermSet, product, total
from .moments import deepspeed as deepspeed_moments
from .moments import frozen as frozen_moments
from .moments.frozen import units_of, weight_rows
from .rows import is_expert, kept_rows

b, c, eb, ek, s, h, L, D, De, shards, zero1, zero3 = symbols("b c eb ek s h L D De shards zero1 zero3")
_BF16 = Integer(2)
#: Bytes of an element of a matrix that are on the GPU while it is quantised: bitsandbytes brings it there in 16 bits,
#: of 8-bit ones beside the loaded matrix.
_QUANTISED = {"full": Integer(0), "nf4": Integer(2), "int8": Integer(4)}
#: Rows of weights that a sharded checkpoint has apart.
_APART = {GATE_UP_FEATURES, SHARED_GATE_UP, EXPERT_GATE_UP}
#: Choices of a plain forward pass.
_EVALUATED = {"loss": "huggingface", "peak": "saved"}


def add_outside(terms: TermSet, implementation: Implementation) -> None:
    """Add the peaks of rank r outside of a step, and what the host then keeps for the first rank."""
    if implementation.choices["loading"] == "none":
        return
    add_own = _OWN.get(implementation.choices["loading"])
    if add_own is not None:
        if _is_counted(implementation.choices):
            add_own(terms, implementation)
        return
    width = next(state.bytes for state in states(implementation.choices) if state.role is Role.WEIGHT)
    whole = product(width, terms["stage.all_parameters"].symbol)
    between = total(*(terms[f"stage.{name}"].symbol for name in ("weight", "optimizer", "buckets.buffer")
                      if f"stage.{name}" in terms))
    terms.add("stage.loading", _loading(terms, implementation, width), "bytes",
              "rank r while its weights are loaded, at most")
    terms.add("stage.saving", total(between, _sent(implementation, width)), "bytes",
              "rank r while whole weights are gathered for a checkpoint, at most")
    if implementation.choices["loss"] not in SCORES:  # without logits most is alive in a layer, which is not counted
        evaluated = total(between, _gathered(terms, implementation), _evaluated(terms, implementation))
        terms.add("stage.evaluating", evaluated, "bytes", "rank r in the loss of an evaluation, at most")
    terms.add("stage.whole_on_host", whole, "bytes", "the host, for whole weights that are loaded or saved")


def _is_counted(choices: Mapping[str, str]) -> bool:
    """Return True where sharded checkpoints are counted: those of adapters, Megatron-FSDP and FP8 weights are not."""
    return (choices["data_parallel"] != "megatron_fsdp" and choices["adapters"] == "none"
            and choices["fp8_weights"] == "copy" and choices["optimizer"] not in DEALT)


def _kept(terms: TermSet) -> Expr:
    """Weights, gradients and optimizer states of the rank."""
    return total(*(terms[f"stage.{name}"].symbol for name in ("weight", "gradient", "optimizer")))


def _add_sharded(terms: TermSet, implementation: Implementation) -> None:
    """Add what Megatron-Core's sharded checkpoint needs."""
    joined = terms.add("stage.joined", _joined(implementation), "bytes",
                       "rank r: gate and up projections joined as a sharded checkpoint is loaded; else on the host")
    terms.add("stage.loading", total(_kept(terms), joined), "bytes", "rank r while a sharded checkpoint is loaded")
    terms.add("stage.saving", _kept(terms), "bytes", "rank r while a sharded checkpoint is saved")
    if share_on_gpu(Role.OPTIMIZER, implementation.choices) == 1:
        terms.add("stage.saved_on_host", _written(terms, implementation), "bytes",
                  "the host, for what rank r writes into a sharded checkpoint, at most")


def _written(terms: TermSet, implementation: Implementation) -> Expr:
    """Return the rank's states with gaps between them, its part of what ranks have alike, and the largest of that."""
    choices, parts = implementation.choices, []
    for group in GROUPS:
        if f"stage.{group.prefix}parameters" in terms:
            kept, ranks = states(choices, group), De if group.expert else c * D
            own = product(bytes_per_element(kept, Role.OPTIMIZER), terms[f"stage.{group.prefix}buffer_elements"].symbol)
            alike = product(_alike(kept), terms[f"stage.{group.prefix}parameters"].symbol)
            parts.append(CeilDiv(total(zero1 * own, alike), ranks))
    roles = {Role.WEIGHT: Integer(1), Role.OPTIMIZER: 1 - zero1}
    widest = Max(*(roles[state.role] * state.bytes for state in states(choices) if state.role in roles))
    return total(*parts, widest * Max(*(_largest(implementation, inside) for inside in (True, False))))


def _alike(kept: tuple[State, ...]) -> Expr:
    """Bytes of an element that data-parallel ranks have alike: of its weight, and of states that are not shared out."""
    return bytes_per_element(kept, Role.WEIGHT) + (1 - zero1) * bytes_per_element(kept, Role.OPTIMIZER)


def _add_distributed(terms: TermSet, implementation: Implementation) -> None:
    """Add what PyTorch's distributed checkpoint needs as torchtitan uses it, where a step has no temporaries."""
    if implementation.choices["optimizer_kernel"] != "fused" or gradients_are_freed(implementation.choices):
        return
    terms.add("stage.loading", _kept(terms), "bytes",
              "rank r behind a step with gradients of zero, before its checkpoint is loaded, at most")
    terms.add("stage.saving", _kept(terms), "bytes", "rank r while its shards are saved, behind a step")
    if implementation.choices["loading"] == "distributed_copied":
        copied = total(*(terms[f"stage.{name}"].symbol for name in ("weight", "optimizer")))
        terms.add("stage.saved_on_host", copied, "bytes", "the host, for the copy of rank r's shards that is written")


#: How checkpoints of the programs that have own ones are loaded and saved.
_OWN: dict[str, Callable[[TermSet, Implementation], None]] = {
    "sharded": _add_sharded, "distributed": _add_distributed, "distributed_copied": _add_distributed,
}


def _largest(implementation: Implementation, inside: bool) -> Expr:
    """Return elements of the largest matrix inside of the layers, or of all others."""
    return Max(*{size for row in weight_rows(implementation, inside)
                 for size in units_of(row, implementation, True)})


def _sent(implementation: Implementation, width: Expr) -> Expr:
    """Where a rank has shards one whole parameter, beside the one before it."""
    shared = {"fsdp": Iverson(shards > 1), "deepspeed": zero3}.get(implementation.choices["data_parallel"], Integer(0))
    inner = _largest(implementation, True)
    return product(shared, width, Max(inner, _largest(implementation, False)) + inner)


def _loading(terms: TermSet, implementation: Implementation, width: Expr) -> Expr:
    choices = implementation.choices
    if choices["loading"] == "trainer":
        quantised = product(_QUANTISED[choices["base_weights"]], _largest(implementation, True))
        return total(terms["stage.weight"].symbol, _sent(implementation, width), quantised)
    every = terms["stage.all_parameters"].symbol
    if choices["loading"] == "fsdp1_whole":
        return product(width, total(CeilDiv(every, shards), every, pad_to(every, shards)))
    layer = total(*(terms[name].symbol for name in ("layer.parameters", "layer.frozen_parameters") if name in terms))
    ends, kept = every - L * layer, L * CeilDiv(layer, shards)
    return product(width, Max(kept + layer + pad_to(layer, shards),
                              kept + CeilDiv(ends, shards) + ends + pad_to(ends, shards)))


def _joined(implementation: Implementation) -> Expr:
    """Gate and up projections, once more; where states are not shared out they are laid out as weights are."""
    choices, sizes = implementation.choices, []
    for row in kept_rows(implementation):
        if row.tensor.role is not Role.WEIGHT or _APART.isdisjoint(row.tensor.shape):
            continue
        kept = states(choices, group_of(row.component, row.tensor, is_expert(row.tensor), choices))
        weight, optimizer = (bytes_per_element(kept, role) for role in (Role.WEIGHT, Role.OPTIMIZER))
        each = weight + (1 - zero1) * share_on_gpu(Role.OPTIMIZER, choices) * optimizer
        sizes.append(product(each, instances(row.component.place, choices), row.expression))
    return total(*sizes)


def _gathered(terms: TermSet, implementation: Implementation) -> Expr:
    """Return parameters that are gathered while a layer works."""
    kind = implementation.choices["data_parallel"]
    gathered = {"fsdp": frozen_moments, "deepspeed": deepspeed_moments}.get(kind)
    return gathered.gathered(terms, implementation) if gathered is not None else Integer(0)


def _evaluated(terms: TermSet, implementation: Implementation) -> Expr:
    """Logits, their fp32 copy and log-softmax, labels and hidden states, beside the logits of earlier batches."""
    rows = [row for row in kept_rows(implementation.with_choices(**_EVALUATED))
            if row.component.name == "loss" and (
                row.tensor.lifetime is Lifetime.ONCE or "loss_forward" in row.tensor.sites)]
    batch: dict[Symbol, Symbol] = {b: eb}
    logits = next(row for row in rows if row.tensor.name == "returned_logits").expression.xreplace(batch)
    width = compute_bytes(implementation.choices["precision"])
    loss = total(*(row.expression.xreplace(batch) for row in rows), product(width, s, eb, h))
    earlier = product(D, logits)
    return Max(loss + Max(Integer(0), ek - 1) * earlier, 2 * ek * earlier)
