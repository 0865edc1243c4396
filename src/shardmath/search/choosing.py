"""The few layouts worth trying: the fastest ones that differ in kind, and those that trade time for memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from shardmath.account.judged import UNCERTAIN
from shardmath.search.answered import Answered
from shardmath.search.nests.configurations import Configuration

#: Layouts that take longer than the fastest one by more than this are not worth trying: a model of time errs by less.
SLOWER = 0.15
#: By how much a layout that may not fit must be faster, and one with more room smaller, to be worth it.
FASTER, SMALLER = 0.01, 0.1
#: Probabilities of running out up to which layouts that may run out are worth trying, for each the fastest one.
RISKS = (0.05, 0.2, 0.5)
#: Layouts in all but for more implementations than that, and those of another kind, which get places that others leave.
MOST, OTHERS = 5, 2
#: The question for the fastest layout of each implementation, where several are tried.
PROGRAMS = "programs"
#: Layouts whose times and whose memory differ by less are alike.
ALIKE = 0.02


@dataclass(frozen=True)
class Chosen:
    """A layout, and why it is worth trying."""

    configuration: Configuration
    role: str


def choose(answers: Answered) -> list[Chosen]:
    """Return the layouts to try: the fastest that fits, faster ones that may run out, and others that fit."""
    first = answers.first()
    chosen = [] if first is None else [Chosen(first, "the fastest that fits")]
    chosen += _uncertain(answers, first)
    if first is not None:
        chosen += _programs(answers, first)
        smaller = [*_smaller(answers, first)]
        chosen += [*islice(_others(answers, first), max(0, MOST - len(chosen) - len(smaller))), *smaller]
    return list({_place(item.configuration): item for item in reversed(chosen)}.values())[::-1]


def seconds_of(configuration: Configuration) -> float:
    """Return the time of a step of a configuration that was asked for by time."""
    return float(configuration.keys["step.time"])


def _place(configuration: Configuration) -> tuple[str, int]:
    return configuration.part.evaluator.name, configuration.number


def _uncertain(answers: Answered, first: Configuration | None) -> Iterator[Chosen]:
    """Yield the fastest layout of each risk that gains something; without any that fits, the likeliest one at least."""
    last, traded = first, answers.front("legal")
    for risk in RISKS:
        item = next((item for item in traded if item.run_out_probability <= risk), None)
        if item is not None and (last is None or seconds_of(item) < (1 - FASTER) * seconds_of(last)):
            yield Chosen(item, "faster, if it fits" if last is not None else
                         f"the fastest that runs out with a probability up to {risk:.0%}")
            last = item
    if last is None and traded and traded[-1].verdict == UNCERTAIN:
        yield Chosen(traded[-1], "the likeliest to fit")


def _programs(answers: Answered, first: Configuration) -> Iterator[Chosen]:
    """Yield the fastest of every other implementation that was asked for, however slow it is."""
    for item in sorted(answers.best(PROGRAMS), key=seconds_of) if answers.asks(PROGRAMS) else ():
        if (name := item.part.evaluator.implementation) != first.part.evaluator.implementation:
            yield Chosen(item, f"the fastest with {name}")


def _others(answers: Answered, first: Configuration) -> Iterator[Chosen]:
    """Yield the fastest of every other kind: other ranks have to wait for each other there."""
    kinds, chosen = {_kind(first)}, [first]
    for item in sorted(answers.best("kinds"), key=lambda item: tuple(item.keys.values())):
        if seconds_of(item) > (1 + SLOWER) * seconds_of(first) or len(kinds) > OTHERS:
            return
        if _kind(item) not in kinds and not any(_alike(item, other) for other in chosen):
            kinds.add(_kind(item))
            chosen.append(item)
            yield Chosen(item, "the fastest of another kind")


def _smaller(answers: Answered, first: Configuration) -> Iterator[Chosen]:
    """Yield the one of least memory among those that are hardly slower, if that is much less."""
    close = [item for item in answers.front("fitting") if seconds_of(item) <= (1 + SLOWER) * seconds_of(first)]
    least = min(close, key=lambda item: item.keys["peak"])
    if least.keys["peak"] < (1 - SMALLER) * first.keys["peak"]:
        yield Chosen(least, "the most room")


def _alike(configuration: Configuration, other: Configuration) -> bool:
    """Check if two layouts are as fast and as large: what one does in micro-batches the other does in shards."""
    return all(abs(configuration.keys[name] / other.keys[name] - 1) < ALIKE for name in ("step.time", "peak"))


def _kind(configuration: Configuration) -> tuple[int | str, ...]:
    """Return the implementation, how far tensor parallelism goes, and which other kinds of parallelism there are."""
    others = ("context_parallel", "pipeline_parallel", "expert_parallel")
    values, program = configuration.values, configuration.part.evaluator.implementation
    return program, values["tensor_parallel"], *(int(values[name] > 1) for name in others)
