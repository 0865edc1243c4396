"""A claim as a question to the prover: both sides over parameters, what is legal, and the region."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import product

from shardmath.commands.prove.claim import FREE, Claim
from shardmath.commands.prove.sides import Setting, Sides
from shardmath.compiler.expressions import ops
from shardmath.compiler.expressions.formulas import formulas
from shardmath.compiler.expressions.graph import Node, ordered
from shardmath.compiler.proofs.algebra import Algebra
from shardmath.compiler.proofs.case import Case
from shardmath.compiler.proofs.uses import case_of
from shardmath.files.cached import source_of
from shardmath.generated.definitions import PARAMETERS

#: Switches that a proof tells apart where it fails without: regions of dense layers that are recomputed.
_TOLD_APART = ("recompute_full", "recompute_core_attention", "recompute_mlp")
_SEQUENCES = "global_batch_size"
#: Parameters of the sequences with which there are as many micro-batches as stages.
_FILLING = frozenset({_SEQUENCES, "micro_batch_size", "data_parallel", "pipeline_parallel"})


@dataclass(frozen=True)
class Posed:
    """``left relation right`` over terms, and the same over parameters in ``roots``, where ``conditions`` hold.

    ``settings`` are those that a side uses, by number; each of them is legal by conditions.
    """

    claim: Claim
    sides: Sides
    left: Node
    right: Node
    roots: tuple[Node, Node]
    region: tuple[Node, ...]
    conditions: tuple[Node, ...]
    settings: Mapping[int, Setting]

    @cached_property
    def names(self) -> dict[str, tuple[int, int | None]]:
        """Least and largest values of all parameters in question."""
        needed = {str(node.value) for node in ordered((*self.roots, *self.conditions)) if node.op == ops.NAME}
        return {name: (1, None) if name in FREE else (PARAMETERS[name][2], PARAMETERS[name][3])
                for name in sorted(needed)}

    @cached_property
    def algebra(self) -> Algebra:
        """The algebra of the graph."""
        return Algebra(self.sides.graph, [name for name, limits in self.names.items() if limits == (0, 1)])

    def case(self, *further: Node, swapped: bool = False) -> Case | None:
        """Return the case of legal values with ``further`` conditions, the smaller side first; None if none is left."""
        roots = self.roots[::-1] if swapped else self.roots
        return case_of(self.algebra, self.names, roots, (*further, *self.conditions))

    def parts(self, *, swapped: bool = False) -> Iterator[Case | None]:
        """Yield the cases that together are ``case``: modes of recompute apart, and few micro-batches from enough."""
        alternatives = [[self._is(name, 0), self._is(name, 1)] for name in _TOLD_APART if name in self.names]
        if self.names.keys() >= _FILLING:
            alternatives.append(self._few_or_enough())
        for chosen in product(*alternatives):
            yield self.case(*chosen, swapped=swapped)

    def _is(self, name: str, value: int) -> Node:
        graph = self.sides.graph
        return graph.binary(ops.EQ, graph.name(name), graph.number(value))

    def _few_or_enough(self) -> list[Node]:
        """Fewer micro-batches than stages, and as many or more."""
        graph = self.sides.graph
        filling = graph.mul(tuple(graph.name(name) for name in sorted(_FILLING - {_SEQUENCES})))
        sequences = graph.name(_SEQUENCES)
        return [graph.binary(ops.LT, sequences, filling), graph.binary(ops.LE, filling, sequences)]


def pose(claim: Claim, region: str, sides: Sides) -> Posed:
    """Put the formulas of terms into a claim. Raises InputError for names that nothing has."""
    left, right = sides.of(claim)
    conditions = sides.conditions(region, claim)
    graph = sides.graph
    leaves = [str(node.value) for node in ordered((left, right, *conditions)) if node.op == ops.NAME]
    needed: dict[int, list[str]] = {}
    for leaf in leaves:
        number, bar, term = leaf.partition("|")
        if bar:
            needed.setdefault(int(number), []).append(term)
    values: dict[Node, Node] = {}
    legal: list[Node] = []
    for place, terms in needed.items():
        known, rules = _formulas(sides, sides.settings[place], terms)
        values |= {graph.name(f"{place}|{term}"): known[term] for term in terms}
        legal += rules
    roots = graph.replaced((left, right), values)
    inside = graph.replaced(conditions, values)
    used = {place: sides.settings[place] for place in needed}
    return Posed(claim, sides, left, right, (roots[0], roots[1]), tuple(conditions),
                 tuple(dict.fromkeys((*inside, *legal))), used)


def _formulas(sides: Sides, setting: Setting, terms: Iterable[str]) -> tuple[dict[str, Node], list[Node]]:
    """Return some terms at a setting, and the rules that it keeps."""
    graph, evaluator = sides.graph, setting.evaluator
    modules = [evaluator.terms]
    if any(term not in evaluator.terms.TERMS for term in terms):
        modules.append(evaluator.times)
    known: dict[str, Node] = {}
    rules: list[Node] = []
    for module in modules:
        values = {name: setting.values.get(name, graph.name(name)) for name in module.INPUTS}
        own = [term for term in terms if term in module.TERMS and term not in known]
        read = formulas(source_of(module), graph, own, values)
        known |= {term: read.terms[term] for term in own}
        rules += [rule for _, rule in read.rules]
    inputs = {name: setting.values.get(name, graph.name(name)) for name in setting.inputs}
    ranks = [node for node in ordered(known.values()) if node.op == ops.NAME and node.value == "pipeline_rank"]
    if ranks or "pipeline_rank" in setting.values:
        rules.append(graph.binary(ops.LT, inputs["pipeline_rank"], inputs["pipeline_parallel"]))
    for name, value in setting.values.items():
        rules += _limits(sides, value, *PARAMETERS[name][2:4])
    return known, rules


def _limits(sides: Sides, value: Node, least: int, most: int | None) -> list[Node]:
    """Return conditions that a value that a claim sets is legal."""
    limits = [sides.graph.binary(ops.LE, sides.graph.number(least), value)]
    return limits if most is None else [*limits, sides.graph.binary(ops.LE, value, sides.graph.number(most))]
