"""What is answered: the value, the peak there and at the next legal value, what binds, and how it was found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from shardmath.evaluators import Evaluator
from shardmath.generated.definitions import SITES
from shardmath.inverse.symbols import MODEL_PARALLEL

#: Ends of a pipeline, and its ranks beside them: one of them is the fullest.
_RANKS = ("first", "last", "second", "penultimate")


@dataclass(frozen=True)
class Bound:
    """One value of the symbol: the peak in bytes, and the rank and the moment of a step that have it.

    ``values`` are the parameters that go along, by name.
    """

    value: int
    peak: int
    rank: int
    moment: str
    values: Mapping[str, int]


@dataclass(frozen=True)
class Answer:
    """The answer for one symbol.

    ``at`` is the largest (``largest``) or smallest legal value that fits, None if no value does; ``beyond`` is the next
    legal one, which does not fit, None if there is none. ``method`` says how it was found, ``polynomial`` has the
    coefficients of the peak by exponent around the answer, which holds from ``first`` to ``last``.
    """

    symbol: str
    unit: str
    largest: bool
    at: Bound | None
    beyond: Bound | None
    method: str
    polynomial: Mapping[int, Fraction] | None = None
    first: int | None = None
    last: int | None = None
    tried: int = 0
    others_fit: bool | None = None


@dataclass(frozen=True)
class Fits:
    """The answers of one configuration; ``limit`` is in bytes, ``share`` of the memory of the GPU."""

    model: str
    gpu: str
    implementation: str
    gpu_memory: int
    share: Fraction
    inputs: Mapping[str, int]
    answers: tuple[Answer, ...]

    @property
    def limit(self) -> Fraction:
        """What the peak must not exceed, in bytes."""
        return self.share * self.gpu_memory

    def now(self, symbol: str) -> int:
        """The value of a symbol in the configuration that was asked."""
        if symbol == MODEL_PARALLEL:
            return self.inputs["tensor_parallel"] * self.inputs["pipeline_parallel"]
        return self.inputs[symbol]

    def __getitem__(self, symbol: str) -> Answer:
        return next(answer for answer in self.answers if answer.symbol == symbol)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON; fractions are text."""
        return _plain({**vars(self), "limit": self.limit, "answers": [vars(answer) for answer in self.answers]})


def bound_of(evaluator: Evaluator, values: Mapping[str, int], value: int, go_along: Mapping[str, int]) -> Bound:
    """The peak of a configuration by its evaluator, on exact fractions, and where it is."""
    module = evaluator.terms
    numbers = module.terms(**{name: Fraction(values[name]) for name in module.INPUTS if name != "pipeline_rank"},
                           **{"pipeline_rank": Fraction(0)} if "pipeline_rank" in module.INPUTS else {})
    rank = next(rank for rank in _RANKS if numbers.get(f"{rank}.total") == numbers["peak"])
    sites = [site for site in SITES if f"{rank}.{site}.all" in numbers]
    moment = next((site for site in sites if numbers[f"{rank}.{site}.all"] == numbers[f"{rank}.moment"]),
                  "after_forward")
    last = values["pipeline_parallel"] - 1
    number = {"first": 0, "second": min(1, last), "penultimate": max(0, last - 1), "last": last}[rank]
    return Bound(value, int(numbers["peak"]), number, moment, dict(go_along))


def _plain(value: Any) -> Any:
    if isinstance(value, Fraction):
        return int(value) if value.denominator == 1 else str(value)
    if isinstance(value, Mapping):
        return {str(name): _plain(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    return _plain(vars(value)) if isinstance(value, Bound | Answer) else value
