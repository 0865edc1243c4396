"""Types of arguments: checked by the annotations of a function where a person hands them in."""

from __future__ import annotations

import operator
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from functools import wraps
from inspect import Parameter, Signature, signature
from numbers import Rational, Real
from types import NoneType, UnionType
from typing import Any, Literal, ParamSpec, TypeVar, Union, get_args, get_origin, get_type_hints

from shardmath.errors import ABSENT, InputError, nearest_names
from shardmath.generated.definitions import PARAMETERS
from shardmath.input.meant import kernels_of, recompute_of, truth
from shardmath.input.parameters import checked

Arguments = ParamSpec("Arguments")
Answer = TypeVar("Answer")

#: How types are called, one and several.
_WORDS: Mapping[Any, tuple[str, str]] = {
    int: ("an integer", "integers"), bool: ("true or false", "truths"), str: ("a name", "names"),
    float: ("a number", "numbers"), Fraction: ("a fraction", "fractions"), os.PathLike: ("a path", "paths"),
}
#: Guesses of a value that was meant by one of another type, by argument.
_MEANT: Mapping[str, Callable[[object], str]] = {"kernels": kernels_of, "recompute": recompute_of}


class _OtherTypeError(Exception):
    """A value is none of its annotation."""


def typed_like(
    other: Callable[..., object],
) -> Callable[[Callable[Arguments, Answer]], Callable[Arguments, Answer]]:
    """Check a function as ``typed`` does, and what it passes on to ``other`` by the annotations of that."""

    def decorate(function: Callable[Arguments, Answer]) -> Callable[Arguments, Answer]:
        return typed(function, other)

    return decorate


def typed(
    function: Callable[Arguments, Answer], other: Callable[..., object] | None = None,
) -> Callable[Arguments, Answer]:
    """Check every argument of ``function`` against its annotation before each call.

    Types with ``__index__``, such as ``numpy.int64``, are integers, and real numbers are floats; truth values are
    neither. Raises InputError for arguments of other types, missing ones and unknown ones.
    """
    shape = signature(function)
    hints: dict[str, Any] = {}
    others: dict[str, Any] = {}

    @wraps(function)
    def call(*arguments: Arguments.args, **options: Arguments.kwargs) -> Answer:
        if not hints:
            others.update({} if other is None else get_type_hints(other))
            hints.update(get_type_hints(function))
        try:
            bound = shape.bind(*arguments, **options)
        except TypeError:
            raise _unbound(shape, arguments, options) from None
        for name, value in bound.arguments.items():
            hint = hints.get(name, Any)
            if shape.parameters[name].kind is Parameter.VAR_KEYWORD:
                bound.arguments[name] = {key: inner if key not in {*others, *PARAMETERS} else
                                         conformed(key, inner, others.get(key, hint)) for key, inner in value.items()}
            elif value is not shape.parameters[name].default:
                bound.arguments[name] = conformed(name, value, hint)
        return function(*bound.args, **bound.kwargs)

    return call


def conformed(name: str, value: object, hint: Any) -> Any:
    """Return ``value`` as what ``hint`` says. Raises InputError, which blames ``name``, unless it is that."""
    try:
        return _conformed(name, value, hint)
    except _OtherTypeError:
        if name in PARAMETERS and int in (hint, *get_args(hint)):
            checked(name, value)
        rule = f"must be {' or '.join(dict.fromkeys(_words(hint, 0)))}"
        raise InputError(name, value, rule, _meant(name, value, (hint, *get_args(hint)))) from None


def _conformed(name: str, value: Any, hint: Any) -> Any:
    origin, parts = get_origin(hint) or hint, get_args(hint)
    if origin in (Union, UnionType):
        for part in parts:
            try:
                return _conformed(name, value, part)
            except _OtherTypeError:
                continue
    elif origin is Any:
        return value
    elif origin is Literal:
        if value in parts:
            return value
    elif origin in (Sequence, Iterable):
        if isinstance(value, Iterable) and not isinstance(value, str | bytes | Mapping):
            return tuple(_conformed(name, item, parts[0]) for item in _items(value))
    elif origin is Mapping:
        if isinstance(value, Mapping):
            return {_conformed(name, key, parts[0]): _conformed(str(key), item, parts[1])
                    for key, item in value.items()}
    elif origin in _SIMPLE:
        return _SIMPLE[origin](name, value)
    elif origin is Callable:
        if callable(value):
            return value
    elif isinstance(origin, type) and isinstance(value, origin):
        return value
    raise _OtherTypeError


def _items(value: Iterable[Any]) -> Iterable[Any]:
    try:
        return iter(value)
    except TypeError:  # an array of NumPy without an axis
        raise _OtherTypeError from None


def _integer(name: str, value: Any) -> int:
    if isinstance(value, bool) and name in PARAMETERS:
        return value  # a switch; other parameters refuse it, with their range
    if isinstance(value, bool) or not hasattr(type(value), "__index__"):
        raise _OtherTypeError
    try:
        return operator.index(value)
    except TypeError:  # an array of NumPy that is no single number
        raise _OtherTypeError from None


def _truth(name: str, value: Any) -> bool:
    if isinstance(value, bool):
        return value
    if type(value).__name__ in ("bool", "bool_"):  # NumPy's
        return bool(value)
    number = _integer("", value)
    if number not in (0, 1):
        raise _OtherTypeError
    return bool(number)


def _instance(kind: type, made: Callable[[Any], Any]) -> Callable[[str, Any], Any]:
    def of_kind(_: str, value: Any) -> Any:
        if isinstance(value, bool) or not isinstance(value, kind):
            raise _OtherTypeError
        try:
            return made(value)
        except OverflowError:  # an integer beyond all floats, which its rule refuses
            return value

    return of_kind


def _path(_: str, value: Any) -> Any:
    if not isinstance(value, os.PathLike) or not isinstance(os.fspath(value), str):
        raise _OtherTypeError
    return value


_SIMPLE: Mapping[Any, Callable[[str, Any], Any]] = {
    int: _integer, bool: _truth, str: _instance(str, str), float: _instance(Real, float),
    Fraction: _instance(Rational, lambda value: value), os.PathLike: _path,
}


def _words(hint: Any, several: int) -> list[str]:
    """Call the types of ``hint`` by name."""
    origin, parts = get_origin(hint) or hint, get_args(hint)
    if origin in (Union, UnionType):
        return [word for part in parts if part is not NoneType for word in _words(part, several)]
    if origin in _WORDS:
        return [_WORDS[origin][several]]
    if origin in (Sequence, Iterable):
        return [f"a list of {' or '.join(_words(parts[0], 1))}" if not several else "lists"]
    if origin is Mapping:
        return ["an object of names" if not several else "objects of names"]
    if origin is Literal:
        return [repr(part) for part in parts]
    if origin is Callable:
        return ["a function"]
    return [f"a {origin.__name__}" if isinstance(origin, type) else "given"]


def _meant(name: str, value: object, hints: Sequence[Any]) -> str | None:
    """Guess the value that was meant, as Python writes it."""
    if name in _MEANT and (meant := _MEANT[name](value)):
        return meant
    if bool in hints and (said := truth(value)) is not None:
        return str(said)
    return _nearest(value) if int in hints else None


def _nearest(value: object) -> str | None:
    """Guess the integer that was meant."""
    try:
        number = float(value)  # type: ignore[arg-type]
        return str(round(number))
    except (TypeError, ValueError, OverflowError):
        return None


def _unbound(shape: Signature, arguments: Sequence[object], options: Mapping[str, object]) -> InputError:
    """Name what is missing, unknown or too much."""
    parameters = shape.parameters
    for name, value in options.items():
        if name not in parameters and not any(item.kind is Parameter.VAR_KEYWORD for item in parameters.values()):
            return InputError(name, value, "must not be given: there is no such argument",
                              nearest_names(name, parameters))
    by_place = [name for name, item in parameters.items() if item.kind is Parameter.POSITIONAL_OR_KEYWORD]
    if len(arguments) > len(by_place):
        return InputError("arguments", len(arguments), f"must be at most {len(by_place)} without a name",
                          str(len(by_place)))
    twice = next((name for name in by_place[:len(arguments)] if name in options), None)
    if twice is not None:
        return InputError(twice, options[twice], "must be given once")
    missing = next(name for name, item in parameters.items() if item.default is Parameter.empty
                   and item.kind is not Parameter.VAR_KEYWORD and name not in {*by_place[:len(arguments)], *options})
    return InputError(missing, ABSENT, "must be given")
