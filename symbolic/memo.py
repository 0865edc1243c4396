"""Functions of expressions that remember their results, which ``stored`` keeps between derivations."""

from __future__ import annotations

from collections.abc import Callable
from functools import update_wrapper
from typing import Any, Generic, TypeVar

Result = TypeVar("Result")


class Memo(Generic[Result]):
    """A function that computes the result for the same arguments once, as ``functools.cache`` does.

    ``results`` are by arguments; ``asked`` are the arguments that it was called with, in the order of the calls.
    """

    def __init__(self, function: Callable[..., Result]) -> None:
        update_wrapper(self, function)
        self.function = function
        self.results: dict[tuple[Any, ...], Result] = {}
        self.asked: dict[tuple[Any, ...], None] = {}

    def __call__(self, *arguments: Any) -> Result:
        """Return the result for these arguments."""
        self.asked[arguments] = None
        if arguments not in self.results:
            self.results[arguments] = self.function(*arguments)
        return self.results[arguments]
