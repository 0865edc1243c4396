"""Random jobs and layouts: shared strategies. Sizes are odd where they may be, and t may exceed k."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import lcm
from types import ModuleType

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from shardmath.input.parameters import LARGEST
from shardmath.symbolic.implementations import Implementation
from shardmath.symbolic.parallel.legality import fixed_values
from shardmath.symbolic.parameters import BY_LETTER, BY_NAME, PARAMETERS
from shardmath.symbolic.recompute import MODES

#: The letters that a batch has columns for, in the order of the tuples that ``_layout`` returns.
COLUMNS = ("t", "c", "p", "D", "b", "sp", "rfull", "rcore", "rmlp")
_SWITCHES = ("rfull", "rcore", "rmlp")
_MODES = [tuple(int(letter in on) for letter in _SWITCHES) for on in MODES.values()]
_FIRST_RANK = {"pipeline_rank": 0}
#: Numbers of replicas; the last seldom divides anything.
_REPLICAS = (1, 1, 1, 1, 2, 97)
#: Kinds of layouts: those that divide what they must, and all.
_CAREFUL, _KINDS = 6, 12
#: Parameters that few people set, with the values that they then have.
NEUTRAL = {"e": 1, **{item.letter: item.default for item in PARAMETERS if item.default is not None}}


@dataclass(frozen=True)
class Batch:
    """One job as scalars and many layouts of it as columns, legal and illegal ones, by parameter name."""

    scalars: dict[str, int]
    columns: dict[str, NDArray[np.float64]]

    @classmethod
    def of(cls, job: Mapping[str, int], layouts: Mapping[str, Sequence[int]]) -> "Batch":
        """Make a batch from values and columns by letter."""
        return cls(
            {BY_LETTER[letter].name: value for letter, value in job.items()},
            {BY_LETTER[letter].name: np.array(column, float) for letter, column in layouts.items()},
        )

    def __repr__(self) -> str:
        """Return what differs from the usual values: Hypothesis warns of what it must print at length."""
        job = {BY_NAME[name].letter: value for name, value in self.scalars.items()}
        layouts = {BY_NAME[name].letter: [*map(int, column)] for name, column in self.columns.items()}
        return f"Batch.of({dict(job.items() - NEUTRAL.items())}, {layouts}), others NEUTRAL"

    def rows(self) -> Iterator[dict[str, int]]:
        """Go through the layouts; each with all parameters as integers, for the first pipeline rank."""
        for values in zip(*self.columns.values(), strict=True):
            layout = {name: int(value) for name, value in zip(self.columns, values, strict=True)}
            yield {**_FIRST_RANK, **self.scalars, **layout}


@st.composite
def batches(draw: st.DrawFn, implementation: Implementation, count: int = 40, careful: bool = False) -> Batch:
    """Draw a job and ``count`` layouts of its GPUs, about half of them legal.

    A careful job is legal with every degree of 1, and that is its last layout.
    """
    fixed = fixed_values(implementation)
    small = st.integers(1, 3)
    most = {letter: fixed.get(letter, draw(st.sampled_from((1, 2, 4, 6, 12)))) for letter in "tcp"}
    t, c, p = most.values()
    N = t * c * p * draw(st.sampled_from((1, 2, 3, 8, 15)))
    k = draw(st.sampled_from((1, 2, 3, t, 2 * t)))
    kinds = _CAREFUL if careful else _KINDS

    def rarely(letter: str, wrong: int, *usual: int) -> int:
        usual = (fixed[letter],) if letter in fixed else usual
        return draw(st.sampled_from(usual if careful else (*(usual * 6)[:6], wrong)))

    def mostly(multiple: int) -> int:
        return multiple if careful else draw(st.sampled_from((*[multiple] * 6, 1)))

    job = {
        **NEUTRAL, "h": draw(st.integers(1, 9000)), "k": k, "a": lcm(k, t) * draw(small),
        "d": draw(st.sampled_from((1, 3, 8, 80, 128))) * draw(st.sampled_from((t, t, 1))),
        "f": mostly(t) * draw(st.integers(1, 2000)), "L": mostly(p) * draw(st.integers(1, 9)),
        "u": draw(st.integers(1, 200_000)), "s": mostly(2) * mostly(c * t) * draw(st.integers(1, 60)),
        "B": draw(st.sampled_from([size for n in (1, 6, 7, 840) if (size := N * t * c * p * n) <= LARGEST])),
        "zero2": rarely("zero2", 1, 0), "zero3": rarely("zero3", 1, 0),
        "R": draw(st.sampled_from([ranks for ranks in _REPLICAS if not careful or N % ranks == 0])),
        "g": draw(st.sampled_from((1, 37, 128))), "w": rarely("w", 3, 4, 2), "zero1": rarely("zero1", 1, 0, 1),
        "N": N, "n": draw(st.sampled_from((8, 12, 16))), "M": draw(st.integers(2**28, 2**40)),
        **{letter: rarely(letter, 1, 0, 1) for letter in ("tied", "bias", "qkn")},
    }
    generator = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    layouts = [_layout(generator, job, most, fixed, kinds) for _ in range(count)]
    if careful:
        plain = {**dict.fromkeys(COLUMNS, 0), "t": 1, "c": 1, "p": 1, "D": N, "b": 1}
        layouts[-1] = tuple({**plain, **fixed}[letter] for letter in COLUMNS)
    return Batch.of(job, dict(zip(COLUMNS, zip(*layouts, strict=True), strict=True)))


@st.composite
def legal_rows(draw: st.DrawFn, implementation: Implementation, module: ModuleType) -> dict[str, int]:
    """Draw a legal configuration of an implementation with the evaluator ``module``, on any of its pipeline ranks."""
    rows = draw(batches(implementation, careful=True)).rows()
    legal = [row for row in rows if all(module.rules_met(**{name: row[name] for name in module.INPUTS}))]
    row = draw(st.sampled_from(legal))
    return {**row, "pipeline_rank": draw(st.integers(0, row["pipeline_parallel"] - 1))}


def by_letter(row: dict[str, int]) -> dict[str, int]:
    """Name the values of a row by letter."""
    return {BY_NAME[name].letter: value for name, value in row.items()}


def _layout(
    generator: np.random.Generator, job: dict[str, int], most: dict[str, int], fixed: dict[str, int], kinds: int
) -> tuple[int, ...]:
    """Draw a layout of one of ``kinds``: the first six divide what they must, each other one is careless in one way."""

    def one_of(*values: int) -> int:
        return values[generator.integers(len(values))]

    kind = generator.integers(kinds)
    rest, degrees = job["N"], []
    for letter in "tcp":
        degrees.append(one_of(*_divisors(rest if kind in (6, 7) else most[letter])))
        rest //= degrees[-1]
    b = one_of(*(b for b in range(1, 9) if kind == 8 or job["B"] % (b * rest) == 0))
    sp = one_of(0, 1) if degrees[0] > 1 or kind == 9 else 0
    mode = one_of(*_MODES) if kind != 10 else tuple(one_of(0, 1) for _ in _SWITCHES)
    if kind == 11:
        rest = one_of(*range(1, 9))
    drawn = dict(zip(COLUMNS, (*degrees, rest, b, sp, *mode), strict=True))
    return tuple({**drawn, **fixed}[letter] if kind < 6 else drawn[letter] for letter in COLUMNS)


def _divisors(number: int) -> list[int]:
    return [divisor for divisor in range(1, number + 1) if number % divisor == 0]
