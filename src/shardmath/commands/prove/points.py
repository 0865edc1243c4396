"""Legal points of a claim: by trial of random integers, by construction of what must divide, and at the edges.

All draws are the same on every run. Trial knows nothing of how a proof rewrites the rules; construction reaches what
trial seldom meets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from shardmath.commands.prove.posed import Posed
from shardmath.compiler.expressions import ops
from shardmath.compiler.expressions.arrays import Computation
from shardmath.compiler.expressions.graph import ordered
from shardmath.compiler.proofs.case import Case
from shardmath.generated.definitions import PARAMETERS
from shardmath.input.parameters import LARGEST
from shardmath.models import load_model

Column = NDArray[np.float64]
Columns = dict[str, Column]

_BATCH = 40_000
_SMALL = np.array((1, 1, 1, 2, 2, 3, 4, 4, 6, 8, 12))
_DEGREES = ("tensor_parallel", "context_parallel", "pipeline_parallel", "data_parallel", "data_parallel_replicas",
            "micro_batch_size", "virtual_pipeline", "expert_parallel", "expert_tensor_parallel", "i", "j", "more")
_MODELS = ("llama-3.1-8b", "llama-3.1-70b", "llama-3.1-405b", "qwen2.5-7b", "mixtral-8x7b-v0.1", "deepseek-v3")
#: The part of all points that is found by trial, and trials at most.
_TRIED, _TRIALS = 0.3, 8
_WIDTHS = (0.0, 0.7, 1.1, 2.0, 4.0, 7.0)


class Points:
    """Draws of legal points of a claim."""

    def __init__(self, posed: Posed, case: Case) -> None:
        self.posed, self.case = posed, case
        self._generator = np.random.default_rng(len(posed.names))

    def real(self, count: int) -> Iterator[dict[str, int]]:
        """Yield at most ``count`` layouts of real models."""
        return _first(self._real(), count)

    def drawn(self, count: int) -> Iterator[dict[str, int]]:
        """Yield ``count`` points, where so many are met with: some by trial, the others constructed."""
        left = count
        for batches, most in ((self._trials(), int(count * _TRIED)), (self._constructed(), count)):
            for point in _first(batches, min(most, left)):
                left -= 1
                yield point

    def edges(self) -> Iterator[dict[str, int]]:
        """Yield the points where all but at most two variables have their least values, or the next ones."""
        yield from _points(self._kept(self._originals(self._at_edges())))

    def _real(self) -> Iterator[Columns]:
        """Yield layouts of real models."""
        models = [load_model(name) for name in _MODELS]
        for _ in range(_TRIALS):
            columns = self._plain()
            chosen = self._generator.integers(0, len(models), _BATCH)
            for name in columns:
                if name in PARAMETERS and PARAMETERS[name][4] == "model":
                    sizes: Column = np.array([getattr(model, name) for model in models], np.float64)
                    columns[name] = sizes[chosen]
            for name, least, most in (("seq_length", 10, 18), ("global_batch_size", 5, 12), ("tensor_parallel", 0, 4),
                                      ("context_parallel", 0, 4), ("pipeline_parallel", 0, 4),
                                      ("data_parallel", 0, 7), ("micro_batch_size", 0, 3)):
                if name in columns:
                    columns[name] = np.exp2(self._generator.integers(least, most, _BATCH)).astype(np.float64)
            if "node_size" in columns:
                columns["node_size"] = np.full(_BATCH, 16.0)
            yield self._kept(self._settled(columns))

    def _trials(self) -> Iterator[Columns]:
        for _ in range(_TRIALS):
            yield self._kept(self._settled(self._plain()))

    def _plain(self) -> Columns:
        """Random values of every name that know of no rule: small ones with many divisors, some of them scaled up."""
        columns = {}
        for name, (low, high) in self.posed.names.items():
            if high is not None and high - low < 64:
                columns[name] = self._generator.integers(low, high + 1, _BATCH).astype(float)
                continue
            value = self._generator.choice(_SMALL, _BATCH).astype(float)
            if name not in _DEGREES:
                value *= 2.0 ** self._generator.integers(0, 11, _BATCH) * self._generator.choice((1, 1, 3), _BATCH)
            columns[name] = np.maximum(value if low else value - 1, low)
        return columns

    def _settled(self, columns: Columns) -> Columns:
        """With what the conditions say of single names: a value, a bound, an equation."""
        case, named = self.case, {node: str(node.value) for node in ordered(self.case.values.values())
                                  if node.op == ops.NAME}
        for name, value in case.values.items():
            if value.op == ops.NUMBER:
                columns[name] = np.full(_BATCH, float(value.value))  # type: ignore[arg-type]
            elif value.op == ops.NAME and value.value == name:
                low, high = case.bounds.names[name]
                columns[name] = np.clip(columns[name], low, np.inf if high is None else high)
        for name, value in case.values.items():
            inner = [named[node] for node in ordered([value]) if node.op == ops.NAME]
            if value.args and all(other in columns and other != name for other in inner):
                columns[name] = np.asarray(Computation([value])(columns)[0], float)
        return columns

    def _constructed(self) -> Iterator[Columns]:
        """Yield points of the case: its own variables are random, the parameters follow."""
        while True:
            columns = {}
            for name, (low, high) in self._variables.items():
                width = self._generator.choice(_WIDTHS, _BATCH // 10)
                above = np.floor(np.exp(self._generator.random(_BATCH // 10) * width) - 1)
                columns[name] = np.minimum(low + above, high)
            yield self._kept(self._originals(columns))

    def _at_edges(self) -> Columns:
        names = list(self._variables)
        lows = np.array([low for low, _ in self._variables.values()], float)
        highs = np.array([high for _, high in self._variables.values()], float)
        rows = [np.zeros(len(names)), np.ones(len(names))]
        for base in (0, 1):
            for size in (1, 2):
                for chosen in combinations(range(len(names)), size):
                    for value in ((1 - base,), (1 - base, 5, 1000))[size == 1]:
                        row = np.full(len(names), float(base))
                        row[list(chosen)] = value
                        rows.append(row)
        table = np.minimum(lows + np.array(rows), highs)
        return {name: table[:, place] for place, name in enumerate(names)}

    @cached_property
    def _variables(self) -> dict[str, tuple[int, float]]:
        """The variables of the case with their bounds."""
        nodes = ordered((*self.case.values.values(), *self.case.conditions))
        names = sorted({str(node.value) for node in nodes if node.op == ops.NAME})
        bounds = {name: self.case.bounds.names[name] for name in names}
        return {name: (max(low or 0, 0), np.inf if high is None else high) for name, (low, high) in bounds.items()}

    def _originals(self, columns: Columns) -> Columns:
        names = list(self.case.values)
        values = Computation([self.case.values[name] for name in names])(columns)
        count = len(next(iter(columns.values())))
        return {name: np.broadcast_to(np.asarray(value, float), (count,))
                for name, value in zip(names, values, strict=True)}

    def _kept(self, columns: Columns) -> Columns:
        """Return the points that keep all conditions, in floating point."""
        met = np.logical_and.reduce(np.broadcast_arrays(*(
            np.asarray(truth, bool) for truth in self._rules(columns)), next(iter(columns.values())) >= -np.inf))
        for name, column in columns.items():
            low, high = self.posed.names[name]
            met = met & (column >= low) & (column <= (high or 2**53 if _is_wide(name) else LARGEST))
        return {name: column[met] for name, column in columns.items()}

    @cached_property
    def _rules(self) -> Computation:
        return Computation(self.posed.conditions or (self.posed.sides.graph.truth(True),))


def _is_wide(name: str) -> bool:
    return name in PARAMETERS and PARAMETERS[name][4] in ("machine", "cluster")


def _points(columns: Mapping[str, NDArray[np.float64]]) -> Iterator[dict[str, int]]:
    names = list(columns)
    for row in zip(*(column.astype(np.int64).tolist() for column in columns.values()), strict=True):
        yield dict(zip(names, row, strict=True))


def _first(batches: Iterator[Columns], most: int) -> Iterator[dict[str, int]]:
    """Yield the first points of some batches; batches without a point are given up after a while."""
    left, empty = most, 0
    for columns in batches:
        before = left
        for point in _points(columns):
            if left <= 0:
                return
            left -= 1
            yield point
        empty = empty + 1 if left == before else 0
        if left <= 0 or empty > _TRIALS:
            return


_SIMPLE = (0, 1, 2, 4, 8, 16)
#: Kinds of parameters that stay as they are in a layout of a real model.
_OF_MODEL = ("model", "machine")


def smaller(point: Mapping[str, int], refutes: Callable[[Mapping[str, int]], bool], *, real: bool) -> dict[str, int]:
    """Return the point with small values where it still refutes; with ``real``, the model stays."""
    best = dict(point)
    names = [name for name in point if not (real and name in PARAMETERS and PARAMETERS[name][4] in _OF_MODEL)]
    for name in sorted(names, key=lambda name: -best[name]):
        for value in _SIMPLE:
            if value >= best[name]:
                break
            if (name not in PARAMETERS or value >= PARAMETERS[name][2]) and refutes({**best, name: value}):
                best[name] = value
                break
    return best
