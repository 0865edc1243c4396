"""Report of ``moves``: sensitivities, single changes, and the smallest changes that make it fit."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction

from shardmath.commands.explain.report import heading
from shardmath.commands.moves import Difference, Move, Moves, Sensitivity, SlopeFormulas
from shardmath.generated.definitions import SHORT, SITES
from shardmath.reports.sizes import TITLES, in_words
from shardmath.reports.tables import FittedTable, console, gib, table
from shardmath.reports.time import show_error
from shardmath.reports.untried import show_untried
from shardmath.search.choosing import FASTER

#: So many sensitivities and sets of changes are shown, unless all are asked for.
_SHOWN = 12
_TITLES = {**TITLES, "data_parallel": SHORT["data_parallel"], "zero_stage": "ZeRO"}
#: Fractions of so many signs are written out; of longer ones only the beginning is.
_LONG = 16


def show(moves: Moves, everything: bool = False) -> None:
    """Print what moves the peak, and what would make it fit or, if it does, faster."""
    out = console()
    out.print(heading(moves.explanation), markup=False)
    out.print(_peak(moves), markup=False)
    show_error(out, moves.error, bool(moves.model.num_experts), moves.explanation.cluster)
    if moves.seconds is None:
        out.print(f"Step time is not computed: {moves.time_unknown}. Columns of time are left out, and the"
                  " fewest model-parallel ranks come first.", markup=False)
    out.print()
    rows = moves.sensitivities if everything else moves.sensitivities[:_SHOWN]
    out.print(_sensitivities(rows))
    _say_more(len(rows), len(moves.sensitivities), "symbols")
    out.print(_differences(moves))
    best = moves.gains if moves.fits else moves.smallest
    if best:
        shown = best if everything else best[:_SHOWN]
        title = "Faster, and still fits" if moves.fits else "The smallest changes that make it fit"
        out.print(_sets(moves, shown, f"{title}: the cheapest in time first" if moves.seconds else title))
        _say_more(len(shown), len(best), "sets of changes")
    elif not moves.fits:
        out.print(f"Nothing makes it fit: no layout of these GPUs with the kernels of now, and no three changes with"
                  f" others. The least that a layout needs is {gib(moves.least.peak_bytes)} GiB"
                  f" ({in_words(moves.least.layout)}).", markup=False)
    elif moves.seconds is not None:
        out.print(f"Nothing that fits is faster by {FASTER:.0%} after one or two changes.")
    show_untried(out, moves.untried)


def show_formulas(formulas: SlopeFormulas) -> None:
    """Print the formulas behind one sensitivity."""
    rows = [(line.term, _exact(line.slope), line.formula) for line in formulas.lines]
    rows.append(("all", _exact(formulas.slope), ""))
    out = console()
    out.print(table(("term", f"d/d{formulas.letter}, bytes", "formula"), rows, right=(1,),
                    title=f"Parts of the peak's sensitivity to {formulas.name}"))
    if formulas.uses:
        out.print("where " + ", ".join(f"{letter} = {text}" for letter, text in formulas.uses.items()), markup=False)


def _say_more(shown: int, there: int, noun: str) -> None:
    if shown < there:
        console().print(f"{shown} of {there} {noun}; --all shows all")


def _peak(moves: Moves) -> str:
    peak = moves.peak
    fits = "it fits" if moves.fits else "it does not fit"
    rule = f"it runs out with a probability below {moves.risk:.3g}" if moves.share is None else (
        f"are {float(moves.share):.4g} of the memory")
    time = "" if moves.seconds is None else f", a step takes {moves.seconds:.2f} s"
    return (f"Peak M: {gib(peak.total)} GiB on rank {peak.rank}, {SITES[peak.site][0]}\n"
            f"Up to {gib(moves.limit_bytes)} GiB {rule}: {fits}{time}")


def _sensitivities(rows: Iterable[Sensitivity]) -> FittedTable:
    titles = ("x", "value", "dM/dx, bytes", "GPUs fixed", "elasticity", "next smaller", "next larger", "")
    lines = [
        (item.name, f"{item.value:,}", _slope(item), _exact(item.gpus_fixed), f"{float(item.elasticity):+.3f}",
         _step(item.smaller), _step(item.larger), _note(item))
        for item in rows
    ]
    title = "Sensitivities: every other symbol fixed, the largest elasticity first; differences in GiB"
    return table(titles, lines, right=range(1, len(titles) - 1), title=title, spare=("dM/dx, bytes", "GPUs fixed"))


def _slope(item: Sensitivity) -> str:
    if item.slope is None:
        return "\n".join(_exact(side) for side in (item.below, item.above) if side is not None)
    return _exact(item.slope)


def _exact(number: Fraction | None) -> str:
    """Return an exact number, or the beginning of one that would take too much room."""
    if number is None:
        return ""
    text = f"{number.numerator:,}" + ("" if number.denominator == 1 else f"/{number.denominator:,}")
    return text if len(text) <= _LONG else f"{float(number):,.2f}"


def _step(step: Difference | None) -> str:
    return "" if step is None else f"{step.after:,}: {_change(step.bytes)}"


def _note(item: Sensitivity) -> str:
    """Why the slope is not simply the derivative."""
    if item.slope is None:
        return "switch" if item.below is None else "bends:\nbelow, above"
    return "" if item.derivative == item.slope else "in steps"


def _change(size: int) -> str:
    return f"{'-' if size < 0 else '+'}{gib(abs(size))}"


def _differences(moves: Moves) -> FittedTable:
    titles = ["change", "peak", "GiB", "DP"]
    if moves.seconds is not None:
        titles += ["seconds", ""]
    lines = [
        (in_changes(move), gib(move.peak_bytes), _change(move.change_bytes), _data(moves, move),
         *_time(moves, move), "yes" if move.fits else "no")
        for move in moves.differences
    ]
    return table([*titles, "fits"], lines, right=range(1, len(titles)),
                 title="One thing changed, the same batch and, but for DP, the same GPUs: the largest saving first")


def _sets(moves: Moves, rows: Sequence[Move], title: str) -> FittedTable:
    titles = ["peak", "margin", "DP"]
    if moves.seconds is not None:
        titles += ["seconds", ""]
    lines = [
        (gib(move.peak_bytes), gib(move.margin_bytes), _data(moves, move), *_time(moves, move), in_changes(move))
        for move in rows
    ]
    return table([*titles, "changes"], lines, right=range(len(titles)), title=title)


def _time(moves: Moves, move: Move) -> tuple[str, ...]:
    if moves.seconds is None:
        return ()
    return ("", "") if move.ratio is None else (f"{move.seconds:.2f}", f"{move.ratio - 1:+.1%}")


def _data(moves: Moves, move: Move) -> str:
    """Return the data-parallel size that the other sizes leave."""
    ranks = int(move.arguments["num_gpus"])
    for name in ("tensor_parallel", "context_parallel", "pipeline_parallel"):
        ranks //= int(move.layout[name])
    return str(ranks)


def in_changes(move: Move) -> str:
    """Return the changes of a move in one line."""
    return ", ".join(
        f"{_TITLES.get(change.name, change.name.replace('_', ' '))} "
        f"{_value(change.name, change.before)} -> {_value(change.name, change.after)}"
        + (f" ({_gpus(move.arguments['num_gpus'])})" if change.name == "data_parallel" else "")
        for change in move.changes
    )


def _gpus(number: int) -> str:
    return "1 GPU" if number == 1 else f"{number} GPUs"


def _value(name: str, value: int | str) -> str:
    return ("on" if value else "off") if name == "sequence_parallel" else str(value)
