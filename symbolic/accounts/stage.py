"""Terms of pipeline rank r: its parameters, and what it keeps by component and role."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from sympy import Expr, Integer

from ..implementations import Implementation
from ..ledger import IN_LAYER, SITES, Component, Held, Place, Role
from ..parallel.data import buffer_elements, bytes_per_element, gradients_are_made, share_on_gpu, sharing_ranks, states
from ..parallel.groups import GROUPS, Group
from ..parallel.legality import fixed_values
from ..parallel.mesh import DEGREES
from ..parallel.optimizers import DEALT
from ..parallel.pipeline import counting_places, held, held_inputs, instances, whole_model
from ..parallel.weights import Weight
from ..parameters import symbols
from ..systems import SYSTEMS
from ..terms import TermSet, one_lifetime, product, total
from . import dealt, expert_layers, megatron_units
from .buffers import buffer_and_shard
from .predictions import held_by_layers, held_predicting, of_all, predicts
from .pytorch import buckets as torch_buckets
from .rows import components_of
from .units import COUNTED_ROLES, KIND, is_layer_input, kept_by_tensor

D, E, q, u, v = symbols("D E q u v")

#: The component whose saved tensors are freed first.
LOSS = "loss"
#: Roles that follow from the trained parameters.
STATE_ROLES = (Role.WEIGHT, Role.GRADIENT, Role.OPTIMIZER)
#: Name of the lines of a rank's part of all parameters.
PART = "part"
#: Places that only the last stage has; their saved tensors are freed before the layers' backward pass.
ENDS = (Place.LAST, Place.MTP)


def held_until(component: Component) -> Held:
    """Return the least of ``Held`` at whose moments the saved tensors of a component still exist."""
    if component.place not in ENDS:
        return Held.LAYERS
    return Held.ALL if component.name == LOSS else Held.HEAD


def add_parameters(terms: TermSet, implementation: Implementation) -> None:
    """Add the parameters of rank r: layers of the stage, and tensors of the first or last stage alone."""
    choices = implementation.choices
    if choices["optimizer"] in DEALT:
        dealt.add_shares(terms, implementation)
    for group in GROUPS:
        prefix, words = group.prefix, group.words
        for kind, suffix in (("parameters", ""), ("aligned", ", padded one by one")):
            summands = [
                product(instances(place, choices), terms[f"{layer}.{prefix}{kind}"].symbol)
                for layer, place in counting_places(choices).items()
                if f"{layer}.{prefix}{kind}" in terms
            ]
            for component in components_of(implementation):
                name = f"{component.name}.{prefix}{kind}"
                if component.place not in IN_LAYER and name in terms:
                    summands.append(product(instances(component.place, choices), terms[name].symbol))
            if summands:
                terms.add(f"stage.{prefix}{kind}", total(*summands), "elements", f"{words} of rank r{suffix}")
        if f"stage.{prefix}parameters" in terms:
            padded, shard = _laid_out(terms, implementation, group)
            terms.add(f"stage.{prefix}buffer_elements", padded, "elements",
                      f"{words} of rank r with the padding that data parallelism needs")
            terms.add(f"stage.{prefix}shard_elements", shard, "elements",
                      f"{words} of rank r whose optimizer states it keeps")


    names = [f"stage.{group.prefix}parameters" for group in GROUPS if f"stage.{group.prefix}parameters" in terms]
    terms.add("stage.all_parameters", total(*(terms[name].symbol for name in names)), "elements",
              "parameters of rank r, of every kind")
    _add_model(terms, choices)


def _add_model(terms: TermSet, choices: Mapping[str, str]) -> None:
    """Add the parameters of the model as one rank would hold them, and those that a token meets."""
    alone = {**dict.fromkeys((*DEGREES, D), Integer(1)), **whole_model(choices), v: u}
    experts = [f"stage.{group.prefix}parameters" for group in GROUPS
               if group.expert and f"stage.{group.prefix}parameters" in terms]
    terms.at("model", ["stage.all_parameters", *experts], alone, (v,), "of the whole model on one rank")
    others = [product((E - q) / E, terms[name.replace("stage.", "model.")].symbol) for name in experts]
    terms.add("model.active_parameters", total(terms["model.all_parameters"].symbol, *(-unused for unused in others)),
              "elements", "parameters of the model that one token meets: of the routed experts those it is sent to")


def _laid_out(terms: TermSet, implementation: Implementation, group: Group) -> tuple[Expr, Expr]:
    """Return elements of a group on rank r with their padding, and of the rank's share of their states."""
    choices, ranks = implementation.choices, sharing_ranks(Role.OPTIMIZER, fixed_values(implementation), group.expert)
    if choices["optimizer"] in DEALT:
        return tuple(terms[f"stage.{group.prefix}{name}"].symbol for name in ("parameters", "dealt_elements"))
    if choices["data_parallel"] == "ddp":
        return buffer_and_shard(terms, implementation, group, ranks)
    if choices["data_parallel"] == "megatron_fsdp":
        padded = megatron_units.buffer_elements(terms, implementation, group)
        return padded, padded / ranks
    own, each = (terms[f"stage.{group.prefix}{kind}"].symbol for kind in ("parameters", "aligned"))
    before = terms["stage.parameters"].symbol if group.expert else Integer(0)
    padded = buffer_elements(own, each, choices, ranks, group.frozen, before)
    return padded, (each if choices["data_parallel"] == "torch_ddp" else padded) / ranks


def add_states(terms: TermSet, implementation: Implementation) -> None:
    """Add the bytes of rank r for its parameters: weights, gradients and optimizer states."""
    choices = implementation.choices
    for role in STATE_ROLES:
        is_dealt = role is Role.OPTIMIZER and choices["optimizer"] in DEALT
        sums: list[Expr] = []
        meanings: dict[str, None] = {}
        for group in GROUPS:
            prefix = group.prefix
            if f"stage.{prefix}parameters" not in terms:
                continue
            own = {state.meaning: None for state in states(choices, group) if state.role is role}
            meaning = "; ".join(own) or "nothing"
            meanings |= own
            ranks = dealt.ranks_of(group.expert) if is_dealt else Integer(1)
            each = _bytes_of_each(group, role, implementation)
            lines = components_of(implementation)
            is_made = role is Role.GRADIENT and gradients_are_made(choices)  # there at some moments: torch_gradients
            for component in lines:
                name = f"{component.name}.{prefix}parameters"
                if name in terms:
                    by_tensor = tuple(size / ranks for size in kept_by_tensor(
                        terms, group, role, component, implementation))
                    sums += by_tensor
                    if not is_made:
                        expression = product(each, instances(component.place, choices), terms[name].symbol)
                        terms.add(f"stage.{component.name}.{prefix}{role.value}", total(expression, *by_tensor),
                                  "bytes", f"{component.title}, rank r: {meaning}")
            even = product(each, terms[f"stage.{prefix}parameters"].symbol)
            if is_dealt:
                sums.append(even)
                continue
            whole = bytes_per_element(states(choices, group), role) * share_on_gpu(role, choices)
            kept = product(each, terms[f"stage.{prefix}buffer_elements"].symbol)
            if role is Role.OPTIMIZER:
                kept = product(whole, terms[f"stage.{prefix}shard_elements"].symbol)
            if not is_made:
                terms.add(f"stage.padding.{prefix}{role.value}", kept - even, "bytes",
                          f"Padding, rank r: {meaning}")
            sums += [kept, *_kept_by_part(terms, group, role, implementation)]
        if is_dealt:  # lines are even shares, and padding is what the fullest rank has more
            fullest = terms[dealt.BYTES].symbol
            terms.add(f"stage.padding.{role.value}", fullest - total(*sums), "bytes",
                      f"Padding, rank r: {'; '.join(meanings)}")
            sums = [fullest]
        terms.add(f"stage.{role.value}", total(*sums), "bytes", f"rank r: {'; '.join(meanings) or 'nothing'}")


def _bytes_of_each(group: Group, role: Role, implementation: Implementation) -> Expr:
    """Return bytes of rank r for every element of a group, by its states that are shared out evenly."""
    each = bytes_per_element(states(implementation.choices, group), role) * share_on_gpu(role, implementation.choices)
    if role is Role.OPTIMIZER and implementation.choices["optimizer"] in DEALT:
        return each / dealt.ranks_of(group.expert)
    return each / sharing_ranks(role, fixed_values(implementation), group.expert)


def _kept_by_part(terms: TermSet, group: Group, role: Role, implementation: Implementation) -> Iterator[Expr]:
    """Add and yield bytes of rank r for the states of its part of all parameters, which is one vector."""
    part = Weight((terms[f"stage.{group.prefix}shard_elements"].symbol,))
    kept = {state: product(state.bytes, state.count(part)) for state in states(implementation.choices, group)
            if state.role is role and state.count is not None and state.of_part}
    if kept:
        yield terms.add(f"stage.{PART}.{group.prefix}{role.value}", total(*kept.values()), "bytes",
                        f"Part of all parameters, rank r: {'; '.join(state.meaning for state in kept)}")


def add_host(terms: TermSet, implementation: Implementation) -> None:
    """Add the bytes on the host for rank r, where something is offloaded to it."""
    offloaded = [size for system in SYSTEMS for size in system.host(terms, implementation.choices)]
    if offloaded:
        terms.add("stage.host", total(*offloaded), "bytes", "rank r: all that is offloaded to the host")


def add_kept(terms: TermSet, implementation: Implementation) -> None:
    """Add the bytes of rank r for saved tensors, inputs and buffers, by component and in all."""
    choices = implementation.choices
    components = components_of(implementation)
    for role, kind in COUNTED_ROLES.items():
        for component in components:
            name = f"{component.name}.{kind}"
            if name in terms:
                lifetime = one_lifetime(row.tensor for row in terms[name].rows)
                of_loss = component.name == LOSS
                copies = (held_inputs(component.place, choices) if is_layer_input(component)
                          else held(component.place, lifetime, choices, of_loss))
                further = held_predicting(component.place, implementation)
                kept = of_all(terms, component.name, kind, copies, further)
                if role is Role.ACTIVATION and f"{component.name}.moved" in terms:
                    kept = total(kept, _away(terms, component.name, component.place, choices))
                terms.add(f"stage.{component.name}.{role.value}", kept, "bytes",
                          f"{component.title}, rank r: {KIND[role]}")
    # The layers share their factors, so their activations are written over the sums of a layer.
    layers = held_by_layers(terms, implementation)
    layers += [_away(terms, layer, place, choices)
               for layer, place in counting_places(choices).items() if f"{layer}.moved" in terms]
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
    torch_buckets.add_buckets(terms, implementation)
    for role in (Role.INPUT, Role.BUFFER):
        names = [f"stage.{name}.{role.value}" for name in (*(part.name for part in components), torch_buckets.NAME)]
        terms.add(f"stage.{role.value}", total(*(terms[name].symbol for name in names if name in terms)), "bytes",
                  f"rank r: {KIND[role]}")


def _away(terms: TermSet, name: str, place: Place, choices: Mapping[str, str]) -> Expr:
    """Return the bytes of rank r that have left it for the host, of layers or of a component of theirs, below zero."""
    layers = total(*(system.away(place, choices) for system in SYSTEMS))
    return product(-layers, terms[f"{name}.moved"].symbol)


def add_transients(terms: TermSet, implementation: Implementation) -> None:
    """Add the bytes of rank r that live only at some moments of a step, by component."""
    for name, site in SITES.items():
        for component in components_of(implementation):
            if f"{component.name}.{name}" in terms:
                place = _at_work(component.place, implementation)
                further = predicts(component.place, implementation)
                terms.add(f"stage.{component.name}.{name}",
                          of_all(terms, component.name, name, place, further), "bytes",
                          f"{component.title}, rank r, when {site.meaning}")


def _at_work(place: Place, implementation: Implementation) -> Expr:
    """Return how many instances of a component are at work at a moment; of layers it is one, if the stage has any."""
    choices = implementation.choices
    if place is Place.EXPERTS:
        return expert_layers.at_work(implementation)
    return Integer(1) if place in (*IN_LAYER, Place.MTP) else instances(place, choices)
