"""All that the compiled evaluator writes, rules and verdict too, through ``lambdify`` to NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sympy import Basic, Eq, Mod

from benchmarks.contenders import WHOLE, Contender
from benchmarks.contenders.lambdified import BLOCK, expanded, inputs, over_columns, to_numpy
from benchmarks.data import IMPLEMENTATION, Job, Outputs
from shardmath.symbolic.accounts import build
from shardmath.symbolic.functions import Divides
from shardmath.symbolic.parallel.legality import rules_for
from shardmath.symbolic.verdict import ESTIMATE, VERDICTS

_SIZES = {"first": "first.total", "last": "last.total", "peak": "peak"}


def contenders(job: Job) -> list[Contender]:
    """One contender, in blocks: threads do not help NumPy on blocks of this size."""
    sizes = expanded(*_SIZES.values())
    verdicts = [item.condition.xreplace({ESTIMATE: sizes["peak"]}) for item in VERDICTS]
    rules = _rules()
    compute = to_numpy(inputs(job), [*sizes.values(), *verdicts, *rules], cse=True)

    def answer(*values: Any) -> Outputs:
        found = compute(*values)
        outputs = dict(zip(_SIZES, found, strict=False))
        count = len(outputs["peak"])
        holds = [np.broadcast_to(np.asarray(condition, bool), count) for condition in found[len(_SIZES):]]
        broken = _first([~kept for kept in holds[len(verdicts):]]) + 1
        rule = np.where(broken > len(rules), 0, broken)
        return {**outputs, "rule": rule, "verdict": np.where(rule == 0, _first(holds[: len(verdicts)]), -1)}

    return [Contender("SymPy lambdify, cse=True, blocks", WHOLE, 1, over_columns(job, answer, BLOCK, 1))]


def _rules() -> list[Basic]:
    """The conditions of the rules over inputs alone, with remainders in place of ``Divides``."""
    terms = build(IMPLEMENTATION)
    conditions = [rule.condition for rule in rules_for(IMPLEMENTATION)]
    by_symbol = terms.by_symbol
    used = {symbol for condition in conditions for symbol in condition.free_symbols if symbol in by_symbol}
    derived = {by_symbol[symbol].symbol: value for symbol in used
               for value in expanded(by_symbol[symbol].name).values()}
    return [
        condition.xreplace(derived).replace(
            Divides, lambda divisor, dividend: Eq(Mod(dividend, divisor, evaluate=False), 0))
        for condition in conditions
    ]


def _first(conditions: list[NDArray[np.bool_]]) -> NDArray[np.int64]:
    """The number of the first condition that holds, for every row; their count where none does."""
    found = np.full(len(conditions[0]), len(conditions))
    for number, condition in reversed(list(enumerate(conditions))):
        found[condition] = number
    return found
