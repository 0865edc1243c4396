"""A verdict in the terminal: the claim, what it rests on, and the integers that refute it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction

from shardmath.commands.prove.answers import Counterexample, Proof
from shardmath.generated.definitions import DEFAULTS
from shardmath.reports.tables import console, table


def show(proof: Proof) -> None:
    """Print the verdict on a claim."""
    out = console()
    if proof.belief:
        out.print(f"{proof.name}: {proof.belief}")
    out.print(f"{proof.verdict}: {proof.claim}")
    out.print(f"with {proof.implementation}, for all legal integers"
              f"{f' in the region {proof.region}' if proof.region else ''}")
    if proof.counterexample is not None:
        _show_counterexample(proof.counterexample)
        return
    checked = f"{proof.points:,} legal points and {proof.edges:,} at the edges"
    if proof.verdict == "proved":
        out.print(f"{proof.steps:,} steps of proof; computed exactly at {checked}")
        return
    out.print(f"no proof in {proof.steps:,} steps; it holds at {checked}")
    if proof.bound:
        out.print(f"proved instead: {proof.bound}")
    if proof.nearest is not None:
        out.print(f"smaller side over larger side at these points: at most {float(proof.nearest):.6g}")


def _show_counterexample(example: Counterexample) -> None:
    out = console()
    out.print("A counterexample; parameters that are not listed have their defaults:")
    kept = {name: value for name, value in example.values.items() if DEFAULTS.get(name) != value}
    out.print(_joined(kept))
    for place, settings in enumerate(example.settings):
        if settings:
            out.print(f"setting {place + 1}: {_joined(settings)}")
    for name, value in (("left", example.left), ("right", example.right)):
        out.print(f"{name}: {_number(value)}")


def _joined(values: Mapping[str, int]) -> str:
    return ", ".join(f"{name} = {value:,}" for name, value in values.items())


def _number(value: int | Fraction) -> str:
    if isinstance(value, Fraction) and value.denominator != 1:
        return f"{value.numerator:,} / {value.denominator:,} = {float(value):.6g}"
    return f"{int(value):,}"


def show_listed(proofs: Sequence[tuple[str, str, str]]) -> None:
    """Print the claims of the catalogue: name, expected verdict, and the claim in words."""
    console().print(table(("name", "verdict", "belief"), proofs))
