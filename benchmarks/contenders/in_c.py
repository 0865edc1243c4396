"""The same evaluator in C: printed from the same plan, compiled by gcc, on threads of OpenMP."""

from __future__ import annotations

import ctypes
from functools import partial
from typing import Any

import numpy as np

from benchmarks.contenders import CORES, Contender, filling
from benchmarks.data import IMPLEMENTATION, Columns, Job, Outputs
from benchmarks.native import FAST, IEEE, build, render
from shardmath.compiler.printers.nodes import C
from shardmath.files.rendering import rendered
from shardmath.symbolic.accounts import build as terms_of
from shardmath.symbolic.documents.evaluator import evaluator
from shardmath.symbolic.documents.kernel import kernel
from shardmath.symbolic.parallel.legality import rules_for

#: The builds that are timed; the first one is exact for every job, the second one where reciprocals are.
BUILDS = {"C, gcc -O3": IEEE, "C, gcc -O3 -ffast-math": FAST}


def contenders(job: Job) -> list[Contender]:
    """Return every way to compile it, on one thread and on all cores. Raises LeftOutError without gcc."""
    text = source(job)
    libraries = {name: build(text, flags) for name, flags in BUILDS.items()}
    return [
        filling(name, threads, partial(_fill, library, job, threads))
        for name, library in libraries.items() for threads in sorted({1, CORES})
    ]


def source(job: Job) -> str:
    """Return the evaluator in C, from the same plan: its arguments are those of the compiled one, in the same order."""
    title, terms, rules = IMPLEMENTATION.title, terms_of(IMPLEMENTATION), rules_for(IMPLEMENTATION)
    data = kernel(title, rendered("evaluator.py", evaluator(title, terms, rules)), dialect=C, simplified=True)
    return render("flat.c", **data, identifiers=[name.replace(".", "_") for name in data["outputs"]])


def _fill(library: ctypes.CDLL, job: Job, threads: int, columns: Columns, outputs: Outputs) -> None:
    arrays: list[Any] = [*(columns[name] for name in job.evaluator.kernel.COLUMNS), *outputs.values()]
    library.evaluate(
        ctypes.c_int64(len(arrays[0])), ctypes.c_int(threads), *map(ctypes.c_double, job.scalars),
        *map(np.ctypeslib.as_ctypes, arrays),  # refuses what is not one row after the other
    )
