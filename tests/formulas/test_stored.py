"""Results that are kept between derivations come back as they were, or not at all."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from sympy import Abs, And, Basic, Eq, Ge, Gt, Integer, Le, Lt, Mul, Ne, Not, Or, Rational, Symbol, true

from shardmath.symbolic import stored, write
from shardmath.symbolic.functions import CeilDiv, Divides, FloorDiv, Iverson, LeastCommonMultiple, Max, Min, cases
from shardmath.symbolic.memo import Memo
from shardmath.symbolic.parameters import symbols
from shardmath.symbolic.simplify import simplified, simplify
from shardmath.symbolic.terms import product, term_symbol, total

s, b, h, t = symbols("s b h t")
REST = term_symbol("layer.total")
#: At least one expression of every kind.
EXPRESSIONS: tuple[Basic, ...] = (
    Integer(0), Integer(-1), Rational(3, 2), s, REST, true, Eq(1, s, evaluate=False), Mul(2, s + b, evaluate=False),
    total(product(h, s, Integer(2)), Integer(34), b), s**2 / t, Mul(s, s, evaluate=False),
    CeilDiv(s, t), FloorDiv(s, t), LeastCommonMultiple(s, Integer(8)), Max(s / t, 1), Min(REST, s, b * h),
    Iverson(Gt(s, b)), Iverson(And(Ne(s, b), Gt(h, 2))), cases((s, Gt(b, 1)), (Integer(0), true)),
    *(Or(Not(Divides(t, h)), kind(s, b)) for kind in (Eq, Ge, Gt, Le, Lt, Ne)),
)


def tree(value: object) -> object:
    """Every node with its parts in the order in which they stand."""
    if isinstance(value, Basic) and value.args:
        return type(value), tuple(map(tree, value.args))
    return tuple(map(tree, value)) if isinstance(value, tuple) else (type(value), value)


def kinds(expression: Basic) -> Iterator[str]:
    yield type(expression).__name__
    for part in expression.args:
        yield from kinds(part)


def refuse(*_: object) -> None:
    raise AssertionError("computed again")


def kept(*expressions: Basic) -> str:
    """Return the text of a function that was asked for expressions."""
    function: Memo[object] = Memo(lambda expression, name, nothing: (name, expression, (2, nothing)))
    for expression in expressions:
        function(expression, "same", None)
    return stored.stored((function,))


def restored(text: str) -> Memo[object]:
    function: Memo[object] = Memo(refuse)
    stored.restore(text, (function,))
    return function


def test_every_kind_comes_back_as_it_was() -> None:
    again = restored(kept(*EXPRESSIONS))
    for expression in EXPRESSIONS:
        assert tree(again(expression, "same", None)) == tree(("same", expression, (2, None)))
    met = {kind for expression in EXPRESSIONS for kind in kinds(expression)}
    assert {kind for kind in stored._KINDS if kind[0].isupper()} <= met


@pytest.mark.parametrize("expression", [Abs(Symbol("y")), s + Symbol("s"), Symbol("z", integer=True), s + 0.5])
def test_what_would_come_back_otherwise_is_not_kept(expression: Basic) -> None:
    again = restored(kept(s, expression))
    assert [arguments for arguments, *_ in again.results] == [s]


def test_a_text_that_is_not_whole_or_of_other_sources_gives_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    text = kept(s + b)
    assert len(restored(text).results) == 1
    for other in ("", text[:-1], text.replace('"s"', '"h"'), text.partition("\n")[2]):
        assert not restored(other).results
    monkeypatch.setattr(stored, "_key", lambda: "of another simplify.py")
    assert not restored(text).results


def test_what_was_not_asked_for_again_is_forgotten() -> None:
    again = restored(kept(s, b))
    again(s, "same", None)
    assert len(restored(stored.stored((again,))).results) == 1


def test_simplified_forms_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    expression = total(product(s, b, h), product(s, b, h, t), product(Integer(2), s, b))
    steps = simplify(expression)
    assert len(steps) > 1
    text = stored.stored()
    monkeypatch.setattr(simplified, "results", {})
    monkeypatch.setattr(simplified, "function", refuse)
    stored.restore(text)
    assert tree(simplify(expression)) == tree(steps)


def test_a_check_reads_nothing_that_was_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    folders: list[Path | None] = []

    def derived(kept: Path | None = None) -> dict[str, str]:
        folders.append(kept)
        return {}

    monkeypatch.setattr(write, "derived", derived)
    write.difference(tmp_path)
    write.write(tmp_path)
    assert folders == [None, write.KEPT]
