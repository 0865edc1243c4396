"""A configuration asked backwards, in the terminal: answers, what binds, and the inverted formulas."""

from __future__ import annotations

from shardmath.commands.fit import FitAnswer, Fits
from shardmath.commands.fit.answers import Bound
from shardmath.commands.fit.run import CLOSED
from shardmath.reports.folding import Formula
from shardmath.reports.tables import console, gib, table

#: Powers of the symbol, in words.
_POWERS = {-1: " shared by {0}", 0: "", 1: " for each of {0}", 2: " for each of {0} squared"}


def show(fits: Fits) -> None:
    """Print a line for each answer, and for a single one the formula too."""
    out = console()
    rule = f"it runs out with a probability below {fits.risk:.3g}" if fits.share is None else (
        f"{float(fits.share):.6g} of the memory")
    out.print(f"{fits.model} on {fits.gpu} ({gib(fits.gpu_memory)} GiB), {fits.implementation}: a peak of at most"
              f" {gib(fits.limit)} GiB ({rule})", markup=False)
    out.print(f"As asked it has {gib(fits.peak)} GiB: it {'fits' if fits.peak <= fits.limit else 'does not fit'}.",
              markup=False)
    titles = ("solved for", "", "now", "fits", "peak", "next", "peak", "how", "rank", "moment")
    rows = [_row(fits, answer) for answer in fits.answers]
    out.print(table(titles, rows, right=(2, 3, 4, 5, 6, 8), spare=("rank", "how")))
    for note in _notes(fits):
        out.print(note, markup=False)
    if len(fits.answers) == 1:
        (answer,) = fits.answers
        for line in _details(answer):
            out.print(line)


def _notes(fits: Fits) -> list[str]:
    """Return the quantities that stay fixed while a symbol changes."""
    stays = {
        "hidden_size": {"head_dim": "hidden_size: head_dim stays; numbers of heads and inner widths grow with it.",
                        "heads": "hidden_size: numbers of heads stay; head_dim and inner widths grow with it.",
                        "all": "hidden_size: heads, head_dim and inner widths stay."}[fits.keep],
        "num_gpus": "num_gpus: data parallelism alone; TP, CP and PP stay.",
        "model_parallel": "model_parallel: TP * PP, on the same GPUs where their number is given.",
    }
    asked = {answer.symbol for answer in fits.answers}
    notes = [f"{answer.symbol}: what is offloaded decides, the hosts of servers hold no more."
             for answer in fits.answers if answer.by_host]
    return notes + [note for symbol, note in stays.items() if symbol in asked]


def _row(asked: Fits, answer: FitAnswer) -> list[str]:
    way = "largest" if answer.largest else "smallest"
    fits = "none" if answer.at is None else _number(answer, answer.at.value)
    name = f"{answer.symbol}, GiB" if answer.unit == "bytes" else answer.symbol
    start = [name, way, _number(answer, asked.now(answer.symbol)), fits]
    peak, rank, moment = ("", "", "") if answer.at is None else (
        gib(answer.at.peak), str(answer.at.rank), answer.at.moment.replace("_", " "))
    beyond = ["", ""] if answer.beyond is None else [_number(answer, answer.beyond.value), gib(answer.beyond.peak)]
    return [*start, peak, *beyond, "formula" if answer.method == CLOSED else "tried", rank, moment]


def _number(answer: FitAnswer, value: int) -> str:
    return gib(value) if answer.unit == "bytes" else f"{value:,}"


def _details(answer: FitAnswer) -> list[str | Formula]:
    lines = [_along(answer, bound, place) for bound, place in ((answer.at, "at the answer"), (answer.beyond, "next"))
             if bound is not None]
    return [*filter(None, lines), *_formula(answer), *_sides(answer)]


def _formula(answer: FitAnswer) -> list[str | Formula]:
    formula = answer.formula
    if formula is None:
        return [f"No formula: {answer.symbol} is found by trying its legal values, {answer.tried} of them."] if (
            answer.method != CLOSED) else []
    closed = "" if formula.closed is None else f" = {formula.closed:,}"
    lines: list[str | Formula] = [Formula(f"{formula.text}{closed}")]
    for name, coefficient in formula.coefficients.items():
        lines.append(Formula(f"  {name} = {coefficient.text}"))
        power = _POWERS[coefficient.power].format(_solved(answer))
        lines.append(f"  {' ' * len(name)} = {float(coefficient.bytes):,.6g} bytes{power}")
    lines += [Formula(f"  where {name} = {made}") for name, made in formula.uses.items()]
    if formula.roundings:
        lines.append(f"Roundings and paddings are {float(formula.roundings):,.6g} bytes more at the answer.")
    return lines


def _solved(answer: FitAnswer) -> str:
    """Return the parameter that the formula is about."""
    bound = answer.at or answer.beyond
    return answer.symbol if bound is None else next(iter(bound.values), answer.symbol)


def _sides(answer: FitAnswer) -> list[str]:
    """Return the remarks on an answer: exact checks, and other values that fit."""
    lines = []
    closed = None if answer.formula is None else answer.formula.closed
    if answer.at is not None and closed is not None and closed != next(iter(answer.at.values.values())):
        lines.append("The formula is the closed form; from it, the next legal value that fits was settled exactly.")
    if answer.others_fit is False:
        side = "smaller" if answer.largest else "larger"
        lines.append(f"The peak does not only rise: some {side} values do not fit.")
    return lines


def _along(answer: FitAnswer, bound: Bound, place: str) -> str:
    along = {name: value for name, value in bound.values.items() if name != answer.symbol}
    return f"{place}: {', '.join(f'{name} = {value:,}' for name, value in along.items())}" if along else ""
