"""What the JavaScript and MathML printers write, and what they refuse; that all of it runs is tested in a browser."""

from xml.etree import ElementTree

import pytest
from read_mathml import parsed
from sympy import And, Eq, Expr, Float, Integer, Mul, Not, Or, Rational, Symbol, exp, sqrt
from sympy.logic.boolalg import Boolean, true

from shardmath.symbolic.accounts import build
from shardmath.symbolic.functions import CeilDiv, Divides, FloorDiv, Iverson, LeastCommonMultiple, Max, Min
from shardmath.symbolic.implementations import IMPLEMENTATIONS
from shardmath.symbolic.parameters import PARAMETERS, symbols
from shardmath.symbolic.printers.javascript import JavascriptPrinter, RealJavascriptPrinter
from shardmath.symbolic.printers.mathml import MathmlPrinter
from shardmath.symbolic.terms import product, total

a, b, c, D, f, h, k, p, r, s, t, ts, rmlp, sp, lf = symbols("a b c D f h k p r s t ts rmlp sp Lf")

JAVASCRIPT: tuple[tuple[Expr | Boolean, str], ...] = (
    (2 * s * b * h / (c * ts), "ratio(2*micro_batch_size*hidden_size*seq_length, context_parallel*sequence_shards)"),
    (-4 * s * h / t, "-ratio(4*hidden_size*seq_length, tensor_parallel)"),
    (h**2, "hidden_size*hidden_size"),
    (f * (1 - rmlp), "ffn_hidden_size*(1 - recompute_mlp)"),
    (Mul(h, Rational(3, 2)), "ratio(3*hidden_size, 2)"),
    (1 / t, "ratio(1, tensor_parallel)"),
    (Iverson(Eq(r, p - 1)), "((pipeline_rank === pipeline_parallel - 1) ? 1 : 0)"),
    (CeilDiv(h, Integer(64)), "ceil_div(hidden_size, 64)"),
    (FloorDiv(h, t), "floor_div(hidden_size, tensor_parallel)"),
    (LeastCommonMultiple(c * D, Integer(128)), "lcm(data_parallel*context_parallel, 128)"),
    (Max(Integer(1), k / t), "Math.max(1, ratio(num_kv_heads, tensor_parallel))"),
    (Min(s, p - r), "Math.min(seq_length, pipeline_parallel - pipeline_rank)"),
    (Divides(t, k), "divides(tensor_parallel, num_kv_heads)"),
    (And(Eq(sp, 0), t <= h), "((sequence_parallel === 0) && (tensor_parallel <= hidden_size))"),
    (Or(Eq(sp, 0), Divides(t, k)), "(divides(tensor_parallel, num_kv_heads) || (sequence_parallel === 0))"),
    (Not(Divides(t, k)), "!(divides(tensor_parallel, num_kv_heads))"),
    (true, "true"),
)
MATHML: tuple[tuple[Expr, str], ...] = (
    (2 * s * b * h / (c * ts), "(2sbh)/(ct_s)"),
    (s - 4 * b * a, "s−4ba"),
    (-4 * b * a, "−4ba"),
    (total(s, product(Integer(-1), total(h, b))), "s−(h+b)"),
    (product(s, Integer(-1), total(h, b)), "−s(h+b)"),
    (total(s, 1 / t), "s+(1)/(t)"),
    (CeilDiv(product(Integer(2), Integer(3), s), t), "⌈(2⋅3s)/(t)⌉"),
    (f * (1 - rmlp), "f(1−&mu;)"),
    (Iverson(Eq(r, p - 1)), "[r=p−1]"),
    (CeilDiv(h, Integer(64)), "⌈(h)/(64)⌉"),
    (FloorDiv(h, t), "⌊(h)/(t)⌋"),
    (Max(Integer(1), k / t), "max((k)/(t),1)"),
    (LeastCommonMultiple(c * D, Integer(128)), "lcm(cD,128)"),
    (h**2 * t, "h^2t"),
    (lf * Rational(1, 2), "(L_0)/(2)"),
    (h / 10**9, "(h)/(10^9)"), (h / (5 * 10**11), "(h)/(5⋅10^11)"), (h / 2000, "(h)/(2000)"),
)


@pytest.mark.parametrize(("expression", "expected"), JAVASCRIPT, ids=[text for _, text in JAVASCRIPT])
def test_javascript(expression: Expr, expected: str) -> None:
    assert JavascriptPrinter().doprint(expression) == expected


def test_javascript_of_real_numbers() -> None:
    assert RealJavascriptPrinter({h: "margin"}).doprint(exp(-h**6)) == "Math.exp(-Math.pow(margin, 6))"


@pytest.mark.parametrize("expression", [Float(0.5) * h, sqrt(h), Rational(1, 2) + h])
def test_javascript_refuses_what_is_not_exact(expression: Expr) -> None:
    with pytest.raises(ValueError, match=r"float|rational"):
        JavascriptPrinter().doprint(expression)


@pytest.mark.parametrize(("expression", "expected"), MATHML, ids=[text for _, text in MATHML])
def test_mathml(expression: Expr, expected: str) -> None:
    assert plain(parsed(MathmlPrinter().doprint(expression))) == expected.replace("&mu;", "mu")


def plain(node: ElementTree.Element) -> str:
    """A formula as text: fractions with a slash, indices after an underscore."""
    parts = [plain(child) for child in node]
    if node.tag == "mfrac":
        return f"({parts[0]})/({parts[1]})"
    return (node.text or "") + {"msub": "_", "msup": "^"}.get(node.tag, "").join(parts)


def test_a_sum_is_cut_before_its_summands() -> None:
    pieces = MathmlPrinter().pieces(s + h - b)
    assert [plain(parsed(piece)) for piece in pieces] == ["s", "+h", "−b"]


def test_every_letter_and_term_has_a_symbol() -> None:
    terms = build(IMPLEMENTATIONS["megatron"])
    printer = MathmlPrinter(terms.terms.values())
    written = [printer.doprint(item.symbol) for item in PARAMETERS]
    assert len(set(written)) == len(written)
    named = [printer.doprint(term.symbol) for term in terms.terms.values()]
    assert len(set(named)) == len(named)
    assert plain(parsed(printer.doprint(terms["stage.swiglu.weight"].symbol))) == "Mr,swigluweight"


def test_mathml_refuses_what_it_has_no_form_for() -> None:
    with pytest.raises(ValueError, match="no MathML"):
        MathmlPrinter().doprint(Eq(Symbol("x"), 1) ^ Eq(Symbol("y"), 1))
