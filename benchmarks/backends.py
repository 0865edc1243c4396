"""The backends of loops: seconds to make a nest and to run it, by LLVM, by Numba and on columns of NumPy."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import thread_time
from typing import TypeVar

from benchmarks.nests import TIMED
from benchmarks.proofs import DENSE, Clocked, cut
from shardmath.compiler.nesting import nest_of
from shardmath.compiler.nests.posing import posed
from shardmath.files.cached import module_of
from shardmath.search.nests.answers import Answer
from shardmath.search.nests.columns import ColumnNest
from shardmath.search.nests.compiled import CompiledNest, NumbaNest
from shardmath.search.nests.nest import Nest
from shardmath.search.nests.posing import evaluator_source, posing_of, verdict_source
from shardmath.search.spaces import Part, Question

#: Formulas and the sizes of their spaces; columns take minutes for a billion configurations.
MEASURED: Sequence[tuple[str, int]] = (("saved tensors", 10**5), (TIMED, 10**5), ("saved tensors", 10**9),
                                       (TIMED, 10**9))
COLUMNS_UP_TO = 10**6
Result = TypeVar("Result")


@dataclass(frozen=True)
class BackendCost:
    """Seconds of one thread to plan and print a nest (or to pose it, for columns), to compile it, and to run it."""

    formulas: str
    size: int
    backend: str
    derived: float
    compiled: float
    run: float

    @property
    def seconds(self) -> float:
        """The first use."""
        return self.derived + self.compiled + self.run


def backend_costs(repeats: int) -> list[BackendCost]:
    """Return all measurements; runs are the least of some. Raises AssertionError unless all answers are equal."""
    return [cost for formulas, size in MEASURED for cost in _costs(formulas, size, repeats)]


def _costs(formulas: str, size: int, repeats: int) -> Iterator[BackendCost]:
    part, asked = cut(DENSE, formulas, size)
    evaluator, verdicts = evaluator_source(part), verdict_source()
    posing = posing_of(part, asked, literal=True)
    with tempfile.TemporaryDirectory() as folder:
        source, derived = _clocked(lambda: nest_of("benchmark", posing, evaluator, verdicts))
        path = Path(folder) / "nest.py"
        path.write_text(source, encoding="utf-8")
        module = module_of(f"benchmark_{path.parent.name}", path)
        function = Clocked(module)  # without the cache, which may have it
        nests = {
            "llvm": CompiledNest(part, asked, module, lambda *_: function), "numba": NumbaNest(part, asked, module),
        }
        for name, nest in nests.items():
            _, compiled = _clocked(partial(nest.swept, 0, 0, nest.empty()))
            yield BackendCost(formulas, part.size, name, derived, compiled, _run(nest, repeats))
        first, other = (_numbers(nest.swept(0, nest.shards, nest.empty())) for nest in nests.values())
        assert first == other
        if size <= COLUMNS_UP_TO:
            yield _on_columns(part, asked, formulas, repeats)


def _on_columns(part: Part, asked: tuple[Question, ...], formulas: str, repeats: int) -> BackendCost:
    evaluator, posing = evaluator_source(part), posing_of(part, asked, literal=False)
    problem, derived = _clocked(lambda: posed(posing, evaluator, verdict_source())[0])
    nest, made = _clocked(lambda: ColumnNest.of_problem(part, asked, problem))
    return BackendCost(formulas, part.size, "numpy", derived, made, _run(nest, repeats))


def _run(nest: Nest, repeats: int) -> float:
    return min(_clocked(lambda: nest.swept(0, nest.shards, nest.empty()))[1] for _ in range(repeats))


def _numbers(answer: Answer) -> list[object]:
    return [array.tolist() for question in answer.questions for array in question.arrays]


def _clocked(work: Callable[[], Result]) -> tuple[Result, float]:
    start = thread_time()
    result = work()
    return result, thread_time() - start
