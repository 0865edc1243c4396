"""Terms of single instances: what one layer, one end of the model or one micro-batch of it keeps."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import chain

from sympy import Expr, Integer

from ..choices import absent_values
from ..dimensions import BATCH, OF_EXPERTS, SCORE, SEQUENCE
from ..implementations import Implementation
from ..ledger import IN_LAYER, SITES, Component, Lifetime, Place, Role, Tensor
from ..parallel.data import aligned, shard_shape, share_on_gpu, sharing_ranks, states
from ..parallel.groups import GROUPS, Group, group_of
from ..parallel.legality import fixed_values
from ..parallel.pipeline import instances, layer_kinds
from ..parallel.weights import State, shapes, weight_of, without_experts
from ..recompute import WHOLE_LAYER
from ..systems import SYSTEMS
from ..terms import Contribution, TermSet, product, total
from .moments.frozen import is_packed, units_of
from .predictions import PREDICTING, add_predicting, predicting
from .rows import chosen_for, components_of, is_expert, kept_rows, local_shape

#: Roles whose rows stand in the components' files, with the unit term that sums them.
COUNTED_ROLES = {Role.ACTIVATION: "saved", Role.INPUT: "input", Role.BUFFER: "buffer"}
#: Meaning of each role, in words.
KIND = {
    Role.ACTIVATION: "tensors saved for the backward pass",
    Role.INPUT: "inputs kept for the backward pass",
    Role.BUFFER: "buffers",
}


def add_units(terms: TermSet, implementation: Implementation) -> None:
    """Add a term per component and kind of row, for a single instance of the component."""
    rows, others = kept_rows(implementation), kept_rows(implementation.predicting)
    for component in components_of(implementation):
        own = tuple(row for row in rows if row.component is component)
        _parameters(terms, component, own, implementation)
        predicts = predicting(component.place, implementation) != 0
        _add_kinds(terms, component, own, tuple(row for row in others if row.component is component and predicts))
        _moved(terms, component, own, implementation)


def _add_kinds(
    terms: TermSet, component: Component, own: tuple[Contribution, ...], predicting: tuple[Contribution, ...],
) -> None:
    """Add the bytes of rows that live for a time, by kind, and those in a layer of further predictions if other."""
    unit = _unit(component)
    kinds: list[tuple[str, str, Callable[[Tensor], bool]]] = [
        (kind, f"{KIND[role]} of one {unit}", partial(_lives, role=role)) for role, kind in COUNTED_ROLES.items()]
    kinds += [(name, f"what lives besides when {site.meaning}", partial(_lives, site=name))
              for name, site in SITES.items()]
    for kind, words, is_of in kinds:
        rows, others = (tuple(row for row in each if is_of(row.tensor)) for each in (own, predicting))
        size, other = (total(*(row.expression for row in each)) for each in (rows, others))
        if rows or others:
            terms.add(f"{component.name}.{kind}", size, "bytes", f"{component.title}: {words}", rows)
        if others and size != other:
            terms.add(f"{component.name}.{PREDICTING}{kind}", other, "bytes",
                      f"{component.title}: {words}, in a layer of further predictions", others)


def _lives(tensor: Tensor, role: Role | None = None, site: str = "") -> bool:
    """Return True for a tensor of a role, or one that lives at a site alone."""
    return site in tensor.sites if site else tensor.role is role and tensor.lifetime is not Lifetime.SITE


def _moved(
    terms: TermSet, component: Component, own: tuple[Contribution, ...], implementation: Implementation
) -> None:
    """Return the saved tensors of a component that wait on the host, for offloaded layers."""
    if is_layer_input(component):
        return
    saved = [row for row in own
             if row.tensor.role is Role.ACTIVATION and row.tensor.lifetime is Lifetime.IN_FLIGHT]
    choices = implementation.choices
    sizes = [
        product(system.moved(row.tensor, product(*local_shape(row.tensor.shape, choices)), component.place, choices),
                row.expression)
        for system in SYSTEMS for row in saved
    ]
    if total(*sizes) != 0:
        terms.add(f"{component.name}.moved", total(*sizes), "bytes",
                  f"{component.title}: saved tensors that wait on the host, of one offloaded {_unit(component)}")


def _parameters(
    terms: TermSet, component: Component, own: tuple[Contribution, ...], implementation: Implementation
) -> None:
    for group in GROUPS:
        prefix, words = group.prefix, group.words
        weights = tuple(
            row for row in own if row.tensor.role is Role.WEIGHT
            and group_of(component, row.tensor, is_expert(row.tensor), implementation.choices) == group
        )
        if weights:
            terms.add(f"{component.name}.{prefix}parameters", total(*(row.expression for row in weights)),
                      "elements", f"{component.title}: {words} of one rank", weights)
            terms.add(f"{component.name}.{prefix}aligned",
                      total(*(_aligned(row, implementation) for row in weights)), "elements",
                      f"{component.title}: {words} of one rank, each padded as its data parallelism does", weights)
            _states_by_tensor(terms, component, group, weights, implementation)


def _states_by_tensor(
    terms: TermSet, component: Component, group: Group, weights: tuple[Contribution, ...],
    implementation: Implementation,
) -> None:
    for state in states(chosen_for(component, implementation).choices, group):
        sizes = {row: [size for size in _sizes(row, state, implementation) if size != 0] for row in weights}
        kept = tuple(replace(row, expression=total(*own)) for row, own in sizes.items() if own)
        if kept:
            terms.add(f"{component.name}.{group.prefix}{state.name}", total(*chain.from_iterable(sizes.values())),
                      "bytes", f"{component.title}: {state.meaning}", kept)


def kept_by_tensor(
    terms: TermSet, group: Group, role: Role, component: Component, implementation: Implementation,
) -> Iterator[Expr]:
    """Yield bytes of rank r for the states of a component that depend on the shapes of its parameters."""
    for state in states(implementation.choices, group):
        name = f"{component.name}.{group.prefix}{state.name}"
        if state.role is role and state.count is not None and not state.of_part and name in terms:
            share = Integer(1) if state.attached else share_on_gpu(role, implementation.choices)
            count = instances(component.place, implementation.choices)
            if state.name not in {other.name for other in states(implementation.predicting.choices, group)}:
                count = total(count, -predicting(component.place, implementation))
            yield product(share, count, terms[name].symbol)


def _sizes(row: Contribution, state: State, implementation: Implementation) -> Iterator[Expr]:
    """Yield the bytes of a state for every parameter of a row; those of an expert as often as a rank has experts."""
    if state.count is None or state.of_part:
        return
    for shape in shapes(row.tensor, implementation.choices):
        whole = implementation.choices["data_parallel"] == "deepspeed"  # all experts are one parameter there
        sizes = local_shape(shape if whole else without_experts(shape), implementation.choices)
        if state.role is Role.OPTIMIZER:
            sizes = shard_shape(sizes, implementation.choices, _optimizer_ranks(row, implementation))
        experts = () if whole else local_shape(tuple(dimension for dimension in shape if dimension in OF_EXPERTS))
        count = state.count(weight_of(row.component, row.tensor, sizes))
        yield product(state.bytes, when(row.tensor, implementation), *experts, count)


def _aligned(row: Contribution, implementation: Implementation) -> Expr:
    """Return elements with their padding; FSDP shares out codes of 4 bits in elements of 16."""
    shape, copies = local_shape(row.tensor.shape, implementation.choices), Integer(1)
    if is_expert(row.tensor) and implementation.choices["data_parallel"] == "ddp":
        copies, *rest = shape  # every expert's weight is a parameter by itself
        shape = tuple(rest)
    if implementation.choices["data_parallel"] == "deepspeed":  # every part of a projection is a parameter by itself
        ranks = _optimizer_ranks(row, implementation)
        parts = (local_shape(part, implementation.choices) for part in shapes(row.tensor, implementation.choices))
        return product(when(row.tensor, implementation),
                       total(*(aligned(part, implementation.choices, ranks) for part in parts)))
    ranks = _optimizer_ranks(row, implementation)
    if implementation.choices["data_parallel"] == "fsdp" and is_packed(row, implementation):
        elements = total(*(aligned((codes,), implementation.choices, ranks) for codes in units_of(row, implementation)))
    else:
        elements = aligned(shape, implementation.choices, ranks, is_expert(row.tensor))
    return product(when(row.tensor, implementation), copies, elements)


def _optimizer_ranks(row: Contribution, implementation: Implementation) -> Expr:
    return sharing_ranks(Role.OPTIMIZER, fixed_values(implementation), is_expert(row.tensor))


def when(tensor: Tensor, implementation: Implementation) -> Expr:
    """Return the condition under which a row exists with these choices, as a number."""
    return tensor.when.xreplace(absent_values(implementation.choices))


def _unit(component: Component) -> str:
    if component.place in (*IN_LAYER, Place.MTP):
        return "layer and micro-batch"
    return {Place.STAGE: "stage", Place.FIRST: "micro-batch", Place.LAST: "micro-batch"}[component.place]


def add_layers(terms: TermSet, implementation: Implementation) -> None:
    """Add sums over the components of one layer, of each kind."""
    components = components_of(implementation)
    sums = [
        ("parameters", "elements", "parameters of one {} on one rank"),
        ("aligned", "elements", "parameters of one {} on one rank, padded as data parallelism does"),
        ("expert_parameters", "elements", "parameters of routed experts of one {} on one rank"),
        ("expert_aligned", "elements", "parameters of routed experts of one {} on one rank, padded"),
        *((f"{group.prefix}{kind}", "elements", f"{group.words} of one {{}} on one rank{padded}")
          for group in GROUPS if group.fp8 or group.frozen
          for kind, padded in (("parameters", ""), ("aligned", ", padded as data parallelism does"))),
        ("saved", "bytes", "tensors saved for the backward pass by one {} and micro-batch"),
        ("moved", "bytes", "saved tensors that wait on the host, of one offloaded {} and micro-batch"),
    ]
    for name, (words, places) in layer_kinds(implementation.choices).items():
        for kind, unit, meaning in sums:
            parts = [
                terms[f"{part.name}.{kind}"].symbol for part in components
                if part.place in places and f"{part.name}.{kind}" in terms and not is_layer_input(part)
            ]
            if parts or kind in ("parameters", "aligned", "saved"):
                terms.add(f"{name}.{kind}", total(*parts) if parts else Integer(0), unit, meaning.format(words))
            if predicting(places[-1], implementation) != 0:
                add_predicting(terms, name, kind, parts, unit, meaning.format(words))


def add_output_gradients(terms: TermSet, implementation: Implementation) -> None:
    """Add the gradients at the outputs of a layer's projections, which a split backward pass keeps for weights."""
    for name, (_, places) in layer_kinds(implementation.choices).items():
        rows = [
            row for row in kept_rows(implementation)
            if row.component.place in places and row.tensor.role is Role.WEIGHT
            and len(row.tensor.shape) > 1 and SCORE not in row.tensor.shape
        ]
        if f"{name}.saved" in terms:
            outputs = [
                product(Integer(2), *local_shape((SEQUENCE, BATCH, row.tensor.shape[-2]), implementation.choices))
                for row in rows
            ]
            terms.add(f"{name}.output_gradients", total(*outputs), "bytes",
                      "bf16 gradients at the outputs of all projections of one layer and micro-batch")


def is_layer_input(component: Component) -> bool:
    """Return True for the component that full recompute keeps of a layer instead of all others."""
    return all(tensor.checkpoint == WHOLE_LAYER for tensor in component.tensors)
