"""Layouts that are the same: what differs between them changes no term of memory or time."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from fractions import Fraction
from math import prod

from shardmath.generated.definitions import ABSENT_DEGREES, PARAMETERS
from shardmath.search.nests.configurations import Configuration
from shardmath.search.spaces import Best, Part, Question
from shardmath.search.spaces.questions import MOST

#: Sizes that always tell layouts apart: each changes what some rank does.
_MESH = ("tensor_parallel", *ABSENT_DEGREES, "context_parallel", "pipeline_parallel", "data_parallel",
         "expert_parallel", "micro_batch_size")
#: Symbols of a layout that may change nothing beside others, as the first stage's layers where all stages are even.
MAY_BE_IDLE = frozenset(name for name, row in PARAMETERS.items() if row[4] == "layout") - {*_MESH}


def distinct(configurations: Iterable[Configuration]) -> list[Configuration]:
    """Drop each configuration whose terms are those of one before it, with the same sizes that are never idle."""
    first: dict[object, Configuration] = {}
    listed = list(configurations)
    if len(listed) < 2:  # spare the terms
        return listed
    for item in listed:
        own = tuple(value for name, value in item.values.items() if name not in MAY_BE_IDLE)
        first.setdefault((own, tuple(item.keys.values()), _measured(item)), item)
    return list(first.values())


def _measured(configuration: Configuration) -> tuple[int | float | Fraction, ...]:
    """Get the terms but those that count layers: how layers are shared out shows in bytes and seconds, if anywhere."""
    modules, terms = configuration.part.modules, configuration.terms
    return tuple(terms[name] for module in modules for name, (unit, _) in module.TERMS.items() if unit != "layers")


def with_room(part: Part, question: Question) -> Question:
    """Get the question with room for all copies of every layout that is asked for, as far as a question may have it."""
    if not isinstance(question, Best):
        return question
    copies = prod(axis.size for axis in part.axes
                  if axis.name not in question.per and MAY_BE_IDLE.issuperset(axis.values))
    return replace(question, count=min(MOST, question.count * copies))
