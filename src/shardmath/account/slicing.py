"""Lengths of slices with which a pipeline of slices is fastest: TeraPipe's dynamic programme."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from shardmath.account.time import StepTime
from shardmath.answers import Answer
from shardmath.compiler.evaluators import Evaluator
from shardmath.divisors import divisors

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

#: Lengths are multiples of a unit, of which a sequence has at most so many.
_MOST_UNITS = 64


@dataclass(frozen=True)
class Slicing(Answer):
    """The lengths of the slices of a sequence with which a step is shortest."""

    lengths: tuple[int, ...]
    """Tokens of every slice, the first one first."""
    unit: int
    """Tokens that lengths are multiples of."""
    seconds: float
    """Seconds of the step with them; at least so many where forward and backward passes take turns."""
    exact: bool
    """True where ``seconds`` are those of the order of passes, false where they are a lower bound."""


def slicing(evaluator: Evaluator, values: Mapping[str, int], time: StepTime) -> Slicing | None:
    """Return the best lengths for as many slices as ``values`` has; None without slices, and for more than units."""
    from shardmath.symbolic.slicing import attended, passes_seconds

    slices = values.get("sequence_slices", 1)
    whole, shards = values["seq_length"], values["tensor_parallel"] if values["sequence_parallel"] else 1
    units = max(size for size in divisors(whole // shards) if size <= _MOST_UNITS)
    if evaluator.choices["slices"] == "one" or not 1 < slices <= units:
        return None

    def cut(count: float) -> tuple[float, float]:
        """Return seconds of one slice of average context, of ``count`` to a sequence, and those of its attention."""
        numbers = evaluator.times.terms(*(
            count if name == "sequence_slices" else float({**values, "pipeline_rank": time.rank}[name])
            for name in evaluator.times.INPUTS
        ))
        return numbers["stage.microbatch_time"], numbers["stage.slice_core"]

    of_length = {length: cut(units / length) for length in range(1, units + 1)}

    def seconds(length: int, start: int) -> float:
        average, core = of_length[length]
        return average + core * (float(attended(start, length, units)) - 1)

    ranks = values["pipeline_parallel"]
    sequences = values["global_batch_size"] // (values["micro_batch_size"] * values["data_parallel"])
    lengths = best_lengths(seconds, units, slices, ranks, sequences)
    starts = [sum(lengths[:number]) for number in range(slices)]
    best = passes_seconds(list(map(seconds, lengths, starts)), ranks, sequences)
    average, core = cut(slices)
    equal = [average + core * (attended(number, 1, slices) - 1) for number in range(slices)]
    alike = time.seconds
    if evaluator.choices["slices"] != "tokens":  # without the wait of passes that take turns
        alike -= time.spent["slices"] - (ranks - 1) * (max(equal) - average)
    unit = whole // units
    return Slicing(tuple(unit * length for length in lengths), unit,
                   alike + best - passes_seconds(equal, ranks, sequences), evaluator.choices["slices"] == "tokens")


def best_lengths(
    seconds: Callable[[int, int], float], units: int, slices: int, ranks: int, sequences: int,
) -> tuple[int, ...]:
    """Return the lengths of ``slices`` slices of ``units`` units, for the least time of all passes.

    ``seconds`` is the time of a slice, there and back, of its length and start in units. For every bound on the longest
    slice, the least sum of all slices follows from the least sums up to each start; bounds between two that have one
    sum, or that cannot win, are passed over. Raises ValueError for more slices than units.
    """
    import numpy as np

    if not 1 <= slices <= units:
        raise ValueError(f"{slices} slices of {units} units")
    table = np.full((units + 1, units), np.inf)  # by length and start
    for length in range(1, units + 1):
        for start in range(units + 1 - length):
            table[length, start] = seconds(length, start)
    bounds = np.unique(table[np.isfinite(table)])
    tried: dict[int, tuple[float, int, float, tuple[int, ...]]] = {}  # time, place of the bound, sum, lengths

    def attempt(place: int) -> None:
        total, lengths = _least_sum(table, slices, bounds[place])
        tried[place] = sequences * total + (ranks - 1) * bounds[place], place, total, lengths

    between = [(0, len(bounds) - 1)]
    for place in between[0]:
        attempt(place)
    while between:
        low, high = between.pop()
        # A longer bound never makes the sum longer: where both ends have one sum, so have all between them.
        least = sequences * tried[high][2] + (ranks - 1) * bounds[min(low + 1, high)], low + 1
        if high - low > 1 and tried[low][2] > tried[high][2] and least < min(tried.values())[:2]:
            middle = (low + high) // 2
            attempt(middle)
            between += [(middle, high), (low, middle)]
    return min(tried.values())[3]


def _least_sum(table: NDArray[np.float64], slices: int, longest: float) -> tuple[float, tuple[int, ...]]:
    """Return the least sum of seconds of slices that take at most ``longest``, and their lengths."""
    import numpy as np

    units = table.shape[1]
    allowed = np.where(table <= longest, table, np.inf)
    sums = np.full((slices + 1, units + 1), np.inf)
    sums[0, 0] = 0.0
    last = np.zeros((slices + 1, units + 1), dtype=np.int64)
    for end in range(1, units + 1):
        lengths = np.arange(1, end + 1)
        ways = sums[:-1, end - lengths] + allowed[lengths, end - lengths]  # by slices before, and length
        last[1:, end] = lengths[ways.argmin(axis=1)]
        sums[1:, end] = ways.min(axis=1)
    chosen, end = list[int](), units
    if np.isfinite(sums[slices, units]):
        for number in range(slices, 0, -1):
            chosen.append(int(last[number, end]))
            end -= chosen[-1]
    return float(sums[slices, units]), tuple(reversed(chosen))
