"""The answer of a space in the terminal: counts, then a table for each question."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from shardmath.commands.explore.answer import Answered, BoundedPart, Counted, Explored, Ranking
from shardmath.generated.definitions import SHORT, VERDICTS
from shardmath.reports.sizes import TITLES
from shardmath.reports.tables import RULE, FittedTable, console, gib, table
from shardmath.search.nests.configurations import Configuration

#: Characters of a formula that heads a column; the title has all of it.
_WIDEST = 20
#: Said of times on measured links.
_LINKS = "Times are those with each link as fast as the fastest: nodes are not placed. `shardmath sweep` places them."
#: Rows of a table.
_MOST = 40
_AMONG = {"fits": "that fit", "uncertain": "that fit or may fit", "legal": "that are legal"}


def show(explored: Explored) -> None:
    """Print the answer to each question, then how many configurations broke which condition and fit."""
    out = console()
    rows = [("in the space", f"{explored.size:,}", "")]
    rows += [row for item in explored.bounds for row in _cut(item)]
    if not explored.complete and not explored.bounds:
        rows.append(("looked at", f"{explored.done:,}", f"{explored.done / explored.size:.1%}: it was stopped"))
    rows += [(f"broke {item.name}", f"{item.count:,}", item.meaning) for item in explored.broken if item.count]
    if explored.legal is not None:
        rows.append(("legal", f"{explored.legal:,}", ""))
        rows += [(name, f"{explored.verdicts[name]:,}", meaning) for name, meaning in VERDICTS]
    if explored.rows is not None:
        rows.append(("rows", f"{explored.rows:,}", "written"))
    for item in explored.left_out:
        options = ", ".join(f"{axis} {option}" for axis, option in item.options.items())
        out.print(f"Left out: {options}: {item.reason}", markup=False)
    if explored.refusal:
        out.print(f"No configuration is legal. {explored.refusal}", markup=False)
    for name, answered in explored.answers.items():
        out.print(_answer(name, answered))
    if explored.links_as_fastest:
        out.print(_LINKS, markup=False)
    title = "Configurations by rule and by verdict"
    out.print(table(("configurations", "count", ""), rows, right=(1,), title=title))


def _cut(item: BoundedPart) -> Iterator[tuple[str, str, str]]:
    """Yield rows that say how a part was cut, and how much better its answers may still get."""
    options = "".join(f", {axis} {option}" for axis, option in item.options.items())
    yield "boxes bounded", f"{item.bounded:,}", f"part {item.part}{options}, cut by {', '.join(item.order)}"
    if item.open:
        gaps = ", ".join(f"{name} {'not known' if gap is None else f'{gap:.2%}'}" for name, gap in item.gaps.items())
        yield "boxes left", f"{item.open:,}", f"it was stopped; answers may get better by: {gaps}"


def _answer(name: str, answered: Answered) -> FittedTable | str:
    among = _AMONG[answered.question.among]
    if isinstance(answered, Counted):
        return _histogram(name, answered, among)
    by = ", then ".join(answered.question.by)
    if isinstance(answered, Ranking):
        configurations = [item for group in answered.groups for item in group.configurations]
        per = f" for each {', '.join(answered.question.per)}" if answered.question.per else ""
        title = f"{name}: least {by} of those {among}{per}"
    else:
        configurations = list(answered.configurations)
        title = f"{name}: not beaten in {', '.join(answered.question.by)} of those {among}"
    return _configurations(title, configurations) if configurations else f"{title}: none"


def _configurations(title: str, configurations: Sequence[Configuration]) -> FittedTable:
    first = configurations[0]
    several = {axis.name for item in configurations for axis in item.part.axes if axis.size > 1}
    names = [name for name in first.labels if name in several or name in first.part.labels]
    keys = {
        text: text if len(text) <= _WIDEST else f"key {place}" for place, text in enumerate(first.keys, 1)
        if text.lstrip("-") not in ("peak", *names)
    }
    if alike := _alike(names, configurations):
        names = [name for name in names if name not in alike]
        title += f"; all with {', '.join(f'{name} {value}' for name, value in alike.items())}"
    if len(configurations) > _MOST:
        title += f" (the first {_MOST} of {len(configurations):,}; --json has all)"
    rows = [
        [
            *(_label(name, item) for name in names), *(_value(text, item) for text in keys), gib(item.peak_bytes),
            f"{item.share:.1%}", item.verdict, item.rule_80,
        ]
        for item in configurations[:_MOST]
    ]
    texts = {place for place, name in enumerate(names) if not isinstance(first.labels[name], int)}
    short = [name if name in first.part.labels else SHORT.get(name, name) for name in names]
    titles = [*short, *keys.values(), "peak GiB", "share", "verdict", RULE]
    right = set(range(len(titles) - 2)) - texts
    return table(titles, rows, right=right, title=title, spare=("share", RULE))


def _alike(names: Sequence[str], configurations: Sequence[Configuration]) -> dict[str, str]:
    """Return values that all of several configurations have, but for sizes of the layout."""
    values = {name: {_label(name, item) for item in configurations} for name in names if name not in TITLES}
    return {name: value for name, (value, *others) in values.items() if not others and len(configurations) > 1}


def _label(name: str, item: Configuration) -> str:
    label = item.labels[name]
    return ("off", "on")[int(label)] if name == "sequence_parallel" else str(label)


def _value(text: str, item: Configuration) -> str:
    value = item.keys[text]
    if item.part.unit(text) == "bytes" and value is not None:
        return f"{gib(round(value))} GiB"
    return f"{value:,}" if isinstance(value, int) else f"{value:.4g}"


def _histogram(name: str, answered: Counted, among: str) -> FittedTable:
    in_bytes = answered.unit == "bytes"
    edges = [gib(edge) if in_bytes else f"{edge:,}" for edge in answered.question.edges]
    rows = zip(["", *edges], [*edges, ""], [f"{count:,}" for count in answered.counts], strict=True)
    title = f"{name}: {answered.question.of}{', GiB,' if in_bytes else ''} of those {among}"
    return table(("from", "up to", "count", ""), [(*row, "") for row in rows], right=(0, 1, 2), title=title)
