"""Why no layout of a search is legal: the rule that stands in the way of the layout that breaks fewest, or a host."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from shardmath.account.host import full_host
from shardmath.compiler.columns import rules_met
from shardmath.configuration.settings import OFFLOADED
from shardmath.errors import InputError
from shardmath.input.parameters import limits
from shardmath.search.answered import Answered, asked_again
from shardmath.search.nests.configurations import Configuration
from shardmath.search.spaces import Best, Part
from shardmath.search.spaces.conditions import HOST
from shardmath.search.spaces.rows import constrained, legal_rows

#: Configurations of a part, and values beside one's own, that are looked at.
_SOME, _NEAR = 1 << 18, 1 << 9


def refusal(answers: Answered) -> InputError | None:
    """Return why no layout is legal, with the nearest legal value of what is to blame.

    None where a layout is legal, and where no layout is left to be judged by the rules.
    """
    if answers.legal:
        return None
    return _of_hosts(answers) or _of_rules(answers)


def _of_hosts(answers: Answered) -> InputError | None:
    """Return the refusal of the layout that offloads least of those that hosts alone refuse."""
    refused = [nest.part for nest, answer in zip(answers.nests, answers.answers, strict=True)
               if HOST in nest.conditions and answer.broken[nest.conditions.index(HOST)]]
    if not refused:
        return None
    parts = [replace(part, constraints=tuple(item for item in part.constraints if item.name != HOST))
             for part in refused]
    least = asked_again(parts, (Best("least", (OFFLOADED,), 1, among="legal"),), {}).first("least")
    assert least is not None
    choices, values = least.part.evaluator.choices, least.values
    return full_host(choices, values, least.terms, least.keys[OFFLOADED], values[HOST])


def _of_rules(answers: Answered) -> InputError | None:
    """Return the refusal of the layout that breaks fewest rules, by one about a value that the search does not vary."""
    best: tuple[tuple[int, bool], Part, int, str, str] | None = None
    for part in answers.parts:
        rows = constrained(part, np.arange(min(part.size, _SOME)))
        if not len(rows):
            continue
        kept = np.array([np.broadcast_to(met, len(rows)) for met in rules_met(part.evaluator.terms, rows.symbols)])
        varied = {symbol for axis in part.axes if axis.size > 1 for symbol in axis.values} | part.derived.keys()
        for place in range(len(rows)):
            broken = np.flatnonzero(~kept[:, place])
            rules = [part.evaluator.terms.RULES[number] for number in broken]
            (_, field, text), = sorted(rules, key=lambda rule: rule[1] in varied)[:1]
            order = len(rules), field in varied
            if best is None or order < best[0]:
                best = order, part, int(rows.numbers[place]), field, text
    if best is None:
        return None
    _, part, number, field, text = best
    values = Configuration(part, number, {}).values
    near = () if any(field in axis.values for axis in part.axes if axis.size > 1) else (
        _nearest(part, number, field, values[field]))
    return InputError(field, values[field], text, " or ".join(map(str, near)) or None)


def _nearest(part: Part, number: int, field: str, own: int) -> Iterator[int]:
    """Yield the next smaller and larger value of a symbol that is no axis, with which a layout keeps every rule."""
    least, most = limits(field)
    for step in (-1, 1):
        for value in range(own + step, own + step * _NEAR, step):
            axes = tuple(replace(axis, values={**axis.values, field: (value,)}) if field in axis.values else axis
                         for axis in part.axes)
            changed = replace(part, axes=axes, fixed={**part.fixed, field: value})
            if least <= value <= most and len(legal_rows(changed, np.array([number]))):
                yield value
                break
