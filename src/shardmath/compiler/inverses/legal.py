"""The legal values of a symbol when all others are known, and how to step over what breaks a rule."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from fractions import Fraction
from functools import cached_property
from math import isqrt, lcm

from ..expressions import ops
from ..expressions.differences import factors
from ..expressions.differences import number as number_of
from ..expressions.graph import Node, exact
from .laurent import NoClosedFormError

#: Steps after which no legal value is expected any more.
_MOST_STEPS = 100_000


class LegalValues:
    """Values of ``name`` that meet ``conditions``, in which it is the only name, and are multiples of ``unit``."""

    def __init__(self, conditions: Iterable[Node], name: str, unit: int = 1) -> None:
        self.name = name
        self._conditions = [node for node in conditions if node.op != "truth" or not node.value]
        self._needed = list(_parts(self._conditions))
        self.step = lcm(unit, *(step for node in self._needed if (step := self._step(node)) is not None))

    def meets(self, at: int) -> bool:
        """Tell whether a value is legal."""
        return at % self.step == 0 and all(exact(self._conditions, {self.name: at}))

    def next(self, start: int, stop: int) -> int | None:
        """Return the first legal value from ``start`` to ``stop``, or None. Raises NoClosedFormError for a far one."""
        if self._most is not None:
            if min(start, stop) > self._most:
                return None
            start, stop = min(start, self._most), min(stop, self._most)
        if self._finite is not None:
            return self._listed(start, stop)
        up = stop >= start
        at = -(-start // self.step) * self.step if up else start // self.step * self.step
        for _ in range(_MOST_STEPS):
            if at > stop if up else at < stop:
                return None
            if self.meets(at):
                return at
            at += self.step if up else -self.step
        raise NoClosedFormError(f"no legal value among {_MOST_STEPS} next to {start}")

    def _listed(self, start: int, stop: int) -> int | None:
        assert self._finite is not None
        low, high = min(start, stop), max(start, stop)
        inside = self._finite[bisect_left(self._finite, low): bisect_left(self._finite, high + 1)]
        return next((at for at in (inside if stop >= start else inside[::-1]) if self.meets(at)), None)

    @cached_property
    def _finite(self) -> Sequence[int] | None:
        """All candidates, where the symbol has to divide a number."""
        candidates: set[int] | None = None
        for node in self._needed:
            is_multiple = node.op == ops.DIVIDES and node.args[1].op == ops.NUMBER
            if is_multiple and (count := self._multiple(node.args[0])) is not None:
                whole = number_of(node.args[1]) / count
                if whole.denominator == 1 and whole > 0:
                    divisors = _divisors(int(whole))
                    candidates = divisors if candidates is None else candidates & divisors
        return None if candidates is None else sorted(candidates)

    @cached_property
    def _most(self) -> int | None:
        """The largest value that a rule names."""
        caps = [number_of(node.args[1]) for node in self._needed
                if node.op == ops.LE and node.args[0].op == ops.NAME and node.args[1].op == ops.NUMBER]
        return int(min(caps) // 1) if caps else None

    def _step(self, node: Node) -> int | None:
        """Return a number that must divide the symbol for a condition to hold."""
        if node.op != ops.DIVIDES or node.args[0].op != ops.NUMBER:
            return None
        count = self._multiple(node.args[1])
        if count is None:
            return None
        divisor = number_of(node.args[0]) / count  # divisor | symbol, as a fraction
        return divisor.numerator if divisor > 0 else None

    def _multiple(self, node: Node) -> Fraction | None:
        """Return the factor between the symbol and ``node``; None if there is none."""
        if node.op == ops.NAME:
            return Fraction(1)
        if node.op == ops.DIV and node.args[1].op == ops.NUMBER:
            count = self._multiple(node.args[0])
            return None if count is None else count / number_of(node.args[1])
        if node.op == ops.MUL:
            counts = [number_of(part) if part.op == ops.NUMBER else self._multiple(part) for part in factors(node)]
            if counts.count(None) == 0 and sum(part.op != ops.NUMBER for part in factors(node)) == 1:
                result = Fraction(1)
                for count in counts:
                    result *= count or 0
                return result
        return None


def _parts(conditions: Iterable[Node]) -> Iterable[Node]:
    for node in conditions:
        yield from _parts(node.args) if node.op == ops.AND else (node,)


def _divisors(whole: int) -> set[int]:
    small = [divisor for divisor in range(1, isqrt(whole) + 1) if whole % divisor == 0]
    return {*small, *(whole // divisor for divisor in small)}
