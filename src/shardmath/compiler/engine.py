"""The compiled evaluator over given columns of layouts: the first broken rule, the verdict and the memory of each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shardmath.compiler.placing import outputs

Column = NDArray[np.float64]

#: Layouts of one chunk: large enough to hide the cost of a call, small enough for a few MiB.
CHUNK = 1 << 17


@dataclass(frozen=True)
class Evaluated:
    """One chunk after evaluation.

    ``rule`` is the 1-based number of the first broken rule or 0, ``verdict`` the number of the verdict or
    -1, ``first``, ``last`` and ``peak`` are bytes (0 where a rule is broken).
    """

    columns: dict[str, Column]
    rule: NDArray[np.int8]
    verdict: NDArray[np.int8]
    first: Column
    last: Column
    peak: Column


def evaluate_columns(kernel: Any, scalars: list[float], columns: Mapping[str, Column]) -> Evaluated:
    """Evaluate given columns of equal length on the calling thread."""
    count = len(columns[kernel.COLUMNS[0]])
    rule, verdict = np.zeros(count, np.int8), np.zeros(count, np.int8)
    out = outputs(len(kernel.OUTPUTS), count)
    kernel.evaluate(0, count, *scalars, *(columns[name] for name in kernel.COLUMNS), rule, verdict, out)
    return Evaluated(dict(columns), rule, verdict, *out[:, :count])
