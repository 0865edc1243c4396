"""Conditions put in: each is used up where a substitution or a bound says the same."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from ..expressions import ops
from ..expressions.differences import Rational, number, plain
from ..expressions.graph import Node, ordered
from ..expressions.intervals import Bounds
from .algebra import Algebra
from .case import Case, is_whole
from .divisibility import Divided, divided_by
from .signs import without_content

#: Conditions that are put in one after the other, at most.
_MOST_USED = 200


def case_of(
    algebra: Algebra, names: Mapping[str, tuple[int | None, int | None]], roots: Iterable[Node],
    conditions: Iterable[Node],
) -> Case | None:
    """Make the case of all values of ``names`` that keep ``conditions``; None if there are none."""
    values = {name: algebra.graph.name(name) for name in names}
    return settled(Case(algebra, Bounds(algebra.graph, names), tuple(roots), tuple(conditions), values, {}))


def assuming(case: Case, *conditions: Node) -> Case | None:
    """Return the case where ``conditions`` hold too; None if they cannot."""
    return settled(replace(case, conditions=(*case.conditions, *conditions)))


def settled(case: Case) -> Case | None:
    """Put in what the conditions say, until nothing changes; None if they contradict one another."""
    for _ in range(_MOST_USED):
        before = case.decided()
        after = None if before is None else Use(before).next()
        if after is None or after is before:
            return after
        case = after
    return case


class Use:
    """Uses up one condition of a case."""

    def __init__(self, case: Case) -> None:
        self.case, self.graph = case, case.graph

    def next(self) -> Case | None:
        """Get the case after one more condition is used; the same if none is left to use, None if there is no value."""
        for condition in sorted(self.case.conditions, key=lambda item: item.op in (ops.LE, ops.LT)):
            others = tuple(other for other in self.case.conditions if other is not condition)
            without = replace(self.case, conditions=others)
            if condition.op == ops.TRUTH:
                return without if condition.value else None
            after = self._used(condition, without)
            if after is not None:
                return after if after.bounds.are_possible else None
        return self.case

    def _used(self, condition: Node, without: Case) -> Case | None:
        """Return the case with what a condition says put in; None if it stays."""
        if condition.op == ops.AND:
            return replace(without, conditions=(*without.conditions, *condition.args))
        if condition.op == ops.NOT:
            return self._denied(condition.args[0], without)
        if condition.op == ops.DIVIDES:
            return self._divided(condition, without)
        if condition.op == ops.EQ:
            return self._equal(condition, without)
        if condition.op in (ops.LE, ops.LT):
            return self._ordered(condition, without)
        return None

    def _denied(self, inner: Node, without: Case) -> Case | None:
        if inner.op in (ops.LE, ops.LT):
            opposite = ops.LT if inner.op == ops.LE else ops.LE
            opposed: tuple[Node, ...] = (self.graph.binary(opposite, inner.args[1], inner.args[0]),)
        elif inner.op == ops.OR:
            opposed = tuple(self.graph.negation(arg) for arg in inner.args)
        elif inner.op == ops.EQ:
            return self._unequal(inner, without)
        else:
            return None
        return replace(without, conditions=(*without.conditions, *opposed))

    def _unequal(self, inner: Node, without: Case) -> Case | None:
        name, value = _with_number(inner)
        if name is None or value is None:
            return None
        low, high = without.bounds.names[str(name.value)]
        if value not in (low, high):
            return None
        least, most = (int(value) + 1, None) if value == low else (None, int(value) - 1)
        return replace(without, bounds=without.bounds.with_name(str(name.value), least, most))

    def _equal(self, condition: Node, without: Case) -> Case | None:
        left, right = condition.args
        for name, other in ((left, right), (right, left)):
            if name.op == ops.NAME and name not in ordered([other]) and self._is_whole(other):
                return self._put(without, name, other)
        return None

    def _ordered(self, condition: Node, without: Case) -> Case | None:
        """Return a bound of a name, or one name as another one plus a new one."""
        plainer = self._plainer(condition)
        if plainer is not condition:
            return replace(without, conditions=(*without.conditions, plainer))
        left, right = condition.args
        strict = int(condition.op == ops.LT)
        bounds = without.bounds
        if left.op == ops.NAME and right.op == ops.NUMBER:
            most = -(-number(right) // 1) - 1 if strict else number(right) // 1
            return replace(without, bounds=bounds.with_name(str(left.value), None, int(most)))
        if left.op == ops.NUMBER and right.op == ops.NAME:
            least = number(left) // 1 + 1 if strict else -(-number(left) // 1)
            return replace(without, bounds=bounds.with_name(str(right.value), int(least), None))
        if right.op != ops.NAME or right in ordered([left]) or bounds.names[str(right.value)][1] is not None:
            return None
        low = bounds.names[str(right.value)][0]
        start = without.least(left)
        if right in without.tops or low is None or start is None or start + strict < low or not self._is_whole(left):
            return None
        name = without.fresh(str(right.value))
        new = self.graph.add((left, self.graph.name(name)))
        return without.with_name(name, strict).replaced({right: new})

    def _plainer(self, condition: Node) -> Node:
        """Return a comparison without the positive factors that both sides have."""
        algebra = self.case.algebra
        terms = algebra.difference(*condition.args[::-1])
        atoms = algebra.atoms(terms)
        if len(terms) < 2 or any((self.case.least(atom) or 0) <= 0 for atom in atoms):
            return condition
        shorter = without_content(terms, all_of_it=True)
        if shorter == terms:
            return condition
        smaller, larger = (
            algebra.node({key: sign * count for key, count in shorter.items() if sign * count > 0})
            for sign in (-1, 1))
        return self.graph.binary(condition.op, smaller, larger)

    def _divided(self, condition: Node, without: Case) -> Case | None:
        answer = divided_by(self.case.algebra, *condition.args)
        if answer is None:
            return None
        if not answer.parts:
            kept = () if answer.rest is None else (answer.rest,)
            return replace(without, conditions=(*without.conditions, *kept))
        if any(not self._may_be_split(without, name, len(answer.parts) == 1) for name in answer.parts):
            return None
        return self._split(without, answer)

    def _may_be_split(self, case: Case, name: Node, alone: bool) -> bool:
        low = case.bounds.names[str(name.value)][0]
        return name not in case.tops and low is not None and (low >= 1 or (alone and low == 0))

    def _split(self, without: Case, answer: Divided) -> Case:
        """New names for old ones that are products of them now; the old bounds become conditions."""
        case, made, values = without, dict[int, Node](), dict[Node, Node]()
        limits: list[Node] = []
        for name, factors in answer.parts.items():
            low, high = case.bounds.names[str(name.value)]
            new = [factor for factor in factors if isinstance(factor, Node)]
            for factor in factors:
                if isinstance(factor, int):
                    if factor not in made:
                        fresh = case.fresh(str(name.value).partition("'")[0])
                        case = case.with_name(fresh, min(low or 0, 1))
                        made[factor] = self.graph.name(fresh)
                    new.append(made[factor])
            values[name] = self.graph.mul(new)
            limits += self._limits(values[name], low if low != min(low or 0, 1) else None, high)
        case = case.replaced(values)
        return replace(case, conditions=(*case.conditions, *limits))

    def _put(self, without: Case, name: Node, value: Node) -> Case:
        limits = self._limits(value, *without.bounds.names[str(name.value)])
        if name in without.tops:
            limits.append(self.graph.binary(ops.LE, value, without.tops[name]))
        case = without.replaced({name: value})
        return replace(case, conditions=(*case.conditions, *limits))

    def _limits(self, value: Node, low: int | None, high: int | None) -> list[Node]:
        limits = [] if low is None else [self.graph.binary(ops.LE, self.graph.number(low), value)]
        return limits if high is None else [*limits, self.graph.binary(ops.LE, value, self.graph.number(high))]

    def _is_whole(self, node: Node) -> bool:
        return is_whole(self.case, node)


def _with_number(condition: Node) -> tuple[Node | None, Rational | None]:
    """Return the name and the number of a condition about both."""
    left, right = condition.args
    for name, other in ((left, right), (right, left)):
        if name.op == ops.NAME and other.op == ops.NUMBER:
            return name, plain(number(other))
    return None, None
