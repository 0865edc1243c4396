"""An answer of ``fit``: the value, its peak and that of the next legal value (bytes), the binding rank, the method."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from shardmath.commands.fit.formula import Coefficient, Solution
from shardmath.commands.fit.symbols import MODEL_PARALLEL
from shardmath.compiler.evaluators import Evaluator
from shardmath.generated.definitions import SITES


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
    formula: Solution | None = None

    def formula_as(self, form: str) -> str:
        """The formula as ``latex``, ``unicode`` or ``text``, with its coefficients; or why there is none."""
        if self.formula is None:
            return f"{self.symbol}: {self.method}"
        found = self.formula
        if form != "latex":
            defined = {**{name: one.text for name, one in found.coefficients.items()}, **found.uses}
            return "\n".join([getattr(found, form), *(f"{name} = {made}" for name, made in defined.items())])
        lines = [found.latex, *(f"M_{{\\text{{{name}}}}} = {one.latex}" for name, one in found.coefficients.items()),
                 *(f"{name} = {made}" for name, made in found.uses_latex.items())]
        return "\n".join(lines)


@dataclass(frozen=True)
class Fits:
    """The answers of one configuration; ``limit`` is in bytes, ``share`` of the memory of the GPU.

    ``keep`` says what stays while the hidden size grows.
    """

    model: str
    gpu: str
    implementation: str
    gpu_memory: int
    share: Fraction
    inputs: Mapping[str, int]
    keep: str
    answers: tuple[Answer, ...]

    @property
    def limit(self) -> Fraction:
        """Limit of the peak, in bytes."""
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
        return {name: _plain(value) for name, value in {**vars(self), "limit": self.limit}.items()}


def bound_of(evaluator: Evaluator, values: Mapping[str, int], value: int, go_along: Mapping[str, int]) -> Bound:
    """The peak of a configuration by its evaluator, on exact fractions, and where it is."""
    numbers = _terms(evaluator, values, 0)
    part = next(name.removesuffix(".total") for name, size in numbers.items()
                if name.endswith(".total") and name != "stage.total" and size == numbers["peak"])
    sites = [site for site in SITES if f"{part}.{site}.all" in numbers]
    moment = next((site for site in sites if numbers[f"{part}.{site}.all"] == numbers[f"{part}.moment"]),
                  "after_forward")
    return Bound(value, int(numbers["peak"]), _rank(evaluator, values, part, numbers["peak"]), moment, dict(go_along))


def _terms(evaluator: Evaluator, values: Mapping[str, int], rank: int) -> dict[str, Fraction]:
    module = evaluator.terms
    known = {**values, "pipeline_rank": rank}
    found: dict[str, Fraction] = module.terms(**{name: Fraction(known[name]) for name in module.INPUTS})
    return found


def _rank(evaluator: Evaluator, values: Mapping[str, int], part: str, peak: Fraction) -> int:
    """The pipeline rank that a part of the formulas is about: the first with that peak, where the name does not say."""
    last = values["pipeline_parallel"] - 1
    likely = {"first": 0, "second": min(1, last), "penultimate": max(0, last - 1), "last": last}.get(part, 0)
    return next((rank for rank in (likely, *range(last + 1))
                 if _terms(evaluator, values, rank)["stage.total"] == peak), likely)


def _plain(value: Any) -> Any:
    if isinstance(value, Fraction):
        return int(value) if value.denominator == 1 else str(value)
    if isinstance(value, Mapping):
        return {str(name): _plain(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    return _plain(vars(value)) if isinstance(value, Bound | Answer | Solution | Coefficient) else value
