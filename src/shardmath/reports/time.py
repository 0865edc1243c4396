"""The time of a step in the terminal: what it goes to, and the rates that follow."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import groupby

from rich.console import Console

from shardmath.account.accounting import Explanation
from shardmath.account.slicing import Slicing
from shardmath.account.time import StepTime
from shardmath.configuration.defaults import OVERLAPS
from shardmath.generated.definitions import PARAMETERS, SPENT
from shardmath.machines import Cluster
from shardmath.reports.placement import show_placement
from shardmath.reports.tables import table


def show_rates(out: Console, explanation: Explanation) -> None:
    """Print how long a step takes, and the rates that follow, or why that is not known."""
    time = explanation.time
    if time is None:
        out.print(f"Step time is not computed: {explanation.time_unknown}.", markup=False)
        return
    out.print(f"Step: {time.seconds:.3f} s; {rates(time)}.", markup=False)
    show_error(out, time.error, bool(explanation.inputs["num_experts"]), explanation.cluster)
    show_overlapped(out, time.machine, [explanation.inputs["data_parallel"] * explanation.inputs["context_parallel"]])


def show_time(out: Console, explanation: Explanation) -> None:
    """Print where the time of a step goes on its slowest rank, if that is known."""
    time = explanation.time
    if time is None:
        return
    rows = [
        (part, f"{seconds:.3f}", f"{seconds / time.seconds:.1%}", SPENT[part], f"spent.{part}")
        for part, seconds in time.spent.items() if seconds >= _SHOWN * time.seconds
    ]
    rows.append(("step", f"{time.seconds:.3f}", "100.0%", "", "step.time"))
    title = f"Seconds of a step on rank {time.rank}, the slowest"
    out.print(table(("part", "seconds", "share", "", "term"), rows, right=(1, 2), title=title, spare=("term",)))
    if explanation.slicing is not None:
        out.print(f"{best_slices(explanation.slicing)}.", markup=False)
    if explanation.placement is not None:
        show_placement(out, explanation.placement)


def show_stages(out: Console, explanation: Explanation) -> None:
    """Print stages that have GPUs of their own: each with its layers, its memory, and its time of a micro-batch."""
    if not explanation.stages:
        return
    timed = explanation.time is not None
    rows = [
        (str(stage.rank), stage.gpu, str(stage.gpus), str(stage.layers), f"{rank.total / 2**30:.2f}",
         f"{rank.share:.1%}", rank.verdict,
         *((f"{stage.microbatch_seconds:.4f}", f"{stage.busy:.1%}") if timed else ()))
        for stage, rank in zip(explanation.stages, explanation.ranks, strict=True)
    ]
    titles = ("rank", "GPU", "GPUs", "layers", "GiB", "share", "verdict", *(("micro-batch s", "busy") if timed else ()))
    out.print(table(titles, rows, right={0, 2, 3, 4, 5, 7, 8}, title="Stages, each on its own GPUs"))


def best_slices(slicing: Slicing) -> str:
    """Return lengths of slices with which the step is shortest, and its seconds."""
    runs = ((length, len(list(alike))) for length, alike in groupby(slicing.lengths))
    lengths = ", ".join(f"{number} x {length:,}" if number > 1 else f"{length:,}" for length, number in runs)
    bound = "" if slicing.exact else "at least "
    return f"Best lengths of slices: {lengths} tokens, {bound}{slicing.seconds:.3f} s a step"


def overlapped(values: Mapping[str, int]) -> str:
    """Return the sentence about overlaps that times are counted with, by values of the machine; empty without one."""
    names = [name for name in OVERLAPS if values.get(name)]
    meanings, flags = [PARAMETERS[name][5] for name in names], [f"--no-{name.replace('_', '-')}" for name in names]
    return f"Counted with: {', '.join(meanings)} (off: {', '.join(flags)})." if names else ""


def show_overlapped(out: Console, values: Mapping[str, int], copies: Iterable[int]) -> None:
    """Print that sentence, if there is one, and if a layout has several ``copies`` of a weight."""
    if max(copies, default=1) > 1 and (line := overlapped(values)):
        out.print(line, markup=False)


def show_error(out: Console, error: float | None, with_experts: bool, cluster: Cluster) -> None:
    """Print how far predicted times err, where that is known."""
    if error is not None:
        out.print(within(error, with_experts, cluster), markup=False)


def within(error: float, with_experts: bool, cluster: Cluster) -> str:
    """Return the sentence about the error of predicted times, which says on which GPUs no step was measured."""
    unmeasured = [gpu.name for _, gpu in cluster.machines(1) if not gpu.has_measured_steps]
    on = "on GPUs of that generation" if unmeasured else "on such GPUs"
    of = "of models with experts" if with_experts else on
    none = f"; on {' and '.join(unmeasured)} none was measured" if unmeasured else ""
    return f"Of ten measured steps {of} nine were within {error:.1%} of the predicted time{none}."


def cost(per_token: float | None) -> str:
    """Return the price of a million tokens; empty where it is not known."""
    return f"{1e6 * per_token:.3g}" if per_token else ""


def rates(time: StepTime) -> str:
    """Tokens per second, shares of the peak, and energy and cost where they are known, in one line."""
    line = (f"{time.tokens_per_second:,.0f} tokens/s, {time.tokens_per_second_per_gpu:,.0f} for each GPU;"
            f" MFU {time.mfu:.1%}, HFU {time.hfu:.1%}")
    if time.joules_per_token:
        line += f"; {time.joules_per_token:.3g} J/token"
    if time.cost_per_token:
        line += f"; {cost(time.cost_per_token)} for a million tokens"
    return line


#: Title of a column of costs.
COST = "per M tokens"
#: Parts below this share of a step are left out.
_SHOWN = 5e-4
