"""The space of layouts of a job: every candidate for each axis, and chunks of their product as columns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from shardmath.divisors import divisors
from shardmath.generated.definitions import RECOMPUTE_MODES
from shardmath.settings import recompute_switches

Column = NDArray[np.float64]


@dataclass(frozen=True)
class Space:
    """The product of candidate values, in the order in which the last axis runs fastest.

    ``axes`` has tuples of values by parameter name; the axis ``recompute`` has names of modes. ``following``
    names further columns, each with the axis whose values it has.
    """

    num_gpus: int
    axes: Mapping[str, tuple[int, ...] | tuple[str, ...]]
    following: Mapping[str, str] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """The number of candidates."""
        return prod(len(values) for values in self.axes.values())

    def columns(self, start: int, stop: int) -> dict[str, Column]:
        """Candidates ``start`` to ``stop`` as float64 columns, recompute as its switches.

        ``data_parallel`` is what the GPUs leave, rounded down; the rules refuse it where it does not come out
        even. The column ``recompute`` is the number of the mode.
        """
        shape = [len(values) for values in self.axes.values()]
        places = np.unravel_index(np.arange(start, stop), shape)
        columns: dict[str, Column] = {}
        for (name, values), index in zip(self.axes.items(), places, strict=True):
            if name == "recompute":
                columns["recompute"] = index.astype(np.float64)
                columns |= _switches([str(mode) for mode in values], index)
            else:
                columns[name] = np.asarray(values, dtype=np.float64)[index]
        columns |= {name: columns[leader] for name, leader in self.following.items()}
        ranks = columns["tensor_parallel"] * columns["context_parallel"] * columns["pipeline_parallel"]
        columns["data_parallel"] = np.maximum(self.num_gpus // ranks, 1)
        return columns


def _switches(modes: list[str], index: NDArray[np.intp]) -> dict[str, Column]:
    names = next(iter(RECOMPUTE_MODES.values()))
    return {
        name: np.asarray([recompute_switches(mode)[name] for mode in modes], dtype=np.float64)[index]
        for name in names
    }


def layouts(
    num_gpus: int, global_batch_size: int, given: Mapping[str, tuple[int, ...]], modes: tuple[str, ...],
    constant: Mapping[str, int] = MappingProxyType({}), following: Mapping[str, str] = MappingProxyType({}),
) -> Space:
    """Every layout of ``num_gpus`` GPUs.

    TP, CP and PP run over the divisors of the number of GPUs, micro-batch sizes over those of the batch,
    sequence parallelism is off and on, recompute runs over ``modes``. ``given`` replaces the candidates of an axis;
    ``constant`` has the values of further columns that no axis varies, ``following`` the axes that others repeat.
    """
    degrees = divisors(num_gpus)
    axes: dict[str, tuple[int, ...] | tuple[str, ...]] = {
        "tensor_parallel": degrees,
        "context_parallel": degrees,
        "pipeline_parallel": degrees,
        "micro_batch_size": divisors(global_batch_size),
        "sequence_parallel": (0, 1),
        "recompute": modes,
    }
    return Space(num_gpus, {**axes, **given, **{name: (value,) for name, value in constant.items()}}, following)
