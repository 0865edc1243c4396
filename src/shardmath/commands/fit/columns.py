"""Solve many rows at once: the closed form of every row, settled by the exact peak next to it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shardmath.divisors import divisors

Column = NDArray[np.float64]
#: Values of the outputs of a compiled evaluator for some rows, at one value of the symbol each.
Evaluated = Callable[[NDArray[np.intp], Column], Mapping[str, Column]]

#: Steps by the closed form, after which what is left between is halved.
_CLOSED_STEPS = 12
_COEFFICIENTS = ("shared", "fixed", "slope", "bend")


def evaluated(kernel: ModuleType, values: Mapping[str, Any], varying: Sequence[str],
              complete: Callable[[Column, NDArray[np.intp]], Mapping[str, Any]]) -> Evaluated:
    """Return a function that runs ``kernel`` on some rows; ``complete`` gives their columns that go with the symbol."""
    fixed = [float(values[name]) for name in kernel.SCALARS]

    def run(rows: NDArray[np.intp], at: Column) -> Mapping[str, Column]:
        count = len(rows)
        moving = complete(at, rows)
        columns = []
        for name in kernel.COLUMNS:
            value = moving[name] if name in varying else values[name]
            value = value if name in varying or not np.ndim(value) else value[rows]
            columns.append(np.ascontiguousarray(np.broadcast_to(value, (count,)), dtype=np.float64))
        rule, verdict = np.empty(count, np.int8), np.empty(count, np.int8)
        out = np.empty((len(kernel.OUTPUTS), count), np.float64)
        kernel.evaluate(0, count, *fixed, *columns, rule, verdict, out)
        return {"rule": rule, "verdict": verdict, **dict(zip(kernel.OUTPUTS, out, strict=True))}

    return run


def largest_stepped(run: Evaluated, count: int, limit: Column | None, last: int) -> Column:
    """For every row the largest legal value up to ``last`` that fits, 0 where none does.

    Legal values are multiples of what must divide the symbol. The peak rises with the symbol, and faster than its
    limit, so that a value that fits next to one that does not is the answer; the closed form says where to look.
    Without a ``limit`` of the peak it is that of the verdict, which may move with the symbol.
    """
    every = np.arange(count)
    largest = run(every, np.ones(count))
    step = np.ones(count)
    for name in (name for name in largest if name.startswith("step")):
        step = np.lcm(step.astype(np.int64), np.maximum(largest[name], 1).astype(np.int64)).astype(float)
    low, high = np.zeros(count), (last // step + 1) * step
    rows, at = every[largest["rule"] == 0], step.copy()
    for number in range(200):
        if not len(rows):
            break
        here = at[rows]
        largest = run(rows, here)
        most = largest["limit"] if limit is None else limit[rows]
        fits = (largest["peak"] <= most) & (largest["legal"] == 1)
        low[rows] = np.where(fits, here, low[rows])
        high[rows] = np.where(fits, high[rows], here)
        closed = _solved(largest, most) if number < _CLOSED_STEPS else (low[rows] + high[rows]) / 2
        inside = step[rows]
        guess = np.floor(closed / inside) * inside
        at[rows] = np.clip(guess, low[rows] + inside, np.maximum(high[rows] - inside, low[rows] + inside))
        rows = rows[high[rows] - low[rows] > inside]
    return low


def _solved(binding: Mapping[str, Column], limit: Column) -> Column:
    """Where the polynomials reach the limit, in floating point: a place to look at, not an answer."""
    shared, fixed, slope, bend = (binding.get(name, np.zeros_like(limit)) for name in _COEFFICIENTS)
    with np.errstate(all="ignore"):
        room = limit - fixed
        linear = np.where(slope > 0, room / slope, np.inf)
        root = (np.sqrt(slope**2 + 4 * bend * room) - slope) / (2 * bend)
        over = (room + np.sqrt(room**2 - 4 * slope * shared)) / (2 * slope)
    answer = np.where(bend > 0, root, np.where(shared != 0, over, linear))
    return np.nan_to_num(answer, nan=0.0, posinf=2.0**53, neginf=0.0)


def listed(run: Evaluated, count: int, limit: Column | None, whole: Column, *, largest: bool) -> Column:
    """For every row the largest or smallest divisor of ``whole`` that is legal and fits, 0 where none does.

    Without a ``limit`` of the peak, the verdict says what fits.
    """
    answer = np.zeros(count)
    sizes, groups = np.unique(whole, return_inverse=True)
    choices = [divisors(int(size)) if size >= 1 and size == int(size) else () for size in sizes]
    for place in range(max(map(len, choices), default=0)):
        at = np.array([(options[::-1] if largest else options)[place] if place < len(options) else 0
                       for options in choices], dtype=float)[groups]
        rows = np.flatnonzero((answer == 0) & (at > 0))
        if not len(rows):
            break
        answered = run(rows, at[rows])
        within = answered["verdict"] == 0 if limit is None else answered["peak"] <= limit[rows]
        fits = (answered["rule"] == 0) & within
        answer[rows] = np.where(fits, at[rows], 0)
    return answer
