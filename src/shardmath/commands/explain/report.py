"""An account in the terminal and as CSV: components and roles down, pipeline ranks across."""

from __future__ import annotations

import csv
from collections.abc import Sequence

from rich.console import Console

from shardmath.account.accounting import Explanation, RankAccount
from shardmath.answers import plain
from shardmath.files.writing import whole_file
from shardmath.generated.definitions import DEGREES, ROLES, SHORT, SPLIT_BACKWARD
from shardmath.input.parameters import OTHERS
from shardmath.reports.sizes import batch_in_words
from shardmath.reports.tables import FittedTable, chance, console, gib, judged, table
from shardmath.reports.time import show_rates, show_stages, show_time
from shardmath.steps.answers import Replay

#: Ranks that are shown unless all are asked for: this many of each end.
_ENDS = 3
#: Below this width there are fewer ranks.
_NARROW = 100
#: Of more ranks than this moments are written in words, which may wrap, and parameters in millions: terms need room.
_WHOLE = 3
#: Share of a rank's memory below which tensors stand together.
_SMALL = 0.01
#: Share of a host's memory from which on the shards of its GPUs are worth a line while they are saved.
_MUCH = 0.25


def show(explanation: Explanation, all_ranks: bool = False, full: bool = False) -> None:
    """Print the verdict and the step time, then the account of every rank, and what published formulas say.

    Without ``full``, tensors of less than ``_SMALL`` of the rank that they are on stand together, by role.
    """
    out = console()
    out.print(heading(explanation), markup=False)
    _show_verdict(out, explanation)
    show_rates(out, explanation)
    ranks = shown_ranks(explanation, _ENDS - (out.width < _NARROW))
    if len(ranks) < len(explanation.ranks):
        out.print(f"ranks {', '.join(str(item.rank) for item in ranks)} of {len(explanation.ranks)}; "
                  "--all-ranks adds a line for every one")
    out.print(_account(ranks, full))
    if all_ranks:
        out.print(every_rank(explanation))
    show_stages(out, explanation)
    show_time(out, explanation)
    total, active = explanation.parameters.total, explanation.parameters.active
    met = "" if active == total else f", of which a token meets {active:,}"
    out.print(f"Parameters of the model: {total:,}{met}.", markup=False)
    for item in explanation.published:
        line = f"Published: {gib(item.total)} GiB on the first rank, {item.rule_80} by the 80 % rule ({item.title})."
        out.print(judged(line, item.rule_80))


def _show_verdict(out: Console, explanation: Explanation) -> None:
    """Print whether the rank that needs most fits, what else it takes, and what other moments need."""
    peak = explanation.peak
    out.print(judged(verdict_line(explanation), peak.verdict))
    out.print(f"Peak: {gib(peak.total)} GiB on rank {peak.rank}, {peak.share:.1%} of the GPU ({explanation.reason}).",
              markup=False)
    if not explanation.moments_counted:
        out.print("Counted are saved tensors and the loss; other moments of a step are not (kernel peak=saved).",
                  markup=False)
    if explanation.choices["pipeline"] == "torch" and explanation.choices["schedule"] in SPLIT_BACKWARD:
        out.print("Moments of a split backward pass with FSDP2 are estimates, counted within 3 % on small models.",
                  markup=False)
    out.print(process_line(explanation), markup=False)
    server = explanation.gpu.servers
    for outside in explanation.outside:
        is_much = outside.shards * server["server_gpus"] > _MUCH * server["host_memory"] > 0
        on_host = outside.shards if is_much else outside.host
        if not on_host and outside.bytes <= peak.total:
            continue  # the step needs more
        beside = f", {gib(on_host)} GiB on a host" if on_host else ""
        if outside.joined:
            beside = f", {gib(outside.joined)} of which come to be on the host where they do not fit"
        line = f"While {outside.moment}: {gib(outside.bytes)} GiB{beside}: {outside.verdict}."
        out.print(judged(line, outside.verdict))
    if peak.host:
        memory = explanation.inputs["host_memory"]
        of = f" of {gib(memory)}" if memory else ""
        out.print(f"On the host: {gib(peak.host)} GiB of that rank, {gib(explanation.host_bytes)}{of} GiB of a server.",
                  markup=False)
    if explanation.pinned_bytes:
        out.print(f"Pinned blocks of that rank take {gib(explanation.pinned_bytes)} GiB more.", markup=False)


def _account(ranks: Sequence[RankAccount], full: bool) -> FittedTable:
    """Components and roles down, ranks across, with sums and verdicts below."""
    titles = ["component", "role", *(f"rank {item.rank}" for item in ranks), "term"]
    built = table(titles, (), range(2, 2 + len(ranks)), "GiB on one GPU", spare=("term",))
    sizes = {item.rank: {line.term: line.bytes for line in item.lines} for item in ranks}
    terms = dict.fromkeys((line.component, line.role, line.term) for item in ranks for line in item.lines)
    for role in ROLES:
        alike = [entry for entry in terms if entry[1] == role]
        small = [entry for entry in alike if not full and all(
            sizes[item.rank].get(entry[2], 0) < _SMALL * item.total for item in ranks)]
        small = small if len(small) > 1 else []
        for component, _, term in (entry for entry in alike if entry not in small):
            known = [sizes[item.rank].get(term) for item in ranks]
            built.add_row(component, role, *("" if size is None else gib(size) for size in known), term)
        if small:
            sums = [sum(sizes[item.rank].get(term, 0) for *_, term in small) for item in ranks]
            built.add_row(f"{len(small)} smaller", role, *map(gib, sums), "shown with --full")
    built.add_section()
    for role in ranks[0].by_role:
        term = f"stage.{role}" if role != "transient" else "at the peak"
        built.add_row("all", role, *(gib(item.by_role[role]) for item in ranks), term)
    built.add_section()
    built.add_row("total", "", *(gib(item.total) for item in ranks), "stage.total")
    built.add_row("share", "", *(f"{item.share:.1%}" for item in ranks), "")
    built.add_row("verdict", "", *(item.verdict for item in ranks), "process.fits")
    built.add_row("80 % rule", "", *(item.rule_80 for item in ranks), "")
    between = "_" if len(ranks) <= _WHOLE else " "
    built.add_row("peaks", "", *(item.site.replace("_", between) for item in ranks), "moment")
    built.add_row("in flight", "", *(str(item.in_flight) for item in ranks), "in_flight")
    millions = len(ranks) > _WHOLE
    built.add_row("parameters", "10^6" if millions else "",
                  *(f"{item.parameters / 1e6:,.1f}" if millions else f"{item.parameters:,}" for item in ranks),
                  "stage.all_parameters")
    return built


def process_line(explanation: Explanation) -> str:
    """Return the three numbers of the rank that needs most: allocated, reserved, process."""
    taken, replay = explanation.process, explanation.replay
    groups = "1 communicator" if taken.communicators == 1 else f"{taken.communicators} communicators"
    line = f"On that rank: allocated {gib(taken.allocated)}, "
    if replay is None:
        line += f"reserved {_ranged(explanation, 'reserved')}, process {_ranged(explanation, 'total')} GiB ({groups})."
    else:
        beyond = [replay.reserved_bytes + total - reserved for total, reserved in (
            (taken.total, taken.reserved), *((end["total"], end["reserved"]) for end in (taken.low, taken.high)))]
        less = replay.allocated_bytes < explanation.peak_bytes
        first = f": the first rank, of {gib(replay.allocated_bytes)} allocated" if less else ""
        line += f"reserved {gib(replay.reserved_bytes)} (replayed{first}), process {_spread(*beyond)} GiB ({groups})."
        line += f"\n{_kept_back(replay)}"
    if explanation.anchor is not None:
        known = explanation.anchor
        line += (
            f"\nAnchored to {gib(known.measured['allocated_bytes'])} GiB measured,"
            f" {gib(known.estimated)} GiB estimated: "
            "the difference is added here as a constant, and only the constants are fixed by it."
        )
    return line


def verdict_line(explanation: Explanation) -> str:
    """Return the verdict with the probability behind it, and that of the 80 % rule."""
    rank, probability = explanation.peak.rank, explanation.run_out_probability
    why = "more is allocated than there is" if probability == 1 else (
        f"the process on rank {rank} runs out of memory with a probability of {chance(probability)}")
    return f"Verdict: {explanation.verdict}, {why}. By the 80 % rule: {explanation.rule_80}."


def _kept_back(replay: Replay) -> str:
    """Say what the allocator has and cannot use when it has most."""
    parts = ", ".join(f"{gib(size)} {words}" for size, words in (
        (replay.split_bytes, "free beside tensors in use"), (replay.cached_bytes, "in free segments"),
        (replay.awaiting_bytes, "waits for another stream"), (replay.rounding_bytes, "rounding")) if size)
    text = f"Kept back by the allocator when it has most, GiB: {parts or 'nothing'}."
    if not replay.fits:
        text += f" It runs out of the {gib(replay.capacity_bytes)} GiB that PyTorch can get here."
    elif replay.retries:
        often = "once" if replay.retries == 1 else f"{replay.retries} times"
        text += f" Free segments went back to the driver {often}."
    return text


def _ranged(explanation: Explanation, name: str) -> str:
    taken = explanation.process
    return _spread(getattr(taken, name), taken.low[name], taken.high[name])


def _spread(own: int, low: int, high: int) -> str:
    return gib(own) if low == high else f"{gib(own)} ({gib(low)} to {gib(high)})"


def heading(explanation: Explanation) -> str:
    """Print the question in two lines."""
    value = explanation.inputs
    named = {name for name in DEGREES if name in OTHERS and value[name] > 1}
    if value["num_experts"] and value["tensor_parallel"] > 1:  # else experts have as many ranks
        named.add("expert_tensor_parallel")
    degrees = "".join(f"{SHORT[name]} {value[name]}, " for name in DEGREES if name in named)
    sequence = "on" if value["sequence_parallel"] else "off"
    return (
        f"{explanation.model.name} on {_gpus(explanation)}, "
        f"{explanation.implementation}, {batch_in_words(value['global_batch_size'], value['seq_length'])}\n"
        f"TP {value['tensor_parallel']}, CP {value['context_parallel']}, PP {value['pipeline_parallel']}, "
        f"DP {value['data_parallel']}, {degrees}micro-batch {value['micro_batch_size']}, "
        f"sequence parallelism {sequence}, recompute {explanation.recompute}"
    )


def _gpus(explanation: Explanation) -> str:
    """Return how many GPUs of which kind."""
    machines = explanation.cluster.machines(explanation.inputs["num_gpus"])
    return " and ".join(f"{number} x {gpu.name} ({gpu.memory_gib:g} GiB)" for number, gpu in machines)


def every_rank(explanation: Explanation) -> FittedTable:
    """Return a line for each pipeline rank, with its sums by role."""
    titles = ("rank", *ROLES, "total", "share", "in flight", "verdict", "80 % rule")
    rows = [
        (str(item.rank), *(gib(item.by_role[role]) for role in ROLES), gib(item.total), f"{item.share:.1%}",
         str(item.in_flight), item.verdict, item.rule_80)
        for item in explanation.ranks
    ]
    return table(titles, rows, right=range(len(titles) - 2), title="GiB of every rank",
                 spare=("share", "input", "buffer"))


def shown_ranks(explanation: Explanation, number: int = _ENDS) -> list[RankAccount]:
    """Return all ranks, or of many the first and last ``number``, always with the one that keeps most."""
    if len(explanation.ranks) <= 2 * number:
        return list(explanation.ranks)
    ends = {*range(number), *range(len(explanation.ranks) - number, len(explanation.ranks)), explanation.peak.rank}
    return [item for item in explanation.ranks if item.rank in ends]


def write_csv(explanation: Explanation, path: str) -> None:
    """Write one row per rank and term, in bytes."""
    with whole_file("csv", path) as file:
        writer = csv.writer(file)  # type: ignore[arg-type]
        writer.writerow(("rank", "component", "role", "term", "bytes"))
        for item in explanation.ranks:
            for line in item.lines:
                writer.writerow((item.rank, line.component, line.role, line.term, plain(line.bytes)))
            writer.writerow((item.rank, "total", "", "stage.total", item.total))
