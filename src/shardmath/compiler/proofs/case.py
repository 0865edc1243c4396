"""A case: variables with bounds, conditions that hold, and expressions with all of that put in.

Conditions are used up where a substitution says the same: ``t divides a`` makes ``a`` the product of ``t`` and a new
variable. What cannot be used stays as a condition that nothing follows from, which weakens the case and keeps it true.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from math import isinf

from ..expressions import ops
from ..expressions.differences import Rational, difference
from ..expressions.graph import Graph, Node, ordered
from ..expressions.intervals import Bounds
from ..expressions.polynomials import Polynomial, combined
from .algebra import Algebra
from .rewriting import EXTREMES, replaced
from .signs import Signs

_COMPARED = (ops.EQ, ops.LE, ops.LT)


@dataclass(frozen=True, eq=False)
class Case:
    """Some ``roots`` under ``conditions``, and what names that were replaced are now, in ``values``.

    ``tops`` are expressions that a name never exceeds.
    """

    algebra: Algebra
    bounds: Bounds
    roots: tuple[Node, ...]
    conditions: tuple[Node, ...]
    values: Mapping[str, Node]
    tops: Mapping[Node, Node]

    @property
    def graph(self) -> Graph:
        """The graph of all expressions."""
        return self.algebra.graph

    def least(self, atom: Node) -> Rational | None:
        """Return a value that an atom is never below; None if there is none."""
        low = self.bounds.interval(atom)[0]
        return None if isinstance(low, float) else low

    def most(self, atom: Node) -> Node | None:
        """Return an expression that an atom never exceeds; None if there is none."""
        if atom in self.tops:
            return self.tops[atom]
        if atom.op == ops.LCM:
            return self.graph.mul(atom.args)
        if atom.op != ops.NAME and not self.algebra.is_switch(atom):
            return None
        high = 1 if self.algebra.is_switch(atom) else self.bounds.interval(atom)[1]
        return None if isinf(high) else self.graph.number(high)  # type: ignore[arg-type]

    def cancelled(self) -> Case:
        """Return the same goal without summands that both roots have, and without conditions about other names."""
        graph = self.graph
        counts = difference(graph, self.roots[1], self.roots[0])
        smaller = graph.add(graph.mul((graph.number(-count), node)) for node, count in counts.items() if count < 0)
        larger = graph.add(graph.mul((graph.number(count), node)) for node, count in counts.items() if count > 0)
        names = _names((smaller, larger))
        conditions = self.conditions
        linked = [(condition, _names([condition])) for condition in conditions]
        for _ in conditions:
            names |= set().union(*(inside for _, inside in linked if inside & names))
        tops = {name: top for name, top in self.tops.items() if name in names}
        kept = tuple(condition for condition, inside in linked if inside & names)
        return replace(self, roots=(smaller, larger), values={}, conditions=kept, tops=tops)

    def with_name(self, name: str, least: int, top: Node | None = None) -> Case:
        """Return the same with one more name."""
        tops = self.tops if top is None else {**self.tops, self.graph.name(name): top}
        return replace(self, bounds=self.bounds.with_name(name, least, None), tops=tops)

    def fresh(self, stem: str) -> str:
        """Return a name that nothing has yet."""
        count = 1
        while f"{stem}'{count}" in self.bounds.names:
            count += 1
        return f"{stem}'{count}"

    def replaced(self, values: Mapping[Node, Node]) -> Case:
        """Return the same with other nodes for some."""
        names = list(self.values)
        nodes = (*self.roots, *self.conditions, *(self.values[name] for name in names), *self.tops.values())
        new = replaced(self.graph, nodes, values, self.bounds)
        roots, rest = new[:len(self.roots)], new[len(self.roots):]
        conditions, rest = rest[:len(self.conditions)], rest[len(self.conditions):]
        tops = {name: top for name, top in zip(self.tops, rest[len(names):], strict=True) if name not in values}
        return replace(self, roots=tuple(roots), conditions=tuple(conditions),
                       values=dict(zip(names, rest, strict=False)), tops=tops)

    def truth(self, condition: Node, *, known: bool = False) -> bool | None:
        """Tell whether a comparison holds in the whole case, or nowhere; None where it is open.

        With ``known``, conditions of the case count too; else only bounds do.
        """
        left, right = condition.args
        above, below = self.algebra.difference(right, left), self.algebra.difference(left, right)
        if condition.op == ops.EQ:
            if not above:
                return True
            return False if any(self.is_at_least(terms, known, strict=True) for terms in (above, below)) else None
        strict = condition.op == ops.LT
        if self.is_at_least(above, known, strict=strict):
            return True
        return False if self.is_at_least(below, known, strict=not strict) else None

    def is_at_least(self, terms: Polynomial, known: bool, *, strict: bool = False) -> bool:
        """Return True only if a polynomial is at least 0, or above it; with ``known``, also by a condition."""
        signs = Signs(self.algebra)
        if signs.is_never_negative(terms, self, strict=strict):
            return True
        if not known:
            return False
        serials = {serial for monomial in terms for serial, _ in monomial}
        for condition in self.conditions:
            if condition.op not in (ops.LE, ops.LT):
                continue
            fact = self.algebra.difference(*condition.args[::-1])
            if not serials <= {serial for monomial in fact for serial, _ in monomial}:
                continue
            more = combined(((terms, 1), (fact, -1)))
            if signs.is_never_negative(more, self, strict=strict and condition.op == ops.LE):
                return True
        return False

    def decided(self) -> Case | None:
        """Decide every comparison that the bounds decide; in the roots, every one that the conditions decide."""
        case = self
        for _ in range(20):
            decided = case._decisions(case.conditions, known=False)
            after = case.replaced(decided) if decided else case
            inside = after._decisions(after.roots, known=True)
            if inside:
                after = replace(after, roots=tuple(replaced(self.graph, after.roots, inside, after.bounds)))
            if after is case:
                break
            case = after
        if any(condition is self.graph.truth(False) for condition in case.conditions):
            return None
        return case

    def _decisions(self, nodes: Iterable[Node], *, known: bool) -> dict[Node, Node]:
        decided: dict[Node, Node] = {}
        for node in ordered(nodes):
            if node.op in _COMPARED and not _is_deep(node):
                truth = self.truth(node, known=known)
                if truth is not None:
                    decided[node] = self.graph.truth(truth)
            elif node.op in EXTREMES and not _is_deep(node):
                kept = self._possible(node, known)
                if len(kept) < len(node.args):
                    decided[node] = self.graph.extreme(node.op, kept)
        return decided

    def _possible(self, node: Node, known: bool) -> list[Node]:
        """Return the arguments of a maximum or minimum without those that another one always beats."""
        kept = list(node.args)
        for arg in node.args:
            for other in kept:
                pair = (other, arg) if node.op == ops.MAX else (arg, other)
                if other is not arg and self.is_at_least(self.algebra.difference(*pair), known):
                    kept.remove(arg)
                    break
        return kept


def _names(nodes: Iterable[Node]) -> set[Node]:
    return {node for node in ordered(nodes) if node.op == ops.NAME}


def _is_deep(node: Node) -> bool:
    """Return True for an operation on more than a few names and their products: it is not decided at once."""
    inner = ordered(node.args)
    return len(inner) > 40 or any(item.op in (ops.SELECT, *EXTREMES) for item in inner)


def is_whole(case: Case, node: Node) -> bool:
    """Return True if the polynomial of a number says that it is an integer."""
    atoms = case.algebra.form.atoms
    return all(
        Fraction(count).denominator == 1
        and all(power > 0 and case.bounds.is_integer(atoms[serial]) for serial, power in monomial)
        for monomial, count in case.algebra.of(node).items()
    )
