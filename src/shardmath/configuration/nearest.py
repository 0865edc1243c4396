"""Nearest legal values: changes of a job's arguments after which every rule is kept."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from itertools import chain, islice, zip_longest
from typing import Any

from shardmath.configuration.fields import LAYOUT
from shardmath.configuration.settings import GRADIENT_BYTES, WORDS
from shardmath.configuration.zero import SWITCHES
from shardmath.errors import InputError
from shardmath.generated.definitions import DEFAULTS, PARAMETERS, RECOMPUTE_MODES, RECOMPUTE_REGIONS
from shardmath.input.meant import recompute_of
from shardmath.input.parameters import limits, meant_integer

Changes = Mapping[str, Any]
#: The error of the arguments with some changes, or None where they are legal.
Refused = Callable[[Changes], InputError | None]

#: Configurations that are tried with one argument changed, and as many with several; an explicit list of layers is
#: walked through for each.
_ATTEMPTS, _ATTEMPTS_LISTED = 1536, 128
#: How far below and above a value every integer is tried, then powers of two: of the argument to blame; of others,
#: without larger powers; and of numbers of GPUs and batches that other changes ask for.
_FAR, _NEAR, _FARTHER = (256, 128), (32, 32), (1024, 1024)
#: Bits of the largest value of any parameter.
_BITS = 54
#: How many changes follow each other.
_STEPS = 16
#: Arguments that change last: what a person has, and what is to be trained.
_LAST = ("data_parallel", "num_gpus", "global_batch_size")
#: Values that go with most others.
_USUAL: Mapping[str, int] = {**DEFAULTS, **LAYOUT}
#: Arguments that stand for parameters, if they are given.
_BEHIND: Mapping[str, str] = {
    "gradient_bytes": "gradients", **dict.fromkeys(("recompute_full", *RECOMPUTE_REGIONS.values()), "recompute"),
    **dict.fromkeys(SWITCHES, "zero_stage"),
}
#: The switches that a value of such an argument stands for.
_SWITCHES: Mapping[str, Callable[[Any], Mapping[str, int]]] = {
    **WORDS, "gradients": lambda name: {"gradient_bytes": GRADIENT_BYTES[name]},
}
#: A rule that leaves a switch one value, before the reason.
_ONE_VALUE = re.compile(r"must be (\d+)(?: \((?:fp32|bf16)\))?(?=:| with | where | in |$)")
#: The rule of stages with equally many layers.
_UNEVEN = re.compile(r"must divide num_layers \(num_layers = (\d+)\)")
#: Values of arguments that are no parameters.
_OPTIONS: Mapping[str, tuple[Any, ...]] = {
    "gradients": tuple(GRADIENT_BYTES), "recompute": tuple(RECOMPUTE_MODES),
    "zero_stage": tuple(range(len(SWITCHES) + 1)),
}


def nearest_legal(error: InputError, arguments: Mapping[str, Any], refused: Refused) -> str | None:
    """Name the values nearest to what ``error`` blames with which ``arguments`` keep every rule.

    Where no value of that argument suffices, name another argument with its values, or several that change together.
    Return what the error says itself where it blames no parameter, or a value out of its range and more is wrong beside
    it; else None where none are found.
    """
    if error.field not in {*PARAMETERS, *_OPTIONS}:
        return error.nearest
    search = Attempts(arguments, refused)
    for number, name in enumerate(search.suspects(error)):
        values = search.alone(name, search.start(name, error), {}, _NEAR if number else _FAR)
        if values:
            text = " or ".join(map(str, values))
            return " or ".join([text if name == error.field else f"{name} {text}", *_shorter_stage(error, refused)])
    sets = [f"{name} {value}" for name, value in search.together().items()]
    named = " with ".join(part for part in (*sets[:1], ", ".join(sets[1:])) if part)
    return named or (error.nearest if _is_outside(error) else None)


def _shorter_stage(error: InputError, refused: Refused) -> Iterator[str]:
    """Yield the shorter last stage with which layers that stages cannot share evenly are legal, if there is one."""
    layers, stages = _UNEVEN.fullmatch(error.rule), error.value
    if error.field == "pipeline_parallel" and layers is not None and isinstance(stages, int):
        most = -(-int(layers[1]) // stages)
        last = int(layers[1]) - most * (stages - 1)
        if last > 0 and refused({"last_stage_layers": last}) is None:
            yield f"last_stage_layers {last}"


def as_it_was_asked(error: InputError, arguments: Mapping[str, Any]) -> InputError:
    """Return ``error`` on the argument that a person gave, where it blames a switch that stands behind it.

    Of several values that a search was given, the first that sets the switch so is blamed.
    """
    name, only = _BEHIND.get(error.field), _ONE_VALUE.match(error.rule)
    if name is None or only is None or arguments.get(name) is None or arguments.get(error.field) is not None:
        return error
    values = arguments[name] if isinstance(arguments[name], list | tuple) else [arguments[name]]
    value = next((value for value in values if _SWITCHES[name](value)[error.field] == error.value), None)
    if value is None:
        return error
    if name == "recompute":
        regions = value.split("+")
        region = next((key for key in regions if RECOMPUTE_REGIONS.get(key) == error.field), value)
        rule, legal = f"must not {'be' if region == value else 'have'} {region}", [
            "+".join(key for key in regions if key != region) or "none"]
    else:
        legal = [option for option in _OPTIONS[name] if _SWITCHES[name](option)[error.field] == int(only[1])]
        rule = f"must be {' or '.join(map(str, legal))}"
    return InputError(name, value, rule + error.rule[only.end():], str(_closest(legal, value)))


def _is_outside(error: InputError) -> bool:
    """Tell whether a parameter is out of the range that it has on its own."""
    if error.field not in PARAMETERS or not isinstance(error.value, int):
        return False
    minimum, largest = limits(error.field)
    return not minimum <= error.value <= largest


class Attempts:
    """One search: the arguments, and how many configurations may still be tried."""

    def __init__(self, arguments: Mapping[str, Any], refused: Refused) -> None:
        self._given = {name: value for name, value in arguments.items() if isinstance(value, int | float | str)}
        self._refused = refused
        self._most = _ATTEMPTS if arguments.get("pipeline_layout") is None else _ATTEMPTS_LISTED
        self._left = self._most
        self._errors: list[InputError] = []

    def suspects(self, error: InputError) -> Iterator[str]:
        """Yield the arguments that may change alone: the blamed one, then those that this and later errors name."""
        own = self._blamed(error)
        if own is not None:
            yield own
        others = dict.fromkeys(name for each in (error, *self._errors) for name in self._spoken_of(each))
        yield from sorted((name for name in others if name != own), key=lambda name: name in _LAST)

    def start(self, name: str, error: InputError) -> Any:
        """Return the value of an argument that was given, or else is in the ``error``."""
        return self._given.get(name, error.value)

    def alone(self, name: str, start: Any, changes: Changes, reach: tuple[int, int]) -> list[Any]:
        """Return the legal values of one argument next below and next above ``start``, beside ``changes``.

        For what is no integer, or out of range, it is the integer that was meant, or the end of the range, if that is
        legal.
        """
        legal = []
        for side in _sides(name, start, reach):
            legal += list(islice((value for value in side if self._error({**changes, name: value}) is None), 1))
            if legal and name not in _OPTIONS and (legal[0], True) == _begin(name, start):
                break
        return legal

    def together(self) -> Changes:
        """Return a set of changes that is legal, none of which can be left out; empty where none is found.

        Sizes change first, one after the other as errors blame them, on as many GPUs and with such a batch as they
        need; then what is left of the GPUs and the batch.
        """
        self._left = self._most
        free: dict[str, Any] = dict.fromkeys(name for name in _LAST if name in self._given)
        changes = self._repaired(free)
        for name in free:
            del changes[name]
            if self._error(changes) is not None:
                values = self.alone(name, self._given[name], changes, _FARTHER)
                if not values:
                    return {}
                changes[name] = _closest(values, self._given[name])
        for name in tuple(changes):
            fewer = {other: value for other, value in changes.items() if other != name}
            if self._error(fewer) is None:
                changes = fewer
            elif name in self._given and name not in free:
                values = self.alone(name, self._given[name], changes, _NEAR)
                changes[name] = _closest([*values, changes[name]], self._given[name])
        return changes if self._error(changes) is None else {}

    def _repaired(self, changes: Changes) -> dict[str, Any]:
        """Add one of ``changes`` for every error: the nearest value after which another argument is to blame."""
        repaired = dict(changes)
        for _ in range(_STEPS):
            error = self._error(repaired)
            if error is None:
                break
            own = self._blamed(error)
            names = dict.fromkeys((*([] if own is None else [own]), *self._spoken_of(error)))
            moved = ((other, self._moved_on(other, repaired, error)) for other in names)
            others = sorted(self._given, key=lambda other: other in LAYOUT)
            usual = ((other, _USUAL.get(other)) for other in (*names, *others)
                     if repaired.get(other, self._given.get(other)) not in (None, _USUAL.get(other)))
            change = next(((other, value) for other, value in chain(moved, usual) if value is not None), None)
            if change is None:
                break
            repaired |= dict([change])
        return repaired

    def _moved_on(self, name: str, changes: Changes, error: InputError) -> Any:
        """Return the value of an argument next to its own after which another rule is broken, or none."""
        below, above = _sides(name, changes.get(name, self.start(name, error)), _NEAR)
        for value in (value for pair in zip_longest(below, above) for value in pair if value is not None):
            refusal = self._error({**changes, name: value})
            if refusal is None or self._blamed(refusal) not in (name, self._blamed(error)):
                return value
        return None

    def _spoken_of(self, error: InputError) -> list[str]:
        """Return the arguments that an error names and that were given."""
        words = (error.field, *re.findall(r"\w+", error.rule))
        named = (_BEHIND[name] if _BEHIND.get(name) in self._given else name for name in words)
        return [name for name in named if name in self._given and name in {*PARAMETERS, *_OPTIONS}]

    def _blamed(self, error: InputError) -> str | None:
        """Return the argument behind the field of an error; None for what cannot be given."""
        behind = _BEHIND.get(error.field)
        if behind in self._given:
            return behind
        is_given = error.field in PARAMETERS and PARAMETERS[error.field][4] not in ("model", "derived")
        return error.field if is_given or error.field in _OPTIONS else None

    def _error(self, changes: Changes) -> InputError | None:
        """Return the error of the arguments with ``changes``; an error of its own where enough were tried."""
        if not self._left:
            return InputError("attempts", _ATTEMPTS, "must suffice")
        self._left -= 1
        error = self._refused(changes)
        if error is not None and len(changes) == 1 and error.field not in {each.field for each in self._errors}:
            self._errors.append(error)
        return error


def _closest(values: Sequence[Any], start: Any) -> Any:
    """Return the value closest to ``start``; the first of those that are no numbers."""
    if not isinstance(start, int | float):
        return values[0]
    return min(values, key=lambda value: abs(value - start))


def _sides(name: str, start: Any, reach: tuple[int, int]) -> tuple[Iterator[Any], Iterator[Any]]:
    """Return values of an argument below and above ``start``, the nearest first; what is no number has one side."""
    if name in _OPTIONS:
        if name == "recompute" and (meant := recompute_of(start)):
            return iter([meant]), iter(())
        others = [value for value in _OPTIONS[name] if type(value) is type(start) and value != start]
        return iter(sorted(others, key=lambda value: _distance(value, start))), iter(())
    begin, is_new = _begin(name, start)
    if begin is None:
        return iter(()), iter(())
    minimum, largest = limits(name)
    least, most = max(minimum, begin - reach[0]), min(largest, begin + reach[1])
    powers = [2**bits for bits in range(_BITS)]
    smaller = (value for value in reversed(powers) if minimum <= value < least)
    larger = (value for value in powers if most < value <= largest and reach != _NEAR)
    return chain(range(begin - (not is_new), least - 1, -1), smaller), chain(range(begin + 1, most + 1), larger)


def _distance(value: Any, start: Any) -> float:
    """Return the distance of two numbers, or the difference of two words from 0 to 1."""
    return 1 - SequenceMatcher(None, value, start).ratio() if isinstance(start, str) else abs(value - start)


def _begin(name: str, start: Any) -> tuple[int | None, bool]:
    """Get the legal integer that stands for ``start``, None for what is no number, and whether it is another value."""
    begin = meant_integer(name, start)
    is_integer = isinstance(start, int) and (limits(name)[1] == 1 or not isinstance(start, bool))
    return begin, not is_integer or begin != start
