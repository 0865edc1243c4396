"""One run of the benchmarks as tables for people and as data for programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from benchmarks.backends import BackendCost
from benchmarks.data import GLOBAL_BATCH_SIZE, GPU, MODEL, NUM_GPUS, SEQ_LENGTH, Batch
from benchmarks.nests import NestRate
from benchmarks.proofs import ProofCost
from benchmarks.rates import REFERENCES, Rate
from benchmarks.roofline import Roofline
from benchmarks.startup import Figure
from benchmarks.targets import Target


@dataclass(frozen=True)
class Run:
    """Everything that one run measured.

    ``loaded`` is the peak memory of a process that loads the columns and evaluates nothing, in MiB; ``imported``
    says which packages ``import shardmath`` loads; ``left_out`` has a line for what could not be measured.
    """

    machine: Mapping[str, str]
    batches: Sequence[Batch]
    rates: Sequence[Rate]
    loaded: float | None
    roofline: Roofline
    nests: Sequence[NestRate]
    nest_memory: float | None
    proofs: Sequence[ProofCost]
    backends: Sequence[BackendCost]
    figures: Sequence[Figure]
    imported: Mapping[str, bool]
    targets: Sequence[Target]
    left_out: Sequence[str]
    repeats: int

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON; seconds, layouts per second and MiB."""
        return {
            "job": {"model": MODEL, "gpu": GPU, "num_gpus": NUM_GPUS, "global_batch_size": GLOBAL_BATCH_SIZE,
                    "seq_length": SEQ_LENGTH},
            "machine": dict(self.machine),
            "batches": {batch.name: batch.meaning for batch in self.batches},
            "repeats": self.repeats,
            "rates": [asdict(rate) for rate in self.rates],
            "loaded": self.loaded,
            "roofline": asdict(self.roofline),
            "nests": [asdict(nest) | {"rate": nest.rate} for nest in self.nests],
            "nest_memory": self.nest_memory,
            "proofs": [asdict(cost) | {"seconds": cost.seconds} for cost in self.proofs],
            "backends": [asdict(cost) | {"seconds": cost.seconds} for cost in self.backends],
            "startup": [asdict(figure) for figure in self.figures],
            "imported": dict(self.imported),
            "targets": [asdict(target) | {"met": target.met} for target in self.targets],
            "left_out": list(self.left_out),
        }


def show(run: Run, console: Console) -> None:
    """Print the tables."""
    job = f"{MODEL} on {NUM_GPUS} x {GPU}, {GLOBAL_BATCH_SIZE} sequences of {SEQ_LENGTH} tokens"
    for name, value in {**run.machine, "job": job}.items():
        console.print(f"{name:10} {value}", highlight=False)
    for line in run.left_out:
        console.print(f"left out   {line}", highlight=False)
    tables = [*(_rates(run, batch) for batch in run.batches), _streams(run.roofline), _limits(run.roofline)]
    if run.nests:
        tables += [_nests(run), proof_table(run.proofs), _backends(run.backends)]
    for table in (*tables, *([_figures(run)] if run.figures else []), _targets(run)):
        console.print()
        console.print(table)


def _rates(run: Run, batch: Batch) -> Table:
    memory = "" if run.loaded is None else (
        f" Peak MiB of a fresh process each; one that only loads the columns takes {run.loaded:.0f}.")
    table = _table(f"{batch.meaning}\nBest and median of {run.repeats}; every answer equal to the last byte, but for"
                   f" another formula.{memory}\nRatios of rates, to SymPy lambdify on one thread: columns, blocks,"
                   " whole answer in blocks.")
    table.add_column("evaluator", no_wrap=True)
    table.add_column("computes")
    ratios = [f"/ {name}" for name in REFERENCES]
    for name in ("threads", "layouts", "best s", "median s", "layouts/s", "peak MiB", *ratios):
        table.add_column(name, justify="right")
    for rate in run.rates:
        if rate.batch == batch.name:
            numbers = [f"{rate.rows:,}", f"{rate.best:.4f}", f"{rate.median:.4f}", f"{rate.rate:,.0f}"]
            numbers.append("" if rate.memory is None else f"{rate.memory:.0f}")
            numbers += [f"{rate.ratios[name]:.3g}" for name in REFERENCES]
            table.add_row(rate.contender, rate.computes, str(rate.threads), *numbers)
    return table


def _streams(roofline: Roofline) -> Table:
    table = _table(f"Between columns and outputs that lie in memory, {roofline.rows:,} legal layouts:\n"
                   "bytes of a layout in columns and outputs, bytes a second, and share of the faster copy's.")
    table.add_column("evaluator", no_wrap=True)
    for name in ("threads", "layouts/s", "bytes", "GB/s", "of copy"):
        table.add_column(name, justify="right")
    for stream in roofline.streams:
        numbers = [f"{stream.rate:,.0f}", str(stream.size), f"{stream.bandwidth / 1e9:.2f}", f"{stream.share:.1%}"]
        table.add_row(stream.contender, str(stream.threads), *numbers)
    return table


def _nests(run: Run) -> Table:
    taken = "" if run.nest_memory is None else f" A fresh process for the largest takes {run.nest_memory:.0f} MiB."
    table = _table("Loop nests: rules, memory on every rank that can have the peak, verdicts, counts, the ten best.\n"
                   "Evaluated are configurations that no outer loop rejected; all answers are equal."
                   f" Best of the runs.{taken}")
    table.add_column("formulas", no_wrap=True)
    table.add_column("nest")
    for name in ("threads", "entries", "configurations", "evaluated", "best s", "10⁹ evaluated/s", "/ C"):
        table.add_column(name, justify="right")
    for rate in run.nests:
        numbers = [str(rate.entries), f"{rate.size:,}", f"{rate.evaluated:,}", f"{rate.best:.4f}",
                   f"{rate.rate / 1e9:.2f}", "" if rate.in_c is None else f"{rate.in_c:.2f}"]
        table.add_row(rate.evaluator, rate.contender, str(rate.threads), *numbers)
    return table


def proof_table(costs: Sequence[ProofCost]) -> Table:
    """Seconds with and without proofs and passing over, one space after the other."""
    table = _table(
        "Proofs that leave ranks and moments out of an estimate, and passing over tables in which nothing fits:\n"
        "processor seconds of one thread to derive, to compile and to run a nest for just these sizes.\n"
        "Usual is the one of the thresholds; below 10⁸ configurations, nests are for all sizes, with neither."
    )
    table.add_column("model", no_wrap=True)
    table.add_column("formulas", no_wrap=True)
    table.add_column("configurations", justify="right")
    for name in ("proofs", "passing over"):
        table.add_column(name)
    for name in ("derive s", "compile s", "run s", "first use s"):
        table.add_column(name, justify="right")
    table.add_column("usual")
    for cost in costs:
        words = ["yes" if is_so else "" for is_so in (cost.proving, cost.skipping)]
        seconds = [f"{number:.3f}" for number in (cost.derived, cost.compiled)]
        table.add_row(cost.model, cost.formulas, f"{cost.size:,}", *words, *seconds, f"{cost.run:.4f}",
                      f"{cost.seconds:.3f}", "yes" if cost.usual else "")
    return table


def _backends(costs: Sequence[BackendCost]) -> Table:
    table = _table(
        "Backends of loops, for just these sizes: processor seconds of one thread to plan and print (numpy: to read),\n"
        "to compile and to run. All answers are equal, of llvm and numba to the last bit."
    )
    table.add_column("formulas", no_wrap=True)
    table.add_column("configurations", justify="right")
    table.add_column("backend")
    for name in ("plan s", "compile s", "run s", "first use s"):
        table.add_column(name, justify="right")
    for cost in costs:
        table.add_row(cost.formulas, f"{cost.size:,}", cost.backend, f"{cost.derived:.3f}", f"{cost.compiled:.3f}",
                      f"{cost.run:.4f}", f"{cost.seconds:.3f}")
    return table


def _limits(roofline: Roofline) -> Table:
    table = _table("Limits of the machine, measured")
    table.add_column("what")
    for name in ("threads", "10⁹/s", ""):
        table.add_column(name, justify="right")
    for limit in roofline.limits:
        table.add_row(limit.name, str(limit.threads), f"{limit.rate / 1e9:.2f}", limit.unit)
    return table


def _figures(run: Run) -> Table:
    loaded = [name for name, is_loaded in run.imported.items() if is_loaded]
    table = _table("Fresh processes, from start to exit: median seconds, of the clock and of processors,\nlargest peak "
                   "memory; first uses have an empty cache, and are beside what they took once.\n"
                   f"Of {', '.join(run.imported)}, `import shardmath` loads {', '.join(loaded) or 'none'}.")
    table.add_column("command")
    for name in ("runs", "seconds", "processor s", "once", "peak MiB"):
        table.add_column(name, justify="right")
    for figure in run.figures:
        once = "" if figure.before is None else f"1 / {figure.before / figure.processor:.1f}"
        table.add_row(figure.name, str(figure.runs), f"{figure.seconds:.3f}", f"{figure.processor:.3f}", once,
                      f"{figure.memory:.0f}")
    return table


def _targets(run: Run) -> Table:
    table = _table("The project's targets")
    table.add_column("what")
    for name in ("target", "measured", "", "met"):
        table.add_column(name, justify="right")
    for target in run.targets:
        met = "yes" if target.met else f"NO {target.remark}".strip()
        sign = ">=" if target.at_least else "<"
        table.add_row(target.name, f"{sign} {target.goal:g}", f"{target.measured:.3f}", target.unit, met)
    return table


def _table(title: str) -> Table:
    return Table(title=title, title_justify="left", title_style="", box=SIMPLE_HEAD, show_edge=False,
                 pad_edge=False)
