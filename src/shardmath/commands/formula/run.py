"""Show one term: its ledger rows, its derivation step by step, and its form in other languages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, TypeAlias

from shardmath.answers import Answer
from shardmath.catalogue.code import oracle_of, shared_with
from shardmath.commands.formula.assuming import assuming, read_clauses
from shardmath.commands.formula.computing import Symbolic
from shardmath.commands.formula.legend import Letter, Publication, letters_of, publication_of
from shardmath.commands.formula.lines import CodeLine, lines_of
from shardmath.commands.formula.published import CountedTerms, SourceNumber, source_numbers
from shardmath.commands.formula.stored import stored, stored_terms
from shardmath.compiler.evaluators import changed_choices, counted, refuse_untimed
from shardmath.configuration.choosing import options_of
from shardmath.configuration.fields import FIRST
from shardmath.errors import InputError
from shardmath.generated.definitions import IMPLEMENTATIONS
from shardmath.input.arguments import typed
from shardmath.input.naming import LISTED, close_terms, nearest_terms

if TYPE_CHECKING:
    from sympy import Expr

    from shardmath.symbolic.algebra.assumed import Assumed
    from shardmath.symbolic.implementations import Implementation
    from shardmath.symbolic.parallel.rules import Rule
    from shardmath.symbolic.simplify import Step as Simplified
    from shardmath.symbolic.terms import TermSet

#: Kernel choices as sorted pairs of axis and option.
_Kernels: TypeAlias = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Row(Answer):
    """One ledger row of a term."""

    name: str
    """Component and tensor."""
    shape: str
    """Dimensions of the whole tensor."""
    bytes: int
    """Bytes of one element."""
    lifetime: str
    """Lifetime of the tensor."""
    source: str
    """Key of the source."""
    meaning: str
    """Meaning of the row."""
    size: str
    """Formula of its size on one rank, in the unit of the term."""
    code: CodeLine | None = None
    """The line of the framework that makes it; null where none is recorded."""
    oracle: str = ""
    """Test of this project that counts it, alone or in the shortest sum; empty if none does."""
    shares: str = ""
    """Row of the same size in whose memory it lies, which the test counts; empty if the test counts the row itself."""


@dataclass(frozen=True)
class Step(Answer):
    """The term after one rule of simplification."""

    rule: str
    """Name of the rule."""
    form: str
    """The term in one line."""
    operations: int
    """Operations of this form."""


@dataclass(frozen=True)
class Forms(Answer):
    """The simplified form in other languages."""

    python: str
    """As Python, with long names."""
    latex: str
    """As LaTeX."""
    unicode: str
    """As Unicode text."""


@dataclass(frozen=True)
class Formula(Answer, Symbolic):
    """One term: its ledger rows, its derivation, its form in other languages, and the SymPy expression ``expr``.

    Raises FrozenInstanceError where a field is set, and InputError for a symbol that is unknown.

    Example:
        >>> layer = shardmath.formula("korthikanti2022.layer_none")
        >>> layer.expr, layer.unit
        (b*h*s*(5*a*s/h + 34), 'bytes')
    """

    name: str
    """Name of the term."""
    implementation: str
    """Framework or published set."""
    kernels: Mapping[str, str]
    """Kernel choices that were asked for."""
    assumptions: tuple[str, ...]
    """Assumptions under which the formula holds."""
    expanded: bool
    """True if the terms that it refers to are written out."""
    unit: str
    """Unit of the term."""
    meaning: str
    """Meaning of the term."""
    rows: tuple[Row, ...]
    """Ledger rows that it sums."""
    steps: tuple[Step, ...]
    """Forms of the term, from the definition to the simplified one."""
    uses: Mapping[str, str]
    """Definitions of the symbols that are no parameters."""
    forms: Forms
    """The simplified form in other languages."""
    numbers: tuple[SourceNumber, ...]
    """Numbers that a publication prints for its own formula; none for a counted term."""
    counterparts: tuple[CountedTerms, ...]
    """Terms of the ledger that mean the same as a published term; none for a counted term."""
    letters: tuple[Letter, ...]
    """Parameters in the simplified form and in the definitions of ``uses``."""
    publication: Publication | None
    """Source of a published term; null for a counted term, whose rows have one each."""

    @cached_property
    def _formulas(self) -> Assumed:  # type: ignore[override]
        return _assumed(self.name, self.implementation, _items(self.kernels), self.assumptions)

    @cached_property
    def _form(self) -> Expr:
        return _steps(
            self.name, self.implementation, _items(self.kernels), self.assumptions, self.expanded)[-1].expression

    def __repr__(self) -> str:
        """Return one line: name, assumptions and the expression."""
        where = f" where {', '.join(self.assumptions)}" if self.assumptions else ""
        return f"Formula({self.name}, {self.unit}{where}: {self.steps[-1].form})"


@typed
def formula(
    name: str, implementation: str = FIRST, kernels: Mapping[str, str] | None = None, *,
    assume: str | Sequence[str] = (), expand: bool = False,
) -> Formula:
    """Derive the term ``name`` of an implementation or of a published set (``fujii2024.total``).

    ``assume`` are assumptions, with commas between them: ``"usual, sequence_parallel, recompute=none, pipeline_parallel
    > 1, tensor_parallel <= num_kv_heads"``. Switches, maxima and roundings fall where they decide them; the result
    equals the term wherever they hold. ``usual`` gives parameters that few people set their defaults. With ``expand``
    the terms in it are written out, but for the letters ``A``, ``K``, ``v`` and ``m``.

    Raises InputError for an unknown term, implementation or kernel choice, and for assumptions that cannot be read or
    that no legal configuration meets.

    Example:
        >>> layer = shardmath.formula("korthikanti2022.layer_none")
        >>> layer
        Formula(korthikanti2022.layer_none, bytes: s*b*h*(34 + 5*s*a/h))
    """
    texts = tuple(read_clauses(assume).texts) if assume else ()
    question = (name, implementation, _items(kernels), texts, expand)
    owner, record = _stored(name, implementation) if not (kernels or texts or expand) else ("", None)
    if record is None:
        if not kernels:
            _refuse_misspelt(name, implementation)
        owner, record = _derived(*question)
    lines = lines_of(owner, kernels or {}, [row[0] for row in record["rows"]])
    return Formula(
        name, owner, dict(kernels or {}), texts, expand, record["unit"], record["meaning"],
        tuple(replace(Row(*row), code=line, oracle=oracle_of(owner, row[0]),
                      shares=shared_with(owner, row[0]))
              for row, line in zip(record["rows"], lines, strict=True)),
        tuple(Step(*step) for step in record["steps"]),
        dict(record["uses"]), LaterForms(*question), source_numbers(record.get("numbers", ())),
        tuple(CountedTerms(**terms) for terms in record.get("counterparts", ())),
        letters_of([record["steps"][-1][1], *record["uses"].values()]), publication_of(record.get("publication", "")),
    )


def _stored(name: str, implementation: str) -> tuple[str, dict[str, Any] | None]:
    """Return whose a term of the package is, and its record with the definitions of what it uses."""
    for owner in (name.partition(".")[0], implementation):
        record = stored(owner, name)
        if record is not None:
            used = {letter: stored(owner, part) for letter, part in record["uses"]}
            return owner, {**record, "uses": {
                letter: definition["steps"][-1][1] for letter, definition in used.items() if definition is not None}}
    return "", None


def _refuse_misspelt(name: str, implementation: str) -> None:
    """Raise InputError for several words or a misspelt name of the package's terms, without deriving any."""
    terms = stored_terms()
    owner = next((item for item in (name.partition(".")[0], implementation) if item in terms), None)
    if owner is None or any(name in known for known in terms.values()):
        return
    if close := close_terms(name, terms[owner]):
        has_experts = owner in IMPLEMENTATIONS and "experts" in options_of(owner, "layers")
        others = " (--kernel layers=experts has others)" if has_experts else ""
        raise InputError("term", name, f"must be a term of {owner}{others}", close)
    if len(name.split()) != 1:
        raise InputError("term", name, f"must be a term of {owner}", _nearest(name, terms[owner]))


def _derived(
    name: str, implementation: str, kernels: _Kernels, assumptions: tuple[str, ...], expand: bool,
) -> tuple[str, dict[str, Any]]:
    """Return whose a term is, and its record with the definitions of what it uses.

    Raises InputError for an unknown term.
    """
    from shardmath.symbolic.documents.records import of_source, record_of
    from shardmath.symbolic.printers.text import LinePrinter
    from shardmath.symbolic.published import published_set
    from shardmath.symbolic.simplify import derivation, spelled_out

    home, line = home_of(name, implementation, kernels), LinePrinter()
    terms, fixed = home.terms, home.fixed
    if name not in terms:
        of_experts = _is_of_experts(name, implementation, kernels)
        nearest = f"{name} with --kernel layers=experts" if of_experts else _nearest(
            name, {term.name: (term.unit, term.meaning) for term in terms.terms.values()})
        raise InputError("term", name, f"must be a term of {home.name}", nearest)
    steps = _steps(name, implementation, kernels, assumptions, expand)

    def spelled(expression: Expr) -> Expr:
        written = spelled_out(terms, expression, fixed)
        if not assumptions:
            return written
        return _assumed(name, implementation, kernels, assumptions).of(written, expand=False)

    record = record_of(terms, name, fixed, steps, spelled)
    uses = {letter: line.doprint(derivation(terms, part, fixed)[-1].expression) for letter, part in record["uses"]}
    item = published_set(home.name)
    return home.name, {**record, "uses": uses, **({} if item is None else of_source(item, name))}


def _nearest(name: str, own: Mapping[str, tuple[str, str]]) -> str:
    """Return the terms that a name or a few words may mean: of ``own`` units and meanings, else of a publication."""
    published = {term: texts for owner, terms in stored_terms().items() if owner not in IMPLEMENTATIONS
                 for term, texts in terms.items()}
    return nearest_terms(name, own) or nearest_terms(name, published) or LISTED


class LaterForms(Forms):
    """Forms that are printed when somebody asks for one of them."""

    def __init__(
        self, name: str, implementation: str, kernels: _Kernels, assumptions: tuple[str, ...], expand: bool,
    ) -> None:
        """Keep the question."""
        self.__dict__["question"] = (name, implementation, kernels, assumptions, expand)

    def __getattr__(self, form: str) -> str:
        """Print all forms when the first is asked for."""
        if form not in Forms.__dataclass_fields__:
            raise AttributeError(form)
        question = self.question
        self.__dict__.update(vars(forms_of(_steps(*question)[-1].expression, home_of(*question[:3]).terms)))
        return str(self.__dict__[form])


def forms_of(expression: Expr, terms: TermSet) -> Forms:
    """Return an expression over ``terms`` in other languages."""
    from shardmath.symbolic.algebra.standard import over_whole_numbers
    from shardmath.symbolic.printers.latex import LatexPrinter
    from shardmath.symbolic.printers.python import PythonPrinter
    from shardmath.symbolic.printers.text import UnicodePrinter

    return Forms(PythonPrinter().doprint(over_whole_numbers(expression)),
                 LatexPrinter(terms.terms.values()).doprint(expression), UnicodePrinter().doprint(expression))


@lru_cache(maxsize=64)
def _steps(
    name: str, implementation: str, kernels: _Kernels, assumptions: tuple[str, ...], expand: bool,
) -> tuple[Simplified, ...]:
    """Return the forms of a term, the first as written; with assumptions the second is what these leave of it."""
    from shardmath.symbolic.simplify import Step as Form
    from shardmath.symbolic.simplify import derivation, simplify
    from shardmath.symbolic.terms import operations

    home = home_of(name, implementation, kernels)
    steps = derivation(home.terms, name, home.fixed)
    if not assumptions and not expand:
        return steps
    formulas = _assumed(name, implementation, kernels, assumptions)
    left = formulas.of(steps[0].expression, expand=expand)
    rule = "under the assumptions" if assumptions else "written out"
    count = operations(left)
    shorter = simplify(left, defines=home.terms[name].symbol)[1:] if count <= _MOST_OPERATIONS else ()
    return (steps[0], Form(rule, left, count), *shorter)


#: Longer forms, such as a whole step's time written out, are not made shorter: nobody reads them.
_MOST_OPERATIONS = 3_000


def _items(kernels: Mapping[str, str] | None) -> _Kernels:
    return tuple(sorted((kernels or {}).items()))


@lru_cache(maxsize=64)
def _assumed(
    name: str, implementation: str, kernels: _Kernels, assumptions: tuple[str, ...],
) -> Assumed:
    """Get the formulas of the set that ``name`` belongs to, under assumptions and the rules of legal configurations."""
    from sympy import Integer

    from shardmath.symbolic.parameters import BY_LETTER, symbol

    home, clauses = home_of(name, implementation, kernels), read_clauses(assumptions)
    for letter, value in home.fixed.items():
        assumed = clauses.values.setdefault(symbol(letter), Integer(value))
        if assumed != value:
            rule = f"must be {value} in {home.terms.name}"
            raise InputError(BY_LETTER[letter].name, str(assumed), rule, str(value))
    return assuming(home.terms, clauses, [rule.condition for rule in home.rules])


@dataclass(frozen=True)
class Listed(Answer):
    """One term that has a formula."""

    name: str
    """Name, as ``shardmath formula`` takes it."""
    group: str
    """Component or sum that it belongs to."""
    unit: str
    """Its unit."""
    meaning: str
    """Its meaning."""


@dataclass(frozen=True)
class Formulas(Answer):
    """All terms of an implementation and of the published sets (``formula --list``)."""

    implementation: str
    """Framework."""
    kernels: Mapping[str, str]
    """Kernel choices that were asked for."""
    terms: tuple[Listed, ...]
    """The terms, in the order in which they are computed."""


@typed
def names(implementation: str = FIRST, kernels: Mapping[str, str] | None = None) -> tuple[Listed, ...]:
    """Get the terms of an implementation and of the published sets, in groups: by component, then what they add up to.

    Raises InputError for an unknown implementation or kernel choice.
    """
    from shardmath.symbolic.accounts import build, components_of
    from shardmath.symbolic.published import all_published
    from shardmath.symbolic.timing import build_all, is_timed

    chosen = _chosen(implementation, kernels)
    titles = {item.name: f"{item.title} ({item.name})" for item in components_of(chosen)}
    groups: dict[str, list[Listed]] = {}
    for name, term in (build_all if is_timed(chosen) else build)(chosen).terms.items():
        group = titles.get(term.owner, _OTHER_GROUPS.get(term.owner, term.owner))
        groups.setdefault(group, []).append(Listed(name, group, term.unit, term.meaning))
    for item in all_published():
        groups[item.title] = [Listed(term.name, item.title, term.unit, term.meaning) for term in item.own]
    return tuple(term for group in groups.values() for term in group)


#: Titles of groups that are no component, by the first part of their terms' names.
_OTHER_GROUPS = {
    "": "Definitions, and the peak", "local": "Sizes on one rank", "layer": "One layer on one rank",
    "expert_layer": "One layer with experts on one rank", "whole_layer": "One layer without a window on one rank",
    "stage": "Rank r", "process": "Memory of a process",
    "first": "The first rank", "second": "The second rank", "penultimate": "The last rank but one",
    "last": "The last rank", "step": "One step", "spent": "Parts of the step time",
}


def _chosen(implementation: str, kernels: Mapping[str, str] | None) -> Implementation:
    return counted(implementation, changed_choices(implementation, kernels))


@dataclass(frozen=True)
class Home:
    """The framework or published set that a term belongs to, its terms, its fixed values by letter and its rules."""

    name: str
    terms: TermSet
    fixed: Mapping[str, int]
    rules: tuple[Rule, ...]


def _is_of_experts(name: str, implementation: str, kernels: _Kernels) -> bool:
    """Tell whether a term is one of models with experts."""
    try:
        return name in home_of(name, implementation, (*kernels, ("layers", "experts"))).terms
    except InputError:  # kernels that no such model has
        return False


def home_of(name: str, implementation: str, kernels: _Kernels) -> Home:
    """Return whose a term is by its name. Raises InputError for an unknown implementation or kernel choice."""
    from shardmath.symbolic.accounts import build
    from shardmath.symbolic.implementations import IMPLEMENTATIONS
    from shardmath.symbolic.parallel.legality import fixed_values, rules_for
    from shardmath.symbolic.published import published_set
    from shardmath.symbolic.timing import build_all, is_timed

    item = published_set(name.partition(".")[0])
    if item is not None:
        return Home(item.name, item.terms, {}, ())
    chosen = _chosen(implementation, dict(kernels))
    terms = build(chosen)
    if name not in terms and (is_timed(chosen) or name in build_all(IMPLEMENTATIONS[implementation])):
        refuse_untimed(chosen.choices)
        terms = build_all(chosen)
    return Home(implementation, terms, fixed_values(chosen), rules_for(chosen))
