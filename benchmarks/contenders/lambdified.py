"""SymPy's own way to numbers: the term ``peak`` through ``lambdify`` to NumPy, whole or in blocks."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib.metadata import version
from typing import Any

import numpy as np
from sympy import Expr, Symbol, lambdify

from benchmarks.contenders import CORES, PEAK, Contender, in_blocks
from benchmarks.data import IMPLEMENTATION, Columns, Job, Outputs
from shardmath.symbolic.accounts import build
from shardmath.symbolic.parameters import BY_NAME
from shardmath.symbolic.printers.python import identifier
from shardmath.symbolic.simplify import computed

#: Rows of a block: few enough for the intermediate columns to stay in the cache.
BLOCK = 1 << 14
Compute = Callable[..., Outputs]


#: Before, ``lambdify`` puts the arguments of a maximum into one array, be they numbers or columns.
TAKES_COLUMNS = tuple(map(int, version("sympy").split(".")[:2])) >= (1, 14)


def contenders(job: Job) -> list[Contender]:
    """Common subexpressions found by SymPy, or a statement for every term as in the generated code.

    Raises RuntimeError with a SymPy that cannot.
    """
    if not TAKES_COLUMNS:
        raise RuntimeError("the benchmarks need SymPy 1.14, whose lambdify takes numbers and columns together")
    symbols = inputs(job)
    by_cse = _peak_only(to_numpy(symbols, expanded("peak")["peak"], cse=True))
    by_term = _peak_only(_statements(symbols))
    flat = [
        ("cse=True, columns", by_cse, None, 1),
        *(("cse=True, blocks", by_cse, BLOCK, threads) for threads in sorted({1, CORES})),
        ("statement per term, columns", by_term, None, 1),
    ]
    return [
        Contender(f"SymPy lambdify, {name}", PEAK, threads, over_columns(job, compute, block, threads))
        for name, compute, block, threads in flat
    ]


def inputs(job: Job) -> list[Symbol]:
    """Return the symbols of the compiled evaluator's inputs, in its order."""
    kernel = job.evaluator.kernel
    return [BY_NAME[name].symbol for name in (*kernel.SCALARS, *kernel.COLUMNS)]


@cache
def expanded(*names: str) -> dict[str, Expr]:
    """Terms as one expression over the inputs each, put together from the forms that are compiled too."""
    terms = build(IMPLEMENTATION)
    values: dict[Symbol, Expr] = {}
    for term in terms.closure(names):
        values[term.symbol] = computed(terms, term.name).xreplace(values)
    return {name: values[terms[name].symbol] for name in names}


def to_numpy(symbols: list[Symbol], wanted: Any, cse: Any) -> Callable[..., Any]:
    """``lambdify`` with the functions of the ledger that NumPy does not know under their names."""
    functions = {
        "CeilDiv": lambda numerator, denominator: np.ceil(numerator / denominator),
        "FloorDiv": lambda numerator, denominator: np.floor(numerator / denominator),
        "LeastCommonMultiple": lambda left, right: np.lcm(np.asarray(left, np.int64), int(right)),
        "Iverson": lambda condition: np.asarray(condition, np.float64),
    }
    function: Callable[..., Any] = lambdify(symbols, wanted, [functions, "numpy"], cse=cse)
    return function


def over_columns(job: Job, compute: Compute, block: int | None, threads: int) -> Callable[[Columns], Outputs]:
    """``compute`` on whole columns, or on blocks of them that are put together again."""
    scalars, names = job.scalars, job.evaluator.kernel.COLUMNS

    def run(columns: Columns) -> Outputs:
        if block is None:
            return compute(*scalars, *(columns[name] for name in names))
        parts: dict[int, Outputs] = {}

        def part(start: int, stop: int) -> None:
            parts[start] = compute(*scalars, *(columns[name][start:stop] for name in names))

        in_blocks(part, len(columns["data_parallel"]), block, threads)
        ordered = [parts[start] for start in sorted(parts)]
        return {name: np.concatenate([outputs[name] for outputs in ordered]) for name in ordered[0]}

    return run


def _peak_only(compute: Callable[..., Any]) -> Compute:
    def peak(*values: Any) -> Outputs:
        return {"peak": np.asarray(compute(*values)).reshape(-1)}

    return peak


def _statements(symbols: list[Symbol]) -> Callable[..., Any]:
    terms = build(IMPLEMENTATION)
    closure = terms.closure(["peak"])
    plain = {term.symbol: Symbol(identifier(term.symbol)) for term in closure}
    steps = [(plain[term.symbol], computed(terms, term.name).xreplace(plain)) for term in closure]

    def by_term(wanted: Any) -> tuple[list[tuple[Symbol, Expr]], list[Expr]]:
        return steps, wanted if isinstance(wanted, list) else [wanted]

    return to_numpy(symbols, plain[terms["peak"].symbol], cse=by_term)
