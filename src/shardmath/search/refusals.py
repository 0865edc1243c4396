"""Why no layout of a search is legal: the rule that stands in the way of the layout that breaks fewest, or a host."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shardmath.account.host import full_host
from shardmath.compiler.columns import rules_met
from shardmath.configuration.nearest import as_it_was_asked
from shardmath.configuration.settings import OFFLOADED
from shardmath.errors import InputError
from shardmath.generated.definitions import PARAMETERS
from shardmath.input.parameters import limits, with_numbers
from shardmath.search.answered import Answered, asked_again
from shardmath.search.nests.configurations import Configuration
from shardmath.search.spaces import Best, Part
from shardmath.search.spaces.conditions import HOST
from shardmath.search.spaces.rows import constrained, legal_rows

#: Configurations of a part, and values beside one's own, that are looked at: of one layout, and of an axis in many.
_SOME, _NEAR = 1 << 18, 1 << 9
_FEW, _NEXT = 1 << 12, 8


def refusal(answers: Answered) -> InputError | None:
    """Return why no layout is legal, with the nearest legal value of what is to blame.

    None where a layout is legal or the search was stopped, and where no layout is left to be judged by the rules.
    """
    if answers.any_legal or not answers.complete:
        return None
    return _of_hosts(answers) or refusal_of(answers.parts, answers.asked)


def refusal_of(parts: Sequence[Part], asked: Mapping[str, Any]) -> InputError | None:
    """Return why no configuration of some parts is legal, with the nearest legal value; None where no rule says it.

    Of what was ``asked``, by name, that is blamed which stands for a switch.
    """
    error = _of_rules(parts) or _of_axes(parts)
    return None if error is None else as_it_was_asked(error, asked)


def _of_hosts(answers: Answered) -> InputError | None:
    """Return the refusal of the layout that offloads least of those that hosts alone refuse."""
    refused = [nest.part for nest, answer in answers.looped
               if HOST in nest.conditions and answer.broken[nest.conditions.index(HOST)]]
    if not refused:
        return None
    parts = [replace(part, constraints=tuple(item for item in part.constraints if item.name != HOST))
             for part in refused]
    least = asked_again(parts, (Best("least", (OFFLOADED,), 1, among="legal"),), {}).first("least")
    assert least is not None
    choices, values = least.part.evaluator.choices, least.values
    return full_host(choices, values, least.terms, least.keys[OFFLOADED], values[HOST])


def _of_rules(parts: Sequence[Part]) -> InputError | None:
    """Return the refusal of the layout that breaks fewest rules, by one about a value that the search does not vary."""
    best: tuple[int, Part, int, str, str] | None = None
    for part in parts:
        rows = constrained(part, np.arange(min(part.size, _SOME)))
        if not len(rows):
            continue
        terms = part.evaluator.terms
        broken = ~np.array([np.broadcast_to(met, len(rows)) for met in rules_met(terms, rows.symbols)])
        varied = {symbol for axis in part.axes if axis.size > 1 for symbol in axis.values} | part.derived.keys()
        is_asked = np.array([field not in varied for _, field, _ in terms.RULES])
        asked = broken & is_asked[:, None]
        orders = 2 * broken.sum(axis=0) + ~asked.any(axis=0)
        place = int(orders.argmin())
        if best is None or orders[place] < best[0]:
            rules = asked[:, place] if asked[:, place].any() else broken[:, place]
            _, field, text = terms.RULES[int(rules.argmax())]
            best = int(orders[place]), part, int(rows.numbers[place]), field, text
    if best is None:
        return None
    _, part, number, field, text = best
    values = Configuration(part, number, {}).values
    near = next(filter(None, _legal_values(part, number, field, text, values)), None)
    return InputError(field, values[field], with_numbers(text, values), near)


def _legal_values(part: Part, number: int, field: str, rule: str, values: Mapping[str, int]) -> Iterator[str]:
    """Yield the legal values of the blamed ``field``, then of others that the ``rule`` names and nothing varies."""
    fixed = {name for axis in part.axes if axis.size == 1 for name in axis.values} | part.fixed.keys()
    others = [name for name in PARAMETERS if name in rule and name in fixed and name != field]
    for name in (field, *others):
        if name not in part.derived:
            near = " or ".join(map(str, _nearest(part, number, name, values[name])))
            yield f"{name} {near}" if near and name != field else near


def _of_axes(parts: Sequence[Part]) -> InputError | None:
    """Return the refusal of the first axis to which a value beside its own gives a legal layout."""
    for part in parts:
        numbers = np.unique(np.linspace(0, part.size - 1, min(part.size, _FEW), dtype=np.int64))
        for axis in part.axes:
            (field, own), *more = axis.values.items()
            if more or field not in PARAMETERS or field in part.derived:
                continue
            near = [next((value for value in range(start, start + step * _NEXT, step)
                          if value not in own and _leaves(part, field, value, numbers)), None)
                    for start, step in ((min(own) - 1, -1), (min(own) + 1, 1))]
            legal = " or ".join(str(value) for value in near if value is not None)
            if legal:
                asked = own[0] if len(own) == 1 else sorted(own)
                return InputError(field, asked, "must leave a legal layout with the other values", legal)
    return None


def _leaves(part: Part, field: str, value: int, numbers: NDArray[np.int64]) -> bool:
    """Tell whether a layout is legal where a symbol has this value, among some configurations."""
    least, most = limits(field)
    return least <= value <= most and len(legal_rows(_with_value(part, field, value), numbers)) > 0


def _with_value(part: Part, field: str, value: int) -> Part:
    """Return a part in which a symbol has one value, also where it is an axis."""
    axes = tuple(replace(axis, values={**axis.values, field: (value,) * axis.size}) if field in axis.values else axis
                 for axis in part.axes)
    return replace(part, axes=axes, fixed={**part.fixed, field: value})


def _nearest(part: Part, number: int, field: str, own: int) -> Iterator[int]:
    """Yield the next smaller and larger value of a symbol with which a layout keeps every rule."""
    for step in (-1, 1):
        for value in range(own + step, own + step * _NEAR, step):
            if _leaves(part, field, value, np.array([number])):
                yield value
                break
