"""Loop nests over large spaces: configurations a second, beside the same nest in C, and what bounds save."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from shutil import which
from time import perf_counter
from typing import Any

import numpy as np

from benchmarks.contenders import CORES
from benchmarks.machine import widths
from benchmarks.nest_in_c import in_c
from benchmarks.startup import run_fresh
from shardmath.compiler.nesting import nest_of
from shardmath.compiler.nests import order
from shardmath.files.cached import module_of
from shardmath.search.nests.answers import Answer
from shardmath.search.nests.compiled import CompiledNest
from shardmath.search.nests.posing import evaluator_source, posing_of, verdict_source
from shardmath.search.nests.running import run
from shardmath.search.spaces import Best, Part, Space
from shardmath.search.spaces.usual import BY_MEMORY, BY_TIME

#: Every layout of many shapes of a 70B model: 1.7 billion configurations.
LARGE: dict[str, Sequence[Any]] = {
    "tensor_parallel": [1, 2, 4, 8], "context_parallel": [1, 2, 3, 4, 5, 6, 7, 8],
    "pipeline_parallel": [1, 2, 4, 5, 8, 10, 16, 20], "micro_batch_size": [1, 2, 3, 4, 5, 6, 7, 8],
    "sequence_parallel": [0, 1], "recompute": ["none", "core_attention", "mlp", "core_attention+mlp", "full"],
    "seq_length": [4096 * count for count in (1, 2, 3, 4, 6, 8, 12, 16)],
    "num_gpus": [64 * count for count in range(1, 11)],
    "vocab_size": [1000 * count for count in range(64, 96)],
    "ffn_hidden_size": [2048 * count for count in range(4, 12)], "num_layers": [80, 160, 240, 320],
}
#: As many layouts as calculon tries for 64 GPUs: 3.2 million.
SMALL: dict[str, Sequence[Any]] = {
    "tensor_parallel": [1, 2, 4, 8, 16, 32, 64], "context_parallel": [1, 2, 4, 8, 16, 32, 64],
    "pipeline_parallel": [1, 2, 4, 8, 16, 32, 64], "micro_batch_size": [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64],
    "sequence_parallel": [0, 1], "recompute": LARGE["recompute"],
    "seq_length": [2048 * count for count in (1, 2, 3, 4, 6, 8, 10, 12, 16, 24, 32, 48, 64)],
    "global_batch_size": [192 * count for count in (1, 2, 3, 4, 6, 8)],
}
#: Kernel choices of each computation, and the objectives. The last one has step time.
TIMED = "saved tensors and step time"
COMPUTED: dict[str, tuple[Mapping[str, str], tuple[str, ...]]] = {
    "saved tensors": ({"peak": "saved"}, BY_MEMORY), "every moment": ({}, BY_MEMORY),
    TIMED: ({"peak": "saved"}, BY_TIME),
}


@dataclass(frozen=True)
class NestRate:
    """One nest on one space: ``evaluated`` configurations of ``size`` in ``best`` seconds.

    ``in_c`` is its rate over that of the same nest in C, the faster of its builds.
    """

    evaluator: str
    contender: str
    threads: int
    entries: int
    size: int
    evaluated: int
    best: float
    in_c: float | None = None

    @property
    def rate(self) -> float:
        """Configurations whose memory was computed, per second."""
        return self.evaluated / self.best


class DifferentAnswersError(Exception):
    """Two nests do not say the same of one space."""


def nest_rates(repeats: int) -> tuple[list[NestRate], list[str]]:
    """Return all measurements, and a line for what was left out."""
    rates: list[NestRate] = []
    left_out: list[str] = []
    for name, (kernels, ranking) in COMPUTED.items():
        for most in (order.MOST_ENTRIES, 8) if ranking is BY_MEMORY else (order.MOST_ENTRIES,):
            with tempfile.TemporaryDirectory() as folder, _at_most(most):
                nest = _nest(LARGE, kernels, ranking, Path(folder))
                rivals = {"shardmath": nest}
                if which("gcc"):
                    rivals |= {f"C, gcc, {bits} bits": in_c(nest, bits, Path(folder)) for bits in widths()}
                elif not left_out:
                    left_out.append("nests in C: gcc is missing")
                rates += _measured(name, rivals, repeats)
        with tempfile.TemporaryDirectory() as folder:
            skipping = _nest(LARGE, kernels, ranking, Path(folder), skipping=True)
            rates += _measured(name, {"shardmath, passing over what cannot fit": skipping}, repeats)
        asked = question(ranking)
        small = CompiledNest(part_of(SMALL, kernels, asked, 64), asked)
        rates += _measured(name, {"shardmath, 3.2 million layouts of 64 GPUs": small}, repeats)
    return rates, left_out


def memory() -> float:
    """Return the most memory that a fresh process takes for the largest sweep, in MiB."""
    return run_fresh(("-c", "from benchmarks.nests import sweep_once; sweep_once()"))[-1]


def sweep_once() -> None:
    """Sweep the large space."""
    kernels, ranking = COMPUTED["saved tensors"]
    run(CompiledNest(part_of(LARGE, kernels, question(ranking)), question(ranking)))


def question(ranking: tuple[str, ...]) -> tuple[Best]:
    """Return the ten best configurations."""
    return (Best("best", ranking),)


def part_of(
    axes: Mapping[str, Sequence[Any]], kernels: Mapping[str, str], questions: tuple[Best], gpus: int | None = None,
    model: str = "llama-3.1-70b",
) -> Part:
    """Return the space of a model on some axes; on so many GPUs, unless that is one of them."""
    fixed = {} if "global_batch_size" in axes else {"global_batch_size": 840 * 64}
    fixed |= {} if gpus is None else {"num_gpus": gpus}
    space = Space(axes=axes, model=model, gpu="h100-80gb", kernels=kernels, fixed=fixed,
                  questions=questions)
    return space.parts()[0]


def _nest(
    axes: Mapping[str, Sequence[Any]], kernels: Mapping[str, str], ranking: tuple[str, ...], folder: Path, *,
    skipping: bool = False,
) -> CompiledNest:
    asked = question(ranking)
    part = part_of(axes, kernels, asked)
    posing = replace(posing_of(part, asked, literal=True), skipping=skipping)
    path = folder / "nest.py"
    path.write_text(nest_of("benchmark", posing, evaluator_source(part), verdict_source()), encoding="utf-8")
    return CompiledNest(part, asked, module_of(f"benchmark_{folder.name}", path))


@contextmanager
def _at_most(entries: int) -> Iterator[None]:
    """Fuse no more entries than this for a while."""
    usual, order.MOST_ENTRIES = order.MOST_ENTRIES, entries
    try:
        yield
    finally:
        order.MOST_ENTRIES = usual


def _measured(name: str, rivals: Mapping[str, CompiledNest], repeats: int) -> list[NestRate]:
    """Time all nests in turn, on one thread and on all. Raises DifferentAnswersError unless they agree."""
    runs = [(contender, nest, threads) for contender, nest in rivals.items() for threads in sorted({1, CORES})]
    first = run(next(iter(rivals.values()))).answer
    seconds: list[list[float]] = [[] for _ in runs]
    for _ in range(repeats):
        for (contender, nest, threads), taken in zip(runs, seconds, strict=True):
            start = perf_counter()
            answer = run(nest, threads=threads).answer
            taken.append(perf_counter() - start)
            if not _same(answer, first):
                raise DifferentAnswersError(f"{name}: {contender} on {threads} threads")
    rates = [
        NestRate(name, contender, threads, nest._prepared[0], nest.size, int(first.evaluated), min(taken))
        for (contender, nest, threads), taken in zip(runs, seconds, strict=True)
    ]
    return [_beside_c(rate, rates) for rate in rates]


def _same(answer: Answer, other: Answer) -> bool:
    """Tell if answers agree; times are sums of floating-point numbers, whose last digit depends on their order."""
    mine, theirs = ((each.broken, each.verdicts, *_arrays(each)) for each in (answer, other))
    close = all(np.allclose(left, right, rtol=1e-12, atol=0) for left, right in zip(mine, theirs, strict=True))
    return answer.evaluated == other.evaluated and close


def _arrays(answer: Answer) -> list[Any]:
    return [array for question in answer.questions for array in question.arrays]


def _beside_c(rate: NestRate, rates: Sequence[NestRate]) -> NestRate:
    of_c = [item.rate for item in rates if item.threads == rate.threads and item.contender.startswith("C,")]
    return replace(rate, in_c=rate.rate / max(of_c)) if of_c and not rate.contender.startswith("C,") else rate
