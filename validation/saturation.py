"""Equality saturation: all forms of a sum that the rules of arithmetic give, up to a size, and the cheapest of them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache

from egglog import EGraph, Expr, Ruleset, birewrite, i64, i64Like, method, rewrite, ruleset, set_cost, vars_
from sympy import Add, Basic, Integer, Mul
from sympy import Expr as Formula

from shardmath.symbolic.terms import is_zero_or_one, operations, times

#: A cost of one operation. What is free costs 1, so that the shortest of equal forms is taken.
_OPERATION = 1000
#: The search of one sum ends when it has so many forms of its parts, or after so many rounds.
FORMS = 20_000
_ROUNDS = 12


class Form(Expr):
    """A form: a whole number, an atom by its place, or one made of two; a division is a product with an inverse."""

    @method(cost=1)
    def __init__(self, number: i64Like) -> None: ...

    @method(cost=1)
    @classmethod
    def atom(cls, place: i64Like) -> Form:  # type: ignore[empty-body]
        """Make an atom."""

    @method(cost=_OPERATION)
    def __add__(self, other: Form) -> Form: ...  # type: ignore[empty-body]

    @method(cost=_OPERATION)
    def __mul__(self, other: Form) -> Form: ...  # type: ignore[empty-body]

    @method(cost=1)
    def __neg__(self) -> Form: ...  # type: ignore[empty-body]

    @method(cost=1)
    def inverse(self) -> Form:  # type: ignore[empty-body]
        """Divide 1 by it."""


@cache
def _rules() -> Ruleset:
    x, y, z = vars_("x y z", Form)
    i, j = vars_("i j", i64)
    return ruleset(
        rewrite(x + y).to(y + x), rewrite(x * y).to(y * x),
        rewrite(x + (y + z)).to((x + y) + z), rewrite(x * (y * z)).to((x * y) * z),
        birewrite(x * (y + z)).to(x * y + x * z), birewrite((x * y).inverse()).to(x.inverse() * y.inverse()),
        birewrite(-(x + y)).to(-x + -y), birewrite(-(x * y)).to(-x * y), rewrite(x.__neg__().__neg__()).to(x),
        rewrite(Form(1) * x).to(x), rewrite(Form(0) + x).to(x), rewrite(Form(0) * x).to(Form(0)),
        rewrite(Form(i) + Form(j)).to(Form(i + j)), rewrite(Form(i) * Form(j)).to(Form(i * j)),
        rewrite(-Form(i)).to(Form(0 - i)), rewrite(x + -x).to(Form(0)), rewrite(x + x).to(Form(2) * x),
        rewrite(x + x * y).to(x * (Form(1) + y)),
    )


def parts(formula: Basic) -> Iterator[Formula]:
    """Yield each outermost sum and product of a formula: of the whole, of functions, conditions and cases."""
    if isinstance(formula, Add | Mul):
        yield formula
    for part in atoms_of(formula) if isinstance(formula, Add | Mul) else formula.args:
        yield from parts(part)


def atoms_of(formula: Basic) -> Iterator[Basic]:
    """Return the parts of a sum or product."""
    if isinstance(formula, Add | Mul):
        for part in formula.args:
            yield from atoms_of(part)
    elif formula.is_Pow and formula.exp.is_Integer:
        yield from atoms_of(formula.base)
    elif not formula.is_Rational:
        yield formula


@cache
def cheapest(formula: Formula) -> Formula:
    """Return the cheapest of the forms of ``formula``, which is a sum or product."""
    places = {atom: place for place, atom in enumerate(dict.fromkeys(atoms_of(formula)))}
    graph = EGraph()
    root = graph.let("root", _encoded(formula, places))
    for atom, place in places.items():
        graph.register(Form.atom(place))
        graph.register(set_cost(Form.atom(place), _OPERATION * operations(atom) + 1))
    switches = ruleset(*(
        rewrite(Form.atom(place) * Form.atom(place)).to(Form.atom(place))
        for atom, place in places.items() if is_zero_or_one(atom)
    ))
    for _ in range(_ROUNDS):
        changed = [graph.run(rules).updated for rules in (_rules(), switches)]
        if not any(changed) or sum(size for _, size in graph.all_function_sizes()) > FORMS:
            break
    reader = _Reader(tuple(places))
    for statement in ast.parse(str(graph.extract(root))).body:
        formula = reader.read(statement)
    return formula


class _Reader:
    """Reads what egglog prints: Python's sums and products of ``Form``, perhaps with names of parts."""

    def __init__(self, atoms: tuple[Formula, ...]) -> None:
        self._atoms = atoms
        self._named: dict[str, Formula] = {}

    def read(self, node: ast.AST) -> Formula:
        """Return the formula of a node, of which nothing is multiplied out."""
        match node:
            case ast.Expr(value):
                return self.read(value)
            case ast.Assign([ast.Name(name)], value):
                self._named[name] = self.read(value)
                return self._named[name]
            case ast.Name(name):
                return self._named[name]
            case ast.BinOp(left, ast.Add(), right):
                return Add(self.read(left), self.read(right))
            case ast.BinOp(left, ast.Mult(), right):
                return _product(self.read(left), self.read(right))
            case ast.UnaryOp(ast.USub(), operand):
                return _product(Integer(-1), self.read(operand))
            case ast.Call(ast.Name("Form"), [number]):
                return Integer(ast.literal_eval(number))
            case ast.Call(ast.Attribute(_, "atom"), [place]):
                return self._atoms[ast.literal_eval(place)]
            case ast.Call(ast.Attribute(value, "inverse"), []):
                return 1 / self.read(value)
        raise ValueError(f"{ast.dump(node)} is no form")


def _product(left: Formula, right: Formula) -> Formula:
    factors = [*Mul.make_args(left), *Mul.make_args(right)]
    numbers = [factor for factor in factors if factor.is_Number]
    return times(Mul(*numbers), Mul(*(factor for factor in factors if not factor.is_Number)))


def _encoded(formula: Basic, places: dict[Basic, int]) -> Form:
    if formula.is_Integer:
        return Form(int(formula)) if formula >= 0 else -Form(-int(formula))
    if formula.is_Rational:
        divided = Form(int(formula.q)).inverse()
        return divided if formula.p == 1 else _encoded(Integer(formula.p), places) * divided
    if isinstance(formula, Mul) and formula.args[0].is_Rational and formula.args[0].is_negative:
        return -_encoded(times(-formula.args[0], Mul(*formula.args[1:])), places)
    if isinstance(formula, Add | Mul):
        first, *more = formula.args
        whole = _encoded(first, places)
        for part in more:
            other = _encoded(part, places)
            whole = whole + other if isinstance(formula, Add) else whole * other
        return whole
    if formula.is_Pow and formula.exp.is_Integer:
        base = _encoded(formula.base, places)
        whole = base
        for _ in range(abs(int(formula.exp)) - 1):
            whole = whole * base
        return whole if formula.exp > 0 else whole.inverse()
    return Form.atom(places[formula])
