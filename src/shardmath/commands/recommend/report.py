"""Advice in the terminal: what to try, why, what is one step away, and what would change the answer."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.console import Console

from shardmath.account.time import EQUAL, as_fast
from shardmath.commands.recommend import Advice, Change, Choice, Neighbour
from shardmath.errors import InputError
from shardmath.generated.definitions import SPENT
from shardmath.machines.gpu import GIB
from shardmath.reports.sizes import (
    TITLES,
    batch_in_words,
    best_in_words,
    in_space,
    in_words,
    model_parallel,
    shown_sizes,
    sizes_of,
    title,
)
from shardmath.reports.stopped import stopped
from shardmath.reports.switches import show_switches
from shardmath.reports.tables import RULE, RUNS_OUT, FittedTable, chance, console, gib, table
from shardmath.reports.time import COST, cost, show_error, show_overlapped
from shardmath.reports.untried import show_untried
from shardmath.search.sizes import programs_in

#: Parts of a step that are named, and the share from which they are.
_BINDING, _LEAST = 3, 0.005
#: Said of choices on measured links.
_LINKS = ("Seconds are those with the nodes placed by measured links; the layouts were chosen with each link as fast as"
          " the fastest. `shardmath sweep` ranks them placed.")


def show(advice: Advice, launched: bool = True) -> None:
    """Print the advice, with the file that launches the first choice unless ``launched`` is false."""
    out = console()
    gpus = " and ".join(f"{number} x {gpu.name} ({gpu.memory_gib:g} GiB)"
                        for number, gpu in advice.cluster.machines(advice.num_gpus))
    out.print(f"{advice.model.name} on {gpus}, "
              f"{advice.implementation}, {batch_in_words(advice.global_batch_size, advice.seq_length)}: "
              + in_space(advice.legal, advice.size),
              markup=False)
    if not advice.complete:
        out.print(stopped({"": advice.gap}), markup=False)
    if not advice.choices:
        _show_nothing(out, advice)
        return
    best = advice.choices[0]
    out.print(best_in_words(best.layout, best.data_parallel, best.time.seconds, best.peak_bytes, best.verdict,
                            best.run_out_probability), markup=False)
    if (item := advice.by_rule_80) is not None:
        less, chances = f"{1 - item.seconds / best.time.seconds:.1%} less", chance(item.run_out_probability)
        out.print(f"By the published 80 % rule: {in_words(item.layout)}: {item.seconds:.2f} s a step, {less},"
                  f" {gib(item.peak_bytes)} GiB at the peak, runs out with a probability of {chances}", markup=False)
    out.print(_choices(advice.choices))
    for place, choice in enumerate(advice.choices, 1):
        out.print(f"{place}  {choice.role}: {_why(choice)}", markup=False)
    if advice.cluster.links is not None:
        out.print(_LINKS, markup=False)
    _show_replay(out, advice.choices)
    _show_error(out, advice)
    _show_excluded(out, advice)
    out.print()
    if best.neighbours:
        out.print(_neighbours(best))
    if advice.changes:
        out.print(_changes(advice.changes))
    show_switches(out, advice.switches)
    show_untried(out, advice.untried)
    if launched:
        _show_launched(out, best)


def _choices(choices: Iterable[Choice]) -> FittedTable:
    choices = tuple(choices)
    shown = shown_sizes(item.layout for item in choices)
    titles = ["", *map(title, shown), "DP", "accum", "seconds", "tokens/s/GPU", "MFU", "peak",
              "reserved", "margin", RUNS_OUT, "", RULE]
    rows = [
        [str(place), *sizes_of(item.layout, shown), str(item.explanation.inputs["data_parallel"]),
         str(item.num_microbatches), f"{item.time.seconds:.2f}", f"{item.time.tokens_per_second_per_gpu:,.0f}",
         f"{item.time.mfu:.1%}", gib(item.explanation.peak.total), gib(item.reserved_bytes),
         gib(item.margin_bytes), chance(item.run_out_probability), item.verdict, item.rule_80]
        for place, item in enumerate(choices, 1)
    ]
    if any(item.time.cost_per_token for item in choices):
        place = titles.index("peak")
        titles.insert(place, COST)
        for row, item in zip(rows, choices, strict=True):
            row.insert(place, cost(item.time.cost_per_token))
    if any(item.explanation.host_bytes for item in choices):
        titles.insert(-2, "on host")
        for row, item in zip(rows, choices, strict=True):
            row.insert(-2, gib(item.explanation.host_bytes))
    texts = {titles.index("SP"), titles.index("recompute"), *map(titles.index, programs_in(choices[0].layout))}
    right = set(range(len(titles) - 2)) - texts
    return table(titles, rows, right=right, title="Worth trying, seconds of a step and GiB",
                 spare=("reserved", "MFU", RULE, "margin", "accum"))


def _show_replay(out: Console, choices: Sequence[Choice]) -> None:
    """Say which reserved memory is replayed, and why the rest is not."""
    reasons: dict[str, list[str]] = {}
    for place, item in enumerate(choices, 1):
        reasons.setdefault(item.replay_unknown, []).append(str(place))
    for reason, places in reasons.items():
        how = "replayed through a model of PyTorch's allocator"
        if reason:  # an error in one line, whose head is a name with its value
            how = f"by a formula: steps with {reason.partition(': ')[0]} are not replayed yet"
        of = "" if len(reasons) == 1 else f" of {', '.join(places)}"
        out.print(f"Reserved memory{of} is {how}.", markup=False)


def _show_error(out: Console, advice: Advice) -> None:
    """Say how far times err, and which choices are as fast as the first."""
    choices = advice.choices
    first = choices[0].time
    show_error(out, first.error, bool(advice.model.num_experts), advice.cluster)
    show_overlapped(out, first.machine, (
        item.explanation.inputs["data_parallel"] * item.explanation.inputs["context_parallel"] for item in choices))
    equal = [place for place, item in enumerate(choices, 1)
             if item.verdict == choices[0].verdict
             and as_fast(item.time.seconds, first.seconds) and as_fast(first.seconds, item.time.seconds)]
    if len(equal) > 1:
        alike = f"{', '.join(map(str, equal[:-1]))} and {equal[-1]}"
        simplest = min(equal, key=lambda place: model_parallel(choices[place - 1].explanation.inputs))
        out.print(f"{alike} are equally fast: less than {EQUAL:.0%} apart. {simplest} has the least TP x PP x CP.",
                  markup=False)


def _why(choice: Choice) -> str:
    """Where the time of a step goes besides computing."""
    computing = choice.time.spent["computing"] / choice.time.seconds
    named = [f"{share:.1%} {part} ({SPENT[part]})" for part, share in choice.binds.items() if share >= _LEAST]
    return ", ".join([f"{computing:.1%} computing", *named[:_BINDING]])


def _show_excluded(out: Console, advice: Advice) -> None:
    if advice.excluded is None:
        if advice.complete:
            out.print("Nothing that needs more memory is faster.")
        return
    item, memory = advice.excluded, advice.excluded.gpu_memory
    out.print(f"The next better one is {item.verdict}: {in_words(item.layout)} would take {item.seconds:.2f} s, needs"
              f" {gib(item.peak_bytes)} GiB, {item.peak_bytes / memory:.1%} of the memory, and runs out with a"
              f" probability of {chance(item.run_out_probability)}; by the 80 % rule: {item.rule_80}.", markup=False)


def _show_nothing(out: Console, advice: Advice) -> None:
    item = advice.excluded
    if item is not None and advice.complete:
        out.print(f"Nothing fits. The legal layout of least memory is {in_words(item.layout)}: it needs"
                  f" {gib(item.peak_bytes)} GiB of {item.gpu_memory / GIB:g} GiB.", markup=False)
    show_switches(out, advice.switches)
    show_untried(out, advice.untried)


def _neighbours(choice: Choice) -> FittedTable:
    seconds = choice.time.seconds
    rows = [
        (f"{TITLES[item.name]} {item.before} -> {item.after}", _seconds(item.seconds),
         "" if item.seconds is None else f"{item.seconds / seconds - 1:+.1%}",
         "" if item.peak_bytes is None else gib(item.peak_bytes), _excluded(item, seconds))
        for item in choice.neighbours
    ]
    return table(("step", "seconds", "", "peak", ""), rows, right=(1, 2, 3), title="One step away from the first")


def _excluded(item: Neighbour, seconds: float) -> str:
    if item.excluded:
        return item.excluded
    return "" if item.seconds is not None and item.seconds < seconds else "slower"


def _changes(changes: Iterable[Change]) -> FittedTable:
    rows = []
    for item in changes:
        if item.layout is None or item.speed is None or item.peak_bytes is None:
            rows.append((item.what, "", "", "", "nothing fits"))
            continue
        rows.append((item.what, _seconds(item.seconds), f"{item.speed - 1:+.1%}", gib(item.peak_bytes),
                     "the same layout" if item.same else in_words(item.layout)))
    titles = ("with", "seconds", "speed", "peak", "best that fits then")
    return table(titles, rows, right=(1, 2, 3), title="Changes of inputs, with a new search each")


def _show_launched(out: Console, choice: Choice) -> None:
    """Print the file that launches a choice, or why there is none."""
    try:
        text = choice.script()
    except InputError as error:
        unsaid = error.rule.removeprefix("must be a format that can ")
        why = str(error) if unsaid == error.rule else f"{error.value} cannot {unsaid}"
        out.print(f"No file to launch the first: {why}", markup=False)
    else:
        out.print(f"To launch the first (--write prints it alone):\n\n{text}", markup=False, soft_wrap=True)


def _seconds(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"
