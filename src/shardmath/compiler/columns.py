"""Terms and rules of a plain evaluator, and formulas of a space, on columns: for all rows at once.

Nothing is compiled, so the first answer comes at once; for some ten thousand layouts it is as fast as a nest.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from inspect import getsource
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shardmath.compiler.expressions.arrays import Computation
from shardmath.compiler.expressions.formulas import conditions_of, formulas
from shardmath.compiler.expressions.graph import Graph
from shardmath.compiler.expressions.source import parse
from shardmath.files.cached import source_of


def term_column(module: ModuleType, term: str, values: Mapping[str, Any]) -> Any:
    """Return one term of a plain evaluator; ``values`` are numbers or columns of float64 for all of its inputs."""
    (column,) = term_columns(module, (term,), values)
    return column


def term_columns(module: ModuleType, terms: tuple[str, ...], values: Mapping[str, Any]) -> list[Any]:
    """Several terms of a plain evaluator, computed together."""
    return _terms(module, terms)(values)


def rules_met(module: ModuleType, values: Mapping[str, Any]) -> list[Any]:
    """For every rule of a plain evaluator, which rows keep it."""
    return _rules(module)(values)


def formula_column(text: str, values: Mapping[str, Any]) -> Any:
    """Evaluate a formula of the standard space, such as ``num_gpus / tensor_parallel``, on columns by name."""
    (column,) = _formula(text)(values)
    return column


def branch_column(function: Callable[..., int], values: Mapping[str, Any], count: int) -> NDArray[np.int64]:
    """Return the number of the branch that a generated function takes in ``count`` rows.

    The function is one chain of if, elif and else, which return the numbers from 0; ``values`` are its arguments.
    """
    masks = [np.broadcast_to(mask, count) for mask in _branches(function)(values)]
    return np.select(masks, range(len(masks)), len(masks)).astype(np.int64)


@cache
def _branches(function: Callable[..., int]) -> Computation:
    graph = Graph()
    return Computation(conditions_of(getsource(function), graph, graph.name))


@cache
def _terms(module: ModuleType, terms: tuple[str, ...]) -> Computation:
    known = formulas(source_of(module), Graph(), terms)
    return Computation([known.named(term) for term in terms])


@cache
def _rules(module: ModuleType) -> Computation:
    return Computation([rule for _, rule in formulas(source_of(module), Graph(), ()).rules])


@cache
def _formula(text: str) -> Computation:
    graph = Graph()
    return Computation([parse(text, graph, graph.name)])
