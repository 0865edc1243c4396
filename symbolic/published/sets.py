"""Sets of published formulas, and the factors that several of them share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from sympy import Eq, Expr, Integer, Symbol

from ..functions import Iverson, Min
from ..parallel.derived import published
from ..parameters import BY_LETTER, symbol, symbols
from ..sources import BY_KEY
from ..terms import Term, TermSet, product, total

p, m, V, a, h = symbols("p m V a h")


@dataclass(frozen=True)
class Counterpart:
    """A published term beside the terms of the counted ledger that mean the same.

    ``ledger`` names one or more terms whose sum is compared. ``values`` are assumptions, by letter,
    that make the two comparable; they are put into both sides. ``remark`` says why they differ.
    ``difference`` is published minus counted under these assumptions, in the unit of the term; it is
    absent where it is not a short expression. ``choices`` are those of the ledger that are not Megatron's own.
    """

    term: str
    ledger: tuple[str, ...]
    meaning: str
    remark: str
    values: Mapping[str, Expr] = field(default_factory=dict)
    difference: Expr | None = None
    choices: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class PublishedSet:
    """The formulas of one publication, as printed there, and what the counted ledger has in their place.

    Names of terms start with the name of the set; ``<name>.total`` is the estimate of one GPU in bytes.
    ``source`` is a key of ``sources.BY_KEY``. ``notes`` say what the formulas assume, ``implementation``
    names the implementation that they are about.
    """

    name: str
    title: str
    source: str
    terms: TermSet
    correspondence: tuple[Counterpart, ...]
    notes: tuple[str, ...] = ()
    implementation: str = "megatron"

    @property
    def own(self) -> tuple[Term, ...]:
        """The terms of the publication, without those that define letters."""
        return tuple(term for term in self.terms.terms.values() if term.owner == self.name)

    def __post_init__(self) -> None:
        """Refuse an unknown source, a set without an estimate and a counterpart of no term."""
        if self.source not in BY_KEY:
            raise ValueError(f"{self.name}: unknown source {self.source!r}")
        for name in (f"{self.name}.total", *(item.term for item in self.correspondence)):
            if name not in self.terms:
                raise ValueError(f"{self.name}: no term {name}")


def assume(values: Mapping[str, Expr], **letters: int) -> Mapping[str, Expr]:
    """Return ``values`` with numbers for more letters."""
    return {**values, **{letter: Integer(value) for letter, value in letters.items()}}


def new_terms(name: str, derived: str) -> TermSet:
    """Return a set that starts with definitions of derived letters, given with spaces between them.

    Raises KeyError for a letter that is not a derived one.
    """
    terms = TermSet(name)
    for letter in derived.split():
        parameter = BY_LETTER[letter]
        terms.add(parameter.name, published()[letter], parameter.unit, parameter.meaning)
    return terms


#: No recompute, no dropout, and a model without biases and QK-norm: what the published formulas are about.
PLAIN: Mapping[str, Expr] = {
    **{letter: Integer(0) for letter in ("rfull", "rcore", "rmlp", "bias", "lbias", "qkn", "drop", "adrop",
                                             "fcopy")},
    "R": Integer(1),
}
#: The same on one rank, with A = h: where a published layer is compared with a counted one.
ONE_RANK: Mapping[str, Expr] = {**PLAIN, "sp": Integer(0), "t": Integer(1), "c": Integer(1), "d": h / a}

#: Without interleaving fewer micro-batches than stages keep less; otherwise L/p layers of p micro-batches.
FEW_MICROBATCHES = Min(Integer(1), m / p)
IS_ONE_STAGE = Iverson(Eq(p, 1))
HAS_STAGES = Iverson(p > 1)


def schedule_factor(plain: Expr) -> Expr:
    """Return what the activations of L layers are multiplied by on the first stage.

    With V > 1 chunks of layers per rank an interleaved schedule keeps 1 + (p - 1)/(p V) times as much
    (Korthikanti et al. 2022, section 4.2.3); without interleaving the factor is ``plain``.
    """
    more = total(Integer(1), (p - 1) / (p * V))
    return total(product(Iverson(V > 1), more), product(Iverson(Eq(V, 1)), plain))


def expanded(terms: TermSet, names: tuple[str, ...], values: Mapping[str, Expr]) -> Expr:
    """Return the sum of the named terms over the parameters alone, with ``values`` put in.

    Raises KeyError for a name that is not in the set.
    """
    known: dict[Symbol, Expr] = {symbol(letter): value for letter, value in values.items()}
    for term in terms.closure(names):
        known.setdefault(term.symbol, term.expression.xreplace(dict(known)).doit())
    return sum((known[terms[name].symbol] for name in names), Integer(0))


def difference(published: TermSet, ledger: TermSet, item: Counterpart) -> Expr:
    """Return published minus counted under the assumptions of ``item``, multiplied out.

    No publication speaks of more tensor-parallel ranks than key and value heads.
    """
    few_ranks = {Iverson(symbol("t") > item.values.get("k", symbol("k"))): Integer(0)}
    ours = expanded(ledger, item.ledger, item.values).xreplace(few_ranks)
    return (expanded(published, (item.term,), item.values) - ours).expand()
