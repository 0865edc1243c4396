"""The search of Calculon beside a sweep of this package: executions and layouts a second of one processor.

    python -m benchmarks.beside_calculon CHECKOUT [--gpus N] [--model NAME]

Calculon is no package of an index: CHECKOUT is a clone of its repository, calculon-ai/calculon. It computes other
formulas over another space, so its answers are not compared.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage

from benchmarks.nests import COMPUTED, SMALL, TIMED, part_of, question
from shardmath.search.nests.compiled import CompiledNest
from shardmath.search.nests.running import run

#: Runs of our sweep, after one that compiles it; the fastest counts.
_RUNS = 5
_SYSTEM, _NUMBERS = "systems/h100_80g_nvl8.json", "float16"
_EXECUTIONS = re.compile(r"Total executions: (\d+)")


@dataclass(frozen=True)
class Tried:
    """How many configurations a search went through, in how many seconds of a processor."""

    name: str
    count: int
    seconds: float

    @property
    def line(self) -> str:
        """Return the figures in one line."""
        return f"{self.name}: {self.count:,} in {self.seconds:.4g} s, {self.count / self.seconds:,.0f} a second"


def calculon(checkout: Path, model: str, gpus: int) -> Tried:
    """Run Calculon's search for the best execution of one of its models on H100, in one process.

    Raises RuntimeError where it says no number of executions.
    """
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "bin/calculon", "llm-optimal-execution", f"models/{model}.json", str(gpus),
                   str(gpus), _NUMBERS, _SYSTEM, str(Path(folder) / "best.json"), "--cpus", "1", "--noneok"]
        before = _of_children()
        done = subprocess.run(command, cwd=checkout, env={**os.environ, "PYTHONPATH": str(checkout)}, check=False,
                              capture_output=True, text=True)
        seconds = _of_children() - before
    printed = _EXECUTIONS.search(done.stdout)
    if printed is None:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr[-500:]}")
    return Tried(f"Calculon, {model} on {gpus} GPUs", int(printed[1]), seconds)


def ours() -> Tried:
    """Sweep as many layouts as Calculon tries for 64 GPUs, with memory and step time, on one thread."""
    kernels, ranking = COMPUTED[TIMED]
    asked = question(ranking)
    nest = CompiledNest(part_of(SMALL, kernels, asked, 64), asked)
    run(nest, threads=1)
    taken = []
    for _ in range(_RUNS):
        start = time.process_time()
        run(nest, threads=1)
        taken.append(time.process_time() - start)
    return Tried("shardmath, llama-3.1-70b on 64 GPUs", nest.size, min(taken))


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a line for each of both."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkout", type=Path)
    parser.add_argument("--gpus", type=int, default=8)
    parser.add_argument("--model", default="gpt3-13B")
    options = parser.parse_args(arguments)
    print(ours().line)
    print(calculon(options.checkout.resolve(), options.model, options.gpus).line)


def _of_children() -> float:
    used = getrusage(RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    main()
