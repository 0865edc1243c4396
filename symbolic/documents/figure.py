"""Data for the appendix's figure: the memory of the first and the last rank after every pass of one step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sympy import Rational

from ..accounts import build
from ..exact import evaluate
from ..implementations import MEGATRON
from ..ledger import SITES, Held
from ..parallel.walk import FORWARD, actions, moments
from .tex import GIB, escape, fixed_point, gib
from .worked import STAGED, Layout

#: The layout of the figure, with so few micro-batches that each pass can be seen.
SHOWN = Layout(STAGED[1].title, STAGED[1].model, STAGED[1].gpu, {**STAGED[1].choices, "B": 128})
#: Millimetres of a GiB, of a pass, and between the beginnings of two.
_HEIGHT, _WIDTH, _STEP = Rational(5, 4), Rational(7, 2), Rational(17, 4)
#: Moments inside of a forward and a backward pass, and at the end of a step.
_WITHIN = {
    "F": ("loss_forward", "after_forward", "stage_exchange"),
    "B": ("loss_backward", "head_backward", "norm_backward", "layer_backward", "embedding_backward"),
    "S": ("last_reduce", "optimizer_step"),
}


@dataclass(frozen=True)
class Pass:
    """One pass of a rank: bytes that it keeps always, of saved activations, and what lives besides at its peak."""

    name: str
    static: Rational
    saved: Rational
    besides: Rational

    @property
    def total(self) -> Rational:
        """All bytes of the pass at its peak."""
        return self.static + self.saved + self.besides


def passes(layout: Layout, rank: int) -> tuple[Pass, ...]:
    """Return every pass of a rank in one step under 1F1B, then the optimizer step."""
    values = layout.values()
    terms = evaluate(build(MEGATRON).terms.values(), {**values, "r": rank})
    order = actions("1f1b", values["p"], int(terms["num_microbatches"]), 1, 1, rank)
    each = terms["stage.inner_activations"] / terms["in_flight"]
    ordered, before = [], 0
    for action, moment in zip(order, moments(order, 1), strict=True):
        (after,) = moment.in_flight
        kind = "F" if action.kind == FORWARD else "B"
        saved = each * max(before, after)
        ordered.append(Pass(kind, terms["stage.static"], saved, _besides(terms, kind)))
        before = after
    return (*ordered, Pass("S", terms["stage.static"], Rational(0), _besides(terms, "S")))


def _besides(terms: dict[str, Rational], kind: str) -> Rational:
    """Bytes besides the layers' activations at the largest moment of a kind of pass."""
    inner = terms["stage.inner_activations"]
    sizes = [
        terms[f"stage.{name}.all"] - (Rational(0) if SITES[name].held is Held.NOTHING else inner)
        for name in _WITHIN[kind] if f"stage.{name}.all" in terms and name != "embedding_backward"
    ]
    return max(sizes)


def figure() -> dict[str, Any]:
    """Prepare both ranks as bars."""
    values = SHOWN.values()
    highest = max(item.total for rank in (0, values["p"] - 1) for item in passes(SHOWN, rank)) / GIB * _HEIGHT
    panels = [_panel(rank) for rank in (0, values["p"] - 1)]
    return {
        "title": escape(SHOWN.title), "microbatches": values["B"] // (values["b"] * values["D"]), "panels": panels,
        "width": _millimetres(_WIDTH), "wide": max(panel["wide"] for panel in panels),
        "high": _millimetres(highest + 4), "room": _millimetres(highest + 9),
        "ticks": [{"gib": str(tick), "y": _millimetres(tick * _HEIGHT)} for tick in range(0, 37, 12)],
    }


def _panel(rank: int) -> dict[str, Any]:
    bars = []
    for place, item in enumerate(passes(SHOWN, rank)):
        static, saved, besides = (_millimetres(part / GIB * _HEIGHT) for part in (
            item.static, item.saved, item.besides))
        bars.append({
            "x": _millimetres(place * _STEP), "middle": _millimetres(place * _STEP + _WIDTH / 2), "name": item.name,
            "static": static, "saved": saved, "besides": besides,
            "on_static": static, "on_saved": _millimetres((item.static + item.saved) / GIB * _HEIGHT),
        })
    top = max(passes(SHOWN, rank), key=lambda item: item.total)
    return {"rank": str(rank), "bars": bars, "peak": gib(top.total), "wide": _millimetres(len(bars) * _STEP)}


def _millimetres(size: Rational) -> str:
    return fixed_point(Rational(size), 2)
