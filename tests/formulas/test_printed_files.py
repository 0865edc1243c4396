"""What files, commands and the page really print is read back: every term has its exact value there too."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from itertools import pairwise

import pytest
from exact_points import Points
from oracles.extent import FULL
from printed_notations import Notation, notations
from read_formulas import node
from typesetting import formulas_in

from shardmath.commands.appendix.run import appendix
from shardmath.commands.formula.report import show
from shardmath.commands.formula.run import formula
from shardmath.commands.page.typesetting import formulas_of
from shardmath.compiler.evaluators import find
from shardmath.symbolic.accounts import build
from shardmath.symbolic.documents.forms import aliases, shown
from shardmath.symbolic.documents.formulas import cell
from shardmath.symbolic.documents.systems import changed_terms, terms_of, with_option
from shardmath.symbolic.documents.tex import code, escape
from shardmath.symbolic.implementations import IMPLEMENTATIONS, Implementation
from shardmath.symbolic.parallel.legality import fixed_values
from shardmath.symbolic.parameters import PARAMETERS
from shardmath.symbolic.published import all_published, memory_estimates
from shardmath.symbolic.systems import SYSTEMS
from shardmath.symbolic.terms import TermSet

pytestmark = pytest.mark.slow

#: An underscore in the code of a document.
ESCAPED = r"\_\allowbreak "
PUBLISHED = {item.name: item for item in all_published()}
#: Implementations with an option of a system, by both names.
OF_SYSTEMS = {f"{system.axis.name} = {option}": with_option(system, option)[1]
              for system in SYSTEMS for option in system.axis.options if option != system.absent}
#: All whose terms are printed.
COUNTED = {**IMPLEMENTATIONS, **OF_SYSTEMS}
OWNERS = [*IMPLEMENTATIONS, *PUBLISHED]
EVERY_IMPLEMENTATION = pytest.mark.parametrize("name", IMPLEMENTATIONS)


class Reader:
    """The terms of an implementation or of a published set, with their values and the notations they are printed in."""

    def __init__(self, name: str) -> None:
        published = PUBLISHED.get(name)
        fixed = {} if published else fixed_values(COUNTED[name])
        self.terms: TermSet = published.terms if published else terms_of(COUNTED[name])
        self.points = Points(self.terms, fixed)
        self.text, _, self.latex, self.mathml = notations(self.terms.terms.values(), name if published else "")

    def check(self, notation: Notation, name: str, text: str) -> None:
        """Compare a formula for the term ``name``."""
        column = self.points.read(notation.read(text))[:self.points.together]
        assert column == self.points.of(self.terms[name].symbol)[:self.points.together], (name, text)


reader = cache(Reader)


def generated(name: str) -> str:
    return (files("shardmath.generated") / name).read_text(encoding="utf-8")


def table_rows(text: str) -> Iterator[tuple[str, str, list[str]]]:
    """Go through the rows of terms in the Markdown tables: whose they are, the name, and the formulas."""
    titles = {cell(item.title): name for name, item in IMPLEMENTATIONS.items()}
    titles |= {f"Published: {cell(item.title)}": name for name, item in PUBLISHED.items()}
    titles |= {"Time of a step": "megatron"}
    owner = ""
    for line in text.splitlines():
        heading = re.fullmatch(r"(#+) (.*)", line)
        if heading:
            own = re.fullmatch(r"Terms, `(\w+)`", heading[2])
            owner = own[1] if own else titles.get(heading[2], owner if heading[1] == "###" else "")
        parts = [part.strip() for part in re.split(r"(?<!\\)\|", line)[1:-1]]
        if len(parts) == 6 and re.fullmatch(r"`[\w.]+`", parts[0]) and re.fullmatch(r"\d+( → \d+)?", parts[5]):
            yield owner, parts[0].strip("`"), [part.strip("`").replace(r"\|", "|") for part in parts[3:5] if part]


def test_tables_of_formulas() -> None:
    seen = set()
    for owner, name, forms in table_rows(generated("formulas.md")):
        seen.add((owner, name))
        assert all(before != after for before, after in pairwise(forms)), name
        for form in forms:
            reader(owner).check(reader(owner).text, name, form)
    assert seen >= {("megatron", name) for name in ("spent.idle", "stage.messages", "stage.total", "peak")}
    assert {owner for owner, _ in seen} == {*OWNERS}


def appendix_rows(text: str, main: str) -> Iterator[tuple[str, str, list[str]]]:
    """Go through the rows of terms in the supplement, as ``table_rows`` does."""
    titles = {escape(item.title): name for name, item in (IMPLEMENTATIONS | PUBLISHED).items()}
    names = {code(term): term for owner in (*OWNERS, *OF_SYSTEMS) for term in reader(owner).terms.terms}
    axes = {code(system.axis.name): system.axis.name for system in SYSTEMS}
    owner = axis = ""
    for line in text.splitlines():
        heading = re.match(r"\\(?:sub)?section\{(.*?)\}(?:\\label|$)", line)
        if heading:
            owner = main if heading[1] == "Time of a step" else titles.get(heading[1], owner)
        own = re.search(r"\\textbf\{(?:Terms, )?\\texttt\{(\w+)\}\}", line)
        owner = own[1] if own else owner
        if system := re.match(r"\\subsection\{System: (.*?), ", line):
            axis = axes[system[1]]
        if option := re.search(r"\\textbf\{Terms with \\texttt\{(.*)\}\}\}", line):
            owner = next(name for name in OF_SYSTEMS if name == f"{axis} = {option[1].replace(ESCAPED, '_')}")
        name, _, rest = line.partition(" & ")
        if name in names and rest.startswith(r"\form{"):
            yield owner, names[name], formulas_in(rest)


def rows_of(item: Implementation) -> set[str]:
    """The terms of an implementation that have a row: all that are shown and more than another name."""
    same = aliases(item)
    return {name for name in shown(build(item)) if build(item)[name].symbol not in same}


def test_rows_of_the_supplement() -> None:
    seen = check_rows(generated("supplement.tex"), "megatron")
    for owner, item in IMPLEMENTATIONS.items():
        assert {name for of, name in seen if of == owner} >= rows_of(item)
    assert {("megatron", "spent.idle"), ("megatron", "stage.messages")} <= seen
    changing = {f"{system.axis.name} = {option}" for system in SYSTEMS for option in system.axis.options
                if option != system.absent and changed_terms(system, option)}
    assert {owner for owner, _ in seen} == {*IMPLEMENTATIONS, *changing, *(item.name for item in memory_estimates())}


@pytest.mark.parametrize("name", IMPLEMENTATIONS if FULL else ["nanotron"])
def test_rows_of_the_command_appendix(name: str) -> None:
    seen = check_rows(appendix(name).tex, name)
    assert seen >= {(name, term) for term in (*rows_of(IMPLEMENTATIONS[name]), "spent.idle")}


def check_rows(text: str, main: str) -> set[tuple[str, str]]:
    """Compare the rows of an appendix, and return what they are about."""
    seen = set()
    for owner, name, (first, *simplified) in appendix_rows(text, main):
        seen.add((owner, name))
        latex = reader(owner).latex
        symbol, _, written = first.partition(" = ")
        assert latex.read(symbol) is node(f".{reader(owner).terms[name].symbol.name}"), first
        forms = [written, *(form.removeprefix("= ") for form in simplified)]
        assert all(before != after for before, after in pairwise(forms)), name
        for form in forms:
            reader(owner).check(latex, name, form)
        assert owner in PUBLISHED or latex.read(forms[-1]).sign[0] != ".", f"{name} is only another name"
    return seen


@EVERY_IMPLEMENTATION
def test_formulas_of_the_page(name: str) -> None:
    of_page = formulas_of(find(name))
    assert of_page.keys() >= {"stage.total", "attention.saved"}
    for term, parts in of_page.items():
        mathml = reader(name).mathml
        assert mathml.read(parts["symbol"]) is node(f".{reader(name).terms[term].symbol.name}")
        if parts["form"]:  # none of a term that joins several ranks
            reader(name).check(mathml, term, "".join(parts["form"]))
    assert sum(not parts["form"] for parts in of_page.values()) < len(of_page) / 10


#: Terms with several steps, rows or definitions; some steps have symbols that the last one has lost.
SHOWN = (
    "spent.idle", "attention.saved", "stage.parameters", "stage.total", "step.time", "peak", "attention.repeated_time",
    "swiglu.saved", "head.parameters", "swiglu.tensor_forward_passes", "stage.waiting_losses.head_backward",
    "embedding.tensor_forward_time", "attention.context_repeated_time",
)


@EVERY_IMPLEMENTATION
def test_the_command_formula(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Read what the command prints: every step, and one definition for every symbol of a step that is no parameter."""
    own = reader(name)
    parameters = {str(item.symbol.name) for item in PARAMETERS} - {str(one.name) for one in own.terms.by_symbol}
    for term in own.terms.terms.keys() & SHOWN:
        show(formula(term, name))
        printed = capsys.readouterr().out
        steps = re.findall(r"\(\d+ operations?\)\n    (.*(?:\n {8}.*)*)", printed)
        assert steps
        used: set[str] = set()
        for text in steps:
            own.check(own.text, term, text)
            used |= own.text.read(text).names()
        defined = []
        for symbol, text in re.findall(r"^where (\S+) = (.*(?:\n {4}.*)*)", printed, re.MULTILINE):
            (of,) = own.text.read(symbol).names()
            defined.append(of)
            (home,) = [one.name for one in own.terms.terms.values() if one.symbol.name == of]
            own.check(own.text, home, text)
        assert sorted(defined) == sorted(used - parameters), term
