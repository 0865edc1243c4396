"""The answer of a sweep in the terminal: the best layouts, then counts."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from rich.console import Console

from shardmath.account.time import EQUAL
from shardmath.commands.sweep.answer import SweepResult
from shardmath.generated.definitions import VERDICTS
from shardmath.machines.gpu import GIB
from shardmath.reports.sizes import batch_in_words, best_in_words, in_words, model_parallel, shown_sizes, sizes_of
from shardmath.reports.sizes import title as title_of
from shardmath.reports.stopped import stopped
from shardmath.reports.switches import show_switches
from shardmath.reports.tables import RULE, RUNS_OUT, chance, console, gib, table
from shardmath.reports.time import COST, cost, show_error, show_overlapped
from shardmath.reports.untried import show_untried
from shardmath.search.layout import Layout
from shardmath.search.sizes import programs_in

#: Figures beside the sizes; ``accum`` is the number of micro-batches of a step.
_OF_MEMORY = ("first", "last", "peak", "share", "margin")
_OF_TIME = ("seconds", "tokens/s/GPU", "MFU", "peak", "share", "margin")
_PROVED = "No other layout that fits is faster than these, placed."
#: Column of what the fullest server has on its host.
_HOST = "on host"
_OPEN = "Others may be faster than these, placed: ask for more of them with --top."
#: Sizes that stand behind that of data parallelism.
_BEHIND_DATA = ("expert_parallel", "expert_tensor_parallel", "micro_batch_size")


def show(result: SweepResult) -> None:
    """Print the best layouts, then how many were tried, broke which rule and fit."""
    out = console()
    value = result.values
    out.print(
        f"{result.model.name} on {_gpus(result)}, "
        f"{result.implementation}, {batch_in_words(value['global_batch_size'], value['seq_length'])}",
        markup=False,
    )
    if result.time_unknown:
        out.print(f"Step time is not computed: {result.time_unknown}. Layouts are ranked by memory.", markup=False)
    if not result.complete:
        out.print(stopped({"": result.gap}), markup=False)
    if result.best:
        out.print(_verdict(result.best[0]), markup=False)
        out.print(_layouts(result.best, f"Best that fit, {_unit(result.best[0])}: {result.ranking}"))
        if result.best[0].placed_seconds is not None:
            out.print("Seconds are those with each link as fast as the fastest; placed, with the nodes in their best"
                      f" order by measured links. {_PROVED if result.are_fastest else _OPEN}", markup=False)
        _show_error(out, result)
        title = f"Best that fits for each recompute mode, {_unit(result.best[0])}"
        out.print(_layouts(result.best_by_recompute.values(), title))
    elif result.smallest is not None:
        least = result.smallest
        title = f"Nothing fits; the legal layout of least memory, {_unit(least)}"
        out.print(_layouts([least], title))
        of_gpu = round(least.peak_bytes / least.share) / GIB
        out.print(f"It needs {gib(least.peak_bytes)} GiB of {of_gpu:g} GiB: {least.verdict}, by the 80 % rule"
                  f" {least.rule_80}.")
        show_switches(out, result.switches)
    elif result.complete:
        out.print(" ".join(["No layout is legal.", *filter(None, [result.refusal])]), markup=False)
    rows = [("tried", f"{result.tried:,}", "")]
    broken = [rule for rule in result.broken if rule.count]
    rows += [(f"broke {rule.name}", f"{rule.count:,}", f"{rule.field} {rule.text}") for rule in broken]
    unknown = "not known: bounds count none" if result.complete else "not known: the search was stopped"
    rows.append(("legal", "", unknown) if result.legal is None else ("legal", f"{result.legal:,}", ""))
    rows += [(name, f"{result.verdicts[name]:,}", meaning) for name, meaning in VERDICTS if name in result.verdicts]
    out.print(table(("layouts", "count", ""), rows, right=(1,), title="Layouts by rule and by verdict"))
    show_untried(out, result.untried)


def _verdict(best: Layout) -> str:
    """Return the best layout in words, with its time, its memory and its verdict."""
    return best_in_words(_sizes(best), best.data_parallel, best.step_seconds, best.peak_bytes, best.verdict,
                         best.run_out_probability)


def _show_error(out: Console, result: SweepResult) -> None:
    """Say how far times err, and which of the best are as fast as the first."""
    show_error(out, result.error, bool(result.model.num_experts), result.cluster)
    show_overlapped(out, result.values, (item.data_parallel * item.context_parallel for item in result.best))
    if result.equally_fast > 1:
        simplest = min(map(_sizes, result.best[: result.equally_fast]), key=model_parallel)
        out.print(f"The first {result.equally_fast} are equally fast: less than {EQUAL:.0%} apart. Of them"
                  f" {in_words(simplest)} has the least TP x PP x CP.", markup=False)


def _gpus(result: SweepResult) -> str:
    return " and ".join(f"{number} x {gpu.name} ({gpu.memory_gib:g} GiB)" for number, gpu in result.machines)


def _unit(item: Layout) -> str:
    return "in GiB by stage" if item.step_seconds is None else "seconds of a step and GiB"


def _figures(item: Layout) -> list[str]:
    """Return the columns before the peak: step time with its rates, or the memory of both end stages."""
    if item.step_seconds is None:
        return [gib(item.first_stage_bytes), gib(item.last_stage_bytes)]
    return [f"{item.step_seconds:.2f}", f"{item.tokens_per_second_per_gpu:,.0f}", f"{item.mfu:.1%}"]


def _sizes(item: Layout) -> dict[str, Any]:
    """Return the sizes of a layout, with its implementation and kernels where several were tried."""
    return {**asdict(item), **item.switches, **item.kernels}


def _layouts(layouts: Iterable[Layout], title: str) -> object:
    layouts = tuple(layouts)
    names = shown_sizes(map(_sizes, layouts))
    before = min(names.index(name) for name in _BEHIND_DATA if name in names)
    rows, offloaded = [], any(item.host_bytes for item in layouts)
    priced = any(item.cost_per_token for item in layouts)
    for item in layouts:
        sizes = sizes_of(_sizes(item), names)
        rows.append([
            *sizes[:before], str(item.data_parallel), *sizes[before:], str(item.num_microbatches), *_figures(item),
            *[cost(item.cost_per_token)] * priced, gib(item.peak_bytes), f"{item.share:.1%}",
            gib(round(item.peak_bytes / item.share) - item.peak_bytes),
        ])
        if item.placed_seconds is not None:
            rows[-1].insert(-6 - priced, f"{item.placed_seconds:.2f}")
        rows[-1] += [chance(item.run_out_probability), item.rule_80]
        if offloaded:
            rows[-1].append(gib(item.host_bytes))
    timed = any(item.step_seconds is not None for item in layouts)
    figures = _OF_TIME if timed else _OF_MEMORY
    if priced:
        figures = (*figures[:3], COST, *figures[3:])
    if any(item.placed_seconds is not None for item in layouts):
        figures = ("placed", *figures)
    figures = (*figures, RUNS_OUT, RULE, *[_HOST] * offloaded)
    shown = [title_of(name) for name in names]
    titles = [*shown[:before], "DP", *shown[before:], "accum", *figures]
    words = {titles.index(name) for name in ("SP", "recompute", RULE, *programs_in(_sizes(layouts[0])))}
    spare = (RUNS_OUT, "MFU", RULE, "margin", "share", "accum")
    return table(titles, rows, right=set(range(len(titles))) - words, title=title, spare=spare)
