"""The layouts that ``recommend`` searches, as plain data: axes, derived symbols and conditions for any job."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from typing import Any

from shardmath.configuration.run import Search
from shardmath.divisors import divisors
from shardmath.generated.definitions import PARAMETERS
from shardmath.machines import Cluster
from shardmath.models.model import Model
from shardmath.search.offered import offered
from shardmath.search.spaces import Part, Space
from shardmath.search.spaces.candidates import DivisorsOf
from shardmath.search.stages import chunk_counts, has_uneven

#: A job to read rules of candidates from; the rules hold for every job.
_GPUS, _BATCH = 48, 24
_OPERATORS = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.Mod: "%", ast.Eq: "===", ast.NotEq: "!==",
    ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.And: "&&", ast.Or: "||",
}
_FUNCTIONS = {"max": "Math.max", "min": "Math.min"}


def parts_of(
    model: Model, cluster: Cluster, implementation: str, kernels: Mapping[str, str] | None = None,
) -> tuple[tuple[Space, Part], ...]:
    """Return the parts of the spaces of any job of a model, each with its space.

    Raises InputError where the implementation does not have the model.
    """
    spaces = offered(model, cluster, _GPUS, rank_by="memory", global_batch_size=_BATCH, implementation=implementation,
                     kernels=kernels)
    return tuple((space, part) for space in spaces for part in space.parts())


def part_data(space: Space, part: Part, model: Model, node_size: int) -> dict[str, Any]:
    """Return a part for the page: candidates of every axis as a rule or a list, modes, and its functions as text."""
    def function(name: str, text: str) -> tuple[str, list[str], str]:
        names, printed = in_javascript(text)
        return name, names, f"({{ {', '.join(names)} }}) => {printed}"

    modes = next(axis for axis in part.axes if axis.name == "recompute")
    return {
        "evaluator": part.evaluator.name,
        "schedule": part.evaluator.choices["schedule"],
        "axes": [(axis.name, _candidates(space, part, axis.name, axis.labels, model, node_size)) for axis in part.axes],
        "modes": {
            label: [name for name, values in modes.values.items() if values[place]]
            for place, label in enumerate(modes.labels)
        },
        "fixed": {name: part.fixed[name] for name in single_sizes(space)},
        "derived": [function(name, text) for name, text in part.derived.items()],
        "constraints": [function(item.name, item.text) for item in part.constraints],
    }


def single_sizes(space: Space) -> list[str]:
    """Return sizes of the layout of which a space tries one only."""
    return [name for name in space.fixed if PARAMETERS[name][4] == "layout"]


def in_javascript(text: str) -> tuple[list[str], str]:
    """Return the names in a formula of a space, and the formula in JavaScript over ``divides`` and ``ceil_div``."""
    tree = ast.parse(text, mode="eval").body
    functions = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and id(node) not in functions}
    return sorted(names), _printed(tree)


def _printed(node: ast.expr) -> str:
    match node:
        case ast.Constant() | ast.Name():
            return ast.unparse(node)
        case ast.BinOp():
            return f"({_printed(node.left)} {_OPERATORS[type(node.op)]} {_printed(node.right)})"
        case ast.BoolOp():
            return f"({f' {_OPERATORS[type(node.op)]} '.join(map(_printed, node.values))})"
        case ast.Compare(ops=[operator], comparators=[right]):
            return f"({_printed(node.left)} {_OPERATORS[type(operator)]} {_printed(right)})"
        case ast.IfExp():
            return f"({_printed(node.test)} ? {_printed(node.body)} : {_printed(node.orelse)})"
        case ast.Call(func=ast.Name(id=name)):
            return f"{_FUNCTIONS.get(name, name)}({', '.join(map(_printed, node.args))})"
    raise ValueError(f"no JavaScript for {ast.unparse(node)}")


def _candidates(
    space: Space, part: Part, name: str, labels: Sequence[int | str], model: Model, node_size: int,
) -> list[int | str] | dict[str, Any]:
    """Get the candidates of an axis: a rule where they depend on the job or on the shape of the model, else a list."""
    declared = space.axes[name]
    if isinstance(declared, DivisorsOf):
        return {"divisors_of": declared.symbol}
    uneven = has_uneven(part.evaluator.implementation, _SEARCH)
    rules: Mapping[str, tuple[dict[str, Any], Sequence[int]]] = {
        "pipeline_parallel": ({"divisors_of": "num_gpus", "at_least": 2}, divisors(_GPUS)[1:]),
        "expert_tensor_parallel": ({"divisors_of": "num_gpus", "at_most": "node_size"},
                                   [size for size in divisors(_GPUS) if size <= node_size]),
        "virtual_pipeline": ({"chunks": 2 if uneven else 0}, (1, *chunk_counts(model, uneven))),
    }
    rule, usual = rules.get(name, ({}, ()))
    return rule if rule and tuple(labels) == tuple(usual) else list(labels)


_SEARCH = Search(model="", gpu="", num_gpus=_GPUS, global_batch_size=_BATCH)
