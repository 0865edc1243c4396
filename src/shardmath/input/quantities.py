"""Quantities and lists as people type them: 15T tokens, 90d, 20M of a currency, conditions between commas."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from fractions import Fraction

from shardmath.errors import InputError

_SIZES: Mapping[str, int] = {
    "": 1, "k": 10**3, "K": 10**3, "M": 10**6, "B": 10**9, "G": 10**9, "T": 10**12, "P": 10**15,
}
#: Tokens of a sequence by letter, which are powers of two.
_LENGTHS: Mapping[str, int] = {"k": 2**10, "K": 2**10, "M": 2**20}
#: Seconds by unit.
_TIMES: Mapping[str, int] = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604_800}
#: Digits, which may stand in groups of three, with an exponent or a letter behind them.
_NUMBER = re.compile(r"(\d{1,18}|\d{1,3}(?:[,_]\d{3}){1,5})(\.\d{1,9})?(?:e\+?(\d{1,2})|\s?([A-Za-z]?))", re.ASCII)
#: A number with a word behind it, of which the first letter may be a unit: in ``months`` it is not.
_BEGUN = re.compile(r"\s*(\d{1,9}(?:\.\d{1,9})?)\s*(?!mon)([A-Za-z])", re.ASCII)
_EXAMPLE = "15T"
_CURRENCIES = "$€£¥"


def amount(field: str, value: object, largest: int = 10**18, least: int = 1) -> Fraction:
    """Return a number that may be text such as ``15T``, ``1.5B`` or ``20M``; letters are powers of 1000.

    Raises InputError for any other text, and outside ``least`` to ``largest``.
    """
    return _read(field, value, _SIZES, "a number, with k, M, B, T or P behind it", _EXAMPLE, (least, largest))


def money(field: str, value: object, example: str, largest: int = 10**18, least: int = 1) -> Fraction:
    """Return an ``amount`` that may have the sign of a currency before it: ``$2M``.

    Raises InputError as ``amount``, with ``example`` for what is no number.
    """
    plain = value.strip().lstrip(_CURRENCIES) if isinstance(value, str) else value
    try:
        return amount(field, plain, largest, least)
    except InputError as error:
        raise InputError(field, value, error.rule, example if error.nearest == _EXAMPLE else error.nearest) from None


def duration(field: str, value: object, largest: int = 10**12, least: int = 1) -> Fraction:
    """Return seconds of text such as ``90d``, ``12h``, ``5m`` or ``30s``; a number alone is in seconds.

    Raises InputError as ``amount`` does.
    """
    return _read(field, value, _TIMES, "a duration: a number with s, m, h, d or w behind it", "90d", (least, largest))


def whole(field: str, value: object, largest: int = 10**18, least: int = 1) -> int:
    """Return an ``amount`` that is an integer. Raises InputError for others too."""
    number = amount(field, value, largest, least)
    if number.denominator != 1:
        raise InputError(field, value, "must be an integer", str(round(number)))
    return int(number)


def length(text: str) -> int | None:
    """Return the tokens of a sequence that is written as ``8k`` or ``1M``, in powers of two; None for other texts."""
    digits, letter = text[:-1], text[-1:]
    if letter in _LENGTHS and digits.isdecimal() and len(digits) < 10:
        return int(digits) * _LENGTHS[letter]
    return None


def _read(
    field: str, value: object, units: Mapping[str, int], form: str, example: str, limits: tuple[int, int],
) -> Fraction:
    least, largest = limits
    if isinstance(value, int | float | Fraction) and not isinstance(value, bool):
        try:
            number = Fraction(value)
        except (ValueError, OverflowError):
            raise InputError(field, value, f"must be {form}", example) from None
    else:
        match = _NUMBER.fullmatch(value.strip()) if isinstance(value, str) else None
        if match is None or (match[4] or "") not in units:
            if isinstance(value, str) and value.strip()[:1] == "-":
                raise InputError(field, value, f"must be {form}, from {least} to {largest}", str(least))
            begun = _BEGUN.match(value) if isinstance(value, str) else None
            meant = [f"{begun[1]}{unit}" for unit in (begun[2], begun[2].upper()) if unit in units] if begun else []
            raise InputError(field, value, f"must be {form}", next(iter(meant), example))
        digits, decimals, exponent, unit = match.groups(default="")
        number = Fraction(re.sub("[,_]", "", digits) + decimals) * 10**int(exponent or 0) * units[unit]
    if not least <= number <= largest:
        rule = f"must be from {least} to {largest}"
        raise InputError(field, value, rule, str(least if number < least else largest))
    return number


def separated(field: str, text: str) -> Iterator[str]:
    """Yield the parts of a text between commas that stand in no brackets, without those that are empty.

    Raises InputError about ``field`` for a bracket that is not closed.
    """
    depth, clause = 0, ""
    for character in f"{text},":
        depth += (character in "([") - (character in ")]")
        if character == "," and depth <= 0:
            if clause.strip():
                yield clause.strip()
            clause = ""
        else:
            clause += character
    if clause.strip():
        raise InputError(field, text, "must close every bracket that it opens")
