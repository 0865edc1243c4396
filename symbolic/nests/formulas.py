"""The formulas of an evaluator as a graph, read from its generated source: the terms by name, and the rules."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from .graph import Graph, Node
from .source import Reader


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
        """The node of an input or a term. Raises KeyError if there is none."""
        return self.graph.name(name) if name in self.inputs else self.terms[name]


def formulas(source: str, graph: Graph) -> Formulas:
    """Read the source of an evaluator that ``evaluator.py.jinja`` wrote, or of several, one after the other."""
    tree = ast.parse(source)
    constants: dict[str, list[Any]] = {"INPUTS": [], "RULES": []}
    for item in tree.body:
        if isinstance(item, ast.Assign) and isinstance(item.targets[0], ast.Name) and item.targets[0].id in constants:
            constants[item.targets[0].id] += ast.literal_eval(item.value)
    inputs = tuple(dict.fromkeys(constants["INPUTS"]))
    known = {name: graph.name(name) for name in inputs}
    terms: dict[str, Node] = {}
    rules: list[Node] = []
    for function in (item for item in tree.body if isinstance(item, ast.FunctionDef)):
        if function.name == "terms":
            result = _run(function, graph, known)
            assert isinstance(result, ast.Dict)
            terms |= {
                str(ast.literal_eval(key)): known[value.id]
                for key, value in zip(result.keys, result.values, strict=True)
                if key is not None and isinstance(value, ast.Name)
            }
        elif function.name == "rules_met":
            result = _run(function, graph, known)
            assert isinstance(result, ast.Tuple)
            reader = Reader(graph, known.__getitem__)
            rules += map(reader.condition, result.elts)
    names = (name for name, _, _ in constants["RULES"])
    return Formulas(graph, inputs, terms, tuple(zip(names, rules, strict=True)))


def _run(function: ast.FunctionDef, graph: Graph, known: dict[str, Node]) -> ast.expr:
    """Read the assignments of a function into ``known``; give what it returns."""
    resolve: Callable[[str], Node] = known.__getitem__
    reader = Reader(graph, resolve)
    for statement in function.body:
        if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
            known[statement.targets[0].id] = reader.quantity(statement.value)
        elif isinstance(statement, ast.Return) and statement.value is not None:
            return statement.value
    raise ValueError(f"{function.name} returns nothing")


def function_source(source: str, name: str) -> str:
    """The source of one function of a module."""
    tree = ast.parse(source)
    found = next(item for item in tree.body if isinstance(item, ast.FunctionDef) and item.name == name)
    return ast.get_source_segment(source, found) or ""


def conditions_of(source: str, graph: Graph, resolve: Callable[[str], Node]) -> list[Node]:
    """The conditions of a function that is one chain of if, elif and else, in order."""
    function = ast.parse(source).body[0]
    assert isinstance(function, ast.FunctionDef)
    reader, found = Reader(graph, resolve), []
    branch = function.body[-1]
    while isinstance(branch, ast.If):
        found.append(reader.condition(branch.test))
        branch = branch.orelse[0]
    return found
