"""A comparison in the terminal: what was asked differently, terms side by side, and the tensors behind it all."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction

from rich.console import Console

from shardmath.commands.compare import Comparison
from shardmath.commands.compare.comparison import Side, SideDifference, TensorDifference
from shardmath.commands.compare.published import PublishedSide, PublishedTerm
from shardmath.commands.explain.report import heading
from shardmath.generated.definitions import ROLES, SPENT
from shardmath.reports.tables import RULE, FittedTable, console, gib, table
from shardmath.reports.time import within

#: Tensors below this share of all differences are shown as one line.
_SMALL = Fraction(1, 1000)


def show(comparison: Comparison, everything: bool = False) -> None:
    """Print a comparison; terms and tensors that hardly differ only if ``everything`` is asked for."""
    out = console()
    for side in comparison.sides:
        out.print(f"{side.name}: {heading(side.explanation)}, rank {side.account.rank}", markup=False)
    if len(comparison.sides) > 1:
        _show_changes(out, comparison)
        out.print(_terms(comparison, everything))
        _show_time(out, comparison)
        for difference in comparison.differences:
            _show_tensors(out, comparison, difference, everything)
    for published in comparison.published:
        _show_published(out, published)
    if comparison.published and comparison.sides[0].explanation.implementation != "megatron":
        out.print("Remarks are about Megatron-LM's usual kernels; the differences are those of the kernels asked for.")


def signed(size: int | Fraction) -> str:
    """Return a difference in bytes as GiB with its sign."""
    return "0" if not size else f"{'-' if size < 0 else '+'}{gib(abs(Fraction(size)))}"


def _names(comparison: Comparison) -> list[str]:
    return [side.name for side in comparison.sides]


def _show_changes(out: Console, comparison: Comparison) -> None:
    if not comparison.changes:
        out.print("All inputs are the same.")
        return
    rows = [
        (f"{item.name} ({item.letter})" if item.letter else item.name, *map(str, item.values), "")
        for item in comparison.changes
    ]
    out.print(table(["what differs", *_names(comparison), ""], rows))


def _terms(comparison: Comparison, everything: bool) -> FittedTable:
    """Component by role with one column for each side, and one for each difference from the first."""
    sides, more = len(comparison.sides), [f"{side.name} - {comparison.sides[0].name}" for side in comparison.sides[1:]]
    built = table(["component", "role", *_names(comparison), *more, ""], (), range(2, 1 + 2 * sides),
                  "GiB on one GPU" + ("" if everything else ", terms that differ"))

    def add(component: str, role: str, sizes: Sequence[int | Fraction]) -> None:
        built.add_row(component, role, *(gib(size) if size else "" for size in sizes),
                      *(signed(size - sizes[0]) for size in sizes[1:]), "")

    for item in comparison.terms:
        if everything or item.differs:
            add(item.component, item.role, item.bytes)
    built.add_section()
    for role in ROLES:
        add("all", role, [side.account.by_role[role] for side in comparison.sides])
    built.add_section()
    add("total", "", [side.account.total for side in comparison.sides])
    for title, texts in _verdicts(comparison.sides):
        built.add_row(title, "", *texts, *[""] * (sides - 1), "")
    return built


def _verdicts(sides: Sequence[Side]) -> Iterator[tuple[str, list[str]]]:
    yield "share", [f"{side.account.share:.1%}" for side in sides]
    yield "verdict", [side.account.verdict for side in sides]
    yield RULE, [side.account.rule_80 for side in sides]
    yield "peaks", [side.account.site for side in sides]
    yield "in flight", [str(side.account.in_flight) for side in sides]


def _show_time(out: Console, comparison: Comparison) -> None:
    """Print the seconds of a step by their parts, of the sides whose time is known."""
    times = [side.explanation.time for side in comparison.sides]
    for side in comparison.sides:
        if side.explanation.time is None:
            out.print(f"{side.name}: step time is not computed: {side.explanation.time_unknown}.", markup=False)
    if not any(times):
        return
    first = times[0]

    def row(title: str, seconds: Sequence[float | None], digits: int = 3) -> list[str]:
        texts = ["" if number is None else f"{number:,.{digits}f}" for number in seconds]
        first = seconds[0]
        more = ["" if number is None or first is None else f"{number - first:+,.{digits}f}" for number in seconds[1:]]
        return [title, *texts, *more, SPENT.get(title, "")]

    rows = [
        row(part, [None if time is None else time.spent.get(part, 0.0) for time in times])
        for part in SPENT if any(time is not None and time.spent.get(part, 0.0) for time in times)
    ]
    rows.append(row("step", [None if time is None else time.seconds for time in times]))
    rows.append(row("tokens/s/GPU", [None if time is None else time.tokens_per_second_per_gpu for time in times], 0))
    rows.append(row("MFU, %", [None if time is None else 100 * time.mfu for time in times], 1))
    more = [f"{side.name} - {comparison.sides[0].name}" for side in comparison.sides[1:]]
    title = "Seconds of a step on its slowest rank" if first else "Seconds of a step, where it is known"
    out.print(table(["part", *_names(comparison), *more, ""], rows, right=range(1, 2 * len(times)), title=title))
    bands = {within(time.error, bool(side.explanation.inputs["num_experts"]), side.explanation.cluster): None
             for side, time in zip(comparison.sides, times, strict=True) if time is not None and time.error is not None}
    for band in bands:
        out.print(band, markup=False)


def _show_tensors(out: Console, comparison: Comparison, difference: SideDifference, everything: bool) -> None:
    """Print the tensors of a difference by role, the largest first; small ones share a line of their role."""
    first, side = comparison.sides[0].name, comparison.sides[difference.side].name
    title = f"{side} - {first} by tensor, GiB: {signed(difference.bytes)}"
    if not difference.tensors:
        out.print(f"{title}; every tensor is the same.")
        return
    titles = ["tensor", first, side, f"{side} - {first}", "because", "size on one rank"]
    built = table(titles, (), (1, 2, 3), title, spare=titles[-1:])
    least = _SMALL * sum(abs(Fraction(item.bytes)) for item in difference.tensors)
    for role in ROLES:
        own = [item for item in difference.tensors if item.role == role]
        own.sort(key=lambda item: -abs(Fraction(item.bytes)))
        if not own:
            continue
        sizes = [sum(item.before for item in own), sum(item.after for item in own)]
        built.add_section()
        built.add_row(role, *(gib(size) if size else "" for size in sizes), signed(sizes[1] - sizes[0]), "", "")
        shown = [item for item in own if everything or abs(Fraction(item.bytes)) >= least]
        for item in shown:
            built.add_row(f"  {item.component}.{item.tensor}", *(gib(size) if size else "" for size in
                          (item.before, item.after)), signed(item.bytes), _because(comparison, difference, item),
                          _sizes(item))
        if rest := [item for item in own if item not in shown]:
            sizes = [sum(item.before for item in rest), sum(item.after for item in rest)]
            words = "1 more" if len(rest) == 1 else f"{len(rest)} more"
            built.add_row(f"  {words}", *(gib(size) if size else "" for size in sizes), signed(sizes[1] - sizes[0]),
                          "", "--all shows them")
    out.print(built)


def _because(comparison: Comparison, difference: SideDifference, item: TensorDifference) -> str:
    known = {change.name: change for change in comparison.changes}
    return "; ".join(
        known[name].between(0, difference.side) if name in known else name for name in item.causes
    )


def _sizes(item: TensorDifference) -> str:
    """Return the formula on both sides, once if it is the same, or where the tensor exists."""
    texts = dict.fromkeys(text for text in (item.size_before, item.size_after) if text)
    return " -> ".join(texts)


def _show_published(out: Console, published: PublishedSide) -> None:
    """Print a published set: its estimate, then term by term with the tensors that it leaves out."""
    rows = [row for item in published.terms for row in _published_rows(item)]
    out.print()
    out.print(f"{published.title}: {gib(published.total)} GiB on the first rank, counted {gib(published.counted)}, "
              f"published - counted {signed(published.total - published.counted)}", markup=False)
    title = "Term by term, GiB or 10^9 elements, under the assumptions of the source"
    out.print(table(["published term", "published", "counted", "difference", "why"], rows, (1, 2, 3), title))


def _published_rows(item: PublishedTerm) -> Iterator[list[str]]:
    def amount(size: int | Fraction, sign: str = "") -> str:
        if item.unit == "bytes":
            return signed(size) if sign else gib(size)
        return f"{float(size) / 1e9:{sign}.3f}" if size else "0"

    assumed = ", ".join(f"{letter} = {value}" for letter, value in item.assumed.items())
    yield [item.term.partition(".")[2], amount(item.published), amount(item.counted), amount(item.difference, "+"),
           f"with {assumed}: {item.remark}" if assumed else item.remark]
    for summand in item.summands:
        left_out = f": the source leaves out {', '.join(summand.tensors)}" if summand.tensors else ""
        yield ["", "", "", amount(summand.amount, "+"), f"  {summand.size}{left_out}"]
