"""How the candidates of an axis are declared: a list, a range, powers of two, multiples, divisors of a symbol."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar

from shardmath.divisors import divisors
from shardmath.errors import ABSENT, InputError, nearest_names

#: No axis has more candidates: all of them are held in memory, and looked at when a space is checked.
MOST = 2**14
_LARGEST = 2**53


@dataclass(frozen=True)
class Range:
    """``start``, ``start + step`` and so on, up to ``to`` at most."""

    key: ClassVar[str] = "range"
    start: int
    to: int
    step: int = 1

    def values(self, field: str) -> tuple[int, ...]:
        """Return the candidates, ascending. Raises InputError for ``field`` if there are none, or too many."""
        _counted(f"{field}.{self.key}", self)
        _at_least_one(f"{field}.{self.key}.step", self.step)
        return _listed(field, range(self.start, self.to + 1, self.step))


@dataclass(frozen=True)
class PowersOfTwo:
    """The powers of two from ``start`` to ``to``, both included if they are powers themselves."""

    key: ClassVar[str] = "powers_of_two"
    start: int
    to: int

    def values(self, field: str) -> tuple[int, ...]:
        """Return the candidates, ascending. Raises InputError for ``field`` if there are none."""
        _counted(f"{field}.{self.key}", self)
        first = max(self.start - 1, 0).bit_length()
        return _listed(field, [1 << bits for bits in range(first, max(self.to, 0).bit_length())])


@dataclass(frozen=True)
class Multiples:
    """The multiples of ``of`` from ``start`` to ``to``."""

    key: ClassVar[str] = "multiples"
    of: int
    start: int
    to: int

    def values(self, field: str) -> tuple[int, ...]:
        """Return the candidates, ascending. Raises InputError for ``field`` if there are none, or too many."""
        _counted(f"{field}.{self.key}", self)
        _at_least_one(f"{field}.{self.key}.of", self.of)
        return _listed(field, range(-(-self.start // self.of) * self.of, self.to + 1, self.of))


@dataclass(frozen=True)
class DivisorsOf:
    """The divisors of a parameter, from ``at_least`` to ``at_most``.

    Where the parameter is an axis itself, they are those of any of its values, and a constraint keeps the pairs that
    divide.
    """

    key: ClassVar[str] = "divisors_of"
    symbol: str
    at_least: int = 1
    at_most: int | None = None

    def values(self, field: str, of: Sequence[int]) -> tuple[int, ...]:
        """Return the candidates for the values ``of`` the parameter, ascending. Raises InputError if there are none."""
        _counted(field, self)
        legal = sorted({divisor for value in set(of) for divisor in divisors(value)})
        return _listed(field, [d for d in legal if self.at_least <= d and (self.at_most is None or d <= self.at_most)])


Rule = Range | PowersOfTwo | Multiples | DivisorsOf
Candidates = tuple[int, ...] | tuple[str, ...] | Rule

#: The names of fields in a file, where they differ.
_WRITTEN = {"start": "from", "symbol": "divisors_of"}
_RULES: dict[str, type[Range] | type[PowersOfTwo] | type[Multiples]] = {
    rule.key: rule for rule in (Range, PowersOfTwo, Multiples)
}
KEYS = (*_RULES, DivisorsOf.key)


def read(field: str, declared: object) -> Candidates:
    """Return candidates from what a file or a person says. Raises InputError for anything else."""
    if isinstance(declared, Mapping):
        declared = _rule(field, declared)
    if isinstance(declared, Rule):
        if isinstance(declared, DivisorsOf):
            _counted(field, declared)
        return declared
    if isinstance(declared, Sequence) and not isinstance(declared, str | bytes):
        if not declared:
            raise InputError(field, (), "must have at least one value")
        if len(declared) > MOST:
            raise InputError(field, len(declared), f"must have at most {MOST} values", str(MOST))
        return tuple(declared)
    raise InputError(field, declared, f"must be a list, or a table with one of {', '.join(KEYS)}")


def listed(field: str, candidates: object) -> tuple[Any, ...]:
    """Return the candidates that do not depend on other symbols. Raises InputError for ``field`` if there are none."""
    if isinstance(candidates, Range | PowersOfTwo | Multiples):
        return candidates.values(field)
    assert isinstance(candidates, tuple)
    return candidates


def written(candidates: Candidates) -> Any:
    """Return candidates as plain data: what ``read`` takes."""
    if isinstance(candidates, tuple):
        return list(candidates)
    plain = {
        _WRITTEN.get(item.name, item.name): value
        for item in fields(candidates) if (value := getattr(candidates, item.name)) is not None
    }
    return plain if isinstance(candidates, DivisorsOf) else {candidates.key: plain}


def _rule(field: str, table: Mapping[Any, Any]) -> Rule:
    kinds = [key for key in KEYS if key in table]
    if len(kinds) != 1:
        for key in table:
            if key not in KEYS:
                raise InputError(f"{field}.{key}", table[key], "must not be given: there is no such key",
                                 nearest_names(str(key), KEYS))
        raise InputError(field, dict(table), f"must have exactly one of {', '.join(KEYS)}")
    kind = kinds[0]
    if kind == DivisorsOf.key:
        return DivisorsOf(**_arguments(field, table, DivisorsOf))
    extra = next((key for key in table if key != kind), None)
    if extra is not None:
        raise InputError(f"{field}.{extra}", table[extra], f"must stand inside {kind} = {{...}}")
    inside = table[kind]
    if not isinstance(inside, Mapping):
        keys = ", ".join(_keys(_RULES[kind]))
        raise InputError(f"{field}.{kind}", inside, f"must be a table with {keys}")
    return _RULES[kind](**_arguments(f"{field}.{kind}", inside, _RULES[kind]))


def _arguments(field: str, table: Mapping[Any, Any], rule: type[Any]) -> dict[str, Any]:
    keys = _keys(rule)
    for key in table:
        if key not in keys:
            raise InputError(f"{field}.{key}", table[key], "must not be given: there is no such key",
                             nearest_names(str(key), keys))
    for key, needed in keys.items():
        if needed and key not in table:
            raise InputError(f"{field}.{key}", ABSENT, "must be given")
    names = {_WRITTEN.get(item.name, item.name): item.name for item in fields(rule)}
    return {names[key]: value for key, value in table.items()}


def _keys(rule: type[Any]) -> dict[str, bool]:
    """Return the keys of a rule in a file, and whether each is needed."""
    optional = {"step", "at_least", "at_most"}
    return {_WRITTEN.get(item.name, item.name): item.name not in optional for item in fields(rule)}


def _counted(field: str, rule: Rule) -> None:
    """Refuse what is not an integer."""
    for item in fields(rule):
        value = getattr(rule, item.name)
        if item.name == "symbol":
            if not isinstance(value, str):
                raise InputError(f"{field}.divisors_of", value, "must be the name of a parameter")
        elif isinstance(value, bool) or not isinstance(value, int | None if item.name == "at_most" else int):
            raise InputError(f"{field}.{_WRITTEN.get(item.name, item.name)}", value, "must be an integer")
        elif value is not None and abs(value) > _LARGEST:
            raise InputError(f"{field}.{_WRITTEN.get(item.name, item.name)}", value, "must be at most 2^53")


def _at_least_one(field: str, value: int) -> None:
    if value < 1:
        raise InputError(field, value, "must be at least 1", "1")


def _listed(field: str, values: Sequence[int]) -> tuple[int, ...]:
    if not values:
        raise InputError(field, (), "must have at least one value")
    if len(values) > MOST:
        raise InputError(field, f"{len(values)} values", f"must have at most {MOST} values", str(MOST))
    return tuple(values)
