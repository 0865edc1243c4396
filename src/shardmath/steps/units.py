"""Units of FSDP2: parameters that are gathered and gradients that are reduced together, each in memory of its stream.

By the source of PyTorch 2.13 (``torch/distributed/fsdp/_fully_shard``): an all-gather fills a buffer of the gathering
stream, beside a copy of the rank's share where that is cast; from it parameters are copied into memory of the default
stream. In a forward pass the buffer stays until
the next unit has its parameters; in a backward pass it is free at once, and the unit before is gathered into another.
The input of a reduce-scatter is memory of the default stream and stays until the next one; its output is memory of the
reducing stream.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction

from shardmath.steps.rows import PLACES, Row, Rows
from shardmath.steps.trace import GATHER, REDUCE, Trace

#: Units that have done their forward pass when the model has.
_LAST = ("last", "root", "joined")
#: Bytes of a gathered element: parameters are computed with in bf16.
COMPUTE = 2


@dataclass
class _Open:
    """One unit with parameters that are gathered, or on their way."""

    unit: str
    buffer: int | None = None
    parameters: list[int] = field(default_factory=list)


class Units:
    """Gather and reduce the units of a rank; a unit of no parameters on the rank is none."""

    def __init__(self, rows: Rows, trace: Trace) -> None:
        self._rows, self._trace = rows, trace
        values = rows.values
        self._replicas = values.get("data_parallel_replicas", 1)
        self._shards = max(1, values["data_parallel"] * values["context_parallel"] // self._replicas)
        self._reshard = rows.choices["reshard"]
        self._are_cast = rows.sizes["state.weight"] != COMPUTE
        self._known = {word.removeprefix("reduce:") for script in rows.scripts.values() for word in script
                       if word.startswith("reduce:")}
        self._parts = {**PLACES, "embedding": ("FIRST",), "last": ("LAST",), "root": ("FIRST", "LAST"),
                       "joined": ("LAST", "FIRST")}
        self._open: dict[str, _Open] = {}
        self._made: dict[str, list[tuple[str, int]]] = {}
        self._order: list[_Open] = []
        self._next: _Open | None = None
        self._buffer: int | None = None
        self._input: int | None = None
        self._reduced: list[int] = []
        self._added: list[int] = []
        self._first = True
        self.words: Mapping[str, Callable[[str], None]] = {
            "open": self.open, "close": self.close, "finish": lambda name: self.free_buffer(), "reopen": self.reopen,
            "reduce": self.reduce,
        }

    def begin(self) -> None:
        """Begin a step: free the gradients of the one before."""
        self._trace.free_all(self._reduced)
        self._reduced, self._first = [], True

    def open(self, unit: str) -> None:
        """Gather a unit for its forward pass."""
        buffer = self._gather(unit)
        self._open[unit] = _Open(unit, parameters=self._copied(unit))
        self.free_buffer()
        self._buffer = buffer

    def close(self, unit: str) -> None:
        """Free a unit behind its forward pass, where it is not kept for the backward pass."""
        opened = self._open.pop(unit)
        self._order.append(opened)
        if self._reshard == "always" or (self._reshard == "default" and unit not in _LAST):
            self._trace.free_all(opened.parameters)
            opened.parameters = []

    def reopen(self, unit: str) -> None:
        """Gather a unit for its backward pass, and begin to gather the one before it."""
        opened = self._next
        if opened is None or opened.unit != unit:
            opened = self._order.pop() if self._order and self._order[-1].unit == unit else _Open(unit)
        self._next = None
        if not opened.parameters:
            buffer = self._gather(unit) if opened.buffer is None else opened.buffer
            opened.parameters = self._copied(unit)
            self._free(buffer)
        opened.buffer, self._open[unit] = None, opened
        if self._order:
            self._next = self._order.pop()
            self._next.buffer = None if self._next.parameters else self._gather(self._next.unit)

    def keep(self, row: Row, key: int) -> None:
        """Keep the gradient of a parameter until its unit is reduced."""
        self._made.setdefault(self._unit_of(row), []).append((row.name, key))

    def reduce(self, unit: str) -> None:
        """Reduce the gradients of a unit, and free its parameters."""
        self._trace.free_all(self._open.pop(unit).parameters)
        order = [row.name for row in self._weights(unit)]
        gradients = [key for _, key in sorted(self._made.pop(unit, ()), key=lambda made: order.index(made[0]))]
        elements = self._aligned(unit)
        width, kept = self._rows.values["gradient_bytes"], self._rows.sizes["state.gradient"]
        if self._input is not None:
            self._trace.free(self._input)
        self._input = self._trace.allocate(width * elements, f"{unit}.reduced")
        held = gradients[-1:] if self._shards > 1 else []  # a local name holds the last one until the function returns
        self._trace.free_all(gradients[: len(gradients) - len(held)])
        reduced = self._trace.allocate(width * elements // self._shards, f"{unit}.gradient", REDUCE)
        if kept != width:
            low, reduced = reduced, self._trace.allocate(kept * elements // self._shards, f"{unit}.gradient", REDUCE)
            self._trace.free(low)
        self._trace.free_all(held)
        if self._first:
            self._reduced.append(reduced)
        elif self._replicas > 1:  # the all-reduce of a unit holds what is added to gradients of earlier micro-batches
            self._added.append(reduced)
        else:
            self._trace.free(reduced)

    def end(self) -> None:
        """End a backward pass."""
        if self._input is not None:
            self._trace.free(self._input)
        self._trace.free_all(self._added)
        self._input, self._first, self._added = None, False, []

    def _gather(self, unit: str) -> int | None:
        if self._shards == 1:
            return None
        whole = COMPUTE * self._aligned(unit)
        cast = whole // self._shards if self._are_cast else 0
        share = self._trace.allocate(cast, f"{unit}.share", GATHER)
        buffer = self._trace.allocate(whole, f"{unit}.gathered", GATHER)
        self._trace.free(share)
        return buffer

    def _free(self, key: int | None) -> None:
        if key is not None:
            self._trace.free(key)

    def free_buffer(self) -> None:
        """Free the buffer of a forward pass: the next unit has its parameters, or there is none."""
        self._free(self._buffer)
        self._buffer = None

    def _copied(self, unit: str) -> list[int]:
        """Copy the parameters of a unit out of its buffer; one rank alone casts each of them first."""
        rows = self._weights(unit)
        whole, elements = COMPUTE * self._aligned(unit), sum(row.size for row in rows)
        ends = [whole * sum(row.size for row in rows[: place + 1]) // elements for place in range(len(rows))]
        parameters: list[int] = []
        cast: int | None = None
        for row, before, end in zip(rows, [0, *ends], ends, strict=False):
            if self._shards == 1 and self._are_cast:
                cast, earlier = self._trace.allocate(end - before, f"{row.name}.cast"), cast
                self._free(earlier)
            parameters.append(self._trace.allocate(end - before, row.name))
        self._free(cast)
        return parameters

    def _unit_of(self, row: Row) -> str:
        """Return the unit of a parameter: of a part that all layers have, that of the layer at work."""
        units = [unit for unit, places in self._parts.items() if row.place in places and unit in self._known]
        return next((unit for unit in units if unit in self._open), units[0])

    def _weights(self, unit: str) -> list[Row]:
        """List the parameters of a unit in the order of its modules."""
        places = self._parts[unit]
        weights = (row for row in self._rows.every if row.role == "weight" and row.place in places)
        return sorted(weights, key=lambda row: (
            unit not in PLACES and places.index(row.place), self._rows.in_modules(row)))

    def _aligned(self, unit: str) -> int:
        components = dict.fromkeys(row.component for row in self._weights(unit))
        account = self._rows.account
        return math.ceil(sum(Fraction(account[f"{name}.{kind}"]) for name in components
                             for kind in ("aligned", "expert_aligned") if f"{name}.{kind}" in account))
