"""One question: formulas in which a single symbol is left, ready to be solved for it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction
from functools import lru_cache
from math import lcm

from ..expressions import ops
from ..expressions.differences import Rational, plain
from ..expressions.formulas import Formulas, formulas
from ..expressions.graph import Graph, Node, exact, ordered
from .enclosure import enclosed
from .laurent import NoClosedFormError
from .legal import LegalValues
from .pieces import Piece, Pieces, joined
from .solve import Asked, Extreme, extreme

#: Stretches without bounds that are cut in two, at most; on a single integer everything is a number.
_MOST_CUTS = 400


@lru_cache(maxsize=16)
def read(source: str) -> Formulas:
    """Return the formulas of an evaluator; its source is read once."""
    return formulas(source, Graph())


class Question:
    """A term and its rules as functions of ``name``, with all other values known.

    ``source`` is that of an evaluator, ``values`` are by name; of the term another one, ``less``, is taken away if it
    is named. ``multiples`` are names that go with ``name``, each with
    what it is multiplied with. A legal value is one that meets the rules, is within ``first`` and ``last``, and leaves
    integers of them. Raises NoClosedFormError where a value is missing.
    """

    def __init__(
        self, source: str, term: str, values: Mapping[str, int], name: str, first: int, last: int,
        multiples: Mapping[str, Fraction] | None = None, less: str | None = None,
    ) -> None:
        known = read(source)
        self.name, self.first, self.last = name, max(1, first), last
        self.multiples = dict(multiples or {})
        self.graph, self._cuts = Graph(), 0
        rules = [node for _, node in known.rules]
        self.root, off, *conditions = self._folded([known.named(term), known.named(less or term), *rules], values)
        if less is not None:
            self.root = self.graph.add((self.root, self.graph.mul((self.graph.number(-1), off))))
        unit = _whole(self.multiples.values())
        self.legal = LegalValues(conditions, name, unit)

    def enclosed(self, first: int, last: int) -> Pieces:
        """Get the pieces of the term on a stretch of integers; where bounds are no polynomials there, on shorter ones.

        Raises NoClosedFormError where too many of these are needed.
        """
        try:
            return enclosed(self.graph, self.root, self.name, first, last)
        except NoClosedFormError:
            self._cuts += 1
            if first == last or self._cuts > _MOST_CUTS:
                raise
        middle = (first + last) // 2
        return joined((*self.enclosed(first, middle), *self.enclosed(middle + 1, last)))

    def exact(self, at: int) -> Rational:
        """Return the value of the term. Raises NoClosedFormError where it has none, although all rules are met."""
        try:
            (number,) = exact([self.root], {self.name: at})
        except ZeroDivisionError:
            raise NoClosedFormError(f"no value with {self.name} = {at}") from None
        assert isinstance(number, Fraction)
        return plain(number)

    def piece(self, at: int) -> Piece:
        """Return the bounds that hold at a value. Raises NoClosedFormError where there are none."""
        self._cuts = 0
        return next(piece for piece in self.enclosed(self.first, self.last) if piece.first <= at <= piece.last)

    def answer(self, limit: Rational, *, largest: bool) -> Extreme | None:
        """Return the largest or smallest legal value with which the term is at most ``limit``."""
        self._cuts = 0
        asked = Asked(self.enclosed, self.exact, self.legal, limit)
        return extreme(asked, self.first, self.last, largest=largest)

    def neighbour(self, at: int, *, above: bool) -> int | None:
        """Return the next legal value; None if there is none."""
        if at == (self.last if above else self.first):
            return None
        return self.legal.next(at + 1, self.last) if above else self.legal.next(at - 1, self.first)

    def _folded(self, roots: list[Node], values: Mapping[str, int]) -> list[Node]:
        graph, leaves = self.graph, {}
        for node in ordered(roots):
            if node.op == ops.NUMBER:
                leaves[node] = graph.number(node.value)  # type: ignore[arg-type]
            elif node.op == ops.TRUTH:
                leaves[node] = graph.truth(bool(node.value))
            elif node.op == ops.NAME:
                leaves[node] = self._leaf(str(node.value), values)
        return graph.replaced(roots, leaves)

    def _leaf(self, name: str, values: Mapping[str, int]) -> Node:
        if name == self.name:
            return self.graph.name(name)
        if name in self.multiples:
            return self.graph.mul((self.graph.number(self.multiples[name]), self.graph.name(self.name)))
        if name not in values:
            raise NoClosedFormError(f"{name} has no value")
        return self.graph.number(values[name])


def _whole(multiples: Iterable[Fraction]) -> int:
    """Return the least number of which all multiples are whole."""
    return lcm(1, *(count.denominator for count in multiples))
