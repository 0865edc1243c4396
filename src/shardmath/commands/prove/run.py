"""Prove a claim or refute it: points first, then a proof, then every point again on exact fractions."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property

from shardmath.commands.prove.answers import Counterexample, Proof
from shardmath.commands.prove.claim import FREE, read_claim
from shardmath.commands.prove.exact import Number, Values
from shardmath.commands.prove.listed import claims
from shardmath.commands.prove.points import Points, smaller
from shardmath.commands.prove.posed import Posed, pose
from shardmath.commands.prove.sides import Sides
from shardmath.compiler.proofs.case import Case
from shardmath.compiler.proofs.goals import Effort, proved
from shardmath.configuration.fields import FIRST
from shardmath.errors import InputError, nearest_listed
from shardmath.input.arguments import typed
from shardmath.reports.waiting import working

#: Legal points, besides those of real models and at the edges, at which every claim is computed.
POINTS = 10_000
#: Points between which progress is told.
_OFTEN = 100
#: Factors that are tried in turn for a bound of an open claim, and the steps of each.
_FACTORS = (Fraction(256), Fraction(16), Fraction(4), Fraction(2), Fraction(3, 2), Fraction(11, 10), Fraction(101, 100))
_LESS = 150
_HOLDS: Mapping[str, Callable[[Number, Number], bool]] = {
    "<=": operator.le, "<": operator.lt, ">=": operator.ge, ">": operator.gt, "=": operator.eq,
}


@typed
def prove(
    claim: str, region: str = "", implementation: str = FIRST, kernels: Mapping[str, str] | None = None,
) -> Proof:
    """Prove a claim about terms for all legal integers, refute it by some of them, or say that it is open.

    ``claim`` has two sides, "first.total with zero_stage=1 <= first.total with zero_stage=0", or a term that rises or
    falls with a parameter, or is the name of a claim in the catalogue. ``region`` are conditions with commas between
    them. Raises InputError for what is no claim and for a region without a legal point.

    Example:
        >>> proof = shardmath.prove("first.total with tensor_parallel=2 <= first.total with tensor_parallel=1")
        >>> proof.verdict, proof.counterexample.left > proof.counterexample.right
        ('refuted', True)
    """
    if claim in claims():
        if region or kernels:
            raise InputError("claim", claim, "must be given alone: the catalogue has its region and kernels")
        return prove_listed(claim)
    posed = pose(read_claim(claim), region, Sides(implementation, dict(kernels or {})))
    case = posed.case()
    if case is None:
        raise InputError("region", region, "must hold for some legal configuration")
    return _Trial(posed, case, claim, region).proof()


def prove_listed(name: str) -> Proof:
    """Prove a claim of the catalogue by name. Raises InputError for an unknown one."""
    if name not in claims():
        raise InputError("claim", name, "must be a claim of the catalogue",
                         nearest_listed(name, claims(), "shardmath prove --list"))
    item = claims()[name]
    proof = prove(item.claim, item.region, item.implementation, item.kernels)
    return replace(proof, name=item.name, belief=item.belief)


@dataclass
class _Trial:
    """One claim under test."""

    posed: Posed
    case: Case
    claim: str
    region: str
    nearest: Fraction | None = None
    """The largest quotient of the side that is claimed to be smaller and the other one, at all points so far."""

    def proof(self) -> Proof:
        """Look for a counterexample, first among real models, then for a proof."""
        points = Points(self.posed, self.case)
        groups = (points.real(POINTS // 5), points.edges(), points.drawn(POINTS))
        counts = [0, 0, 0]
        for place, group in enumerate(groups):
            for point in group:
                if sum(counts) % _OFTEN == 0:
                    working(f"looking for a counterexample: {sum(counts):,} points hold")
                sides = self._sides(point)
                if sides is None:
                    continue
                counts[place] += 1
                if not self._holds(*sides):
                    broken = smaller(point, self._refutes, real=not place)
                    return self._answer("refuted", 0, counts, self._counterexample(broken))
                self._keep_nearest(*sides)
        if not sum(counts):
            raise InputError("region", self.region, "must hold for some legal configuration that can be drawn")
        holds, steps = self._proved()
        return self._answer("proved" if holds else "open", steps, counts, None)

    @cached_property
    def _values(self) -> Values:
        return Values(self.posed)

    def _holds(self, left: Number, right: Number) -> bool:
        return _HOLDS[self.posed.claim.relation](left, right)

    def _keep_nearest(self, left: Number, right: Number) -> None:
        low, high = (left, right) if self.posed.claim.relation in ("<=", "<") else (right, left)
        if self.posed.claim.relation != "=" and high > 0 and (self.nearest is None or low > self.nearest * high):
            self.nearest = Fraction(low) / Fraction(high)

    def _sides(self, point: Mapping[str, int]) -> tuple[Number, Number] | None:
        """Return the values of both sides; None where a setting is not legal, or outside of the region."""
        every = self._values.at(point)
        if every is None or not self._values.keeps_region(point, every):
            return None
        return self._values.sides(point, every)

    def _refutes(self, point: Mapping[str, int]) -> bool:
        sides = self._sides(point)
        return sides is not None and not self._holds(*sides)

    def _counterexample(self, point: Mapping[str, int]) -> Counterexample:
        every = self._values.at(point)
        assert every is not None
        settings = list(every.values())
        same = {name: value for name, value in settings[0].items()
                if all(other.get(name, value) == value for other in settings)}
        differ = [{name: value for name, value in own.items() if name not in same} for own in settings]
        free = {name: value for name, value in point.items() if name in FREE}
        left, right = self._values.sides(point, every)
        return Counterexample({**same, **free}, tuple(differ), left, right)

    def _proved(self) -> tuple[bool, int]:
        """Return True if the claim is proved, as a whole or in parts; and the steps of all attempts."""
        relation, efforts = self.posed.claim.relation, list[Effort]()
        swapped, strict = relation in (">=", ">"), relation in ("<", ">")

        def holds(case: Case | None) -> bool:
            efforts.append(Effort())
            working("proving the whole" if len(efforts) == 1 else f"proving part {len(efforts) - 1}")
            return proved(case, self.posed.algebra, strict=strict, equal=relation == "=", effort=efforts[-1])

        holding = holds(self.posed.case(swapped=swapped)) or all(map(holds, self.posed.parts(swapped=swapped)))
        return holding, sum(effort.tried for effort in efforts)

    def _bound(self) -> str:
        """Return the smallest factor with which an open claim about sizes is proved; empty without one."""
        relation, best = self.posed.claim.relation, ""
        case = self.posed.case(swapped=relation in (">=", ">"))
        working("looking for a weaker claim that can be proved")
        if relation == "=" or case is None:
            return ""
        graph = self.posed.sides.graph
        for factor in _FACTORS:
            larger = graph.mul((graph.number(factor), case.roots[1]))
            weaker = replace(case, roots=(case.roots[0], larger))
            if not proved(weaker, self.posed.algebra, effort=Effort(_LESS)):
                break
            claim = self.posed.claim
            sides = (claim.left, f"{factor} * ({claim.right})") if relation in ("<=", "<") else (
                f"{factor} * ({claim.left})", claim.right)
            best = f"{sides[0]} {relation[0]}= {sides[1]}"
        return best

    def _answer(self, verdict: str, steps: int, counts: Sequence[int], broken: Counterexample | None) -> Proof:
        real, edges, drawn = counts
        return Proof("", "", self.claim, self.region, self._kernels, verdict, broken, steps, real + drawn, edges,
                     *((self._bound(), self.nearest) if verdict == "open" else ("", None)))

    @property
    def _kernels(self) -> str:
        chosen = "".join(f", {axis} = {option}" for axis, option in sorted(self.posed.sides.kernels.items()))
        return f"{self.posed.sides.implementation}{chosen}"
