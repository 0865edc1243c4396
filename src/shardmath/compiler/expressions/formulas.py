"""The formulas of an evaluator as a graph, read from its generated source: the terms by name, and the rules."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from .graph import Graph, Node
from .source import EvaluatorReader

#: A name in a line of source.
_WORD = re.compile(r"[A-Za-z_]\w*")


@dataclass(frozen=True)
class Formulas:
    """Terms and rules over the evaluator's inputs.

    ``terms`` are by name as the evaluator shows them (``first.total``), ``rules`` in the order in which they are
    tried, each with its name.
    """

    graph: Graph
    inputs: tuple[str, ...]
    terms: Mapping[str, Node]
    rules: tuple[tuple[str, Node], ...]

    def named(self, name: str) -> Node:
        """Return the node of an input or a term. Raises KeyError if there is none."""
        return self.graph.name(name) if name in self.inputs else self.terms[name]


def formulas(
    source: str, graph: Graph, wanted: Collection[str] | None = None, values: Mapping[str, Node] | None = None,
) -> Formulas:
    """Read the source of an evaluator that ``evaluator.py.jinja`` wrote, or of several, one after the other.

    With ``wanted``, only the terms of these names are read, those that they are made of, and the rules. ``values`` are
    put in for inputs by name while reading, so that what becomes constant is never made.
    """
    tree, lines = _parsed(source), source.splitlines()
    constants: dict[str, list[Any]] = {"INPUTS": [], "RULES": []}
    for item in tree.body:
        if isinstance(item, ast.Assign) and isinstance(item.targets[0], ast.Name) and item.targets[0].id in constants:
            constants[item.targets[0].id] += ast.literal_eval(item.value)
    inputs = tuple(dict.fromkeys(constants["INPUTS"]))
    known = {name: graph.name(name) for name in inputs} | dict(values or {})
    terms: dict[str, Node] = {}
    rules: list[Node] = []
    for function in (item for item in tree.body if isinstance(item, ast.FunctionDef)):
        if function.name == "terms":
            result = _result(function)
            assert isinstance(result, ast.Dict)
            variables = {
                str(ast.literal_eval(key)): value.id
                for key, value in zip(result.keys, result.values, strict=True)
                if key is not None and isinstance(value, ast.Name)
            }
            roots = {variables[name] for name in variables if wanted is None or name in wanted}
            read = _run(function, lines, roots, graph, known)
            terms |= {name: known[variable] for name, variable in variables.items() if variable in read}
        elif function.name == "rules_met":
            result = _result(function)
            assert isinstance(result, ast.Tuple)
            _run(function, lines, {node.id for node in ast.walk(result) if isinstance(node, ast.Name)}, graph, known)
            rules += map(EvaluatorReader(graph, known.__getitem__).condition, result.elts)
    names = (name for name, _, _ in constants["RULES"])
    return Formulas(graph, inputs, terms, tuple(zip(names, rules, strict=True)))


def tree_of(source: str) -> ast.Module:
    """Return the tree of a generated module: whoever needs the tree of one asks here."""
    return ast.parse(source)


#: A search reads the same evaluator for several questions; nobody changes the tree.
_parsed = lru_cache(maxsize=2)(tree_of)


def assignments(function: ast.FunctionDef, lines: Sequence[str], roots: Collection[str]) -> list[ast.Assign]:
    """Return the assignments of a function that the variables ``roots`` need; ``lines`` are those of its module."""
    needed, chain = set(roots), list[ast.Assign]()
    for statement in reversed(function.body):
        if isinstance(statement, ast.Assign) and _variable(statement) in needed:
            chain.append(statement)
            for line in lines[statement.lineno - 1:statement.end_lineno]:
                needed.update(_WORD.findall(line))
    return chain[::-1]


def _variable(statement: ast.Assign) -> str:
    (target,) = statement.targets
    return target.id if isinstance(target, ast.Name) else ""


def _result(function: ast.FunctionDef) -> ast.expr | None:
    """Return the expression that a function ends with."""
    last = function.body[-1]
    assert isinstance(last, ast.Return)
    return last.value


def _run(
    function: ast.FunctionDef, lines: Sequence[str], roots: Collection[str], graph: Graph, known: dict[str, Node],
) -> set[str]:
    """Read into ``known`` the assignments that ``roots`` need; return the names that were assigned."""
    reader, chain = EvaluatorReader(graph, known.__getitem__), assignments(function, lines, roots)
    for statement in chain:
        known[_variable(statement)] = reader.quantity(statement.value)
    return set(map(_variable, chain))


def conditions_of(source: str, graph: Graph, resolve: Callable[[str], Node]) -> list[Node]:
    """Return the conditions of a function that is one chain of if, elif and else, in order."""
    function = tree_of(source).body[0]
    assert isinstance(function, ast.FunctionDef)
    reader, conditions = EvaluatorReader(graph, resolve), []
    branch = function.body[-1]
    while isinstance(branch, ast.If):
        conditions.append(reader.condition(branch.test))
        branch = branch.orelse[0]
    return conditions
