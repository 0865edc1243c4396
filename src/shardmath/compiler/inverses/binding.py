"""The form of an estimate that holds at one configuration, in letters: which polynomial of the symbol it is there."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from fractions import Fraction

from ..expressions import ops
from ..expressions.formulas import formulas
from ..expressions.graph import Graph, Node, exact, ordered
from .coefficients import Coefficients, Polynomials


class Binding:
    """The polynomial of ``term`` in ``name`` at the configuration ``values``, which has every parameter by name.

    ``multiples`` are names that go along with ``name``, each with what it is multiplied with; ``switches`` are names
    with values 0 and 1. What conditions and switches decide is decided. ``coefficients`` are nodes without the symbol,
    ``terms`` the names of those that an evaluator has a name for, ``numbers`` the values of the coefficients. Without a
    ``name`` it is the largest rank and moment. Raises NoClosedFormError where the term is no polynomial there.
    """

    def __init__(
        self, source: str, term: str, values: Mapping[str, int], name: str | None,
        multiples: Mapping[str, Fraction] | None = None, switches: Container[str] = (),
    ) -> None:
        self.graph = graph = Graph()
        known = formulas(source, graph)
        root = known.named(term)
        nodes = ordered([root])
        needed = {str(node.value): values[str(node.value)] for node in nodes if node.op == ops.NAME}
        settled = self._settled(nodes, needed, switches)
        written = [node for node in known.terms.values() if node.args]
        self.root, *new = graph.replaced([root, *written], settled)
        names = {node: name for name, node in reversed(list(known.terms.items()))}
        self.terms = {node: names[old] for node, old in reversed(list(zip(new, written, strict=True))) if node.args}

        if name is None:
            self.root = self._largest(self.root, needed)
        nodes = ordered([self.root])
        numbers = dict(zip(nodes, exact(nodes, needed), strict=True))
        symbols = {} if name is None else {graph.name(name): graph.number(1)}
        symbols |= {graph.name(other): graph.number(times) for other, times in (multiples or {}).items()}
        polynomials = Polynomials(graph, symbols, lambda node: self._constant(numbers[node]))
        self.coefficients: Coefficients = polynomials.of(self.root)
        self.numbers = {exponent: self._number(node, needed) for exponent, node in self.coefficients.items()}

    def _settled(self, nodes: Iterable[Node], values: Mapping[str, int], switches: Container[str]) -> dict[Node, Node]:
        """Return truths for conditions and numbers for switches."""
        decided = [node for node in nodes if node.is_condition or (node.op == ops.NAME and node.value in switches)]
        return dict(zip(decided, map(self._constant, exact(decided, values)), strict=True))

    def _largest(self, root: Node, values: Mapping[str, int]) -> Node:
        """Return the largest part of a maximum, and of the sums in it: the rank and the moment of an estimate."""
        if root.op == ops.MAX:
            sizes = exact(root.args, values)
            return self._largest(root.args[sizes.index(max(sizes))], values)
        if root.op == ops.ADD and any(arg.op == ops.MAX for arg in root.args):
            return self.graph.add([self._largest(arg, values) for arg in root.args])
        return root

    def _constant(self, value: Fraction | bool) -> Node:
        return self.graph.truth(value) if isinstance(value, bool) else self.graph.number(value)

    def _number(self, node: Node, values: Mapping[str, int]) -> Fraction:
        (number,) = exact([node], values)
        assert isinstance(number, Fraction)
        return number
