"""Terms of pipeline rank r: its parameters, and what it keeps by component and role."""

from __future__ import annotations

from sympy import Eq, Expr, Integer

from ..functions import Iverson
from ..implementations import Implementation
from ..ledger import IN_LAYER, SITES, Lifetime, Place, Role
from ..parallel.data import buffer_elements, bytes_per_element, sharing_ranks, states
from ..parallel.legality import fixed_values
from ..parallel.pipeline import Hc, held, instances
from ..parameters import symbols
from ..terms import TermSet, one_lifetime, product, total
from .rows import components_of
from .units import COUNTED_ROLES, GROUPS, KIND, is_layer_input

(e,) = symbols("e")

#: Roles that follow from the trained parameters.
STATE_ROLES = (Role.WEIGHT, Role.GRADIENT, Role.OPTIMIZER)
#: Places that only the last stage has; their saved tensors are freed before the layers' backward pass.
ENDS = (Place.LAST, Place.MTP)


def add_parameters(terms: TermSet, implementation: Implementation) -> None:
    """Parameters of rank r: layers of the stage, and what only the first or last stage holds."""
    choices, fixed = implementation.choices, fixed_values(implementation)
    for prefix, words in GROUPS.items():
        for kind, suffix in (("parameters", ""), ("aligned", ", padded one by one")):
            summands = [
                product(instances(place, choices), terms[f"{layer}.{prefix}{kind}"].symbol)
                for layer, place in (("layer", Place.DENSE), ("expert_layer", Place.EXPERTS))
                if f"{layer}.{prefix}{kind}" in terms
            ]
            for component in components_of(implementation):
                name = f"{component.name}.{prefix}{kind}"
                if component.place not in IN_LAYER and name in terms:
                    summands.append(product(instances(component.place, choices), terms[name].symbol))
            if summands:
                terms.add(f"stage.{prefix}{kind}", total(*summands), "elements", f"{words} of rank r{suffix}")
        if f"stage.{prefix}parameters" in terms:
            ranks = sharing_ranks(Role.OPTIMIZER, fixed, bool(prefix))
            padded = buffer_elements(terms[f"stage.{prefix}parameters"].symbol, terms[f"stage.{prefix}aligned"].symbol,
                                     choices, ranks)
            if prefix and choices["data_parallel"] == "ddp":
                padded = _beside_the_others(terms, padded, ranks)
            terms.add(f"stage.{prefix}buffer_elements", padded, "elements",
                      f"{words} of rank r with the padding that data parallelism needs")


def _beside_the_others(terms: TermSet, padded: Expr, ranks: Expr) -> Expr:
    """Elements of experts with padding: in a buffer of their own, or what they add to that of all others."""
    everything = buffer_elements(
        total(terms["stage.parameters"].symbol, terms["stage.expert_parameters"].symbol),
        total(terms["stage.aligned"].symbol, terms["stage.expert_aligned"].symbol), {"data_parallel": "ddp"}, ranks,
    )
    added = everything - terms["stage.buffer_elements"].symbol
    return Iverson(e > 1) * padded + Iverson(Eq(e, 1)) * added


def add_states(terms: TermSet, implementation: Implementation) -> None:
    """Bytes of rank r for its parameters: weights, gradients and optimizer states."""
    choices, fixed = implementation.choices, fixed_values(implementation)
    kept = states(choices)
    for role in STATE_ROLES:
        meaning = "; ".join(state.meaning for state in kept if state.role is role)
        sums: list[Expr] = []
        for prefix in GROUPS:
            if f"stage.{prefix}parameters" not in terms:
                continue
            each = bytes_per_element(kept, role) / sharing_ranks(role, fixed, bool(prefix))
            for component in components_of(implementation):
                name = f"{component.name}.{prefix}parameters"
                if name in terms:
                    expression = product(each, instances(component.place, choices), terms[name].symbol)
                    terms.add(f"stage.{component.name}.{prefix}{role.value}", expression, "bytes",
                              f"{component.title}, rank r: {meaning}")
            buffer = terms[f"stage.{prefix}buffer_elements"].symbol
            terms.add(f"stage.padding.{prefix}{role.value}",
                      product(each, buffer - terms[f"stage.{prefix}parameters"].symbol), "bytes",
                      f"Padding, rank r: {meaning}")
            sums.append(product(each, buffer))
        terms.add(f"stage.{role.value}", total(*sums), "bytes", f"rank r: {meaning}")


def add_kept(terms: TermSet, implementation: Implementation) -> None:
    """Bytes of rank r for saved tensors, inputs and buffers, by component and in all."""
    choices = implementation.choices
    components = components_of(implementation)
    for role, kind in COUNTED_ROLES.items():
        for component in components:
            name = f"{component.name}.{kind}"
            if name in terms:
                lifetime = one_lifetime(row.tensor for row in terms[name].rows)
                copies = Hc if is_layer_input(component) else held(component.place, lifetime, choices, component.name == "loss")
                terms.add(f"stage.{component.name}.{role.value}", product(copies, terms[name].symbol), "bytes",
                          f"{component.title}, rank r: {KIND[role]}")
    # The layers share their factors, so their activations are written over the sums of a layer.
    layers = [
        product(held(place, Lifetime.IN_FLIGHT, choices), terms[f"{layer}.saved"].symbol)
        for layer, place in (("layer", Place.DENSE), ("expert_layer", Place.EXPERTS)) if f"{layer}.saved" in terms
    ]
    outside = [
        component for component in components
        if f"stage.{component.name}.activation" in terms
        and (component.place not in IN_LAYER or is_layer_input(component))
    ]
    beside = [terms[f"stage.{part.name}.activation"].symbol for part in outside if part.place not in ENDS]
    ends = [terms[f"stage.{part.name}.activation"].symbol for part in outside if part.place in ENDS]
    layered = terms.add("stage.inner_activations", total(*layers, *beside), "bytes",
                        f"rank r, layers and embedding: {KIND[Role.ACTIVATION]}")
    at_end = terms.add("stage.end_activations", total(*ends) if ends else Integer(0), "bytes",
                       f"rank r, final norm, head and loss: {KIND[Role.ACTIVATION]}")
    terms.add("stage.activation", total(layered, at_end), "bytes", f"rank r: {KIND[Role.ACTIVATION]}")
    for role in (Role.INPUT, Role.BUFFER):
        names = [f"stage.{component.name}.{role.value}" for component in components]
        terms.add(f"stage.{role.value}", total(*(terms[name].symbol for name in names if name in terms)), "bytes",
                  f"rank r: {KIND[role]}")


def add_transients(terms: TermSet, implementation: Implementation) -> None:
    """Bytes of rank r that live only at some moments of a step, by component."""
    for name, site in SITES.items():
        for component in components_of(implementation):
            if f"{component.name}.{name}" in terms:
                place = instances(component.place, implementation.choices)
                if component.place in (*IN_LAYER, Place.MTP):
                    place = Integer(1)  # one layer is at work at a time
                terms.add(f"stage.{component.name}.{name}",
                          product(place, terms[f"{component.name}.{name}"].symbol), "bytes",
                          f"{component.title}, rank r, when {site.meaning}")
