"""Answers of the page and of the commands to one question: scripts that ask the page, and comparisons."""

from __future__ import annotations

import warnings
from typing import Any
from urllib.parse import urlencode

import pytest

import shardmath
from shardmath.errors import InputError, InputWarning

#: How the page refuses numbers that Python has exactly.
BEYOND = "is beyond 2^53, where doubles are not exact"
ACCOUNTS = """async (links) => {
  const told = [];
  for (const link of links) {
    if (fromLink(link).length) throw new Error(link);
    await ready();
    const { broken, accounts, time } = examined(state);
    const { ranks, ...step } = time ?? {};
    const outlook = broken ? null
      : chanceOf(shardmath[evaluatorName(state)], largest(accounts), valuesOf(state).gpu_memory);
    told.push([broken ?? null, accounts.map(({ numbers, ...account }) => account), step, outlook]);
  }
  return told;
}"""
#: One search after the other, without the worker; ``sooner`` are the answers of a search that passes over slow layouts.
SEARCH = """async (link) => {
  fromLink(link);
  const parts = partsOf(state);
  await Promise.all(parts.map((part) => load(part.evaluator)));
  await loadedFrom(nestsOf(plansOf(state)));
  const [answers, sooner] = [searched(state), searched(state, () => {}, 0)];
  const plain = ({ role, values, labels, part, seconds, peak }) =>
    ({ role, sizes: { ...values, ...labels }, schedule: part.schedule, seconds, peak });
  const [excluded, byRule] = [excludedBy(answers), byRule80(answers, state)];
  const shown = (found) => [choose(found).map(plain), distinct(found.best, FASTEST).map(plain),
    excludedBy(found)?.order, byRule80(found, state)?.order, distinct(found.best, FASTEST).map(({ order }) => order)];
  return {
    whole: shown(answers), sooner: shown(sooner), passed: sooner.slow, counted: sooner.legal + sooner.refused,
    legal: answers.legal, verdicts: answers.verdicts, refused: answers.refused, choices: choose(answers).map(plain),
    excluded: excluded && plain(excluded), by_rule_80: byRule ? plain(byRule) : null,
    front: answers.everything.entries.map(({ seconds, peak }) => [seconds, peak]),
  };
}"""


def explained(state: dict[str, Any]) -> Any:
    """What ``shardmath explain`` says; None if it refuses."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", InputWarning)  # the network asked for wins over the usual one
            return shardmath.explain(**state)
    except InputError:
        return None


def link_of(state: dict[str, Any]) -> str:
    return "#" + urlencode({name: int(value) if isinstance(value, bool) else value for name, value in state.items()})


def compare_times(time: dict[str, Any], expected: Any, state: dict[str, Any]) -> None:
    """The time of a step, its parts and rates; the sums of floats are in another order."""
    if expected.time is None:
        assert time["unknown"] == expected.time_unknown, state
        return
    step = expected.time
    for name, value in {
        "seconds": step.seconds, "tokens": step.tokens, "tokensPerSecond": step.tokens_per_second,
        "tokensPerSecondPerGpu": step.tokens_per_second_per_gpu, "mfu": step.mfu, "hfu": step.hfu,
        "joulesPerToken": step.joules_per_token, "costPerToken": step.cost_per_token,
    }.items():
        assert time[name] == pytest.approx(value, rel=1e-9), (name, state)
    assert (time["error"], time["rank"], [*time["spent"]]) == (step.error, step.rank, [*step.spent]), state
    assert list(time["spent"].values()) == pytest.approx(list(step.spent.values()), rel=1e-6, abs=1e-9 * step.seconds)


def beyond_doubles(refusal: str | None, expected: Any) -> bool:
    """Whether the page refuses a job for the size of its numbers, as it may from reserved memory of 9 TB on.

    Reserved memory is computed in thousandths of a byte, and doubles hold no more of them exactly.
    """
    if not (refusal or "").endswith(BEYOND):
        return False
    assert expected is not None, refusal
    assert 1000 * expected.process.reserved >= 2**53, refusal
    return True
