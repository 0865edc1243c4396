"""Sets of published formulas, and the factors that several of them share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from sympy import Eq, Expr, Integer, Rational

from ..functions import Iverson, Min
from ..parallel.derived import published
from ..parameters import BY_LETTER, symbols
from ..sources import BY_KEY
from ..terms import Term, TermSet, product, total

p, m, V, a, h = symbols("p m V a h")
ONE = Integer(1)


@dataclass(frozen=True)
class Counterpart:
    """A published term beside the terms of the counted ledger that mean the same.

    ``ledger`` names one or more terms, of memory or of time. Compared is ``scale`` times their sum, over the sum of
    the terms ``over`` if there are any: ``scale`` turns bytes into elements, or what a collective moves into the share
    that one rank sends. ``values`` are assumptions, by letter, that make the two comparable; they are put into both
    sides, and may be terms of the ledger. ``remark`` says why the two differ. ``difference`` is published minus
    counted under these assumptions, in the unit of the published term; it is absent where it is not a short
    expression. The ledger's terms ``kept`` stay letters in it. ``choices`` are those of the ledger that are not the
    own ones of ``implementation``, which is that of the set if it is empty.
    """

    term: str
    ledger: tuple[str, ...]
    meaning: str
    remark: str
    values: Mapping[str, Expr] = field(default_factory=dict)
    difference: Expr | None = None
    choices: Mapping[str, str] = field(default_factory=dict)
    scale: Expr = ONE
    over: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    implementation: str = ""


@dataclass(frozen=True)
class Figure:
    """A number that the source itself gives for one of its terms.

    ``values`` are its inputs by letter, ``printed`` the digits of the source in ``unit``, of which one is ``size``
    times that of the term; ``where`` is the place in the source. ``remark`` says why a number that disagrees with the
    source's own formula does so.
    """

    term: str
    values: Mapping[str, int | Rational]
    printed: str
    unit: str
    size: int | Rational
    where: str
    remark: str = ""

    def agrees(self, value: Rational) -> bool:
        """Tell whether the printed digits are those of ``value``, in the unit of the term, rounded or cut off."""
        digits = self.printed.replace(",", "")
        last = Rational(1, 10 ** len(digits.partition(".")[2]))
        return bool(abs(value / self.size - Rational(digits)) < last)


@dataclass(frozen=True)
class PublishedSet:
    """The formulas of one publication, as printed there, and what the counted ledger has in their place.

    Names of terms start with the name of the set; every term has its own unit. Where there is a ``<name>.total``, it
    is an estimate of one GPU's memory in bytes. ``source`` is a key of ``sources.BY_KEY``. ``notes`` say what the
    formulas assume, ``figures`` are the source's own numbers, ``implementation`` names the implementation that the
    formulas are about. ``system`` is the axis of the system that the publication presents, if it does.
    """

    name: str
    title: str
    source: str
    terms: TermSet
    correspondence: tuple[Counterpart, ...]
    notes: tuple[str, ...] = ()
    implementation: str = "megatron"
    figures: tuple[Figure, ...] = ()
    system: str = ""

    @property
    def own(self) -> tuple[Term, ...]:
        """The terms of the publication, without those that define letters."""
        return tuple(term for term in self.terms.terms.values() if term.owner == self.name)

    @property
    def estimates_memory(self) -> bool:
        """True for a set with an estimate of the memory of one GPU."""
        return f"{self.name}.total" in self.terms

    def __post_init__(self) -> None:
        """Refuse an unknown source, and a counterpart or a number of no term."""
        if self.source not in BY_KEY:
            raise ValueError(f"{self.name}: unknown source {self.source!r}")
        named = *(pair.term for pair in self.correspondence), *(figure.term for figure in self.figures)
        for name in named:
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
#: Choices of the ledger for a GPT layer without dropout: LayerNorm, GELU and biases of all projections.
GPT: Mapping[str, str] = {"normalisation": "layer", "mlp": "gelu", "biases": "linear"}
#: A GPT model on one rank: f = 4h, keys and values for every head.
GPT_RANK: Mapping[str, Expr] = {**ONE_RANK, "k": a, "f": 4 * h, "lbias": ONE}

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
