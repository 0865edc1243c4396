"""FSDP2's streams: memory of the one that gathers and of the one that reduces, which no other stream can use.

PyTorch's caching allocator has a pool for each stream. So a step reserves at least the sum of what each stream has at
its own largest moment, which is more than the largest moment of their sum.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from sympy import Add, Expr, Ge, Gt, Integer, Symbol

from ...functions import FloorDiv, Iverson, Max
from ...implementations import Implementation
from ...ledger import Place, Role
from ...parallel.data import are_apart, bytes_per_element, gradients_are_freed, gradients_stay, share_on_gpu, states
from ...parameters import symbols
from ...reserved import BEYOND
from ...terms import TermSet, in_place, product, total
from .gathered import (
    ACCUMULATED,
    COMPUTE,
    GATHERING,
    REDUCING,
    SEVERAL,
    SHARDS,
    gathered_of,
    gathered_outside,
    gradient_bytes,
    if_any,
    kinds_of_layers,
    outside,
    reduced_bytes,
    sum_of,
)

D, c, R, w = symbols("D c R w")

_ALL: Mapping[Symbol, Expr] = {GATHERING: Integer(1), REDUCING: Integer(1)}
_DEFAULT: Mapping[Symbol, Expr] = {GATHERING: Integer(0), REDUCING: Integer(0)}


def on_all_streams(size: Expr) -> Expr:
    """Return a size with what lies in memory of any stream."""
    return in_place(size, _ALL) if size.has(*_ALL) else size


def on_default_stream(size: Expr) -> Expr:
    """Return a size without what lies in memory of FSDP2's streams."""
    return in_place(size, _DEFAULT) if size.has(*_ALL) else size


def has_streams(choices: Mapping[str, str]) -> bool:
    """Return True if moments of a step with FSDP2 are counted, whose gradients stay until its optimizer step."""
    return choices["data_parallel"] == "fsdp" and choices["peak"] == "torch" and not gradients_are_freed(choices)


def add_streams(terms: TermSet, implementation: Implementation, default: Expr) -> None:
    """Add the largest moment of each stream, and how many bytes their sum is beyond the largest moment of all.

    ``default`` is the largest moment of activations and transients on the default stream.
    """
    own = terms.add("stage.default_stream", default, "bytes",
                    "rank r: activations and transients of the default stream at its largest moment")
    gathers = terms.add("stage.gather_stream", _gathers(terms, implementation), "bytes",
                        "rank r: buffers of gathered parameters at the largest moment of their stream")
    reduces = terms.add("stage.reduce_stream", _reduces(terms, implementation), "bytes",
                        "rank r: reduced gradients at the largest moment of their stream")
    terms.add(BEYOND, total(own, gathers, reduces, -terms["stage.moment"].symbol), "bytes",
              "rank r: largest moments of all streams, less the largest moment of their sum")


def _units(
    implementation: Implementation, layers: tuple[tuple[Expr, Expr], ...], outer: Callable[..., Expr],
) -> tuple[Expr, tuple[tuple[Expr, Expr], ...], Expr]:
    """Return elements of the unit that a forward pass begins with, numbers and elements of layers, and the last unit.

    ``outer`` has the elements outside of the layers at some places. Where one unit has all of them, it is the first,
    and the last is 0.
    """
    apart, last = are_apart(implementation.choices), Add.make_args(outer(Place.LAST, Place.MTP))
    joined = (product(1 - apart, part) for part in last)
    return total(outer(Place.FIRST), *joined), layers, total(*(product(apart, part) for part in last))


def _of_kinds(terms: TermSet, elements: Callable[[str], Expr]) -> tuple[tuple[Expr, Expr], ...]:
    """Return numbers and elements of the layers of each kind, as a forward pass meets them."""
    return tuple((number, elements(layer)) for layer, number in reversed(kinds_of_layers(terms)))


def _gathers(terms: TermSet, implementation: Implementation) -> Expr:
    """Return the buffer of a unit that a forward pass gathers, beside the buffer of the unit before.

    A share of another precision than that of the buffer is cast first, into memory of its own, and one on the host is
    copied.
    """
    of_layers = _of_kinds(terms, partial(gathered_of, terms))
    before, layers, last = _units(implementation, of_layers, partial(gathered_outside, terms, implementation))
    choices = implementation.choices
    is_copied = (bytes_per_element(states(choices), Role.WEIGHT) != COMPUTE
                 or share_on_gpu(Role.WEIGHT, choices) == 0)

    def gathered(unit: Expr) -> Expr:
        return unit + Integer(is_copied) * _shared(unit)

    moments = [gathered(before)]
    for number, layer in layers:
        there = Iverson(Ge(number, 1))
        moments += [there * (before + gathered(layer)), Iverson(Ge(number, 2)) * (layer + gathered(layer))]
        before = if_any(number, layer, before)
    if last != 0:
        moments.append(before + gathered(last))
    return SEVERAL * COMPUTE * Max(*moments)


def _shared(unit: Expr) -> Expr:
    """Return elements of a rank's share of a unit: of each part a whole number, so that floats are exact."""
    shares = []
    for part in Add.make_args(unit):
        size, there = part.as_independent(Iverson, as_Add=False)
        shares.append(there * FloorDiv(size * R, D * c))
    return total(*shares)


def _reduces(terms: TermSet, implementation: Implementation) -> Expr:
    """Return all reduced gradients, and what a unit has beside them while it is reduced.

    Later micro-batches add gradients of their own to those that are there, unit by unit; an all-reduce over replicas
    holds all of them.
    """
    of_layers = _of_kinds(terms, lambda layer: sum_of(terms, layer, "aligned"))
    first, layers, last = _units(implementation, of_layers, partial(outside, terms, implementation, "aligned"))
    own = gradient_bytes(implementation.choices)
    kept, made = Integer(gradients_stay(implementation.choices)) * own, reduced_bytes(w, own)
    whole, each, passed = terms["stage.gradient"].symbol, [made * last], kept * last
    step = [made * last]
    for number, layer in reversed(layers):
        there = Iverson(Ge(number, 1))
        each.append(there * made * layer)
        step.append(there * (passed + (number - 1) * kept * layer + made * layer))
        passed += number * kept * layer
    each.append(made * first)
    step.append(passed + made * first)
    once = Max(whole, *(size / SHARDS for size in step))
    if implementation.choices["pipeline"] == "torch":
        return once
    several = Iverson(Gt(R, 1))
    later = several * once + (1 - several) * Max(*each) / SHARDS
    return Max(once, ACCUMULATED * (whole + later))
