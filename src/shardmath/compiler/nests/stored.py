"""A problem as text and back: every node once, arguments before what uses them."""

from __future__ import annotations

import json
from dataclasses import asdict
from fractions import Fraction
from typing import Any

from ..expressions import ops
from ..expressions.graph import Graph, Node, ordered
from .problem import Best, Front, Histogram, NestAxis, Problem, Question, Rows

_KINDS: dict[str, type[Question]] = {kind.__name__: kind for kind in (Best, Front, Histogram, Rows)}


def stored(problem: Problem) -> str:
    """Return the text of a problem, as JSON."""
    nodes = ordered(problem.roots)
    place = {node: number for number, node in enumerate(nodes)}
    questions = [
        [type(question).__name__, {**vars(question), "keys": [place[node] for node in question.keys]}]
        for question in problem.questions
    ]
    return json.dumps({
        "nodes": [[node.op, [place[arg] for arg in node.args], _written(node)] for node in nodes],
        "axes": [asdict(axis) for axis in problem.axes],
        "conditions": [[name, place[node]] for name, node in problem.conditions],
        "estimate": place[problem.estimate], "verdicts": [place[node] for node in problem.verdicts],
        "questions": questions,
    }, separators=(",", ":"))


def restored(text: str) -> Problem:
    """Return the problem of a text that ``stored`` wrote, in a graph of its own."""
    data, graph = json.loads(text), Graph()
    nodes: list[Node] = []
    for op, args, value in data["nodes"]:
        number = Fraction(value) if op == ops.NUMBER else value
        nodes.append(graph.as_it_is(op, tuple(nodes[place] for place in args), number))
    questions = tuple(
        _KINDS[kind](**_tuples({**fields, "keys": [nodes[place] for place in fields["keys"]]}))
        for kind, fields in data["questions"]
    )
    return Problem(
        graph, tuple(NestAxis(**_tuples(axis)) for axis in data["axes"]),
        tuple((name, nodes[place]) for name, place in data["conditions"]), nodes[data["estimate"]],
        tuple(nodes[place] for place in data["verdicts"]), questions,
    )


def _written(node: Node) -> str | bool | None:
    return str(node.value) if isinstance(node.value, Fraction) else node.value


def _tuples(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: tuple(value) if isinstance(value, list) else value for name, value in fields.items()}
