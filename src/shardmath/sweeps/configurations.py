"""One configuration of a space, by its part and number: what people see of it, and its exact memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import Any

from shardmath.generated.definitions import VERDICTS, verdict
from shardmath.spaces import Part


@dataclass(frozen=True)
class Configuration:
    """A configuration that a question found; ``keys`` are the values of the question's formulas, by their text."""

    part: Part = field(repr=False)
    number: int
    keys: Mapping[str, int | float]

    @cached_property
    def labels(self) -> dict[str, int | str]:
        """What people see: the candidate on every axis, by name."""
        return self.part.labels_at(self.number)

    @cached_property
    def values(self) -> dict[str, int]:
        """The value of every symbol."""
        from shardmath.symbolic.nests.graph import Graph, exact
        from shardmath.symbolic.nests.source import parse

        found = dict(self.part.fixed)
        for axis, place in zip(self.part.axes, self.part.places(self.number), strict=True):
            found |= {symbol: values[place] for symbol, values in axis.values.items()}
        graph = Graph()
        for symbol, text in self.part.derived.items():
            value = exact([parse(text, graph, graph.name)], found)[0]
            assert isinstance(value, Fraction)
            assert value.denominator == 1
            found[symbol] = int(value)
        return found

    @cached_property
    def peak_bytes(self) -> int:
        """The estimate, from the evaluator in plain Python: exact."""
        terms = self.part.evaluator.terms
        return int(terms.terms(*(self.values[name] for name in terms.INPUTS))["peak"])

    @property
    def share(self) -> float:
        """The peak as a share of the GPU's memory."""
        return self.peak_bytes / self.values["gpu_memory"]

    @property
    def verdict(self) -> str:
        """What the peak says."""
        return VERDICTS[verdict(self.peak_bytes, self.values["gpu_memory"])][0]

    @property
    def order(self) -> tuple[tuple[int | float, ...], int, int]:
        """Smaller is better; of equal configurations the first of the space."""
        return (tuple(self.keys.values()), self.part.number, self.number)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {
            **self.labels, "keys": dict(self.keys), "peak_bytes": self.peak_bytes, "verdict": self.verdict,
            "part": self.part.number, "number": self.number,
        }


def whole(value: float) -> int | float:
    """A number of a nest: exact integers as integers."""
    return int(value) if float(value).is_integer() else float(value)
