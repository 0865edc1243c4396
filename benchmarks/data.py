"""The job that is measured, and random layouts of it as the columns that a sweep makes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shardmath.evaluators import Evaluator, find
from shardmath.generated.definitions import RECOMPUTE_MODES
from shardmath.settings import as_gpu, as_model, settings
from shardmath.sweeps.engine import evaluate_columns
from shardmath.sweeps.space import Column, Space, layouts
from shardmath.symbolic.implementations import MEGATRON

MODEL, GPU, NUM_GPUS, GLOBAL_BATCH_SIZE, SEQ_LENGTH = "llama-3.1-70b", "h100-80gb", 512, 1024, 8192
Columns = dict[str, Column]
Outputs = dict[str, NDArray[np.generic]]


@dataclass(frozen=True)
class Job:
    """A model on a cluster: its evaluator, what is the same for every layout, and the space of layouts."""

    evaluator: Evaluator
    values: dict[str, int]
    space: Space

    @property
    def scalars(self) -> list[float]:
        """What is the same for every layout, in the order of the compiled evaluator's arguments."""
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
        """The first ``count`` layouts."""
        return Batch(self.name, self.meaning, {name: values[:count] for name, values in self.columns.items()})


#: Saved tensors and the transients of the loss: with every moment of a step, four ranks and nine moments would stand
#: inside one another in the contenders that are one expression, which then take minutes to compile.
KERNELS = {"peak": "saved"}
IMPLEMENTATION = MEGATRON.with_choices(**KERNELS)


def job() -> Job:
    """The sweep that the README shows: every layout of a 70B model on 512 GPUs."""
    evaluator = find("megatron", KERNELS)
    values = settings(evaluator, as_model(MODEL), as_gpu(GPU), seq_length=SEQ_LENGTH)
    values |= {"num_gpus": NUM_GPUS, "global_batch_size": GLOBAL_BATCH_SIZE}
    return Job(evaluator, values, layouts(NUM_GPUS, GLOBAL_BATCH_SIZE, {}, tuple(RECOMPUTE_MODES)))


def draw(measured: Job, count: int, seed: int = 2024) -> tuple[Batch, Batch]:
    """``count`` legal layouts, for which every evaluator does its full work, and ``count`` of the space.

    Both are drawn with replacement from the candidates of the sweep, so neighbouring rows have nothing in
    common and no branch can be predicted from the one before.
    """
    generator = np.random.default_rng(seed)
    every = measured.space.columns(0, measured.space.size)
    rules = evaluate_columns(measured.evaluator.kernel, measured.scalars, every).rule
    found = np.flatnonzero(rules == 0)
    legal = _rows(every, generator.choice(found, count))
    mixed = _rows(every, generator.integers(0, measured.space.size, count))
    share = len(found) / measured.space.size
    return (
        Batch("legal", f"{count:,} random legal layouts: no rule ends the work early", legal),
        Batch("mixed", f"{count:,} random candidates of the sweep, {share:.0%} of which are legal", mixed),
    )


def _rows(columns: Columns, rows: NDArray[np.int64]) -> Columns:
    return {name: np.ascontiguousarray(values[rows]) for name, values in columns.items()}
