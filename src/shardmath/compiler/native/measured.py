"""The options that are quickest on the processor that this runs on: measured once, and kept in the user's cache."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict
from functools import cache
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from shardmath.files.cached import keep, kept, key_of, source_of

from . import trial
from .code import compiled, flat, kind_of, loaded, made_by
from .options import Options, quickest, usual

#: ``usual`` to measure nothing, and to compile for every processor as for one that nothing was measured on.
VARIABLE = "SHARDMATH_OPTIONS"
_KIND = "options"
#: Runs of each candidate, and how often one goes through the table: tens of microseconds, so that some are undisturbed.
_RUNS, _ROUNDS = 40, 100


@cache
def quickest_here() -> Options:
    """Return the options for functions that run long: those measured here before, or measured now, in half a second."""
    if os.environ.get(VARIABLE) == "usual":
        return usual()
    name = f"{key_of(_model(), made_by())}.json"
    text = kept(_KIND, name)
    if text is None:
        chosen = quickest(usual(), timed)
        keep(_KIND, name, json.dumps(asdict(chosen)).encode())
        return chosen
    known: dict[str, Any] = json.loads(text)
    return Options(**{**known, "features": tuple(known["features"])})


def timed(candidates: Sequence[Options]) -> list[list[float]]:
    """Measure the seconds of each candidate's runs, one after the other in each round."""
    arguments = trial_arguments()
    kinds = tuple(map(kind_of, arguments))
    calls = [part for item in arguments for part in flat(item)]
    codes = [compiled(trial, source_of(trial), "sweep", kinds, item) for item in candidates]
    made = [loaded(code, trial, "sweep", kinds) for code in codes]
    taken: list[list[float]] = [[] for _ in candidates]
    for turn in range(_RUNS + 1):  # the first fills the caches
        for (function, _), seconds in zip(made, taken, strict=True):
            start = perf_counter()
            function(*calls)
            seconds.append(perf_counter() - start)
        if not turn:
            for seconds in taken:
                seconds.clear()
    return taken


def trial_arguments(rounds: int = _ROUNDS) -> tuple[Any, ...]:
    """Return arguments for the loops of ``trial``: invented, and the same each time."""
    draw = np.random.default_rng(20)
    places = draw.permutation(trial.TURNS).astype(np.int64)
    block = draw.integers(1, 5, 3 * trial.TURNS).astype(np.float64)
    row = draw.integers(0, 1000, 5 * trial.ENTRIES).astype(np.float64)
    limits = np.array([700.0, 900.0, -1.0])
    return rounds, places, block, np.zeros_like(block), row, limits, np.zeros(3, np.int64)


def _model() -> str:
    """Return the processor's name by Linux: LLVM's name is that of a family, and hypervisors hide some features."""
    path = Path("/proc/cpuinfo")
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines() if path.exists() else []
    return next((line for line in lines if line.startswith("model name")), "")
