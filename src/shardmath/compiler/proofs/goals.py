"""Proofs that one expression never exceeds another: the difference is taken apart until signs decide.

A switch is tried on and off. A maximum that makes the difference smaller is tried with every argument; of one that
makes it larger a single argument has to do. A quotient that is rounded up is the quotient and a remainder.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from ..expressions import ops
from ..expressions.differences import Rational, difference
from ..expressions.graph import Node, ordered
from ..expressions.polynomials import Polynomial
from .algebra import MOST_WORK, Algebra
from .case import Case, is_whole
from .matched import Matched
from .samples import Samples
from .signs import Signs
from .uses import assuming

#: Cases and arguments that one proof may try.
_MOST_TRIED = 1500
#: Uses of a condition from which on it is told apart first.
_MANY = 3
_QUOTIENTS = (ops.DIV, ops.CEIL_DIV, ops.FLOOR_DIV)


@dataclass
class Effort:
    """Steps of a proof, and the cases that stay open."""

    left: int = _MOST_TRIED
    tried: int = 0
    proved: int = 0


class Prover:
    """Proofs within one algebra; ``last`` is asked about goals that nothing else proves."""

    def __init__(self, algebra: Algebra, effort: Effort | None = None) -> None:
        self.algebra, self.graph, self._signs = algebra, algebra.graph, Signs(algebra)
        self.effort = effort or Effort()

    def never_exceeds(self, case: Case, *, strict: bool = False) -> bool:
        """Return True only if the first root is at most the second one in the whole case; with ``strict`` below it."""
        case = case.cancelled()
        smaller, larger = case.roots
        self.effort.tried += 1
        if self.effort.tried > self.effort.left or self.algebra.left < 0:
            return False
        goal = self.algebra.difference(larger, smaller)
        if self._signs.is_never_negative(goal, case, strict=strict):
            self.effort.proved += 1
            return True
        if not goal or Samples(case).refute(larger, smaller, strict=strict):
            return False
        if not strict and Matched(self.algebra, case).never_exceeds(smaller, larger):
            self.effort.proved += 1
            return True
        return self._separately(case, strict) or self._taken_apart(case, goal, strict)

    def _separately(self, case: Case, strict: bool) -> bool:
        """Prove that what has maxima grows, and that all else does."""
        parts = [
            {node: count for node, count in difference(self.graph, case.roots[1], case.roots[0]).items()
             if _has_extremes(node) == extremes} for extremes in (True, False)
        ]
        if not all(parts):
            return False
        cases = [replace(case, roots=self._sides(part)) for part in parts]
        if any(Samples(part).refute(part.roots[1], part.roots[0], strict=False) for part in cases):
            return False
        with_maxima, without = cases
        return self.never_exceeds(without, strict=strict) and self.never_exceeds(with_maxima)

    def _sides(self, counts: Mapping[Node, Rational]) -> tuple[Node, Node]:
        """Return the negative and the positive part of a sum."""
        graph = self.graph
        smaller = graph.add(graph.mul((graph.number(-count), node)) for node, count in counts.items() if count < 0)
        larger = graph.add(graph.mul((graph.number(count), node)) for node, count in counts.items() if count > 0)
        return smaller, larger

    def _taken_apart(self, case: Case, goal: Polynomial, strict: bool) -> bool:
        atoms = self._atoms(goal)
        first = self._common(case, atoms)
        if first is not None:
            return self._switched(case, first, strict)
        extremes = [atom for atom in atoms if atom.op in (ops.MAX, ops.MIN)]
        grows = {atom: self._grows(case, goal, atom) for atom in extremes}
        for atom in extremes:
            if grows[atom] == _SHRINKS:
                return all(self._with(case, {atom: arg}, strict) for arg in atom.args)
        for atom in extremes:
            if grows[atom] == _GROWS and self._any(case, atom, strict):
                return True
        switches = [atom for atom in atoms if atom.op == ops.SELECT or self.algebra.is_switch(atom)]
        if switches:
            return self._switched(case, switches[0], strict)
        choice = self._choice(case, atoms)
        if choice is not None:
            others = tuple(condition for condition in case.conditions if condition is not choice)
            return all(self._assumed(replace(case, conditions=others), (option,), strict) for option in choice.args)
        for atom in extremes:
            if grows[atom] == _MIXED:
                return all(self._with(case, {atom: arg}, strict) for arg in atom.args)
        rounded = [atom for atom in atoms if atom.op in (ops.CEIL_DIV, ops.FLOOR_DIV)]
        if rounded:
            pair = self._pair(case, goal, rounded)
            return self._unrounded(case, rounded, strict) if pair is None else self._stepped(case, *pair, strict)
        multiples = [atom for atom in atoms if atom.op == ops.LCM]
        if multiples:
            return self._multiple(case, multiples[0], strict)
        return False

    def _any(self, case: Case, atom: Node, strict: bool) -> bool:
        """Prove the goal with one argument for a maximum; the one that leaves least to cover is tried first."""
        options = [case.replaced({atom: arg}) for arg in atom.args]
        open_terms = [self._negative(option) for option in options]
        order = sorted(range(len(options)), key=lambda place: (open_terms[place], place))
        return any(self.never_exceeds(options[place], strict=strict) for place in order)

    def _negative(self, case: Case) -> int:
        return sum(count < 0 for count in self.algebra.difference(case.roots[1], case.roots[0]).values())

    def _common(self, case: Case, atoms: Sequence[Node]) -> Node | None:
        """Return a switch below a fraction bar, or a frequent condition: both are told apart before maxima."""
        below = [node.args[1] for node in ordered(case.roots) if node.op in _QUOTIENTS]
        switch = next((node for node in ordered(below) if self.algebra.is_switch(node)), None)
        if switch is not None:
            return switch
        uses: dict[Node, int] = {}
        for node in ordered([atom for atom in atoms if atom.op in (ops.MAX, ops.MIN)]):
            for arg in node.args:
                if arg.op == ops.SELECT and any(side.op == ops.NUMBER for side in arg.args[0].args):
                    uses[arg] = uses.get(arg, 0) + 1
        most = max(uses, key=lambda node: (uses[node], -node.serial), default=None)
        return most if most is not None and uses[most] >= _MANY else None

    def _atoms(self, goal: Polynomial) -> list[Node]:
        """Return the atoms of a polynomial, and those of the sums that it is divided by."""
        atoms: dict[Node, None] = {}
        for atom in self.algebra.atoms(goal):
            inner = self.algebra.atoms(self.algebra.form.inside(atom)) if atom.op == ops.ADD else [atom]
            atoms.update(dict.fromkeys(inner))
        return list(atoms)

    def _switched(self, case: Case, atom: Node, strict: bool) -> bool:
        """Prove both cases of a condition."""
        graph = self.graph
        if atom.op == ops.NAME:
            return all(self._assumed(case, (graph.binary(ops.EQ, atom, graph.number(on)),), strict) for on in (0, 1))
        condition = atom.args[0]
        return all(
            self._assumed(case.replaced({condition: graph.truth(holds)}),
                          (condition if holds else graph.negation(condition),), strict)
            for holds in (True, False)
        )

    def _assumed(self, case: Case, conditions: Sequence[Node], strict: bool) -> bool:
        """Prove a case with more conditions; one that is impossible is proved."""
        smaller = assuming(case, *conditions)
        return smaller is None or self.never_exceeds(smaller, strict=strict)

    def _choice(self, case: Case, atoms: Iterable[Node]) -> Node | None:
        """Return a disjunction about divisibility of names in the goal, which has not been told apart yet."""
        names = {node for node in ordered(atoms) if node.op == ops.NAME}
        for condition in case.conditions:
            if condition.op == ops.OR and any(arg.op == ops.DIVIDES for arg in condition.args):
                inside = {node for node in ordered([condition]) if node.op == ops.NAME}
                if inside <= names:
                    return condition
        return None

    def _grows(self, case: Case, goal: Polynomial, atom: Node) -> int:
        """Tell whether the goal gets easier with a larger choice of a maximum, or a smaller one of a minimum."""
        beside: Polynomial = {}
        for monomial, count in goal.items():
            powers = dict(monomial)
            power = powers.pop(atom.serial, 0)
            if power not in (0, 1):
                return _MIXED
            if power:
                beside[tuple(powers.items())] = count if atom.op == ops.MAX else -count
        if self._signs.is_never_negative(beside, case):
            return _GROWS
        return _SHRINKS if all(count < 0 for count in beside.values()) else _MIXED

    def _with(self, case: Case, values: dict[Node, Node], strict: bool) -> bool:
        return self.never_exceeds(case.replaced(values), strict=strict)

    def _pair(self, case: Case, goal: Polynomial, rounded: Sequence[Node]) -> tuple[Node, Node] | None:
        """Return a rounded quotient that lessens the goal, and one by the same divisor of no less that adds to it."""
        up = [atom for atom in rounded if all(count > 0 for count in _counts(goal, atom))]
        down = [atom for atom in rounded if all(count < 0 for count in _counts(goal, atom))]
        for large in up:
            for small in down:
                if large.op == small.op and large.args[1] is small.args[1]:
                    gap = self.algebra.difference(large.args[0], small.args[0])
                    if self._signs.is_never_negative(gap, case):
                        return small, large
        return None

    def _stepped(self, case: Case, small: Node, large: Node, strict: bool) -> bool:
        """Return the larger one of two rounded quotients as the smaller one and a step."""
        name = case.fresh("step")
        return self._with(case.with_name(name, 0), {large: self.graph.add((small, self.graph.name(name)))}, strict)

    def _unrounded(self, case: Case, rounded: Sequence[Node], strict: bool) -> bool:
        """Return a rounded quotient as the quotient of what leaves no rest, innermost first."""
        atom = min(rounded, key=lambda node: len(ordered([node])))
        over, under = atom.args
        if not self._signs.is_never_negative(self.algebra.of(under), case, strict=True):
            return False
        name = case.fresh("rest")
        rest = self.graph.name(name)
        whole = is_whole(case, over) and is_whole(case, under)
        top = self.graph.add((under, self.graph.number(-1))) if whole else under
        sign = 1 if atom.op == ops.CEIL_DIV else -1
        padded = self.graph.add((over, self.graph.mul((self.graph.number(sign), rest))))
        return self._with(case.with_name(name, 0, top), {atom: self.graph.binary(ops.DIV, padded, under)}, strict)

    def _multiple(self, case: Case, atom: Node, strict: bool) -> bool:
        """Return a least common multiple as a multiple of one side, by a divisor of the other."""
        first, other = atom.args if atom.args[1].op == ops.NUMBER else atom.args[::-1]
        name = case.fresh("multiple")
        product = self.graph.mul((first, self.graph.name(name)))
        return self._with(case.with_name(name, 1, other), {atom: product}, strict)


def _counts(goal: Polynomial, atom: Node) -> list[Rational]:
    """Return the coefficients of the monomials with an atom."""
    return [count for monomial, count in goal.items() if dict(monomial).get(atom.serial, 0)]


def _has_extremes(node: Node) -> bool:
    """Return True for a maximum or minimum, and for a product with one."""
    return any(factor.op in (ops.MAX, ops.MIN) for factor in (node.args if node.op == ops.MUL else (node,)))


_SHRINKS, _MIXED, _GROWS = range(3)


def proved(case: Case | None, algebra: Algebra, *, strict: bool = False, equal: bool = False,
           effort: Effort | None = None) -> bool:
    """Prove ``first <= second`` of the roots of a case, ``<`` or ``=``; an impossible case is proved."""
    if case is None:
        return True
    algebra.left = MOST_WORK
    prover = Prover(algebra, effort)
    if not prover.never_exceeds(case, strict=strict):
        return False
    return not equal or prover.never_exceeds(replace(case, roots=case.roots[::-1]))
