"""PyTorch's autograd, tensor by tensor: what a backward pass makes and frees, from the operations of a forward pass.

A tape has the operations in their order, with what each saves. The backward pass runs the latest operation of which all
gradients are there. It makes the gradients of its inputs, then frees the gradient of its output and what it saved.
Gradients that meet are added in a new tensor; those of parameters stay. Sizes are sums of products of letters.
Full recompute runs the forward pass again when the backward pass first needs what was saved.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from heapq import heappop, heappush
from typing import NamedTuple

from sympy import Expr

from ...dimension import Dimension

#: A number of bytes: how often each product of letters.
Size = Mapping[Expr, int]


@dataclass(eq=False)
class Storage:
    """Memory of a tensor and of views of it, with the number of its holders."""

    size: Size
    holders: int = 0


@dataclass(eq=False)
class Value:
    """A tensor of the forward pass: its memory, its shape, and which operation made it; none of a constant."""

    storage: Storage
    shape: tuple[Dimension, ...]
    bytes: int
    maker: Operation | None = None
    place: int = 0


@dataclass(eq=False)
class Operation:
    """An operation, with its inputs, saved memory, the gradients it makes of them, and the tensors that it makes."""

    name: str
    number: int
    inputs: list[Value]
    saved: list[Storage]
    backward: Backward
    outputs: int = 1
    awaited: int = 0
    gradients: list[Storage | None] = field(default_factory=list)
    results: list[Value] = field(default_factory=list)


#: Make the gradients of an operation's inputs from those of its outputs.
Backward = Callable[["Walk", list[Storage]], list[Storage]]


class Tape:
    """The operations of a forward pass; ``stops_early`` says of its recompute that it stops when all is saved."""

    def __init__(self, gradient: Size) -> None:
        self.operations: list[Operation] = []
        self.saved: list[Storage] = []
        self.gradient, self.stops_early = gradient, True
        self._named: dict[Storage, int] = {}

    def record(self, name: str, inputs: list[Value], saved: list[Storage], backward: Backward, outputs: int = 1,
               ) -> Operation:
        """Append an operation that saves these tensors."""
        made = Operation(name, len(self.operations), inputs, saved, backward, outputs)
        for storage in saved:
            if not storage.holders:
                self.saved.append(storage)
            storage.holders += 1
        for each in inputs:
            if each.maker is not None:
                each.maker.awaited += 1
        self.operations.append(made)
        return made

    def name(self, *values: Value) -> None:
        """Let tensors live until the latest operation: a function that has not returned has names for them."""
        for value in values:
            self._named[value.storage] = len(self.operations) - 1

    def ends(self) -> dict[Storage, int]:
        """Return the number of the operation behind which a forward pass frees each tensor that is not saved."""
        ends = {**self._named}
        for operation in self.operations:
            for storage in (*(value.storage for value in operation.inputs), *operation.saved):
                ends[storage] = max(ends.get(storage, 0), operation.number)
        return ends


class Happening(Enum):
    """Kinds of events: tensors are made and freed, gradients of parameters made, and added to earlier ones."""

    MADE = "made"
    FREED = "freed"
    GRADIENT = "gradient"
    ADDED = "added"


class Event(NamedTuple):
    """An event of a pass, with the tensor, and the name of the operation that makes it or of the parameter."""

    kind: Happening
    storage: Storage | None = None
    made_by: str = ""


class Walk:
    """A backward pass over a tape; levels are beside all that the forward pass saved.

    ``moments`` has the level of every moment at which something is freed again, by the operation and a number;
    ``events`` have the order of all that is made and freed.
    ``added``: gradients of parameters are added to earlier ones at once. ``again``: the forward pass is run again; its
    moments are there too, and an operation's own function holds what was saved, and nothing once it has returned.
    """

    def __init__(self, tape: Tape, added: bool, again: bool = False) -> None:
        self.level: dict[Expr, int] = {}
        self.moments: dict[tuple[str, int], dict[Expr, int]] = {}
        self.events: list[Event] = []
        self._tape, self._added, self._again = tape, added, again
        self._held: list[Storage] = []
        self._name, self._rising, self._of_name = "", False, 0
        self._parameters: list[Storage] = []
        self._was_run_again = False

    def run(self, output: Value) -> None:
        """Go from the gradient of the output to that of the first input."""
        ready: list[tuple[int, Operation]] = []
        if self._again:
            self._change(self._unsaved(), -1)
        self._deliver(output, self.make(self._tape.gradient), ready)
        while ready:
            _, operation = heappop(ready)
            if operation.saved and self._again and not self._was_run_again:
                self._run_again()
            self._name, self._of_name = operation.name, 0
            gradients = [each for each in operation.gradients if each is not None]
            self._held = [*operation.saved]
            made = operation.backward(self, gradients)
            for storage in (*gradients, *self._held):
                self.drop(storage)
            for value, gradient in zip(operation.inputs, made, strict=True):
                self._deliver(value, gradient, ready)
            if self._parameters:
                self.events.append(Event(Happening.ADDED, made_by=operation.name))
            for storage in self._parameters if self._added else ():
                self.drop(storage)
            self._parameters.clear()

    def make(self, size: Size) -> Storage:
        """Allocate a tensor."""
        for product, number in size.items():
            self.level[product] = self.level.get(product, 0) + number
        self._rising = True
        made = Storage(size, 1)
        self.events.append(Event(Happening.MADE, made, f"{self._name} gradient"))
        return made

    def drop(self, storage: Storage) -> None:
        """Give a tensor up; without holders it is freed."""
        storage.holders -= 1
        if storage.holders:
            return
        if self._rising:
            self.moments[self._name, self._of_name] = {key: value for key, value in self.level.items() if value}
            self._of_name, self._rising = self._of_name + 1, False
        self.events.append(Event(Happening.FREED, storage))
        for product, number in storage.size.items():
            self.level[product] = self.level.get(product, 0) - number

    def share(self, storage: Storage) -> Storage:
        """Hand a tensor, or a view of it, on."""
        storage.holders += 1
        return storage

    def returned(self) -> None:
        """Say that an operation's function has returned: sums and casts to the shapes of its inputs follow."""
        if self._again:
            for storage in self._held:
                self.drop(storage)
            self._held = []

    def parameter(self, size: Size, weight: str) -> None:
        """Make the gradient of a parameter, which is kept, or added to that of earlier micro-batches."""
        self._parameters.append(self.make(size))
        self.events[-1] = Event(Happening.GRADIENT, self._parameters[-1], weight)

    def _run_again(self) -> None:
        """Run the forward pass, as a rule to the operation that saves the last tensor, beside the gradients there are.

        An operation saves its inputs before it makes its results. The layer's input is there all the time.
        """
        self._was_run_again = True
        level, operations, last = {**self.level}, self._tape.operations[1:], -1
        if self._tape.stops_early:
            last = max(operation.number for operation in operations if operation.saved)
            operations = [operation for operation in operations if operation.number <= last]
        self._go_forward(operations, last, " again")
        self.level = level
        self._change(self._unsaved(), 1)

    def run_forward(self, saves: bool = True) -> None:
        """Run the first forward pass: its moments are beside all that it will have saved in the end.

        One that ``saves`` nothing is that of a layer whose checkpoint keeps its input alone.
        """
        if saves:
            self._change(self._unsaved(), -1)
        self._go_forward(self._tape.operations[1:], -1, "", saves)

    def _go_forward(self, operations: list[Operation], last: int, words: str, saves: bool = True) -> None:
        """Make and free tensors operation by operation; stop at number ``last`` if all that it saves is there."""
        there = dict.fromkeys(value.storage for value in self._tape.operations[0].results)
        kept, ends = {*there}, self._tape.ends()
        for operation in operations:
            if operation.number == last and there.keys() >= {*operation.saved}:
                kept.update(operation.saved)
                break
            results = dict.fromkeys([*(value.storage for value in operation.results), *operation.saved])
            made = [storage for storage in results if storage not in there]
            self._change(made, 1)
            self.events += [Event(Happening.MADE, storage, operation.name) for storage in made]
            there |= dict.fromkeys(made)
            kept.update(operation.saved if saves else ())
            self.moments[f"{operation.name}{words}", 0] = {key: value for key, value in self.level.items() if value}
            freed = [storage for storage in there if storage not in kept
                     and ends.get(storage, 0) <= operation.number]
            self._free(freed, there)
        if last >= 0:
            self._free([storage for storage in there if storage not in kept], there)

    def _free(self, storages: list[Storage], there: dict[Storage, None]) -> None:
        self._change(storages, -1)
        self.events += [Event(Happening.FREED, storage) for storage in storages]
        for storage in storages:
            del there[storage]

    def _unsaved(self) -> list[Storage]:
        """Return what is saved once the forward pass has run again, beside the layer's input."""
        there = {value.storage for value in self._tape.operations[0].results}
        return [storage for storage in self._tape.saved if storage not in there]

    def _change(self, storages: Iterable[Storage], sign: int) -> None:
        for storage in storages:
            for product, number in storage.size.items():
                self.level[product] = self.level.get(product, 0) + sign * number

    def _deliver(self, value: Value, gradient: Storage, ready: list[tuple[int, Operation]]) -> None:
        maker = value.maker
        if maker is None:
            self.drop(gradient)
            return
        maker.gradients = maker.gradients or [None] * maker.outputs
        before = maker.gradients[value.place]
        if before is not None:
            both = self.make(before.size)
            self.drop(before)
            self.drop(gradient)
            gradient = both
        maker.gradients[value.place] = gradient
        maker.awaited -= 1
        if maker.awaited <= 0:
            heappush(ready, (-maker.number, maker))
