"""Printers for people: lines and LaTeX in reading order, and text that still means what it came from."""

import re
from typing import Any

import pytest
from read_lines import compute
from sympy import (
    And,
    Eq,
    Expr,
    Float,
    Ge,
    Integer,
    Le,
    Mul,
    Ne,
    Not,
    Or,
    Rational,
    Symbol,
)

from shardmath.symbolic.accounts import build
from shardmath.symbolic.documents.forms import forms, row_sizes
from shardmath.symbolic.documents.worked import EXAMPLE
from shardmath.symbolic.exact import evaluate
from shardmath.symbolic.functions import CeilDiv, Divides, Iverson, LeastCommonMultiple, Max, Min
from shardmath.symbolic.implementations import HUGGINGFACE, IMPLEMENTATIONS, MEGATRON
from shardmath.symbolic.parallel.legality import fixed_values, rules_for
from shardmath.symbolic.parameters import PARAMETERS, symbol, symbols
from shardmath.symbolic.printers.latex import LatexPrinter, term_latex
from shardmath.symbolic.printers.python import PythonPrinter
from shardmath.symbolic.printers.text import LinePrinter, UnicodePrinter
from shardmath.symbolic.published import all_published
from shardmath.symbolic.terms import product, total

s, b, h, a, k, d, f, v, L, A, K = symbols("s b h a k d f v L A K")
t, c, p, r, D, ts, kt, nr, shards = symbols("t c p r D ts kt nr shards")
sp, rfull, rcore, bias, w, tied = symbols("sp rfull rcore bias w tied")
TERM = Symbol("stage.weight", nonnegative=True)

#: A negated sum, as it is written.
MINUS = product(Integer(-1), total(h, f))

LINES: tuple[tuple[Expr, str], ...] = (
    (2 * s * b * h / (c * ts), "2*s*b*h/(c*tₛ)"),
    (b * s * h * (1 - rfull) * 2, "2*s*b*h*(1 - φ)"),
    (s * b * v * 4 + 9 * s * b, "4*s*b*v + 9*s*b"),
    (-4 * a * b * s + 2 * b * f * s - 8 * b * s, "2*s*b*f - 4*s*b*a - 8*s*b"),
    (total(h, product(Integer(2), K), A), "h + 2*K + A"),
    (A + 2 * K, "A + 2*K"),
    (h * (A + 2 * K) / t, "h*(A + 2*K)/t"),
    (-s / t, "-s/t"),
    (total(s, MINUS), "s - (h + f)"),
    (MINUS, "-(h + f)"),
    (product(s, MINUS), "-s*(h + f)"),
    (total(s, product(Integer(-1), total(h, MINUS))), "s - (h - (h + f))"),
    (s / (h / t), "s*t/h"),
    (total(s, 1 / t, 1 / h**2), "s + 1/t + 1/h**2"),
    (1 / t, "1/t"),
    (h**2 / t, "h**2/t"),
    (CeilDiv(h * (A + 2 * K) / t, Integer(64)) * 64 * bias, "64*β*⌈h*(A + 2*K)/(64*t)⌉"),
    (Max(Integer(1), k / t), "max(k/t, 1)"),
    (Min(p - r, nr), "min(nᵣ, p - r)"),
    (Iverson(Eq(r, p - 1)) * TERM * nr, "nᵣ*stage.weight*[r = p - 1]"),
    (LeastCommonMultiple(D * c, Integer(128)) / shards, "lcm(c*D, 128)/z"),
    (Divides(c * ts, s), "c*tₛ ∣ s"),
    (And(Eq(rcore, 0), Ge(t, 2)), "κ = 0 and t ≥ 2"),
    (Or(Eq(rfull, 0), And(Eq(rcore, 0), Le(t, 2))), "(κ = 0 and t ≤ 2) or φ = 0"),
    (Not(Divides(t, k)), "not (t ∣ k)"),
    (Ne(w, 2), "γ ≠ 2"),
)


@pytest.mark.parametrize(("expression", "expected"), LINES, ids=[line for _, line in LINES])
def test_lines(expression: Expr, expected: str) -> None:
    assert LinePrinter().doprint(expression) == expected


def test_a_sum_that_somebody_wrote_keeps_its_order() -> None:
    written = total(product(L, TERM), h, product(Integer(2), s, b))
    assert LinePrinter().doprint(written) == "L*stage.weight + h + 2*s*b"
    assert LinePrinter().doprint(total(-h, s)) == "s - h"


@pytest.mark.slow
@pytest.mark.parametrize("implementation", IMPLEMENTATIONS.values(), ids=lambda item: item.name)
def test_lines_of_all_terms_compute_the_exact_values(implementation: Any) -> None:
    """What people read on a line is the number that the term has, as written and simplified."""
    values = {**EXAMPLE.values(), **fixed_values(implementation)}
    terms = build(implementation)
    known: dict[str, Any] = {**values, **{term.symbol.name: 0 for term in terms.terms.values()}}
    exact = evaluate(terms.terms.values(), values)
    known |= {term.symbol.name: exact[name] for name, term in terms.terms.items()}
    for name, form in forms(implementation).items():
        for expression in (form.written, form.simplified):
            if expression is not None:
                assert compute(LinePrinter().doprint(expression), known) == exact[name], name


@pytest.mark.parametrize("name", IMPLEMENTATIONS)
def test_lines_of_all_rules_say_what_they_check(name: str) -> None:
    values = {**EXAMPLE.values(), "ts": 8, "K": 1024, "m": 64}
    values["A"] = values["a"] * values["d"]
    for rule in rules_for(IMPLEMENTATIONS[name]):
        known = {symbol(letter): Integer(value) for letter, value in values.items()}
        expected = bool(rule.condition.xreplace(known))
        assert compute(LinePrinter().doprint(rule.condition), values) is expected, rule.name


#: A sum that is wider than a line.
WIDE = [Symbol(f"all_that_is_in_the_{name}", positive=True) for name in ("first_layer", "last_layer")]
LONG = r"(M_{\text{all that is in the first layer}} + M_{\text{all that is in the last layer}})"
LATEX: tuple[tuple[Expr, str], ...] = (
    (2 * s * b * h / (c * ts) * (1 - rfull), r"\frac{2\,s\,b\,h}{c\,t_{s}}\,(1 - \varphi)"),
    ((A + 2 * K) / t, r"\frac{A + 2\,K}{t}"),
    ((h / ts + 3 * f / t) / c, r"\frac{1}{c}\,\left(\frac{h}{t_{s}} + \frac{3\,f}{t}\right)"),
    (h * v / t * (1 - tied * Iverson(Eq(p, 1))), r"\frac{h\,v}{t}\,(1 - \theta\,[p = 1])"),
    (Iverson(Eq(r, p - 1)), "[r = p - 1]"),
    (Max(Integer(1), k / t), r"\max\left(\frac{k}{t}, 1\right)"),
    (Min(nr, p - r), r"\min(n_{r}, p - r)"),
    (64 * CeilDiv(h * (A + 2 * K) / t, Integer(64)), r"64\,\left\lceil \frac{h\,(A + 2\,K)}{64\,t} \right\rceil"),
    (CeilDiv(total(*WIDE), t), rf"\left\lceil \frac{{1}}{{t}}\,{LONG} \right\rceil"),
    (CeilDiv(s * CeilDiv(total(*WIDE), t), t),
     rf"\left\lceil \frac{{1}}{{t}}\,s\,\left\lceil \frac{{1}}{{t}}\,{LONG} \right\rceil \right\rceil"),
    (LeastCommonMultiple(c * D, Integer(128)), r"\operatorname{lcm}(c\,D, 128)"),
    (Divides(t, k), r"t \mid k"),
    (Not(Divides(t, k)), r"\text{not}\ (t \mid k)"),
    (-4 * s * b * a, r"-4\,s\,b\,a"),
    (total(s, MINUS), "s - (h + f)"),
    (product(s, MINUS), r"-s\,(h + f)"),
    (product(Integer(2), Integer(3), total(h, f)), r"2 \cdot 3\,(h + f)"),
    (CeilDiv(product(Integer(2), Integer(3), s), t), r"\left\lceil \frac{2 \cdot 3\,s}{t} \right\rceil"),
    (s - 4 * b * a, r"s - 4\,b\,a"),
    (Mul(Integer(2), Rational(3, 2), h, f, evaluate=False), r"2 \cdot \frac{3}{2}\,h\,f"),
    (h**2 * kt, r"h^{2}\,k_{t}"),
    (CeilDiv(s, t)**2, r"\left\lceil \frac{s}{t} \right\rceil^{2}"),
    (LeastCommonMultiple(s, t)**2, r"\operatorname{lcm}^{2}(s, t)"),
    (Max(s, t)**2, r"\max^{2}(s, t)"),
    (bias * (A + 2 * K) * Rational(1, 2), r"\frac{\beta\,(A + 2\,K)}{2}"),
    (Symbol("x"), "x"),
)


@pytest.mark.parametrize(("expression", "expected"), LATEX, ids=[text for _, text in LATEX])
def test_latex(expression: Expr, expected: str) -> None:
    assert LatexPrinter().doprint(expression) == expected


def test_latex_of_connected_conditions() -> None:
    printed = LatexPrinter().doprint(Or(Eq(rfull, 0), And(Eq(rcore, 0), Eq(sp, 0))))
    assert set(re.split(r"\\ \\text\{or\}\\ ", printed)) == {
        r"(\kappa = 0\ \text{and}\ \sigma = 0)", r"\varphi = 0",
    }


@pytest.mark.parametrize(("name", "unit", "expected"), [
    ("attention.parameters", "elements", r"P_{\text{attention}}"),
    ("attention_norm.saved", "bytes", r"M^{\text{saved}}_{\text{attention norm}}"),
    ("stage.swiglu.weight", "bytes", r"M^{\text{weight}}_{r, \text{swiglu}}"),
    ("first.total", "bytes", r"M^{\text{total}}_{0}"),
    ("last.in_flight", "micro-batches", "n_{p-1}"),
    ("local.ffn", "elements", r"\ell_{\text{ffn}}"),
    ("peak", "bytes", r"M_{\text{peak}}"),
])
def test_symbols_of_terms(name: str, unit: str, expected: str) -> None:
    assert term_latex(name, unit) == expected


def test_published_terms_wear_a_hat() -> None:
    assert term_latex("fujii2024.layer_activations", "bytes", "fujii2024") == r"\hat{M}_{\text{layer activations}}"


def all_expressions() -> list[tuple[LatexPrinter, Expr]]:
    found: list[tuple[LatexPrinter, Expr]] = []
    for implementation in (MEGATRON, HUGGINGFACE):
        printer = LatexPrinter(build(implementation).terms.values())
        for form in forms(implementation).values():
            found += [(printer, one) for one in (form.written, form.simplified) if one is not None]
        found += [(printer, size) for size in row_sizes(implementation).values()]
        found += [(printer, rule.condition) for rule in rules_for(implementation)]
    for item in all_published():
        printer = LatexPrinter(item.terms.terms.values(), published=item.name)
        found += [(printer, term.expression) for term in item.terms.terms.values()]
    return found


@pytest.mark.slow
def test_latex_of_everything_is_well_formed() -> None:
    for printer, expression in all_expressions():
        text = printer.doprint(expression)
        assert balanced(text), text
        assert text.count(r"\left") == text.count(r"\right"), text
        assert not re.search(r"\\frac\{[^{}]*\\frac", text), f"a fraction in a numerator: {text}"


@pytest.mark.slow
def test_pieces_are_the_formula_cut_at_its_sums() -> None:
    plain = re.compile(r"\\left|\\right|\\Big[lr]|\{\}|\s")
    beside = {r"\begin{cases}": r"\lbrace", r"\end{cases}": r"\rbrace", r"\\": ";", "&": "\\"}
    for printer, expression in all_expressions():
        pieces = printer.pieces(expression)
        whole = printer.doprint(expression)
        for sign, other in beside.items():
            whole = whole.replace(sign, other)
        assert plain.sub("", "".join(pieces)) == plain.sub("", whole)
        assert all(balanced(piece) for piece in pieces)
    long = forms(MEGATRON)["attention.saved"]
    assert len(LatexPrinter().pieces(long.written)) == len(long.written.args)
    assert long.simplified is not None
    assert len(LatexPrinter().pieces(long.simplified)) > 3


def balanced(text: str) -> bool:
    depth = 0
    for character in text:
        depth += {"{": 1, "}": -1}.get(character, 0)
        if depth < 0:
            return False
    return depth == 0


UNICODE: tuple[tuple[Expr, str], ...] = (
    (2 * s * b * h * (1 - rfull), "2⋅s⋅b⋅h⋅(1 - φ)"),
    (Iverson(Eq(r, p - 1)), "[r = p - 1]"),
    (Divides(c * ts, s), "c⋅tₛ ∣ s"),
    (LeastCommonMultiple(c * D, Integer(128)), "lcm(c⋅D, 128)"),
    (s / t, "s\n─\nt"),
    (total(s, MINUS), "s - (h + f)"),
    (product(s, MINUS), "-s⋅(h + f)"),
    (Max(s, h + t), "max(s, h + t)"),
    (CeilDiv(s, g := symbol("g")), "⎡s⎤\n⎢─⎥\n⎢g⎥"),
    (TERM * nr, "nᵣ⋅stage.weight"),
)


@pytest.mark.parametrize(("expression", "expected"), UNICODE, ids=[text for _, text in UNICODE])
def test_unicode(expression: Expr, expected: str) -> None:
    assert UnicodePrinter().doprint(expression) == expected


def test_every_letter_has_a_name_in_every_printer() -> None:
    for item in PARAMETERS:
        assert LatexPrinter().doprint(item.symbol) == (item.latex or item.letter)
        assert LinePrinter().doprint(item.symbol) == UnicodePrinter().doprint(item.symbol)
        assert len(LinePrinter().doprint(item.symbol)) <= 4
        assert PythonPrinter().doprint(item.symbol) == item.name


def test_letters_are_distinct_in_every_printer() -> None:
    for printer in (LatexPrinter(), LinePrinter(), PythonPrinter()):
        assert len({printer.doprint(item.symbol) for item in PARAMETERS}) == len(PARAMETERS)


@pytest.mark.parametrize("kind", [LatexPrinter, LinePrinter, UnicodePrinter])
@pytest.mark.parametrize("expression", [Float("0.5"), s * Float("0.8"), Le(s, Float("1.5") * h)], ids=str)
def test_floating_point_is_refused(kind: Any, expression: Expr) -> None:
    with pytest.raises(ValueError, match="floating point"):
        kind().doprint(expression)
