"""The part of docs/validation.md about Transformers on one H100: parts of a step at the rates of kernels alone."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

import numpy as np

from shardmath.commands.calibrate.runs import StepTimes, TimedRun, asked
from shardmath.machines import Cluster
from validation.measured.sections import paragraph
from validation.measured.sets import huggingface
from validation.tables import markdown
from validation.timed.metrics import Numbers

TITLE = "### Transformers on one H100, taken apart"
#: Products alone made 650 to 810 TFLOP/s, here 730 of 989; memory alone moved 2.9 of 3.35 TB/s. The gap is assumed.
BARE: Mapping[str, int] = {"hbm_per_mille": 866, "kernel_ns": 1_000, "matmul_per_mille": 738}
#: A value at which a part takes no time, and what the part is called.
GONE: Mapping[str, tuple[float, str]] = {
    "hbm_per_mille": (1e12, "memory traffic"), "kernel_ns": (0, "gaps between kernels"),
    "matmul_per_mille": (1e12, "products"),
}
ABOUT = """The constants of Hopper are fitted to 11 runs on 8 to 1,024 GPUs: FP8 of Transformer Engine, and
    torchtitan on GPUs whose memory has 2.4 TB/s and whose power is limited to 500 W. Below, constants are those at
    which kernels ran alone on the one H100, which has 3.35 TB/s and 700 W: 730 TFLOP/s of products, 2.9 TB/s. The
    gap of 1 us between kernels is assumed. No step was fitted to, and attention keeps its constant. A share of a
    step is what it would be shorter by without the part."""
KEPT = """Gaps between kernels are the first cause, memory traffic the second, products the third. The rates of
    kernels alone are not shipped: the gap is assumed, and constants that runs on many GPUs were fitted to stand for
    what no row has there. Steps with eager attention are 14 to 17 % too short at these rates. On one GPU, set these
    constants under `[parameters]` of a [cluster file](clusters/README.md)."""


@cache
def steps() -> tuple[StepTimes, Numbers, Mapping[str, int]]:
    """Return predicted steps as a function of constants, measured seconds, and the shipped constants."""
    cases = huggingface.read()
    cluster, runs = Cluster(name="one H100", gpu=cases[0].gpu, gpus_per_node=8), []
    for case in cases:
        assert case.model is not None
        assert case.seconds is not None
        runs.append(TimedRun(asked(case.model, case.gpu, **case.arguments), case.seconds, case.group))
    usual = runs[0].values(cluster)
    return StepTimes(runs, cluster, BARE), np.array([run.seconds for run in runs]), {name: usual[name] for name in BARE}


def errors(changed: Mapping[str, int]) -> Numbers:
    """Predicted over measured time less 1, with some constants changed."""
    predicted, measured, usual = steps()
    return np.asarray(predicted({**usual, **changed}) / measured - 1)


def section() -> list[str]:
    """Return the section: errors with each constant changed, and with all."""
    predicted, _, usual = steps()
    whole = predicted(usual)
    lines = [_line("as shipped", "", errors({}))]
    for name, (value, words) in GONE.items():
        share = np.median(1 - predicted({**usual, name: value}) / whole)
        changed = f"{words}: `{name}` {BARE[name]:,} for {usual[name]:,}"
        lines.append(_line(changed, f"{share:.0%}", errors({name: BARE[name]})))
    lines.append(_line("all three", "", errors(BARE)))
    head = ("constants", "share of a step, median", "signed median", "median error", "lowest", "highest")
    return [TITLE, paragraph(ABOUT), markdown(head, lines), paragraph(KEPT)]


def _line(words: str, share: str, own: Numbers) -> tuple[str, ...]:
    numbers = (f"{np.median(own):+.1%}", f"{np.median(abs(own)):.1%}", f"{own.min():+.1%}", f"{own.max():+.1%}")
    return (words, share, *numbers)
