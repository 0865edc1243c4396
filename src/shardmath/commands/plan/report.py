"""The plan of a training in the terminal: one line for each kind and number of GPUs, the choices, the optimum."""

from __future__ import annotations

from rich.console import Console

from shardmath.commands.plan.answers import Band, Offer, Optimum, Plan
from shardmath.reports.sizes import in_words
from shardmath.reports.stopped import stopped
from shardmath.reports.tables import console, table
from shardmath.reports.time import show_overlapped


def show(plan: Plan) -> None:
    """Print the choices with their layouts, then all offers, and what else the compute could train."""
    out = console()
    limits = [f"{plan.deadline_days:,.4g} days" if plan.deadline_days is not None else "",
              f"{plan.budget:,.0f}" if plan.budget is not None else ""]
    asked = " and ".join(filter(None, limits))
    out.print(f"{plan.model.name}: {short(plan.tokens)} tokens, {short(plan.batch_tokens)} in a step"
              + (f", within {asked}" if asked else ""))
    if not plan.complete:
        out.print(stopped({f"on {_where(offer)}": offer.gap for offer in plan.offers
                           if not offer.complete and offer.phases}), markup=False)
    _show_choices(out, plan)
    known = [title for offer in plan.offers for title, text in _columns(offer) if text]
    columns = [title for title, _ in _columns(plan.offers[0]) if title in known]
    titles = ("GPUs", *columns)
    rows = [[_where(offer), *(text for title, text in _columns(offer) if title in columns)]
            for offer in plan.offers]
    if columns:
        out.print(table(titles, rows, right=range(1, len(titles)), title="Resources of the training, with bands",
                    spare=("GPU-hours", "MWh", "t CO2", "interruptions", "kept", "tokens/J", "MFU")))
    for place, offer in enumerate(plan.offers):
        if place not in (plan.fastest, plan.cheapest):
            _show_layouts(out, offer)
    if plan.complete and not all(offer.phases for offer in plan.offers):
        out.print("`shardmath recommend` names changes of a job that make something fit.", markup=False)
    for item in plan.optima:
        out.print(_optimum(item))
    phases = [phase for offer in plan.offers for phase in offer.phases]
    show_overlapped(out, dict.fromkeys(plan.overlaps, 1),
                    (phase.data_parallel * int(phase.layout["context_parallel"]) for phase in phases))
    _show_uncounted(out, plan)


def _columns(offer: Offer) -> list[tuple[str, str]]:
    """Titles and texts of the columns; texts are empty where nothing is known."""
    phase = offer.phases[0] if offer.phases else None
    gain = offer.gain
    return [
        ("days", _band(offer.days)),
        ("GPU-hours", _band(offer.gpu_hours)),
        ("cost", _band(offer.cost)),
        ("MWh", _band(offer.energy_kwh, 1e3)),
        ("t CO2", _band(offer.carbon_kg, 1e3)),
        ("MFU", "" if phase is None else f"{phase.mfu:.1%}"),
        ("goodput", "" if offer.goodput is None else f"{offer.goodput:.1%}"),
        ("interruptions", "" if offer.interruptions is None else f"{offer.interruptions:,.0f}"),
        ("kept", "" if gain is None else f"{gain.kept:.0%}"),
        ("tokens/J", "" if gain is None or gain.per_watt is None else f"{gain.per_watt:.2f}"),
        ("deadline", offer.deadline),
        ("budget", offer.budget),
    ]


def _where(offer: Offer) -> str:
    return f"{offer.num_gpus:,} {offer.gpu}"


def _show_layouts(out: Console, offer: Offer) -> None:
    where = _where(offer)
    if not offer.phases:
        out.print(f"{where}: {offer.reason}.")
    for phase in offer.phases:
        length = f", {phase.seq_length} tokens" if len(offer.phases) > 1 else ""
        out.print(f"{where}{length}: {in_words(phase.layout)}, DP {phase.data_parallel}")


def _show_choices(out: Console, plan: Plan) -> None:
    """Print the fastest and the cheapest offer with their layouts, in one line where they are the same."""
    titles: dict[int, list[str]] = {}
    for title, place in (("fastest", plan.fastest), ("cheapest", plan.cheapest)):
        if place is not None:
            titles.setdefault(place, []).append(title)
    for place, names in titles.items():
        offer = plan.offers[place]
        assert offer.days is not None
        cost = "" if offer.cost is None else f", {_band(offer.cost)}"
        out.print(f"{' and '.join(names).capitalize()}: {_where(offer)}, {_band(offer.days)} days{cost}.")
        _show_layouts(out, offer)
    if not titles:
        out.print(f"No offer meets what was asked{'' if plan.complete else ' so far'}.")


def _optimum(item: Optimum) -> str:
    return (f"Of least loss for the compute of the {item.compute} ({item.flops:.3g} FLOP, {item.source}):"
            f" {short(item.parameters)} parameters on {short(item.tokens)} tokens, loss {item.loss:.3f}"
            f" (planned {item.planned_loss:.3f}).")


def _show_uncounted(out: Console, plan: Plan) -> None:
    """Name what is not counted, with the options that count it, and the sources of what is."""
    absent = {"failures (--pause and --restart)": bool(plan.failures), "CO2 (--carbon)": bool(plan.electricity),
              "cost (--price)": any(offer.price is not None for offer in plan.offers)}
    names = [name for name, known in absent.items() if not known]
    if names:
        out.print(f"Not counted: {', '.join(names)}.")
    for title, source in (("Failures", plan.failures), ("Electricity", plan.electricity)):
        if source:
            out.print(f"{title}: {source}.")


def _band(band: Band | None, unit: float = 1.0) -> str:
    """Write a band as its middle with low and high in brackets."""
    if band is None:
        return ""
    low, middle, high = (short(number / unit) for number in (band.low, band.middle, band.high))
    return f"{middle} ({low}-{high})"


def short(number: float) -> str:
    """Write a number with three digits, and k, M, B or T behind it from 10,000 on."""
    for letter, size in (("T", 1e12), ("B", 1e9), ("M", 1e6), ("k", 1e3)):
        if number >= max(size, 1e4) * 0.9995:
            return f"{number / size:.3g}{letter}" if number < 999.5 * size else f"{number / size:,.0f}{letter}"
    return f"{number:.3g}" if number < 999.5 else f"{number:,.0f}"
