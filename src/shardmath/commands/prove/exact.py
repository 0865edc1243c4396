"""Exact values of the sides of a claim: by the generated evaluators, not by the formulas that a proof rewrites."""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from types import ModuleType
from typing import Any

from shardmath.commands.prove.posed import Posed
from shardmath.commands.prove.sides import Setting
from shardmath.compiler.expressions import ops
from shardmath.compiler.expressions.formulas import assignments, tree_of
from shardmath.compiler.expressions.graph import Node, exact, ordered
from shardmath.files.cached import source_of
from shardmath.input.parameters import limits

Number = int | Fraction


@dataclass(frozen=True)
class Values:
    """Values of a claim at points."""

    posed: Posed

    def at(self, values: Mapping[str, int]) -> dict[int, dict[str, int]] | None:
        """Return all parameters of every setting at the ``values`` of names; None where one is not legal."""
        every = {}
        for number, setting in self.posed.settings.items():
            own = {name: values.get(name, least) for name, least in self._least[number].items()}
            for name, node in setting.values.items():
                value = _number(node, values)
                if Fraction(value).denominator != 1:
                    return None
                own[name] = int(value)
            if not self._legal(number, own):
                return None
            every[number] = own
        return every

    def keeps_region(self, values: Mapping[str, int], every: Mapping[int, Mapping[str, int]]) -> bool:
        """Tell whether a point lies in the region."""
        leaves = self._leaves(self.posed.region, values, every)
        return all(bool(_number(condition, leaves)) for condition in self.posed.region)

    def sides(self, values: Mapping[str, int], every: Mapping[int, Mapping[str, int]]) -> tuple[Number, Number]:
        """Return the exact values of both sides."""
        leaves = self._leaves((self.posed.left, self.posed.right), values, every)
        return _number(self.posed.left, leaves), _number(self.posed.right, leaves)

    def _leaves(
        self, nodes: Collection[Node], values: Mapping[str, int], every: Mapping[int, Mapping[str, int]],
    ) -> dict[str, Number]:
        leaves: dict[str, Number] = dict(values)
        if 0 in every:
            leaves = {**every[0], **leaves}
        for number, functions in self._functions.items():
            for function in functions:
                leaves |= {f"{number}|{term}": value for term, value in function(every[number]).items()}
        return leaves

    def _legal(self, number: int, values: Mapping[str, int]) -> bool:
        within = all(low <= values[name] <= high for name, (low, high) in self._limits[number].items())
        rank = values.get("pipeline_rank", 0) < values.get("pipeline_parallel", 1)
        return within and rank and all(all(met(values)) for met in self._rules[number])

    @cached_property
    def _limits(self) -> dict[int, dict[str, tuple[int, int]]]:
        return {number: {name: limits(name) for module in modules for name in module.INPUTS}
                for number, modules in self._modules.items()}

    @cached_property
    def _least(self) -> dict[int, dict[str, int]]:
        return {number: {name: max(low, 0) for name, (low, _) in own.items()} for number, own in self._limits.items()}

    @cached_property
    def _needed(self) -> dict[int, list[str]]:
        leaves = ordered((self.posed.left, self.posed.right, *self.posed.region))
        pairs = [str(node.value).split("|") for node in leaves if node.op == ops.NAME and "|" in str(node.value)]
        return {number: [term for other, term in pairs if int(other) == number] for number in self.posed.settings}

    @cached_property
    def _modules(self) -> dict[int, list[ModuleType]]:
        return {number: _modules(setting, self._needed[number]) for number, setting in self.posed.settings.items()}

    @cached_property
    def _rules(self) -> dict[int, list[Callable[[Mapping[str, int]], tuple[bool, ...]]]]:
        return {number: [_called(module, module.rules_met) for module in modules]
                for number, modules in self._modules.items()}

    @cached_property
    def _functions(self) -> dict[int, list[Callable[[Mapping[str, int]], dict[str, Number]]]]:
        made: dict[int, list[Callable[[Mapping[str, int]], dict[str, Number]]]] = {}
        for number, modules in self._modules.items():
            left = list(dict.fromkeys(self._needed[number]))
            made[number] = []
            for module in modules:
                own = [term for term in left if term in module.TERMS]
                left = [term for term in left if term not in own]
                made[number].append(_called(module, _only(module, tuple(own))))
        return made


def _modules(setting: Setting, terms: Collection[str]) -> list[ModuleType]:
    memory = setting.evaluator.terms
    return [memory] if all(term in memory.TERMS for term in terms) else [memory, setting.evaluator.times]


def _called(module: ModuleType, function: Callable[..., Any]) -> Callable[[Mapping[str, int]], Any]:
    names = tuple(module.INPUTS)
    return lambda values: function(*[values[name] for name in names])


def _only(module: ModuleType, terms: tuple[str, ...]) -> Callable[..., dict[str, Number]]:
    """Return the function ``terms`` of an evaluator without the lines that ``terms`` do not need."""
    source = source_of(module)
    function = next(item for item in tree_of(source).body
                    if isinstance(item, ast.FunctionDef) and item.name == "terms")
    last = function.body[-1]
    assert isinstance(last, ast.Return)
    assert isinstance(last.value, ast.Dict)
    pairs = [(key, value) for key, value in zip(last.value.keys, last.value.values, strict=True)
             if isinstance(key, ast.Constant) and key.value in terms]
    last.value = ast.Dict([key for key, _ in pairs], [value for _, value in pairs])
    roots = {node.id for _, value in pairs for node in ast.walk(value) if isinstance(node, ast.Name)}
    function.body = [*assignments(function, source.splitlines(), roots), last]
    space = dict(vars(module))
    exec(compile(ast.fix_missing_locations(ast.Module([function], [])), "<terms>", "exec"), space)
    only: Callable[..., dict[str, Number]] = space["terms"]
    return only


def _number(node: Node, values: Mapping[str, Number]) -> Number:
    """Return the exact value of a small expression or condition."""
    (value,) = exact([node], values)
    if isinstance(value, bool):
        return int(value)
    return value.numerator if value.denominator == 1 else value
