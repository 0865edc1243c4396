"""The same evaluator in C: printed from the same terms, compiled by gcc, on threads of OpenMP."""

from __future__ import annotations

import ctypes
from functools import partial
from typing import Any

import numpy as np

from benchmarks.contenders import CORES, Contender, filling
from benchmarks.data import IMPLEMENTATION, Columns, Job, Outputs
from benchmarks.native import DIVISIONS_KEPT, FAST, IEEE, build, render
from benchmarks.native.printer import CPrinter
from shardmath.symbolic.accounts import build as terms_of
from shardmath.symbolic.documents.evaluator import ESTIMATE, SWEEP_OUTPUTS
from shardmath.symbolic.parallel.legality import rules_for
from shardmath.symbolic.printers.python import identifier
from shardmath.symbolic.simplify import computed
from shardmath.symbolic.verdict import ESTIMATE as ESTIMATE_SYMBOL
from shardmath.symbolic.verdict import VERDICTS

#: The builds that are timed; the first two are exact for every job, the last one where divisors are powers of two.
BUILDS = {
    "C, gcc -O3": IEEE,
    "C, gcc -O3 -ffast-math, divisions kept": DIVISIONS_KEPT,
    "C, gcc -O3 -ffast-math": FAST,
}


def contenders(job: Job) -> list[Contender]:
    """Every way to compile it, on one thread and on all cores. Raises LeftOutError without gcc."""
    text = source(job)
    libraries = {name: build(text, flags) for name, flags in BUILDS.items()}
    return [
        filling(name, threads, partial(_fill, library, job, threads))
        for name, library in libraries.items() for threads in sorted({1, CORES})
    ]


def source(job: Job) -> str:
    """The evaluator in C: its arguments are those of the compiled one, in the same order."""
    kernel, terms, printer = job.evaluator.kernel, terms_of(IMPLEMENTATION), CPrinter()
    rules = [rule.condition for rule in rules_for(IMPLEMENTATION)]
    used = {symbol for condition in rules for symbol in condition.free_symbols}
    wanted = [*SWEEP_OUTPUTS, *(term.name for symbol, term in terms.by_symbol.items() if symbol in used)]
    verdicts = [item.condition.xreplace({ESTIMATE_SYMBOL: terms[ESTIMATE].symbol}) for item in VERDICTS]
    return render(
        "flat.c",
        title=IMPLEMENTATION.title,
        scalars=kernel.SCALARS,
        columns=kernel.COLUMNS,
        terms=[(identifier(term.symbol), printer.doprint(computed(terms, term.name)))
               for term in terms.closure(wanted)],
        rules=[printer.doprint(condition) for condition in rules],
        verdicts=[printer.doprint(condition) for condition in verdicts[:-1]],
        outputs=[identifier(terms[name].symbol) for name in SWEEP_OUTPUTS],
    )


def _fill(library: ctypes.CDLL, job: Job, threads: int, columns: Columns, outputs: Outputs) -> None:
    arrays: list[Any] = [*(columns[name] for name in job.evaluator.kernel.COLUMNS), *outputs.values()]
    library.evaluate(
        ctypes.c_int64(len(arrays[0])), ctypes.c_int(threads), *map(ctypes.c_double, job.scalars),
        *map(np.ctypeslib.as_ctypes, arrays),  # refuses what is not one row after the other
    )
