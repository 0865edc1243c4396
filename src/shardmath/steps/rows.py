"""Rows of one pipeline rank as a replay needs them: bytes of single tensors, with their places and moments."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from types import ModuleType
from typing import NamedTuple

from shardmath.compiler.evaluators import Evaluator, terms_at
from shardmath.generated.definitions import ROLES

#: Kinds of transformer layers, with the places inside of one.
PLACES = {"layer": ("LAYER", "DENSE"), "expert_layer": ("LAYER", "EXPERTS")}
#: Places inside of any of them.
IN_LAYER = ("LAYER", "DENSE", "EXPERTS")
#: Switches of parts of a layer that selective recompute drops.
PARTS = ("recompute_core_attention", "recompute_mlp", "recompute_layernorm", "recompute_mla_up_proj",
         "recompute_moe_act", "recompute_shared_experts", "recompute_moe")
#: Components that the backward pass frees first.
LOSS = "loss"
#: Prefix of an event with a condition, and of the tensor that has to have bytes.
CONDITION = "if:"
#: Component of which all weights are experts', laid out in buffers of their own.
EXPERTS = "experts"


@dataclass(frozen=True)
class Row:
    """One row: ``size`` is in bytes, of weights in elements."""

    name: str
    size: int
    component: str
    place: str
    role: str
    lifetime: str
    module: str
    moments: tuple[str, ...]
    of_layer: bool


class PassEvent(NamedTuple):
    """An event of a walked layer: a word, the name of a tensor or parameter, and bytes and row of what is made."""

    word: str
    name: str
    size: int
    row: str


@dataclass(frozen=True)
class Rows:
    """All rows of a rank at the values of its parameters, and the terms of its account."""

    values: Mapping[str, int]
    account: Mapping[str, int | Fraction]
    sizes: Mapping[str, int]
    every: tuple[Row, ...]
    scripts: Mapping[str, tuple[str, ...]]
    passes: Mapping[str, tuple[PassEvent, ...]]
    """Events of passes of layers that are walked operation by operation."""
    states: Mapping[str, tuple[str, str, bool]]
    sums: Mapping[str, tuple[str, bool]]
    choices: Mapping[str, str]
    same: Mapping[str, str]
    """Rows in the memory of others, which full recompute keeps."""
    modules: tuple[str, ...]
    """Parameters of a layer in the order of its modules, where that is not the order of the rows."""
    frozen: frozenset[str]
    """Weights without gradients and optimizer states."""
    dropped: tuple[Row, ...]
    """Saved tensors of layers that selective recompute drops and makes again."""

    @classmethod
    def of(cls, evaluator: Evaluator, values: Mapping[str, int], account: Mapping[str, int | Fraction],
           joined: bool = True) -> Rows:
        """Evaluate the rows of one rank; ``account`` are the terms of its memory at the same values.

        Rows that are parts of one tensor are ``joined`` to that, or stay as the ledger has them.
        """
        module = evaluator.rows
        sizes = {name: math.ceil(size) for name, size in terms_at(module, values).items()}
        tensors = module.JOINED if joined else {}
        every = tuple(_rows(module, sizes, tensors))
        switches = {name: 0 for name in PARTS if values.get(name)}
        whole = terms_at(module, {**values, **switches}) if switches else {}
        others = {name: 0 if sizes[name] else math.ceil(size) for name, size in whole.items()}
        dropped = tuple(_rows(module, others, tensors))
        return cls(values, account, sizes, every, _scripts(module, sizes), _passes(module, sizes),
                   module.STATES, module.SUMS, evaluator.choices,
                   module.SAME, module.MODULES, frozenset(module.FROZEN), dropped)

    @cached_property
    def roles(self) -> Mapping[str, str]:
        """Role of every row, by name."""
        return {row.name: row.role for row in self.every}

    @cached_property
    def layers(self) -> int:
        """Layers of the rank."""
        return int(self.account.get("stage_layers", self.values.get("stage_layers", self.values["num_layers"])))

    @cached_property
    def layer_kinds(self) -> tuple[str, ...]:
        """Kind of each layer of the rank, the first first; of several chunks all have the same kinds."""
        if self.choices["layers"] != "experts":
            return ("layer",) * self.layers
        values, chunks = self.values, self.values["virtual_pipeline"]
        start = int(self.account["layers_before"]) if chunks == 1 else 0
        dense, step = values["first_dense_layers"], values["moe_layer_step"]
        return tuple("expert_layer" if place >= dense and (place + 1) % step == 0 else "layer"
                     for place in range(start, start + self.layers))

    def instances(self, row: Row) -> int:
        """Count the instances of a row's component on the rank."""
        rank, last = self.values["pipeline_rank"], self.values["pipeline_parallel"] - 1
        if row.place in IN_LAYER:
            return sum(row.place in PLACES[kind] for kind in self.layer_kinds)
        return {"FIRST": int(rank == 0), "LAST": int(rank == last)}.get(row.place, 1)

    def saved(self, places: Sequence[str], recomputed: bool | None = None) -> dict[str, list[Row]]:
        """Return the tensors that one instance saves for the backward pass, by component in the order of the ledger.

        ``recomputed`` says if full recompute keeps others of a layer; None: as the configuration has it.
        """
        by_component: dict[str, list[Row]] = {}
        if recomputed is None:
            recomputed = bool(self.values["recompute_full"])
        for row in self.every:
            in_layer = row.place in IN_LAYER
            saves = row.role == "activation" and row.place in places and row.lifetime != "SHARED" and not row.moments
            if saves and (not in_layer or row.of_layer == recomputed):
                by_component.setdefault(row.component, []).append(row)
        return by_component

    @cached_property
    def kept(self) -> Mapping[str, list[Row]]:
        """Tensors that the forward pass saves: of the embedding, of a layer of each kind, and of what is last."""
        places = {"embedding": ("FIRST",), **PLACES, "last": ("LAST",)}
        return {name: [row for own in self.saved(of).values() for row in own] for name, of in places.items()}

    @cached_property
    def of_forward(self) -> list[Row]:
        """Tensors that the forward pass of a layer saves, where full recompute does not drop them."""
        return [row for own in self.saved(IN_LAYER, recomputed=False).values() for row in own]

    @cached_property
    def by_moment(self) -> Mapping[str, Mapping[str, int]]:
        """Bytes of tensors that exist at one moment alone, for every script."""
        return {name: self.transients(name) for name in self.scripts}

    @property
    def shared(self) -> list[Row]:
        """Tensors that all layers of a step save together."""
        return [row for row in self.every
                if row.role == "activation" and row.lifetime == "SHARED" and self.instances(row)]

    def transients(self, moment: str) -> dict[str, int]:
        """Return the bytes of what exists at a moment alone, by name: rows, and sums that no walk meets otherwise."""
        parts = {}
        for row in self.every:
            count = 1 if row.place in IN_LAYER else self.instances(row)
            if moment in row.moments and count:
                parts[row.name] = count * row.size
        for name, (when, walked) in self.sums.items():
            if when == moment and not walked and self.account.get(name):
                size, count = math.ceil(self.account[name]), self.sizes.get(f"pieces.{name.split('.')[1]}", 1)
                parts |= {f"{name}.{piece}": size * (piece + 1) // count - size * piece // count
                          for piece in range(count)}
        return parts

    def weights(self, experts: bool, modules: Sequence[str] = (), frozen: bool | None = False) -> list[int]:
        """List the elements of every parameter of the rank, or of its experts, in the order of the model.

        ``modules`` orders those of a layer. ``frozen`` ones alone, those that are trained, or with None all.
        """
        rows = self.ordered_weights(experts, modules, frozen)
        return [size for row in rows for size in self.parameters(row)]

    def ordered_weights(self, experts: bool, modules: Sequence[str] = (), frozen: bool | None = False) -> list[Row]:
        """List the same as rows, each as often as there are layers that have it."""
        rows = [row for row in self.every if row.role == "weight" and self._apart(row) is experts
                and frozen in (None, row.name in self.frozen)]
        if modules:
            rows.sort(key=self.in_modules)
        layers = {kind: [row for row in rows if row.place in places] for kind, places in PLACES.items()}
        ends = {place: [row for row in rows if row.place == place and self.instances(row)]
                for place in ("FIRST", "STAGE", "LAST")}
        inner = [row for kind in self.layer_kinds for row in layers[kind]]
        return [*ends["FIRST"], *inner, *ends["STAGE"], *ends["LAST"]]

    def parameters(self, row: Row) -> list[int]:
        """List the elements of each parameter that a row of weights stands for."""
        count = self.sizes.get(f"pieces.{row.name}", 1)
        return [row.size // count] * count

    def in_modules(self, row: Row) -> int:
        """Return the place of a parameter of a layer in the order of its modules."""
        return self.modules.index(row.name) if row.name in self.modules else len(self.modules)

    def _apart(self, row: Row) -> bool:
        return row.component == EXPERTS and bool(self.account.get("stage.expert_parameters"))

    def static(self) -> dict[str, int]:
        """Return the bytes of each role that lasts, from one step to the next."""
        roles = {role: int(self.account.get(f"stage.{role}", 0)) for role in ROLES if role in _LASTING}
        if sum(roles.values()) != int(self.account["stage.static"]):
            roles["gradient"] = 0  # made by each backward pass
        return roles


def _scripts(module: ModuleType, sizes: Mapping[str, int]) -> dict[str, tuple[str, ...]]:
    """Return the events at every point, of those with a condition the ones whose tensor has bytes."""
    return {point: tuple(event for word in script if (event := _event(word, sizes))) for point, script in
            module.SCRIPTS.items()}


def _passes(module: ModuleType, sizes: Mapping[str, int]) -> dict[str, tuple[PassEvent, ...]]:
    """Return the events of passes, of all cases those that the values of switches have."""
    passes = {}
    for kind, (switches, by_case) in module.TAPES.items():
        case = by_case[tuple(sizes[f"switch.{number}"] for number in switches)]
        for way, events in zip(("forward", "backward"), case, strict=True):
            passes[f"{kind}_{way}"] = tuple(_pass_event(event, sizes) for event in events.split())
    return passes


def _pass_event(event: str, sizes: Mapping[str, int]) -> PassEvent:
    word, _, operands = event.partition(":")
    name, size, row = (*operands.split("/"), "", "")[:3]
    return PassEvent(word, name, sizes[f"tape.{size}"] if size else 0, row)


def _event(word: str, sizes: Mapping[str, int]) -> str:
    """Return the event of a word whose conditions hold, and nothing of another one."""
    while word.startswith(CONDITION):
        tensor, _, word = word.removeprefix(CONDITION).partition(":")
        if not sizes.get(f"passing.{tensor}", sizes.get(tensor)):
            return ""
    return word


def _rows(module: ModuleType, sizes: Mapping[str, int], tensors: Mapping[str, tuple[str, ...]]) -> Iterator[Row]:
    """Yield the rows that have a size; those that are parts of one of ``tensors`` as that, in the first one's place."""
    joined = {parts[0]: (name, parts) for name, parts in tensors.items()}
    others = {part for _, parts in joined.values() for part in parts[1:]}
    for row, described in module.ROWS.items():
        name, parts = joined.get(row, (row, (row,)))
        size = sum(sizes[part] for part in parts) if sizes else 0
        if size and row not in others:
            yield Row(name, size, *described)


_LASTING = ("weight", "gradient", "optimizer", "input", "buffer")
