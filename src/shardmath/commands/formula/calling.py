"""A formula as a function of numbers and arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from shardmath.errors import InputError, nearest_names

if TYPE_CHECKING:
    from sympy import Expr, Symbol


def called(order: Sequence[Symbol], parts: Sequence[tuple[Symbol, Expr]], modules: str) -> Callable[..., Any]:
    """Return a function of the symbols in ``order`` that computes ``parts`` one after another and returns the last."""
    from sympy import Dummy, lambdify

    from shardmath.symbolic.parameters import BY_LETTER

    letters = {part: Dummy(f"part{place}") for place, (part, _) in enumerate(parts)}  # names of parts have dots
    *before, (_, last) = [(letters[part], value.xreplace(letters)) for part, value in parts]
    function = lambdify(order, last, modules, cse=lambda _: (before, last)) if before else (
        lambdify(order, last, modules))
    names = [BY_LETTER[str(name)].name if str(name) in BY_LETTER else str(name) for name in order]
    return _named(function, names, [str(name) for name in order], modules)


def _named(
    function: Callable[..., Any], names: Sequence[str], letters: Sequence[str], modules: str,
) -> Callable[..., Any]:
    """Return ``function`` with arguments by place, by long name or by letter."""
    places = {name: place for place, pair in enumerate(zip(names, letters, strict=True)) for name in pair}

    def call(*values: Any, **named: Any) -> Any:
        by_place = dict(enumerate(values))
        for name, value in named.items():
            if name not in places:
                raise InputError("argument", name, "must be a symbol of the formula", nearest_names(name, places))
            by_place[places[name]] = value
        missing = [name for place, name in enumerate(names) if place not in by_place]
        if missing or len(by_place) > len(names):
            raise InputError("arguments", len(by_place), f"must be {', '.join(names)}")
        return function(*(_number(by_place[place], modules) for place in range(len(names))))

    call.__doc__ = f"Compute the formula from {', '.join(names)}."
    return call


def _number(value: Any, modules: str) -> Any:
    """Return an integer as mpmath's number, whose quotients are not floats."""
    if modules != "mpmath":
        return value
    from mpmath import mpf

    return mpf(value)
