"""Terms and rows in documents: as written, simplified, with operation counts, in groups."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from sympy import Expr, Integer, Symbol

from ..accounts import build, kept_rows
from ..accounts.lines import lines
from ..accounts.peak import CANDIDATES, OF_EXPERTS
from ..implementations import Implementation
from ..ledger import Component
from ..parallel.legality import fixed_values
from ..parallel.pipeline import LAYERS
from ..parameters import symbol
from ..simplify import derivation
from ..terms import Term, TermSet, in_place
from ..timing import build_times, is_timed


@dataclass(frozen=True)
class Form:
    """One term for readers: as written, simplified where that changes it, and operations of both."""

    term: Term
    written: Expr
    simplified: Expr | None
    operations: tuple[int, int]


@dataclass(frozen=True)
class Group:
    """Terms that are shown together, under a title.

    The meanings of a systematic group follow from the names of its terms.
    """

    title: str
    terms: tuple[str, ...]
    systematic: bool = False


@cache
def forms(implementation: Implementation) -> dict[str, Form]:
    """Derive the form of every term of an implementation, by name."""
    terms, fixed = build(implementation), fixed_values(implementation)
    return {name: form_of(terms, name, fixed) for name in terms.terms}


@cache
def time_forms(implementation: Implementation) -> dict[str, Form]:
    """Derive the form of every term of an implementation's time that is none of its memory, by name."""
    terms, fixed = build_times(implementation), fixed_values(implementation)
    return {name: form_of(terms, name, fixed) for name in terms.terms if name not in build(implementation)}


@cache
def aliases(implementation: Implementation) -> dict[Symbol, Symbol]:
    """Return terms of an implementation that are only another name, with the symbol that each stands for."""
    same: dict[Symbol, Symbol] = {}
    of_all = forms(implementation) | (time_forms(implementation) if is_timed(implementation) else {})
    for form in of_all.values():
        meant = form.written if form.simplified is None else form.simplified
        if isinstance(meant, Symbol):
            same[form.term.symbol] = same.get(meant, meant)
    return same


def published_form(term: Term) -> Form:
    """Show a published term as it is printed there."""
    count = int(term.expression.count_ops())
    return Form(term, term.expression, None, (count, count))


def row_sizes(implementation: Implementation) -> dict[tuple[str, str], Expr]:
    """Find the size on one rank of every row that an implementation keeps, by component and row.

    Sizes of split dimensions are written out; the key and value heads of one rank keep their letter.
    """
    terms, fixed = build(implementation), fixed_values(implementation)
    values: dict[Symbol, Expr] = {symbol(letter): Integer(value) for letter, value in fixed.items()}
    for name, term in terms.terms.items():
        if term.owner == "local":
            values[term.symbol] = derivation(terms, name, fixed)[-1].expression
    return {
        (row.component.name, row.tensor.name): in_place(row.expression, values)
        for row in kept_rows(implementation)
    }


def own_terms(terms: TermSet, component: Component) -> tuple[str, ...]:
    """List the terms of a single instance of a component."""
    return tuple(name for name, term in terms.terms.items() if term.owner == component.name)


def definitions_of(terms: TermSet) -> tuple[str, ...]:
    """List the terms that only name something: derived letters and sizes on one rank."""
    return tuple(name for name, term in terms.terms.items() if term.owner in ("", "local") and name != "peak")


def total_groups(terms: TermSet) -> tuple[Group, ...]:
    """List the terms above the components: layer, rank r, its components, process, model, peak.

    The peak is over copies of rank r's terms with the rank put in, of which only the totals are shown.
    """
    def of(*owners: str) -> tuple[str, ...]:
        return tuple(name for name, term in terms.terms.items() if term.owner in owners)

    every_line = lines()
    groups = [
        Group("One layer on one rank", of(*LAYERS)),
        Group("Rank $r$ by component and role", tuple(name for name in of("stage") if name in every_line), True),
        Group("Rank $r$ by role, and in all", tuple(name for name in of("stage") if name not in every_line)),
        Group("Memory of a process", of("process")),
        Group("Parameters of the model", of("model")),
        Group("Peak over the ranks that can have it", (*(f"{name}.total" for name in CANDIDATES), "peak")),
    ]
    return tuple(group for group in groups if group.terms)


def shown(terms: TermSet) -> tuple[str, ...]:
    """List the terms that documents show: of the copies for single ranks only the totals."""
    copies = {*CANDIDATES, *OF_EXPERTS}
    return tuple(name for name, term in terms.terms.items() if term.owner not in copies or term.kind == "total")


def form_of(terms: TermSet, name: str, fixed: dict[str, int]) -> Form:
    """Derive the form of one term; simplified only where rules do more than put the summands into SymPy's order."""
    steps = derivation(terms, name, fixed)
    first, last = steps[0], steps[-1]
    changed = last.operations < first.operations or last.expression.doit() != first.expression.doit()
    return Form(
        terms[name], first.expression, last.expression if changed else None,
        (first.operations, last.operations),
    )
