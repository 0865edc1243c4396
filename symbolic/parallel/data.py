"""Data parallelism: what a rank keeps for each parameter, and which ranks share it out (ZeRO)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from math import prod

from sympy import Eq, Expr, Integer, Le

from ..choices import trains_copies
from ..functions import Iverson, pad_to
from ..ledger import Role
from ..parameters import symbols
from ..systems import SYSTEMS
from . import deepspeed
from .fp8 import fp8_states, fp8_weight
from .groups import GROUPS, Group
from .int8 import int8_states
from .mesh import SAME_SEQUENCES
from .nf4 import nf4_states
from .optimizers import ANY_WIDTH, WHOLE_TENSORS, optimizer_states
from .weights import State, Weight, of_adapters, of_routers

D, c, t, e, et, p, E, R, w, wm, De, tied = symbols("D c t e et p E R w wm De tied")
zero1, zero2, zero3, shards, eshards, rfull = symbols("zero1 zero2 zero3 shards eshards rfull")

#: 1 if the head is the embedding itself.
TIED = tied * Iverson(Le(p, 1))
#: Elements to which a parameter's start is aligned in the buffers of the distributed optimizer.
START_ALIGNMENT = Integer(64)
#: The end of a buffer is padded to the least common multiple of this and the number of shards.
END_ALIGNMENT = Integer(128)


_FP32: tuple[State, ...] = (
    State("weight", Role.WEIGHT, Integer(4), "fp32 weight", "pytorch"),
    State("gradient", Role.GRADIENT, Integer(4), "fp32 gradient", "pytorch"),
)
#: Weights, gradients and master weights of each precision; the optimizer's own states follow.
PRECISIONS: dict[str, tuple[State, ...]] = {
    "mixed": (
        State("weight", Role.WEIGHT, Integer(2), "bf16 weight", "megatron_core"),
        State("main_gradient", Role.GRADIENT, w, "gradient, fp32 or bf16", "megatron_core"),
        State("master_weight", Role.OPTIMIZER, Integer(4), "fp32 master weight", "megatron_core"),
        # Made by the optimizer step and freed when the next one sets gradients to zero, before its forward pass.
        State("gradient_fp32", Role.TRANSIENT, 4 * Iverson(Eq(w, 2)),
              "fp32 copy of bf16 gradients, at the optimizer step", "megatron_core"),
    ),
    "bf16": (
        State("weight", Role.WEIGHT, Integer(2), "bf16 weight", "pytorch"),
        State("gradient", Role.GRADIENT, Integer(2), "bf16 gradient", "pytorch"),
    ),
    "autocast": _FP32,
    "fp32": _FP32,
    "fp16": (
        State("weight", Role.WEIGHT, Integer(2), "fp16 weight", "megatron_core"),
        State("main_gradient", Role.GRADIENT, w, "gradient, fp32 or fp16", "megatron_core"),
        State("master_weight", Role.OPTIMIZER, Integer(4), "fp32 master weight", "megatron_core"),
        State("gradient_fp32", Role.TRANSIENT, 4 * Iverson(Eq(w, 2)),
              "fp32 copy of fp16 gradients, at the optimizer step", "megatron_core"),
    ),
}

#: Transformer Engine's optimizer keeps it instead of a master weight, and reads gradients of any width.
_REMAINDER = State("master_weight", Role.OPTIMIZER, wm,
                   "lower half of an fp32 master weight whose upper half is the weight, or a whole one",
                   "transformer_engine")


def states(choices: Mapping[str, str], group: Group = GROUPS[0]) -> tuple[State, ...]:
    """Return all that a rank keeps for the parameters of a group under these choices."""
    if group.frozen or choices["adapter_precision"] == "low":
        own = _states(choices, group)
    elif trains_copies(choices):
        low = _states(choices, group)
        own = (*low, *_more_in_fp32(low, _states(_in_fp32(choices), group), of_adapters, "an adapter"))
    else:
        own = _states(_in_fp32(choices), group)
    if choices["router_weights"] == "as_others":
        return own
    return (*own, *_more_in_fp32(own, _states(_in_fp32(choices), group), of_routers, "a router"))


def _in_fp32(choices: Mapping[str, str]) -> dict[str, str]:
    return {**choices, "precision": "autocast"}


#: The start of the names of states that weights in fp32 have besides.
WIDE = "wide_"


def _more_in_fp32(
    narrow: tuple[State, ...], wide: tuple[State, ...], count: Callable[[Weight], Expr], noun: str,
) -> Iterator[State]:
    """Yield what the states of weights in fp32, those that ``count`` counts, have more than those of all others."""
    of_all = {state.name: state for state in narrow}
    for state in wide:
        if (more := state.bytes - of_all[state.name].bytes) != 0:
            yield replace(state, name=f"{WIDE}{state.name}", bytes=more, count=count,
                          meaning=f"{state.meaning} of {noun}: the bytes beyond those of all others")


def _states(choices: Mapping[str, str], group: Group) -> tuple[State, ...]:
    precision = PRECISIONS[choices["precision"]]
    if choices["data_parallel"] == "fsdp" and choices["precision"] == "mixed":
        precision = _FP32  # of the shards; bf16 copies are made of them when they are gathered
    if choices["data_parallel"] == "deepspeed":
        precision = deepspeed.states_in(choices["precision"])
    if group.frozen:
        kept = fp8_weight(choices) if group.fp8 else tuple(state for state in precision if state.role is Role.WEIGHT)
        if choices["base_weights"] == "full":
            return (*kept, *fp8_states(choices))
        if choices["base_weights"] == "int8":
            return int8_states(kept)
        stays = deepspeed.persisted if choices["data_parallel"] == "deepspeed" else None
        return nf4_states(kept, choices["data_parallel"], stays)
    if choices["optimizer"] == "precision_aware":
        precision = (*(state for state in precision if state.role in (Role.WEIGHT, Role.GRADIENT)), _REMAINDER)
    if group.fp8:
        precision = (*fp8_weight(choices), *(state for state in precision if state.role is not Role.WEIGHT))
    if choices["data_parallel"] == "torch_ddp":
        precision = (*precision, _bucket(precision))
    if reduces_in_buckets(choices):
        precision = (*precision, _torch_bucket(precision))
    of_optimizer = optimizer_states(choices)
    if choices["data_parallel"] == "deepspeed":
        of_optimizer = deepspeed.in_parts(of_optimizer)
    of_systems = (state for system in SYSTEMS for state in system.states(choices))
    return (*precision, *fp8_states(choices), *of_optimizer, *of_systems)


def _bucket(kept: tuple[State, ...]) -> State:
    """DistributedDataParallel reduces gradients in buckets of their own, as wide as weights.

    Buckets exist with more than one rank and unsharded states: with ZeRO-1 nanotron reduces its fp32 buffer itself
    (``DistributedTrainer._init_model``, ``make_ddp``).
    """
    size = bytes_per_element(kept, Role.WEIGHT) * Iverson(D > 1) * (1 - zero1)
    return State("bucket", Role.GRADIENT, size, "bucket in which gradients are reduced", "nanotron")


def reduces_in_buckets(choices: Mapping[str, str]) -> bool:
    """Return True if PyTorch's DistributedDataParallel copies the gradients of a whole model into its buckets.

    It does not where ranks have experts of their own.
    """
    own = choices["data_parallel"] == "ddp" and choices["precision"] in ("bf16", "autocast", "fp32")
    return own and choices["dispatch"] != "huggingface_sent"


#: 1 where Transformers' trainer lets DistributedDataParallel look for unused parameters: if nothing is recomputed.
SEEKS_UNUSED = Iverson(D > 1) * (1 - rfull)


def _torch_bucket(kept: tuple[State, ...]) -> State:
    """Buckets are as wide as weights and live as long as the model, beside gradients that come and go with a step."""
    size = bytes_per_element(kept, Role.WEIGHT) * Iverson(D > 1)
    return State("bucket", Role.BUFFER, size, "bucket of DistributedDataParallel, to which the gradient is copied",
                 "pytorch")


def gradients_are_made(choices: Mapping[str, str]) -> bool:
    """Return True if gradients exist from the backward pass to the end of a step only, in no lasting buffer."""
    alone = choices["data_parallel"] in ("fsdp", "deepspeed") or choices["precision"] != "mixed"
    own_step = choices["peak"] == "torch" and alone
    return own_step or gradients_are_freed(choices)


def gradients_are_freed(choices: Mapping[str, str]) -> bool:
    """Return True if the backward pass itself frees every gradient, with which it updates a parameter."""
    return any(system.gradients_freed(choices) for system in SYSTEMS)


#: Ranks that share out all but the routed experts.
SHARDS = D * c / (R * SAME_SEQUENCES)
#: Ranks that hold the same routed experts: those of the stage that are left beside EP and expert TP.
EXPERT_DATA_PARALLEL = D * c * t / (e * et)


def definitions(choices: Mapping[str, str]) -> dict[str, Expr]:
    """Return the derived symbols of data parallelism, in computing order.

    The states are shared out over data times context parallelism, in as many groups as there are replicas.
    """
    formulas = {"shards": _over(zero1, SHARDS)}
    if choices["layers"] == "experts":
        # Without expert parallelism Megatron-Core lays experts into the buffer of all other parameters.
        ranks = De if choices["data_parallel"] == "fsdp" else Iverson(e > 1) * De + Iverson(Eq(e, 1)) * D * c
        formulas |= {"De": EXPERT_DATA_PARALLEL, "eshards": _over(zero1, ranks / R)}
    return formulas


def _over(switch: Expr, ranks: Expr) -> Expr:
    return Integer(1) + switch * (ranks - 1)


def sharing_ranks(role: Role, fixed: Mapping[str, int], expert: bool) -> Expr:
    """Get the number of ranks that share the states of a role: the optimizer's with ZeRO-1, gradients 2, weights 3."""
    if role is Role.OPTIMIZER:
        return eshards if expert else shards
    switch = {Role.GRADIENT: "zero2", Role.WEIGHT: "zero3"}[role]
    ranks = De / R if expert else SHARDS.xreplace({
        degree: Integer(fixed[degree.name]) for degree in SAME_SEQUENCES.free_symbols if degree.name in fixed})
    return _over(Integer(fixed[switch]) if switch in fixed else {"zero2": zero2, "zero3": zero3}[switch], ranks)


def fixed_by_choices(choices: Mapping[str, str]) -> dict[str, int]:
    """Return the letters fixed by a precision, an optimizer, a kind of data parallelism or a system."""
    gradient = next(state.bytes for state in PRECISIONS[choices["precision"]] if state.role is Role.GRADIENT)
    fsdp = choices["data_parallel"] == "fsdp"
    sums_wider = fsdp and choices["precision"] == "bf16"  # or not, as its mixed precision says
    fixed = {"w": int(gradient)} if gradient.is_Integer and not sums_wider else {}
    if fsdp:
        fixed |= {"zero1": 1, "zero2": 1, "zero3": 1}
    elif choices["optimizer"] in WHOLE_TENSORS and choices["data_parallel"] != "deepspeed":
        fixed["zero1"] = 0
    elif choices["optimizer"] in ANY_WIDTH or choices["data_parallel"] == "megatron_fsdp":
        fixed["zero1"] = 1
    for system in SYSTEMS:
        fixed |= system.fixed(choices)
    return fixed


#: 1 if expert parallelism and the ranks that share experts out are more than there are experts (torchtitan's
#: ``apply_fsdp``).
SECOND_CUT = Iverson(e > 1) * Iverson(e * De / R > E)


def aligned(
    shape: tuple[Expr, ...], choices: Mapping[str, str], ranks: Expr, expert: bool = False
) -> Expr:
    """Return a parameter's elements: aligned in one buffer, its first dimension padded, or as slices.

    nanotron cuts every parameter into one slice of optimizer states a rank, of which the first are one element longer
    where it cannot be divided (``ZeroDistributedOptimizer._partition_parameters``). Of experts torchtitan
    cuts the second dimension, which then must divide, where their ranks are more than they.
    """
    elements: Expr = Integer(1)
    for size in shape:
        elements *= size
    if choices["data_parallel"] == "fsdp":
        first = pad_to(shape[0], ranks) * elements / shape[0]
        return (1 - SECOND_CUT) * first + SECOND_CUT * elements if expert else first
    if choices["data_parallel"] == "megatron_fsdp":
        return elements  # padded with its whole bucket
    if choices["data_parallel"] in ("torch_ddp", "deepspeed"):
        return pad_to(elements, ranks)
    return pad_to(elements, START_ALIGNMENT)


def buffer_elements(
    parameters: Expr, aligned_parameters: Expr, choices: Mapping[str, str], ranks: Expr, frozen: bool, before: Expr
) -> Expr:
    """Return the padded elements of a rank's parameters, one by one or in a buffer of DeepSpeed's.

    There routed experts lie behind all others, of which there are ``before``.
    """
    if choices["data_parallel"] == "deepspeed":
        return deepspeed.buffer_elements(parameters, aligned_parameters, ranks, frozen, before)
    return parameters if choices["data_parallel"] == "torch_ddp" else aligned_parameters


def shard_shape(shape: tuple[Expr, ...], choices: Mapping[str, str], ranks: Expr) -> tuple[Expr, ...]:
    """Return the sizes of the largest shard of a parameter: FSDP2 cuts the first dimension, DDP nothing."""
    if choices["data_parallel"] == "fsdp":
        return (pad_to(shape[0], ranks) / ranks, *shape[1:])
    return shape


def share_on_gpu(role: Role, choices: Mapping[str, str]) -> Expr:
    """Return the share of the states of a role that stays on the GPU."""
    return prod((system.share(role, choices) for system in SYSTEMS), start=Integer(1))


def gradients_stay(choices: Mapping[str, str]) -> bool:
    """Return True if reduced gradients wait on the GPU for the optimizer step."""
    return not gradients_are_freed(choices) and share_on_gpu(Role.GRADIENT, choices) != 0


def bytes_per_element(kept: tuple[State, ...], role: Role) -> Expr:
    """Bytes kept for every element in one role, before they are shared out."""
    return sum((state.bytes for state in kept if state.role is role and state.count is None), Integer(0))


def are_apart(choices: Mapping[str, str]) -> Expr:
    """Return 1 where embedding, and final norm with head, are two units of FSDP2; 0 where one unit has all of them."""
    return {"root": Integer(0), "ends": 1 - TIED, "apart": Integer(1)}[choices["units"]]
