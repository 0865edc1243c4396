"""Scripts of layers whose operations are on a tape: all that a pass makes and frees, in its order.

A script is for one case of the switches of a layer. Its words (``symbolic/orders/words.py``) name tensors by numbers
and sizes by places in ``sizes``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import product as combinations

from sympy import Add, Expr, Mul

from ...implementations import Implementation
from ...orders.taped import is_taped
from ...parameters import symbols
from .autograd import Event, Happening, Size, Storage, Value, Walk
from .moments import Case
from .transformers import Layer
from .transformers_experts import ExpertLayer

qkn, rfull = symbols("qkn rfull")


@dataclass(frozen=True)
class Passes:
    """Words of the forward and of the backward pass by case: 0 or 1 of each of the ``switches``, which are numbers."""

    switches: tuple[int, ...]
    by_case: Mapping[Case, tuple[tuple[str, ...], tuple[str, ...]]]


class _Words:
    """Words for the passes of one tape, with the sizes of all tapes."""

    def __init__(self, sizes: dict[Expr, int]) -> None:
        self._sizes, self._numbers = sizes, dict[Storage, int]()

    def number(self, storage: Storage) -> int:
        return self._numbers.setdefault(storage, len(self._numbers) + 1)

    def size(self, size: Size) -> int:
        bytes = Add(*(Mul(number, product) for product, number in size.items()))
        return self._sizes.setdefault(bytes, len(self._sizes))

    def of(self, events: list[Event]) -> list[str]:
        words = []
        for kind, storage, name in events:
            if storage is None:
                words.append("added")
            elif kind is Happening.FREED:
                words.append(f"let:{self.number(storage)}")
            elif kind is Happening.MADE:
                words.append(f"make:{self.number(storage)}/{self.size(storage.size)}/{_label(name)}")
            else:
                words.append(f"grad:{name}/{self.size(storage.size)}")
        return words


def _label(name: str) -> str:
    """Return the name of an operation as that of a row, without its number."""
    return ".".join(word for word in name.split(" ") if word and not word.isdecimal())


class Tapes:
    """The passes of all kinds of layers of an implementation, and of the final norm."""

    def __init__(self, implementation: Implementation) -> None:
        self._implementation = implementation
        self._sizes: dict[Expr, int] = {}
        self._switches: dict[Expr, int] = {}
        choices = implementation.choices
        self.passes: dict[str, Passes] = {}
        if choices["mlp"] != "swiglu_clamped":  # no model has such dense layers
            self.passes["layer"] = self._of(Layer)
        if choices["layers"] == "experts":
            self.passes["expert_layer"] = self._of(ExpertLayer)
        self.passes["final_norm"] = self._of(Layer, Layer.run_final_norm)

    @property
    def sizes(self) -> tuple[Expr, ...]:
        """Return sizes of tensors in bytes."""
        return tuple(self._sizes)

    @property
    def switches(self) -> tuple[Expr, ...]:
        """Return the switches of all layers."""
        return tuple(self._switches)

    def _of(self, kind: type[Layer], recorded: Callable[[Layer], Value] | None = None) -> Passes:
        choices = self._implementation.choices
        switches = (rfull, qkn, *kind.switches(choices)) if recorded is None else ()
        by_case = {}
        for case in combinations(range(2), repeat=len(switches)):
            again, normed, *switched = case or (0, 0)
            layer = kind(self._implementation, bool(normed), *map(bool, switched))
            output = layer.run() if recorded is None else recorded(layer)
            by_case[case] = self._passes(layer, output, bool(again))
        return Passes(tuple(self._switches.setdefault(each, len(self._switches)) for each in switches), by_case)

    def _passes(self, layer: Layer, output: Value, again: bool) -> tuple[tuple[str, ...], tuple[str, ...]]:
        words, entering = _Words(self._sizes), layer.start.storage
        first, second = Walk(layer.tape, False), Walk(layer.tape, False, again)
        first.run_forward(saves=not again)
        second.run(output)
        is_kept = again or entering in layer.tape.saved
        forward = [f"keep:{words.number(entering)}"] if is_kept else []
        for event in first.events:
            if event.storage is not output.storage:
                forward += words.of([event])
            elif event.kind is Happening.MADE:
                forward.append("pass")
        taken, *inner, left = second.events
        assert taken.storage is not None
        assert left.storage is not None
        if again:  # the checkpoint lets go of its input with the last tensor that it made again
            last = max(place for place, event in enumerate(inner)
                       if event.kind is Happening.FREED and event.storage in layer.tape.saved)
            inner.insert(last + 1, Event(Happening.FREED, entering))
        backward = [f"take:{words.number(taken.storage)}", *words.of(inner), f"give:{words.number(left.storage)}"]
        return tuple(forward), tuple(backward)


@cache
def of_tapes(implementation: Implementation) -> Tapes | None:
    """Return the passes of layers whose operations are on tapes; None where a replay has others."""
    return Tapes(implementation) if is_taped(implementation.choices) else None
