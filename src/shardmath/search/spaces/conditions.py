"""The constraints of a part: those that follow from its axes and derived symbols, and the declared ones."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from shardmath.configuration.settings import OFFLOADED
from shardmath.errors import InputError
from shardmath.search.spaces.axes import axis_of
from shardmath.search.spaces.candidates import DivisorsOf
from shardmath.search.spaces.declared import Axis, Constraint, Space
from shardmath.search.spaces.deriving import Derived
from shardmath.search.spaces.texts import Texts, names_in, names_written

if TYPE_CHECKING:
    from shardmath.search.spaces.texts import Formula

#: The rules of ``shardmath.models.rules`` for shapes that are no model's: the symbol to blame, and the condition. Which
#: formulas are needed (experts, latent attention) is decided before.
SHAPE_RULES = (
    ("num_kv_heads", "divides(num_kv_heads, num_attention_heads)"),
    ("qkv_bias", "qkv_bias >= linear_bias"),
    ("moe_topk", "num_experts == 0 and moe_topk == 0 or 1 <= moe_topk <= num_experts"),
    ("moe_ffn_hidden_size", "(moe_ffn_hidden_size == 0) == (num_experts == 0)"),
    ("shared_expert_ffn_hidden_size", "num_experts > 0 or shared_expert_ffn_hidden_size == 0"),
    ("shared_expert_gate", "shared_expert_gate == 0 or shared_expert_ffn_hidden_size > 0"),
    ("expert_groups", "expert_groups == 0 or num_experts > 0 and divides(max(expert_groups, 1), num_experts)"),
    ("expert_group_topk", "(expert_group_topk == 0) == (expert_groups == 0) and expert_group_topk <= expert_groups"),
    ("expert_group_topk", "expert_group_topk * num_experts >= moe_topk * expert_groups"),
    ("moe_layer_step", "moe_layer_step <= (num_layers if num_experts > 0 else 1)"),
    ("first_dense_layers",
     "first_dense_layers < (num_layers - num_layers % moe_layer_step if num_experts > 0 else 1)"),
    ("q_lora_rank", "kv_lora_rank > 0 or q_lora_rank == 0"),
    ("qk_rope_head_dim", "qk_rope_head_dim < head_dim and (kv_lora_rank == 0 or qk_rope_head_dim > 0)"),
    ("v_head_dim", "(v_head_dim == 0) == (kv_lora_rank == 0)"),
    ("num_kv_heads", "kv_lora_rank == 0 or num_kv_heads == num_attention_heads"),
    ("qkv_bias", "kv_lora_rank == 0 or qkv_bias == 0"),
    ("qk_norm", "kv_lora_rank == 0 or qk_norm == 0"),
    ("num_mtp_layers", "num_experts > 0 or num_mtp_layers == 0"),
)
#: The name of the constraint that keeps what is offloaded within the memory of hosts, and of that memory.
HOST = "host_memory"
#: Asked for where a space names a stage.
_RANK = Constraint("pipeline_rank", "pipeline_rank < pipeline_parallel", automatic=True)


def constraints_of(
    space: Space, texts: Texts, axes: Sequence[Axis], derived: Derived, without: Sequence[Constraint],
    rules: Sequence[str],
) -> tuple[Constraint, ...]:
    """Return all constraints of a part, automatic ones first; ``rules`` are the names of the evaluator's rules.

    Raises InputError for a condition that cannot be read, that has the name of another one, or that no candidate
    meets, as far as one axis alone decides it.
    """
    values = _Values(texts, axes, derived)
    automatic = [
        Constraint(name, f"divides({name}, {declared.symbol})", automatic=True)
        for name, declared in space.axes.items()
        if isinstance(declared, DivisorsOf) and axis_of(declared.symbol, space) is not None
    ]
    automatic = _merged([*automatic, *derived.constraints, *_of_shape(space, texts, values), *without])
    usual = derived.formulas.keys() - space.derived.keys()
    for constraint in automatic:
        node = texts.condition(constraint.name, constraint.text)
        if constraint.name in space.derived:
            texts.refuse_unsafe(constraint.name, space.derived[constraint.name], node, derived.bounds)
        if constraint.name not in usual and values.impossible(node) is not None:
            shown = space.shown(constraint.name) or derived.fixed.get(constraint.name, constraint.text)
            raise InputError(constraint.name, shown, f"must meet {constraint.text}, which no candidate does")
    taken = {constraint.name for constraint in automatic} | set(rules)
    for constraint in space.constraints:
        field = f"constraints.{constraint.name}"
        if constraint.name in taken:
            raise InputError(field, constraint.name, "must have another name: a rule is called so")
        node = texts.condition(field, constraint.text)
        texts.refuse_unsafe(field, constraint.text, node, derived.bounds)
        if (alone := values.impossible(node)) is not None:
            raise InputError(field, constraint.text, f"must be met by {alone}")
    return (*automatic, *space.constraints)


def of_host(texts: Texts, axes: Sequence[Axis], derived: Derived) -> tuple[Constraint, ...]:
    """Return the constraint that a host holds the offloaded tensors of its GPUs; none without them or its memory.

    The rules come first: without them its term means nothing.
    """
    memory = next((axis.values[HOST] for axis in axes if HOST in axis.values), (derived.fixed.get(HOST, 0),))
    if OFFLOADED not in texts.known or not any(memory):
        return ()
    holds = f"{OFFLOADED} <= {HOST}"
    said = (HOST, "must hold what the GPUs of a server offload")
    return (Constraint(HOST, holds if all(memory) else f"{HOST} == 0 or {holds}", said=said),)


def _merged(automatic: Sequence[Constraint]) -> list[Constraint]:
    """Return one constraint for each name."""
    texts: dict[str, list[str]] = {}
    said = {constraint.name: constraint.said for constraint in automatic}
    for constraint in automatic:
        others = texts.setdefault(constraint.name, [])
        if constraint.text not in others:
            others.append(constraint.text)
    return [
        Constraint(name, own[0] if len(own) == 1 else " and ".join(f"({text})" for text in own), True, said[name])
        for name, own in texts.items()
    ]


class _Values:
    """Bounds of the symbols of a part without its formulas."""

    def __init__(self, texts: Texts, axes: Sequence[Axis], derived: Derived) -> None:
        self.texts, self.axes, self.fixed = texts, axes, derived.fixed
        self.derived = {name: texts.filled(node, derived.fixed) for name, node in derived.nodes.items()}

    def filled(self, condition: Formula) -> Formula:
        """Return the condition over symbols that axes set, and terms."""
        return self.texts.filled(condition, {**self.fixed, **self.derived})

    def impossible(self, condition: Formula) -> str | None:
        """Return the axis (or none) without a candidate that meets the condition; None if one does."""
        filled = self.filled(condition)
        always = self.texts.constant(filled)
        if always is not None:
            return None if always else "what is fixed"
        names = names_in([filled])
        for axis in self.axes:
            if names <= axis.values.keys():
                values = ({name: axis.values[name][place] for name in names} for place in range(axis.size))
                held = any(self.texts.value(filled, candidate) for candidate in values)
                return None if held else f"at least one candidate of {axis.name}"
        return None


def _of_shape(space: Space, texts: Texts, values: _Values) -> Iterator[Constraint]:
    """Yield the rules of models that speak of a symbol that is declared otherwise than by a model."""
    declared = {*space.axes, *space.fixed, *space.derived}
    if _RANK.name in declared:
        yield _RANK
    for symbol, text in SHAPE_RULES:
        if names_written(text) & declared and not texts.constant(values.filled(texts.condition(symbol, text))):
            yield Constraint(symbol, text, automatic=True)
