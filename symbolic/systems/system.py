"""A system: a way of training beside the parallel dimensions, chosen by an axis, and all that follows from it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from sympy import Expr, Integer, Symbol

from ..axis import Axis
from ..functions import Iverson
from ..ledger import Place, Role, Tensor
from ..parallel.rules import Rule
from ..parallel.weights import State
from ..rates import host_link_time
from ..terms import TermSet

Choices = Mapping[str, str]

#: Elements of the smallest saved tensor that programs move to a host.
SMALLEST_MOVED = Integer(2**20)


def is_moved(elements: Expr) -> Expr:
    """Return 1 for a saved tensor that is large enough to be moved to a host, 0 for another."""
    return Iverson(elements > SMALLEST_MOVED - 1)


def copy_time(terms: TermSet, layer: str, moved: str) -> Symbol:
    """Add the seconds in which the tensors that are ``moved`` of a layer are copied to the host, or back."""
    terms.include([f"{layer}.moved"])
    return terms.add(f"{layer}.copy_time", host_link_time(terms[f"{layer}.moved"].symbol), "s",
                     f"one layer: {moved} copied to the host, or back")


class Aspect(Enum):
    """A part of training that a system changes."""

    RANKS = "which ranks share something out, or exchange it"
    PASSES = "units that pass the pipeline"
    SAVED = "where saved tensors wait for the backward pass"
    WEIGHTS = "weights that a rank holds"
    STATES = "where optimizer states are, and what updates them"
    PRODUCTS = "how matrix products are computed"
    LINKS = "bandwidths between nodes"
    MACHINES = "the GPUs of each stage"


class Refusal(NamedTuple):
    """A combination of choices that nobody has counted, in words, and whether the choices have it."""

    words: str
    holds: bool


class Part(NamedTuple):
    """Seconds that a system adds once to every step: their name, the term of rank r, and its meaning.

    A step waits for the rank that takes longest.
    """

    name: str
    term: str
    meaning: str


class Transient(NamedTuple):
    """Bytes of rank r that live only at some moments of a step: name, title, moments, size, source, and choices."""

    name: str
    title: str
    sites: tuple[str, ...]
    size: Callable[[TermSet, Choices], Expr]
    source: str
    options: Mapping[str, tuple[str, ...]]


def _nothing(*_: object) -> tuple[()]:
    return ()


@dataclass(frozen=True)
class System:
    """One system: its axis, and what the ledger, the rules and the time of a step have of it.

    The first option of ``axis`` is to do without it. ``frameworks`` are the implementations that have the others.
    ``words`` name it in refusals. It ``changes`` aspects of training, and was not counted with systems that change the
    same ones, or those that it needs ``apart`` from them; ``counted`` has, by other axis, the options that it was
    counted with. So no system names another.

    Every function is asked with the choices, also where the system is not chosen:

    * ``rules``: what a legal layout keeps; ``refused``: further combinations that have not been counted;
    * ``fixed``: letters that have one legal value;
    * ``states``: kept by a rank for every trained parameter, besides those of precision and optimizer;
    * ``gradients_freed``: True if a gradient lives no longer than its parameter's update in the backward pass;
    * ``share``: the part of the states of a role that stays on the GPU;
    * ``moved``: 1 or 0, whether a saved tensor of so many elements leaves the GPU in layers where any does;
    * ``away``: layers of a place, times micro-batches, of which it has left the GPU at its peak;
    * ``passes``: passes of the pipeline that a micro-batch is cut into;
    * ``in_flight``: by letter, units in flight at a peak, where they are not those of the schedule;
    * ``silent``: groups of ranks (``rates``) that reduce no gradients in a step;
    * ``host``: terms of the bytes on the host for rank r, which it adds to the terms of memory, called
      ``stage.host_`` and its axis; ``amounts`` are letters, by option, that less lies there with when they are smaller,
      ``lighter`` options, by option, that keep nothing there, where that is not the first;
    * ``links``: by group of ranks, the bandwidth of its slowest link between nodes (bytes/s of one GPU), where it is
      not the network's; for ``path`` the mean of all links of a pipeline;
    * ``across``: by name, figures of all stages together where each has a machine of its own: the ``slowest`` stage
      with its first chunk of layers, with the ``slowest_middle`` and the ``slowest_last`` one, the ``sum`` of all first
      chunks, the ``slowest_send`` and all ``sends`` between them, the longest ``data_waiting`` and ``optimizer``, and
      the mean ``matmul_flops``;
    * ``time``: adds the terms of its time to those of a step.

    ``spent`` has a few words for each part of a step that ``time`` returns, by the first word of its term.

    ``transients`` live on the GPU at some moments of a step only, with the choices that each names.
    """

    axis: Axis
    frameworks: tuple[str, ...]
    words: str
    changes: tuple[Aspect, ...]
    apart: tuple[Aspect, ...] = ()
    counted: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    rules: Callable[[Choices], Sequence[Rule]] = _nothing
    refused: Callable[[Choices], Sequence[Refusal]] = _nothing
    fixed: Callable[[Choices], Mapping[str, int]] = lambda choices: {}
    states: Callable[[Choices], Sequence[State]] = _nothing
    gradients_freed: Callable[[Choices], bool] = lambda choices: False
    share: Callable[[Role, Choices], Expr] = lambda role, choices: Integer(1)
    moved: Callable[[Tensor, Expr, Place, Choices], Expr] = lambda tensor, elements, place, choices: Integer(0)
    away: Callable[[Place, Choices], Expr] = lambda place, choices: Integer(0)
    passes: Callable[[Choices], Expr] = lambda choices: Integer(1)
    in_flight: Callable[[Choices], Mapping[str, Expr]] = lambda choices: {}
    silent: Callable[[Choices], Sequence[str]] = _nothing
    host: Callable[[TermSet, Choices], Sequence[Symbol]] = _nothing
    amounts: Mapping[str, str] = field(default_factory=dict)
    lighter: Mapping[str, str] = field(default_factory=dict)
    links: Callable[[Choices], Mapping[str, Expr]] = lambda choices: {}
    across: Callable[[Choices], Mapping[str, Expr]] = lambda choices: {}
    time: Callable[[TermSet, Choices], Sequence[Part]] = _nothing
    spent: Mapping[str, str] = field(default_factory=dict)
    transients: tuple[Transient, ...] = ()

    def chosen(self, choices: Choices) -> bool:
        """Return True if the choices are not to do without the system."""
        return choices[self.axis.name] != self.absent

    def refusals(self, choices: Choices) -> Sequence[Refusal]:
        """Return combinations of the system with options of other axes that have not been counted."""
        return (
            *(Refusal(f"{self.words} with {axis} = {choices[axis]}: choose {axis} = {options[0]}",
                      self.chosen(choices) and choices[axis] not in options)
              for axis, options in self.counted.items()),
            *self.refused(choices),
        )

    def excludes(self, other: System) -> bool:
        """Return True if the other system changes an aspect that this one changes too, or needs as it usually is."""
        return not {*self.changes, *self.apart}.isdisjoint(other.changes)

    @property
    def on_host(self) -> dict[str, tuple[str, str]]:
        """By option, a letter with which less lies on the host when smaller, and an option that keeps nothing there.

        Empty for a system that keeps nothing there.
        """
        return {} if self.host is _nothing else {
            option: (self.amounts.get(option, ""), self.lighter.get(option, self.absent))
            for option in self.axis.options if option != self.absent
        }

    @property
    def absent(self) -> str:
        """The option that does without the system."""
        return next(iter(self.axis.options))
