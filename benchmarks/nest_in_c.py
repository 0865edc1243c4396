"""The loop nest of a space in C, from the same plan: what the compiled nest is measured by, and compared with."""

from __future__ import annotations

import ctypes
import subprocess
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

from numpy.typing import NDArray

from shardmath.compiler.nesting import plan_of
from shardmath.compiler.printers.nest import nest as document
from shardmath.compiler.printers.nodes import C
from shardmath.files.rendering import rendered
from shardmath.search.nests.compiled import CompiledNest
from shardmath.search.nests.posing import evaluator_source, posing_of, verdict_source
from shardmath.search.spaces import Best

#: Reciprocals are left out of fast-math: a quotient below a ceiling must not be rounded twice.
FLAGS = ("-O3", "-march=native", "-ffast-math", "-fno-reciprocal-math", "-fPIC")
Array = NDArray[Any]
_HEADER = "Made for one space of configurations; do not edit."


def source(nest: CompiledNest) -> str:
    """Return the C source; only questions for the best are written. Raises ValueError for others."""
    if not all(isinstance(question, Best) for question in nest.asked):
        raise ValueError("the nest in C answers questions for the best only")
    part, literal = nest.part, nest.module.ENTRIES is not None
    posing = replace(posing_of(part, nest.asked, literal=literal), skipping=False)
    evaluator = evaluator_source(part)
    plan = plan_of(posing, evaluator, verdict_source(), blocks=literal)
    data = document(part.evaluator.name, posing.key(evaluator), plan, dialect=C, literal=literal)
    return rendered("nest.c", data, _HEADER)


def in_c(nest: CompiledNest, bits: int, folder: Path) -> CompiledNest:
    """Return the nest of the same part and questions, compiled by gcc for vectors of so many bits."""
    text, compiled_text, library = folder / "nest.c", folder / f"nest{bits}.o", folder / f"nest{bits}.so"
    text.write_text(source(nest), encoding="utf-8")
    command = ("gcc", *FLAGS, f"-mprefer-vector-width={bits}", "-c", str(text), "-o", str(compiled_text))
    subprocess.run(command, check=True)
    # Linked without -ffast-math: gcc would have the whole process flush small numbers to zero.
    subprocess.run(("gcc", "-shared", str(compiled_text), "-o", str(library), "-lm"), check=True)
    compiled = ctypes.CDLL(str(library)).sweep
    compiled.restype = ctypes.c_int64

    def sweep(start: int, stop: int, entries: int, alive: int, sizes: Array, values: Array, *arrays: Array) -> int:
        places = [array.shape[1] for array in arrays if array.ndim > 2]
        numbers = (ctypes.c_int64(number) for number in (start, stop, entries, alive, values.shape[1], *places))
        return int(compiled(*numbers, *(ctypes.c_void_p(array.ctypes.data) for array in (sizes, values, *arrays))))

    module = ModuleType("nest_in_c")
    vars(module).update(vars(nest.module) | {"sweep": sweep})
    return CompiledNest(nest.part, nest.asked, module, getattr)
