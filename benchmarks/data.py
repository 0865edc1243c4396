"""The job that is measured, and random layouts of it as the columns that a sweep makes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shardmath.compiler.engine import Column, evaluate_columns
from shardmath.compiler.evaluators import Evaluator
from shardmath.search.spaces import Part
from shardmath.search.spaces.standard import layouts
from shardmath.symbolic.implementations import MEGATRON

MODEL, GPU, NUM_GPUS, GLOBAL_BATCH_SIZE, SEQ_LENGTH = "llama-3.1-70b", "h100-80gb", 512, 1024, 8192
Columns = dict[str, Column]
Outputs = dict[str, NDArray[np.generic]]


@dataclass(frozen=True)
class Candidates:
    """The layouts that a sweep tries, as columns."""

    part: Part

    @property
    def size(self) -> int:
        """How many there are."""
        return self.part.size

    def columns(self, start: int, stop: int) -> Columns:
        """Candidates ``start`` to ``stop``. Data parallelism is rounded down where it does not come out even."""
        places = np.unravel_index(np.arange(start, stop), [axis.size for axis in self.part.axes])
        columns = {
            symbol: np.asarray(values, np.float64)[place]
            for axis, place in zip(self.part.axes, places, strict=True) for symbol, values in axis.values.items()
        }
        ranks = columns["tensor_parallel"] * columns["context_parallel"] * columns["pipeline_parallel"]
        columns["data_parallel"] = np.maximum(self.part.fixed["num_gpus"] // ranks, 1)
        fixed = (name for name in self.part.evaluator.kernel.COLUMNS if name not in columns)
        return {**columns, **{name: np.full(stop - start, float(self.part.fixed[name])) for name in fixed}}


@dataclass(frozen=True)
class Job:
    """A model on a cluster: its evaluator, what is the same for every layout, and the space of layouts."""

    evaluator: Evaluator
    values: dict[str, int]
    space: Candidates

    @property
    def scalars(self) -> list[float]:
        """Return the values shared by all layouts, in the order of the compiled evaluator's arguments."""
        return [float(self.values[name]) for name in self.evaluator.kernel.SCALARS]


@dataclass(frozen=True)
class Batch:
    """Layouts to evaluate: what they are, in words, and their columns."""

    name: str
    meaning: str
    columns: Columns

    def __len__(self) -> int:
        return len(self.columns["data_parallel"])

    def head(self, count: int) -> Batch:
        """Return the first ``count`` layouts."""
        return Batch(self.name, self.meaning, {name: values[:count] for name, values in self.columns.items()})


#: Saved tensors and the transients of the loss: with every moment of a step, four ranks and nine moments would stand
#: inside one another in the contenders that are one expression, which then take minutes to compile.
KERNELS = {"peak": "saved"}
IMPLEMENTATION = MEGATRON.with_choices(**KERNELS)


def job() -> Job:
    """Return the sweep that the README shows: every layout of a 70B model on 512 GPUs."""
    (part,) = layouts(
        MODEL, GPU, NUM_GPUS, global_batch_size=GLOBAL_BATCH_SIZE, seq_length=SEQ_LENGTH, kernels=KERNELS
    ).parts()
    values = {name: value for name, value in part.fixed.items() if name != "pipeline_rank"}
    return Job(part.evaluator, values, Candidates(part))


def draw(measured: Job, count: int, seed: int = 2024) -> tuple[Batch, Batch]:
    """``count`` legal layouts, for which every evaluator does its full work, and ``count`` of the space.

    Both are drawn with replacement from the candidates of the sweep, so neighbouring rows have nothing in
    common and no branch can be predicted from the one before.
    """
    generator = np.random.default_rng(seed)
    every = measured.space.columns(0, measured.space.size)
    rules = evaluate_columns(measured.evaluator.kernel, measured.scalars, every).rule
    numbers = np.flatnonzero(rules == 0)
    legal = _rows(every, generator.choice(numbers, count))
    mixed = _rows(every, generator.integers(0, measured.space.size, count))
    share = len(numbers) / measured.space.size
    return (
        Batch("legal", f"{count:,} random legal layouts: no rule ends the work early", legal),
        Batch("mixed", f"{count:,} random candidates of the sweep, {share:.0%} of which are legal", mixed),
    )


def _rows(columns: Columns, rows: NDArray[np.int64]) -> Columns:
    return {name: np.ascontiguousarray(values[rows]) for name, values in columns.items()}
