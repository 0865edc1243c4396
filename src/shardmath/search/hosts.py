"""Why no layout of a search is legal, where the hosts of its servers are too small for what is offloaded."""

from __future__ import annotations

from dataclasses import replace

from shardmath.account.host import full_host
from shardmath.configuration.settings import OFFLOADED
from shardmath.errors import InputError
from shardmath.search.answered import Answered, asked_again
from shardmath.search.spaces import Best
from shardmath.search.spaces.conditions import HOST


def full_hosts(answers: Answered) -> InputError | None:
    """Return the refusal of the layout that offloads least of those that hosts alone refuse.

    None where a layout is legal, and where hosts refuse none.
    """
    refused = [nest.part for nest, answer in zip(answers.nests, answers.answers, strict=True)
               if HOST in nest.conditions and answer.broken[nest.conditions.index(HOST)]]
    if answers.legal or not refused:
        return None
    parts = [replace(part, constraints=tuple(item for item in part.constraints if item.name != HOST))
             for part in refused]
    least = asked_again(parts, (Best("least", (OFFLOADED,), 1, among="legal"),), {}).first("least")
    assert least is not None
    choices, values = least.part.evaluator.choices, least.values
    return full_host(choices, values, least.terms, least.keys[OFFLOADED], values[HOST])
