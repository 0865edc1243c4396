"""An answer of ``fit``: the value, its peak and that of the next legal value (bytes), the binding rank, the method."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeVar

from shardmath.answers import Answer, Drawn, Exact
from shardmath.commands.fit.formula import Solution
from shardmath.commands.fit.symbols import MODEL_PARALLEL
from shardmath.compiler.evaluators import Evaluator, terms_at
from shardmath.errors import InputError, nearest_names
from shardmath.generated.definitions import PEAK_RANKS, SITES

Value = TypeVar("Value")


@dataclass(frozen=True)
class Bound(Answer):
    """A value of a symbol, and the peak that it has."""

    value: int
    """The value."""
    peak: int
    """Bytes of the peak."""
    rank: int
    """Pipeline rank that keeps most."""
    moment: str
    """Moment of a step at which it peaks."""
    values: Mapping[str, int]
    """Parameters that go along with it."""


@dataclass(frozen=True)
class FitAnswer(Answer):
    """The answer for one symbol."""

    symbol: str
    """Parameter, or the product or memory that was asked for."""
    unit: str
    """Its unit."""
    largest: bool
    """True if the largest value that fits is asked for, false if the smallest."""
    at: Bound | None
    """The value that fits; null if none does."""
    beyond: Bound | None
    """The next legal one, which does not fit; null if there is none."""
    method: str
    """How it was found: in closed form, or one by one."""
    polynomial: Mapping[int, Exact] | None = None
    """Coefficients of the peak around the answer, by exponent."""
    first: int | None = None
    """First value for which the polynomial holds."""
    last: int | None = None
    """Last value for which it holds."""
    tried: int = 0
    """Values that were tried one by one."""
    others_fit: bool | None = None
    """True if values beyond the next legal one fit again; null where that is not known."""
    formula: Solution | None = None
    """The formula; null where the peak is no polynomial there."""
    by_host: bool = False
    """True if the memory of the servers' hosts decides, and not that of the GPUs."""

    def formula_as(self, form: str) -> str:
        """Return the formula as ``latex``, ``unicode`` or ``text``, with its coefficients; or why there is none."""
        if self.formula is None:
            return f"{self.symbol}: {self.method}"
        solution = self.formula
        if form != "latex":
            defined = {**{name: item.text for name, item in solution.coefficients.items()}, **solution.uses}
            return "\n".join([getattr(solution, form), *(f"{name} = {made}" for name, made in defined.items())])
        coefficients = (f"M_{{\\text{{{name}}}}} = {item.latex}" for name, item in solution.coefficients.items())
        lines = [solution.latex, *coefficients,
                 *(f"{name} = {made}" for name, made in solution.uses_latex.items())]
        return "\n".join(lines)


@dataclass(frozen=True)
class Fits(Drawn, room="fit", table="answers"):
    """The most, or the least, of each symbol with which a configuration fits.

    Sizes are in bytes.

    Raises FrozenInstanceError where a field is set, and InputError for a symbol that has no answer.

    Example:
        >>> fits = shardmath.fit("llama-3.1-8b", "h100-80gb", solve="micro_batch_size", tensor_parallel=4, num_gpus=16)
        >>> fits["micro_batch_size"].at.value, fits["micro_batch_size"].at.peak
        (2, 40184009728)
    """

    model: str
    """Name of the model."""
    gpu: str
    """Name of the GPU."""
    implementation: str
    """Framework, with the kernel choices that differ from its own."""
    gpu_memory: int
    """Bytes of the memory of a GPU."""
    share: Exact | None
    """Share of it that a peak may take; null where the verdict says what fits."""
    inputs: Mapping[str, int]
    """Every parameter by name."""
    keep: str
    """Fixed while the hidden size grows: head_dim, heads or all."""
    answers: tuple[FitAnswer, ...]
    """One for each symbol."""
    limit: Exact
    """Bytes that the peak must not exceed."""
    peak: int
    """Bytes of the peak as it was asked."""
    risk: float
    """Probability of running out below which a configuration fits, where no share is asked for."""

    def now(self, symbol: str) -> int:
        """Return the value of a symbol in the configuration that was asked. Raises InputError for an unknown one.

        Example:
            >>> fits = shardmath.fit("llama-3.1-8b", "h100-80gb", solve="seq_length", tensor_parallel=4, num_gpus=16)
            >>> fits.now("seq_length")
            8192
        """
        if symbol == MODEL_PARALLEL:
            return self.inputs["tensor_parallel"] * self.inputs["pipeline_parallel"]
        return _named(symbol, self.inputs)

    def __getitem__(self, symbol: str) -> FitAnswer:
        return _named(symbol, {answer.symbol: answer for answer in self.answers})


def _named(symbol: str, known: Mapping[str, Value]) -> Value:
    if symbol not in known:
        raise InputError("symbol", symbol, "must be a symbol of the answer", nearest_names(symbol, known))
    return known[symbol]


def bound_of(evaluator: Evaluator, values: Mapping[str, int], value: int, go_along: Mapping[str, int]) -> Bound:
    """Return the peak of a configuration by its evaluator, on exact fractions, and where it is."""
    numbers = _terms(evaluator, values, 0)
    part = next(part for part in PEAK_RANKS if numbers.get(f"{part}.total") == numbers["peak"])
    sites = [site for site in SITES if f"{part}.{site}.all" in numbers]
    moment = next((site for site in sites if numbers[f"{part}.{site}.all"] == numbers[f"{part}.moment"]),
                  "after_forward")
    return Bound(value, int(numbers["peak"]), _rank(evaluator, values, part, numbers["peak"]), moment, dict(go_along))


def _terms(evaluator: Evaluator, values: Mapping[str, int], rank: int) -> dict[str, int | Fraction]:
    return terms_at(evaluator.terms, {**values, "pipeline_rank": rank})


def _rank(evaluator: Evaluator, values: Mapping[str, int], part: str, peak: int | Fraction) -> int:
    """Return the pipeline rank of a part of the formulas: the first with that peak, where the name does not say."""
    last = values["pipeline_parallel"] - 1
    likely = {"first": 0, "second": min(1, last), "penultimate": max(0, last - 1), "last": last}.get(part, 0)
    return next((rank for rank in (likely, *range(last + 1))
                 if _terms(evaluator, values, rank)["stage.total"] == peak), likely)
