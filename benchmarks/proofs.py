"""Proofs about an estimate and passing over tables: seconds to derive, compile and run a nest with and without each."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from time import thread_time
from types import ModuleType
from typing import Any

from benchmarks.nests import COMPUTED, LARGE, TIMED, part_of, question
from shardmath.compiler.native.code import compiled, flat, kind_of, loaded
from shardmath.compiler.native.measured import quickest_here
from shardmath.compiler.nesting import nest_of
from shardmath.files.cached import module_of, source_of
from shardmath.search.nests.compiled import CompiledNest
from shardmath.search.nests.posing import evaluator_source, posing_of, verdict_source
from shardmath.search.spaces import Part, Question

DENSE, EXPERTS = "llama-3.1-70b", "mixtral-8x7b"
#: How many candidates of each axis of the large space are left, to have about so many configurations.
SIZES: dict[int, Mapping[str, int]] = {
    10**5: {"vocab_size": 1, "ffn_hidden_size": 1, "num_layers": 1, "num_gpus": 2, "seq_length": 2},
    10**6: {"vocab_size": 1, "ffn_hidden_size": 1, "seq_length": 2},
    10**7: {"vocab_size": 1, "ffn_hidden_size": 4, "seq_length": 4},
    10**8: {"vocab_size": 2},
    10**9: {},
}
#: The formulas of a model that are measured, and the sizes of its spaces.
MEASURED: Sequence[tuple[str, str, Sequence[int]]] = (
    (DENSE, "saved tensors", tuple(SIZES)), (DENSE, "every moment", tuple(SIZES)), (DENSE, TIMED, tuple(SIZES)),
    (EXPERTS, "every moment", (10**8, 10**9)),
)


@dataclass(frozen=True)
class ProofCost:
    """Seconds of one thread for a nest with proofs, with tables passed over, with both or neither.

    ``usual`` is the one that the thresholds choose.
    """

    model: str
    formulas: str
    size: int
    proving: bool
    skipping: bool
    derived: float
    compiled: float
    run: float
    usual: bool

    @property
    def seconds(self) -> float:
        """The first use."""
        return self.derived + self.compiled + self.run


def proof_costs(repeats: int) -> list[ProofCost]:
    """Return all measurements, each the least of some."""
    return [
        cost for model, formulas, sizes in MEASURED for size in sizes
        for cost in _costs(model, formulas, size, repeats)
    ]


def cut(model: str, formulas: str, size: int) -> tuple[Part, tuple[Question, ...]]:
    """Return a part of the large space with about so many configurations, and what is asked of it."""
    kernels, ranking = COMPUTED[formulas]
    axes = {name: values[: SIZES[size].get(name, len(values))] for name, values in LARGE.items()}
    asked = question(ranking)
    return part_of(axes, kernels, asked, model=model), asked


def _costs(model: str, formulas: str, size: int, repeats: int) -> Iterator[ProofCost]:
    part, asked = cut(model, formulas, size)
    usual = nest_of("benchmark", posing_of(part, asked, literal=True), evaluator_source(part), verdict_source())
    with tempfile.TemporaryDirectory() as folder:
        nests = [
            _Measured(part, asked, proving, skipping, Path(folder))
            for proving, skipping in product((False, True), repeat=2)
        ]
        for _ in range(repeats):
            for nest in nests:
                nest.run()
        for nest in nests:
            seconds = nest.derived, nest.function.seconds, min(nest.runs)
            yield ProofCost(model, formulas, part.size, nest.proving, nest.skipping, *seconds, nest.source == usual)


class _Measured:
    """A nest that is derived twice, compiled once and then run."""

    def __init__(self, part: Part, asked: tuple[Question, ...], proving: bool, skipping: bool, folder: Path) -> None:
        self.proving, self.skipping = proving, skipping
        self.runs: list[float] = []
        posing = replace(posing_of(part, asked, literal=True), skipping=skipping)
        taken = []
        for _ in range(2):
            start = thread_time()
            self.source = nest_of("benchmark", posing, evaluator_source(part), verdict_source(), proving=proving)
            taken.append(thread_time() - start)
        self.derived = min(taken)
        path = folder / f"nest_{proving:d}{skipping:d}.py"
        path.write_text(self.source, encoding="utf-8")
        module = module_of(f"benchmark_{folder.name}_{path.stem}", path)
        self.function = Clocked(module)
        self._nest = CompiledNest(part, asked, module, lambda *_: self.function)
        self._nest.swept(0, 0, self._nest.empty())

    def run(self) -> None:
        """Sweep the whole space on this thread."""
        start = thread_time()
        self._nest.swept(0, self._nest.shards, self._nest.empty())
        self.runs.append(thread_time() - start)


class Clocked:
    """The compiled sweep of a module, and the seconds that compiling it took."""

    def __init__(self, module: ModuleType) -> None:
        self._module, self.seconds = module, 0.0
        self._known: list[tuple[Callable[..., int | None], Any]] = []

    def __call__(self, *arguments: Any) -> int | None:
        if not self._known:
            kinds, options = tuple(map(kind_of, arguments)), quickest_here()
            start = thread_time()
            code = compiled(self._module, source_of(self._module), "sweep", kinds, options)
            self.seconds = thread_time() - start
            self._known.append(loaded(code, self._module, "sweep", kinds))
        return self._known[0][0](*(part for item in arguments for part in flat(item)))
