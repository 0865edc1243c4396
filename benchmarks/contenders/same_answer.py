"""All that the compiled evaluator writes, rules and verdict too, through ``lambdify`` to NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sympy import Basic, Eq, Expr, Mod

from benchmarks.contenders import WHOLE, Contender
from benchmarks.contenders.lambdified import BLOCK, expanded, inputs, over_columns, to_numpy
from benchmarks.data import IMPLEMENTATION, Job, Outputs
from shardmath.symbolic.accounts import build
from shardmath.symbolic.functions import Divides
from shardmath.symbolic.parallel.legality import rules_for
from shardmath.symbolic.verdict import ESTIMATE, LIMITS, VERDICTS

#: Outputs of the compiled evaluator, with their terms.
SIZES = {"first": "first.total", "last": "last.total", "peak": "peak"}


def contenders(job: Job) -> list[Contender]:
    """Columns and blocks of them; threads do not help NumPy on blocks of this size."""
    sizes = expanded(*SIZES.values())
    rules, verdicts = conditions(sizes["peak"])
    compute = to_numpy(inputs(job), [*sizes.values(), *verdicts, *rules], cse=True)

    def answer(*values: Any) -> Outputs:
        computed = compute(*values)
        outputs = dict(zip(SIZES, computed, strict=False))
        count = len(outputs["peak"])
        holds = [np.broadcast_to(np.asarray(condition, bool), count) for condition in computed[len(SIZES):]]
        broken = _first([~kept for kept in holds[len(verdicts):]]) + 1
        rule = np.where(broken > len(rules), 0, broken)
        return {**outputs, "rule": rule, "verdict": np.where(rule == 0, _first(holds[: len(verdicts)]), -1)}

    return [
        Contender(f"SymPy lambdify, cse=True, {name}", WHOLE, 1, over_columns(job, answer, block, 1))
        for name, block in (("columns", None), ("blocks", BLOCK))
    ]


def conditions(peak: Expr) -> tuple[list[Basic], list[Basic]]:
    """Return the conditions of rules and of verdicts over inputs alone, with remainders in place of ``Divides``."""
    terms = build(IMPLEMENTATION)
    written = [rule.condition for rule in rules_for(IMPLEMENTATION)]
    by_symbol = terms.by_symbol
    used = {symbol for condition in written for symbol in condition.free_symbols if symbol in by_symbol}
    derived = {by_symbol[symbol].symbol: value for symbol in used
               for value in expanded(by_symbol[symbol].name).values()}
    rules = [
        condition.xreplace(derived).replace(
            Divides, lambda divisor, dividend: Eq(Mod(dividend, divisor, evaluate=False), 0))
        for condition in written
    ]
    limits = {terms[name].symbol: limit for name, limit in expanded(*LIMITS).items()}
    return rules, [item.condition.xreplace({ESTIMATE: peak, **limits}) for item in VERDICTS]


def _first(conditions: list[NDArray[np.bool_]]) -> NDArray[np.int64]:
    """Return the number of the first condition that holds, for every row; their count where none does."""
    broken = np.full(len(conditions[0]), len(conditions))
    for number, condition in reversed(list(enumerate(conditions))):
        broken[condition] = number
    return broken
