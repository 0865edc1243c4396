"""Time and peak memory of fresh processes: import, help, derivation, a sweep and its repetition."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from benchmarks.data import GLOBAL_BATCH_SIZE, GPU, MODEL, NUM_GPUS, SEQ_LENGTH

_ROOT = Path(__file__).resolve().parents[1]
_HEAVY = ("sympy", "numba", "numpy", "pydantic")
_SWEEP = ("sweep", MODEL, "--gpu", GPU, "--num-gpus", str(NUM_GPUS), "--global-batch-size",
          str(GLOBAL_BATCH_SIZE), "--seq-length", str(SEQ_LENGTH))
#: After a change of one line everything is derived but the forms of terms that stayed as they were.
_DERIVATION = ("-m", "shardmath.symbolic.write")
_MIXTRAL, _LAYOUT = ("mixtral-8x7b", "--gpu", GPU), ("--num-gpus", "64", "--global-batch-size", "256")
#: First uses, each with a cache of its own that is empty: the arguments, and the processor seconds that it took in
#: November 2026, when everything was compiled that a sweep needs, on two cores of an EPYC 9R14.
FIRST_USES = {
    "explain mixtral-8x7b": (("explain", *_MIXTRAL, *_LAYOUT), 10.2),
    "explain llama-4-maverick": (("explain", "llama-4-maverick", "--gpu", GPU, "--tp", "8", *_LAYOUT), 9.3),
    "explain, --kernel rope=unfused": (("explain", MODEL, "--gpu", GPU, "--tp", "8", "--kernel", "rope=unfused",
                                        *_LAYOUT), 24.0),
    "sweep llama-3.1-70b": (_SWEEP, 8.1),
    "sweep mixtral-8x7b": (("sweep", *_MIXTRAL, *_LAYOUT), 44.5),
    "formula peak": (("formula", "peak"), 1.5),
}
#: Starts a command and prints seconds, processor seconds and peak memory of it. A process of its own, and as small as
#: they come: the peak that the system reports of a child is never below that of the process which started it.
_LAUNCHER = """
import os, sys, time
environment = dict(os.environ, **dict(pair.split("=", 1) for pair in sys.argv[1].split("|") if pair))
silence = [(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)]
start = time.perf_counter()
child = os.posix_spawn(sys.argv[2], sys.argv[2:], environment, file_actions=silence)
_, status, usage = os.wait4(child, 0)
print(time.perf_counter() - start, usage.ru_utime + usage.ru_stime, usage.ru_maxrss, os.waitstatus_to_exitcode(status))
"""


@dataclass(frozen=True)
class Figure:
    """One command in fresh processes: median seconds, of the clock and of processors, and largest peak memory in MiB.

    ``before`` are the processor seconds that a first use took once.
    """

    name: str
    seconds: float
    memory: float
    runs: int
    processor: float = 0.0
    before: float | None = None


def figures(repeats: int) -> list[Figure]:
    """Measure first uses once each, with an empty cache, and the sweep ``repeats`` times with its own."""
    measured = [
        _figure("python -c pass", ("-c", "pass"), repeats),
        _figure("import shardmath", ("-c", "import shardmath"), repeats),
        _figure("shardmath --help", ("-m", "shardmath", "--help"), repeats),
        _figure("all of generated/, nothing kept", (*_DERIVATION, "--check"), repeats),
        _figure("all of generated/, simplified forms kept", _DERIVATION, repeats),
    ]
    for name, (arguments, before) in FIRST_USES.items():
        with TemporaryDirectory() as folder:
            cache = f"XDG_CACHE_HOME={folder}"
            first = _figure(f"first use: {name}", ("-m", "shardmath", *arguments), 1, cache)
            measured.append(replace(first, before=before))
            if arguments == _SWEEP:
                measured.append(_figure("shardmath sweep, again", ("-m", "shardmath", *_SWEEP), repeats, cache))
    return measured


def imported() -> dict[str, bool]:
    """Return which heavy packages ``import shardmath`` loads."""
    source = f"import sys, shardmath; print(*(name in sys.modules for name in {_HEAVY!r}))"
    command = [sys.executable, "-c", source]
    answer = subprocess.run(command, cwd=_ROOT, check=True, stdout=subprocess.PIPE, text=True)
    return {name: word == "True" for name, word in zip(_HEAVY, answer.stdout.split(), strict=True)}


def _figure(name: str, arguments: tuple[str, ...], repeats: int, environment: str = "") -> Figure:
    taken, processor, memory = zip(*(run_fresh(arguments, environment) for _ in range(repeats)), strict=True)
    return Figure(name, median(taken), max(memory), repeats, median(processor))


def run_fresh(arguments: tuple[str, ...], environment: str = "") -> tuple[float, float, float]:
    """Seconds, processor seconds and peak memory in MiB of a fresh process.

    ``environment`` has NAME=VALUE, joined by |. Raises RuntimeError if it fails.
    """
    launch = [sys.executable, "-I", "-S", "-c", _LAUNCHER, environment, sys.executable, *arguments]
    answer = subprocess.run(launch, cwd=_ROOT, check=True, stdout=subprocess.PIPE, text=True)
    seconds, processor, peak, code = answer.stdout.split()
    if int(code):
        raise RuntimeError(f"exit code {code}: python {' '.join(arguments)}")
    return float(seconds), float(processor), int(peak) / (2**20 if sys.platform == "darwin" else 2**10)
