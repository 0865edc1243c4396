"""An answer of ``prove``: the verdict, and what it rests on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from shardmath.answers import Answer, Exact, Reported


@dataclass(frozen=True)
class Counterexample(Answer):
    """Legal integers with which a claim does not hold."""

    values: Mapping[str, int]
    """Parameters by name that are the same on both sides."""
    settings: tuple[Mapping[str, int], ...]
    """Parameters that differ, for each setting of the claim from left to right."""
    left: Exact
    """Value of the left side."""
    right: Exact
    """Value of the right side."""


@dataclass(frozen=True)
class Proof(Reported, room="prove"):
    """The verdict on one claim.

    Raises FrozenInstanceError where a field is set.

    Example:
        >>> proof = shardmath.prove("first.total rises with micro_batch_size", "recompute = none")
        >>> proof.verdict
        'refuted'
    """

    name: str
    """Name in the catalogue of claims; empty for a claim of one's own."""
    belief: str
    """The claim in words; empty for a claim of one's own."""
    claim: str
    """Both sides with their relation."""
    region: str
    """Conditions under which it is claimed, beside that all is legal."""
    implementation: str
    """Framework, with the kernel choices that differ from its own."""
    verdict: str
    """proved, refuted or open."""
    counterexample: Counterexample | None
    """Legal integers that refute it; null unless it is refuted."""
    steps: int
    """Cases and arguments of maxima that the proof tried."""
    points: int
    """Random legal points at which both sides were computed exactly."""
    edges: int
    """Legal points at the edges at which both sides were computed exactly."""
    bound: str
    """Bound that is proved instead of an open claim; empty if none is."""
    nearest: Exact | None
    """Largest quotient of the smaller side and the larger one at all points of an open claim; else null."""
