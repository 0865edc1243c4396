"""The catalogue of claims: what practitioners believe, with the verdict that is expected."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache

from shardmath.answers import Answer
from shardmath.catalogue import read


@dataclass(frozen=True)
class ListedClaim(Answer):
    """One claim of the catalogue."""

    name: str
    """Name, as ``shardmath prove`` takes it."""
    belief: str
    """The claim in words."""
    claim: str
    """The claim over terms."""
    verdict: str
    """Expected verdict: proved, refuted or open."""
    region: str = ""
    """Conditions."""
    implementation: str = "megatron"
    """Framework."""
    kernels: Mapping[str, str] = field(default_factory=dict)
    """Kernel choices that differ from the framework's own."""
    note: str = ""
    """Reason, or what follows."""


@dataclass(frozen=True)
class Claims(Answer):
    """All claims of the catalogue (``prove --list``)."""

    claims: tuple[ListedClaim, ...]
    """The claims, in the order of the catalogue."""


@cache
def claims() -> Mapping[str, ListedClaim]:
    """Return all claims of the catalogue by name."""
    return {name: ListedClaim(name, **entry) for name, entry in read("claims").items()}
