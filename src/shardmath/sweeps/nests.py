"""The compiled loop nest of a part of a space: found in the cache, or generated, and run on a stretch of it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from functools import cached_property
from math import prod
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shardmath.cached import cached_module, sources_digest
from shardmath.spaces import Best, Part, Question
from shardmath.sweeps import answers
from shardmath.sweeps.answers import Answer
from shardmath.sweeps.posing import VERDICT_NAMES, folded, posed


class Nest:
    """A part of a space with questions, ready to be swept.

    The configurations come in ``shards``: all those that share their place on the outermost axes. ``conditions`` are
    the names of what a configuration may break.
    """

    def __init__(self, part: Part, questions: Sequence[Question], module: ModuleType | None = None) -> None:
        """Find or make the nest, unless its ``module`` is given."""
        self.part, self.questions = part, tuple(questions)
        self.module = module or _module(part, self.questions)
        self.conditions: tuple[str, ...] = self.module.CONDITIONS
        axes = {axis.name: axis for axis in part.axes}
        self._outer = [axes[name] for name in self.module.OUTER]
        self._fused = [axes[name] for name in self.module.FUSED]
        steps, step = {}, 1
        for axis in reversed(part.axes):
            steps[axis.name], step = step, step * axis.size
        self._steps = steps

    @property
    def size(self) -> int:
        """All configurations."""
        return self.part.size

    @property
    def shards(self) -> int:
        """How many shards there are."""
        return prod(axis.size for axis in self._outer[: self.module.SHARD_AXES])

    @property
    def shard_size(self) -> int:
        """Configurations of one shard."""
        return self.size // self.shards

    def empty(self) -> Answer:
        """The answer before anything was swept."""
        sizes = {axis.name: axis.size for axis in self.part.axes}
        groups = [
            prod(sizes[name] for name in question.per) if isinstance(question, Best) else 1
            for question in self.questions
        ]
        return answers.empty(self.questions, groups, len(self.conditions), len(VERDICT_NAMES))

    def swept(self, start: int, stop: int, known: Answer) -> Answer:
        """The answer for shards ``start`` to ``stop`` alone; of questions, what is better than ``known`` or in it."""
        while True:
            found = known.seed()
            arrays = [array for item in found.questions for array in item.arrays]
            entries, alive, broken, given, row = self._prepared
            found.broken += broken * (self._below * (stop - start))
            if not alive:
                return found
            found.evaluated = self.module.sweep(
                start, stop, entries, alive, *self._arrays, given, self.module.aligned(row), *self._places, found.broken,
                found.verdicts, *arrays,
            )
            if found.evaluated >= 0:
                return found
            known = Answer(known.broken, known.verdicts, tuple(
                item.with_room(4 * len(item.numbers)) if isinstance(item, answers.FrontAnswer) else item
                for item in known.questions
            ))

    @cached_property
    def _below(self) -> int:
        """Combinations of the axes inside a shard but outside of the table."""
        return prod(axis.size for axis in self._outer[self.module.SHARD_AXES:])

    @cached_property
    def _prepared(self) -> tuple[int, int, NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]]:
        places = self._table_places
        columns = {
            symbol: np.asarray(values, np.float64)[place]
            for axis, place in zip(self._fused, places, strict=True) for symbol, values in axis.values.items()
        }
        entries = places.shape[1]
        with np.errstate(divide="ignore", invalid="ignore"):
            given, row, broken, alive = self.module.prepare(
                entries, *(float(self.part.fixed[name]) for name in self.module.SCALARS),
                *(columns[name] for name in self.module.COLUMNS),
            )
        return entries, alive, broken, given, row

    @cached_property
    def _table_places(self) -> NDArray[np.int64]:
        shape = [axis.size for axis in self._fused]
        return np.indices(shape, np.int64).reshape(len(shape), prod(shape))

    @cached_property
    def _arrays(self) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        sizes = np.array([axis.size for axis in self._outer], np.int64)  # none if all axes are fused
        rows = [(axis, symbol) for axis in self._outer for symbol in axis.values]
        values = np.zeros((len(rows), int(sizes.max(initial=1))))
        for number, (axis, symbol) in enumerate(rows):
            values[number, : axis.size] = axis.values[symbol]
        return sizes, values

    @cached_property
    def _places(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """What a step on each outer axis adds to the number of a configuration, and what each entry adds."""
        steps = np.array([self._steps[axis.name] for axis in self._outer], np.int64)
        fused = np.array([self._steps[axis.name] for axis in self._fused], np.int64)
        return steps, (fused[:, None] * self._table_places).sum(axis=0)


def nest_source(part: Part, questions: Sequence[Question]) -> str:
    """The source of the nest for a part; a function of its axes, its formulas and the questions."""
    from shardmath.symbolic.nests.made import nest_source as made

    problem, names = posed(part, questions)
    return made(part.evaluator.name, problem, names, literal=True)


def _module(part: Part, questions: tuple[Question, ...]) -> ModuleType:
    return cached_module("nests", _key(part, questions), lambda: nest_source(part, questions))


def _key(part: Part, questions: tuple[Question, ...]) -> str:
    """What the source of a nest depends on."""
    asked: Any = {
        "evaluator": [part.evaluator.implementation, part.evaluator.choices],
        "axes": [[axis.name, list(axis.values), axis.size] for axis in part.axes],
        "fixed": sorted(name for name in part.fixed),
        "folded": {name: value for name, value in sorted(part.fixed.items()) if folded(name, value)},
        "derived": dict(part.derived),
        "constraints": [[item.name, item.text] for item in part.constraints],
        "questions": [repr(question) for question in questions],
    }
    return hashlib.sha256((sources_digest() + json.dumps(asked)).encode()).hexdigest()[:16]
