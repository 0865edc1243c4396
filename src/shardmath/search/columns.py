"""A plain evaluator on columns: the same source, with every choice between two numbers made for all rows at once.

Nothing is compiled, so the first answer comes at once; for some ten thousand layouts it is as fast as a nest.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from functools import cache, reduce
from types import CodeType, ModuleType
from typing import Any

import numpy as np

from shardmath.files.cached import source_of

#: Functions of the formulas, for numbers and columns. Quotients of integers below 2^53 are never rounded across an
#: integer, so that they may be rounded after they were divided, which is several times as fast as ``//``.
_FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "max": lambda *items: reduce(np.maximum, items),
    "min": lambda *items: reduce(np.minimum, items),
    "ratio": np.true_divide,
    "ceil_div": lambda numerator, denominator: np.ceil(np.true_divide(numerator, denominator)),
    "floor_div": lambda numerator, denominator: np.floor(np.true_divide(numerator, denominator)),
    "lcm": lambda left, right: np.lcm(np.asarray(left, np.int64), np.asarray(right, np.int64)),
    "divides": lambda divisor, whole: whole % divisor == 0,
    "choose": np.where,
    "both": np.logical_and,
    "either": np.logical_or,
}


class _OnColumns(ast.NodeTransformer):
    """``a if c else b`` becomes a function of columns, and so do ``and`` and ``or``."""

    def visit_IfExp(self, node: ast.IfExp) -> ast.AST:
        self.generic_visit(node)
        return _call("choose", node.test, node.body, node.orelse)

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:
        self.generic_visit(node)
        name = "both" if isinstance(node.op, ast.And) else "either"
        return reduce(lambda left, right: _call(name, left, right), node.values)


def _call(name: str, *arguments: ast.expr) -> ast.expr:
    return ast.Call(ast.Name(name, ast.Load()), list(arguments), [])


def term_column(module: ModuleType, term: str, values: Mapping[str, Any]) -> Any:
    """One term of a plain evaluator; ``values`` are numbers or columns of float64 for all of its inputs."""
    with np.errstate(all="ignore"):  # what is chosen away may divide by 0
        return _compiled(module, "terms", term)(*(values[name] for name in module.INPUTS))


def rules_met(module: ModuleType, values: Mapping[str, Any]) -> tuple[Any, ...]:
    """For every rule of a plain evaluator, which rows keep it."""
    with np.errstate(all="ignore"):
        kept: tuple[Any, ...] = _compiled(module, "rules_met")(*(values[name] for name in module.INPUTS))
    return kept


def formula_column(text: str, values: Mapping[str, Any]) -> Any:
    """A formula of the standard space, such as ``num_gpus / tensor_parallel``, for numbers and columns by name."""
    with np.errstate(all="ignore"):
        return eval(_formula(text), {**_FUNCTIONS, "__builtins__": {}}, dict(values))


@cache
def _formula(text: str) -> CodeType:
    return compile(ast.fix_missing_locations(_OnColumns().visit(ast.parse(text, mode="eval"))), "<formula>", "eval")


@cache
def _compiled(module: ModuleType, name: str, term: str = "") -> Callable[..., Any]:
    """A function of the module on columns; with a term that one alone, without what it does not need."""
    tree = ast.parse(source_of(module))
    function = next(node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == name)
    if term:
        _narrow(function, term)
    changed = ast.fix_missing_locations(_OnColumns().visit(ast.Module([function], [])))
    space: dict[str, Any] = {**_FUNCTIONS}
    exec(compile(changed, str(module.__file__), "exec"), space)
    made: Callable[..., Any] = space[name]
    return made


def _narrow(function: ast.FunctionDef, term: str) -> None:
    """Leave of a function, which assigns names one after the other and returns a dictionary, what one entry needs."""
    returned = function.body[-1]
    assert isinstance(returned, ast.Return)
    assert isinstance(returned.value, ast.Dict)
    entries = zip(returned.value.keys, returned.value.values, strict=True)
    returned.value = next(value for key, value in entries if isinstance(key, ast.Constant) and key.value == term)
    needed, kept = _names(returned), list[ast.stmt]([returned])
    for statement in reversed(function.body[:-1]):
        if isinstance(statement, ast.Assign) and needed & _names(statement.targets[0]):
            kept.append(statement)
            needed |= _names(statement.value)
    function.body = kept[::-1]


def _names(node: ast.AST) -> set[str]:
    return {item.id for item in ast.walk(node) if isinstance(item, ast.Name)}
