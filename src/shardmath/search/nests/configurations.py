"""Configurations of a space, each by its part and number: what people see of it, and its exact memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np

from shardmath.account.judged import probability_of, rule_of, verdict_of
from shardmath.account.pipelines import Pipeline
from shardmath.compiler.expressions.graph import Graph, exact
from shardmath.compiler.expressions.source import parse
from shardmath.search.spaces import Best, Front, Part
from shardmath.search.spaces.ties import unbeaten


@dataclass(frozen=True)
class Configuration:
    """A configuration that a question found; ``keys`` are the values of the question's formulas, by their text."""

    part: Part = field(repr=False)
    number: int
    keys: Mapping[str, int | float]

    @cached_property
    def labels(self) -> dict[str, int | str]:
        """Return the candidate on every axis, by name."""
        return self.part.labels_at(self.number)

    @cached_property
    def declared(self) -> dict[str, int]:
        """The value of every symbol, as axes, fixed values and formulas of the space have it."""
        known = dict(self.part.fixed)
        for axis, place in zip(self.part.axes, self.part.places(self.number), strict=True):
            known |= {symbol: values[place] for symbol, values in axis.values.items()}
        graph = Graph()
        for symbol, text in self.part.derived.items():
            value = exact([parse(text, graph, graph.name)], known)[0]
            assert isinstance(value, Fraction)
            assert value.denominator == 1
            known[symbol] = int(value)
        return known

    @cached_property
    def pipeline(self) -> Pipeline | None:
        """The stages with machines of their own; None where all are alike. Raises InputError as ``Part.pipeline``."""
        return self.part.pipeline(self.declared)

    @cached_property
    def values(self) -> dict[str, int]:
        """The value of every symbol; where stages differ those of the stage that the space is about."""
        return self.declared if self.pipeline is None else self.pipeline.values(self.declared)

    @cached_property
    def terms(self) -> Mapping[str, int | float | Fraction]:
        """Every term by name; see ``Part.terms_at``."""
        if self.pipeline is not None:
            return self.pipeline.terms(self.declared["pipeline_rank"])
        return self.part.terms_at(self.values)

    @property
    def layers(self) -> tuple[int, ...]:
        """Layers of each stage where their machines differ; none where all are alike."""
        return () if self.pipeline is None else self.pipeline.layers

    @property
    def peak_bytes(self) -> int:
        """The estimate."""
        return int(self.terms["peak"])

    @property
    def share(self) -> float:
        """The peak as a share of the GPU's memory."""
        return self.peak_bytes / self.values["gpu_memory"]

    @property
    def verdict(self) -> str:
        """Return the verdict of the peak, from the probability of running out."""
        return verdict_of(self.peak_bytes, self.terms)

    @property
    def rule_80(self) -> str:
        """Return the verdict of the 80 % rule."""
        return rule_of(self.peak_bytes, self.values["gpu_memory"])

    @property
    def run_out_probability(self) -> float:
        """Return the probability that the process of the fullest stage runs out."""
        return probability_of(self.terms, self.values)

    @property
    def order(self) -> tuple[tuple[int | float, ...], int, int]:
        """Smaller is better; of equal configurations the first of the space."""
        return (tuple(self.keys.values()), self.part.number, self.number)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {
            **self.labels, "keys": dict(self.keys), "peak_bytes": self.peak_bytes, "verdict": self.verdict,
            "rule_80": self.rule_80, "run_out_probability": self.run_out_probability,
            "part": self.part.number, "number": self.number,
        }


def configurations(part: Part, question: Best | Front, keys: Any, numbers: Any) -> Iterator[Configuration]:
    """Yield the configurations of an answer: rows of ``keys``, and the ``numbers`` of those places that are taken."""
    for row, number in zip(keys.tolist(), numbers.tolist(), strict=True):
        if 0 <= number < part.size:
            yield Configuration(part, number, dict(zip(question.by, map(whole, row), strict=True)))


def front_of(configurations: Sequence[Configuration]) -> list[Configuration]:
    """Return those that none beats, in the order of their keys; of equal ones the first."""
    keys = np.asarray([tuple(item.keys.values()) for item in configurations], np.float64)
    return [configurations[row] for row in unbeaten(keys)] if configurations else []


def whole(value: float) -> int | float:
    """Return a number of a nest: exact integers as integers."""
    return int(value) if float(value).is_integer() else float(value)
