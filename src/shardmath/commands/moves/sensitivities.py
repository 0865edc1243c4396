"""How the peak moves with every symbol of a configuration: exact derivatives, and exact differences where it steps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from shardmath.answers import Answer, Ratio
from shardmath.commands.moves.duals import Number, StepsError, slopes_along, terms_beside
from shardmath.commands.moves.peaks import SIZES, Peak
from shardmath.generated.definitions import PARAMETERS

#: Symbols that follow from others, that no layout of a run changes, or that an explicit list of layers says.
_FOLLOWING = ("pipeline_rank", "num_gpus", "node_size")
_LISTED = ("num_layers", "pipeline_parallel", "virtual_pipeline", "first_dense_layers", "moe_layer_step")


@dataclass(frozen=True)
class Difference(Answer):
    """The difference to the next legal value."""

    after: int
    """The other value."""
    bytes: int
    """Bytes that the peak grows by, or shrinks by where it is negative."""


@dataclass(frozen=True)
class Sensitivity(Answer):
    """How the peak moves with one symbol while all others stay; exact numbers of bytes per unit as text, as ``"1/3"``.

    All slopes are null for a switch.
    """

    name: str
    """Parameter."""
    unit: str
    """Its unit."""
    value: int
    """Its value in the configuration."""
    derivative: Ratio | None
    """Slope of the peak; null where it jumps, or bends, or exists for integers alone."""
    below: Ratio | None
    """Slope below the value, with paddings moving along; null where no value is legal."""
    above: Ratio | None
    """Slope above it, likewise."""
    gpus_fixed: Ratio | None
    """Slope of a parallel size with the number of GPUs fixed, so that data parallelism follows."""
    elasticity: Ratio
    """Change of the peak in percent for one percent of the symbol; of a switch, its change as a share of the peak."""
    smaller: Difference | None
    """To the next smaller legal value."""
    larger: Difference | None
    """To the next larger legal value."""

    @property
    def slope(self) -> Fraction | None:
        """The slope where it is the same on both sides, or there is only one."""
        sides = {side for side in (self.below, self.above) if side is not None}
        return sides.pop() if len(sides) == 1 else None


def sensitivities(peak: Peak, following: Mapping[str, str]) -> tuple[Sensitivity, ...]:
    """Return all symbols that the peak depends on, the one with the largest elasticity first.

    ``following`` are symbols that have the value of another one, with that one's name.
    """
    every = (_sensitivity(peak, name, following) for name in _symbols(peak))
    return tuple(sorted((item for item in every if _moves(item)), key=lambda item: (-abs(item.elasticity), item.name)))


def _symbols(peak: Peak) -> Iterator[str]:
    fixed = {*_FOLLOWING, *peak.job.evaluator.fixed, *(_LISTED if peak.layout else ())}
    for name in peak.module.INPUTS:
        if name not in fixed and name in peak.job.values:
            yield name


def _moves(item: Sensitivity) -> bool:
    """Tell whether the peak depends on the symbol."""
    return any((item.below, item.above, item.gpus_fixed, item.elasticity)) or any(
        step is not None and step.bytes for step in (item.smaller, item.larger))


def _sensitivity(peak: Peak, name: str, following: Mapping[str, str]) -> Sensitivity:
    _, unit, minimum, maximum, _, _ = PARAMETERS[name]
    value, total = peak.job.values[name], peak.bytes(peak.job.values)
    smaller, larger = (_difference(peak, name, step, total) for step in (-1, 1))
    if (minimum, maximum) == (0, 1):
        switched = smaller or larger
        share = Fraction(switched.bytes, total) if switched else Fraction(0)
        return Sensitivity(name, unit, value, None, None, None, None, share, smaller, larger)
    legal = {-1: value > minimum, 1: maximum is None or value < maximum}
    slopes = {step: Fraction(step * peak.beside(slopes_along, {name: step}).slope) for step in (-1, 1) if legal[step]}
    return Sensitivity(
        name, unit, value, _derivative(peak, name, total, tuple(slopes)), slopes.get(-1), slopes.get(1),
        _with_gpus_fixed(peak, name, following), value * max(slopes.values(), key=abs) / total, smaller, larger,
    )


def _difference(peak: Peak, name: str, step: int, total: int) -> Difference | None:
    after = peak.next_legal(name, step)
    return None if after is None else Difference(after, peak.bytes({**peak.job.values, name: after}) - total)


def _derivative(peak: Peak, name: str, total: int, steps: Sequence[int]) -> Fraction | None:
    """Return the derivative of the peak as it is, with all of its steps, on the sides where there are legal values."""
    try:
        sides = [peak.beside(terms_beside, {name: step}) for step in steps]
    except (StepsError, ZeroDivisionError):  # beside a 0 that stands for a usual value nothing is defined
        return None
    slopes = {Fraction(step * side.slope) for step, side in zip(steps, sides, strict=True)}
    return slopes.pop() if len(slopes) == 1 and all(side.value == total for side in sides) else None


def _with_gpus_fixed(peak: Peak, name: str, following: Mapping[str, str]) -> Fraction | None:
    """Get the slope above if data parallelism gives way, and symbols that follow go along; None for other symbols."""
    values = peak.job.values
    if name not in SIZES or name == "data_parallel":
        return None
    along: dict[str, Number] = {name: 1, "data_parallel": Fraction(-values["data_parallel"], values[name])}
    along |= {symbol: 1 for symbol, leader in following.items() if leader == name}
    return Fraction(peak.beside(slopes_along, along).slope)
