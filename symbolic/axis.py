"""An axis: one choice that training makes among named options."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Axis:
    """One choice: its options, each with a line that says what is kept.

    ``absent`` has, by option, letters that formulas do not speak of then: switches that are 0, degrees that are 1.
    ``untimed`` says of options that do work without rows of time which work that is: nothing is said of a step's time
    with them.
    ``rowless`` are options that no row names: they keep nothing of their own, or rules of parallelism and states have
    have them. Any other option needs a row that names it. ``words`` are what files that describe a model or a run call
    options: ``hidden_act`` of a ``config.json`` for the gated ones of ``mlp``, Megatron-LM's ``--optimizer``.
    ``predicted`` has, by option, the one that layers of further predictions have in its place.
    ``asked`` has, by option, the letters that ask for it when they are not at their defaults, ``needs``
    other choices that go with an option unless they are made otherwise.
    """

    name: str
    meaning: str
    options: Mapping[str, str]
    absent: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    untimed: Mapping[str, str] = field(default_factory=dict)
    rowless: tuple[str, ...] = ()
    words: Mapping[str, str] = field(default_factory=dict)
    asked: Mapping[str, str] = field(default_factory=dict)
    needs: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    predicted: Mapping[str, str] = field(default_factory=dict)

    def without(self, *left_out: str) -> tuple[str, ...]:
        """Return the options without some."""
        return tuple(option for option in self.options if option not in left_out)

    @property
    def by_word(self) -> dict[str, str]:
        """The options by what files call them."""
        return {word: option for option, word in self.words.items()}


def fits(options: Mapping[str, tuple[str, ...]], choices: Mapping[str, str]) -> bool:
    """Return True for choices of which each is one of the options of its axis, where there are such."""
    return all(choices[axis] in allowed for axis, allowed in options.items())
