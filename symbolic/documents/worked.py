"""Worked layouts: the models and layouts that documents put numbers to, and the exact numbers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from sympy import Expr, Rational, sympify

from shardmath.catalogue import read

from ..accounts import build
from ..exact import evaluate, number
from ..implementations import MEGATRON
from ..parameters import PARAMETERS, symbol
from ..terms import TermSet, term_symbol
from ..verdict import ESTIMATE, LIMITS, VERDICTS, Verdict
from .tex import GIB


@dataclass(frozen=True, eq=False)
class Layout:
    """A model on a cluster: values by letter, those of the model read from the catalogue."""

    title: str
    model: str
    gpu: str
    choices: Mapping[str, int] = field(default_factory=dict)

    def values(self) -> dict[str, int]:
        """Return the value of every parameter that is not derived; switches not chosen are 0."""
        model, gpu = _table("models")[self.model], _table("gpus")[self.gpu]
        known = {item.letter: 0 for item in PARAMETERS if item.is_switch}
        known |= {item.letter: item.default for item in PARAMETERS if item.default is not None}
        known |= {item.letter: int(model[item.name]) for item in PARAMETERS if item.name in model}
        known |= MEGATRON.defaults
        known |= {"n": gpu["node_size"], "M": gpu["memory_gib"] * GIB, "r": 0}
        known |= {"gs": gpu["node_size"], "Mh": gpu.get("host_memory_gib", 0) * GIB}
        known |= self.choices
        return known | {"N": known["t"] * known["c"] * known["p"] * known["D"]}


@cache
def _table(name: str) -> dict[str, Any]:
    return read(name)


EXAMPLE = Layout(
    "Llama-3.1-70B on 512 H100-80GB", "llama-3.1-70b", "h100-80gb",
    {"t": 8, "c": 1, "p": 4, "D": 16, "b": 1, "s": 8192, "B": 1024, "sp": 1},
)

#: Layouts with several stages, at which the formula of the whole model stands beside the ledger.
STAGED = (
    Layout("Llama-3.1-8B", "llama-3.1-8b", "h100-80gb",
           {"t": 2, "c": 1, "p": 2, "D": 4, "b": 1, "s": 8192, "B": 128, "sp": 1}),
    Layout("Llama-3.1-70B", EXAMPLE.model, EXAMPLE.gpu, EXAMPLE.choices),
    Layout("Llama-3.1-405B", "llama-3.1-405b", "h100-80gb",
           {"t": 8, "c": 2, "p": 14, "D": 8, "b": 1, "s": 8192, "B": 512, "sp": 1}),
)

#: The vocabulary is compared without padding, as the publications have it.
_COMPARED = {"c": 1, "b": 1, "s": 8192, "B": 1024, "sp": 1, "g": 1}
COMPARISONS = (
    Layout("Llama-3.1-8B", "llama-3.1-8b", "h100-80gb", {**_COMPARED, "t": 2, "p": 1, "D": 8}),
    Layout("Llama-3.1-70B", "llama-3.1-70b", "h100-80gb", {**_COMPARED, "t": 8, "p": 4, "D": 16}),
    Layout("Llama-3.1-405B", "llama-3.1-405b", "h100-80gb", {**_COMPARED, "t": 8, "p": 14, "D": 16}),
)


def by_rank(layout: Layout) -> list[dict[str, Rational]]:
    """Evaluate every term of the counted ledger for each pipeline rank."""
    values = layout.values()
    terms = list(build(MEGATRON).terms.values())
    return [evaluate(terms, {**values, "r": rank}) for rank in range(values["p"])]


def amount(terms: TermSet, names: Iterable[str], layout: Layout, assumed: Mapping[str, Expr]) -> Rational:
    """Evaluate the sum of some terms at a layout, with the assumptions of a comparison put in."""
    values = layout.values()
    known = {symbol(letter): sympify(value) for letter, value in values.items()}
    chosen = {letter: number(sympify(value), known) for letter, value in assumed.items()}
    chosen = {letter: value for letter, value in chosen.items() if letter in values}
    names = tuple(names)
    evaluated = evaluate(terms.closure(names), {**values, **chosen})
    return sum((evaluated[name] for name in names), Rational(0))


def verdict(totals: Mapping[str, Rational], memory: int, verdicts: Sequence[Verdict] = VERDICTS) -> str:
    """Name the first verdict on the peak whose condition holds."""
    known = {ESTIMATE: totals["peak"], symbol("M"): sympify(memory)}
    known |= {term_symbol(name): totals[name] for name in LIMITS}
    return next(item.name for item in verdicts if item.condition.xreplace(known) == True)  # noqa: E712
