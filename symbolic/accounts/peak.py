"""The peak: static bytes and the largest of the moments of a step, on every rank that can be the one."""

from __future__ import annotations

from collections.abc import Mapping

from sympy import Expr, Integer

from ..functions import Max, Min
from ..implementations import Implementation
from ..ledger import SITES, Held, Role
from ..parallel.data import gradients_are_made
from ..parallel.pipeline import dense_stages
from ..parameters import symbols
from ..terms import TermSet, term_symbol, total
from .aggregates import aggregates_of
from .pytorch.streams import add_streams, has_streams, on_all_streams, on_default_stream
from .rows import components_of
from .stage import STATE_ROLES, held_until

p, r = symbols("p r")

#: The ranks that can be the peak's: of the stages between first and last, those at the ends have most in flight.
CANDIDATES: dict[str, Expr] = {
    "first": Integer(0), "second": Min(1, p - 1), "penultimate": Max(p - 2, 0), "last": p - 1,
}
#: With dense layers before the first experts also the last stage that has some of them, and the one behind it.
OF_EXPERTS: dict[str, tuple[Expr, str, str]] = {
    "dense_end": (Min(dense_stages() - 1, p - 1), "rank", "last pipeline rank with layers before the first experts"),
    "experts_start": (Min(dense_stages(), p - 1), "rank", "pipeline rank behind the last with layers before experts"),
}


def candidates(choices: Mapping[str, str]) -> dict[str, Expr]:
    """Return the ranks that can be the peak's, by name."""
    mixed = choices["layers"] == "experts" and choices["stages"] != "listed"
    return {**CANDIDATES, **({name: term_symbol(f"{name}.rank") for name in OF_EXPERTS} if mixed else {})}


def add_moments(terms: TermSet, implementation: Implementation) -> None:
    """Add the bytes of rank r at every moment, the largest of them, and all that the rank keeps at its peak."""
    streams, elsewhere = has_streams(implementation.choices), {name: list[Expr]() for name in SITES}
    for aggregate in aggregates_of(implementation):
        made = aggregate.size(terms, implementation)
        size, own = on_all_streams(made), on_default_stream(made)
        if len(aggregate.sites) > 1:  # one term for all moments keeps what is generated short
            size = terms.add(f"stage.{aggregate.name}", size, "bytes", f"{aggregate.title}, rank r")
        for name in aggregate.sites:
            meaning = f"{aggregate.title}, rank r, when {SITES[name].meaning}"
            whole = terms.add(f"stage.{aggregate.name}.{name}", size, "bytes", meaning)
            if streams and own == 0:
                elsewhere[name].append(-whole)
            elif streams and own != made:
                rest = terms.add(f"stage.{aggregate.name}.{name}.default", own, "bytes",
                                 f"{meaning}: memory of the default stream")
                elsewhere[name] += [rest, -whole]
    names = [component.name for component in components_of(implementation)]
    names += [aggregate.name for aggregate in aggregates_of(implementation)]
    held = {
        Held.ALL: terms["stage.activation"].symbol,
        Held.HEAD: total(terms["stage.inner_activations"].symbol, *_kept_by_head(terms, implementation)),
        Held.LAYERS: terms["stage.inner_activations"].symbol,
        Held.NOTHING: Integer(0),
    }
    moments, default = [], []
    for name, site in SITES.items():
        parts = [terms[f"stage.{part}.{name}"].symbol for part in names if f"stage.{part}.{name}" in terms]
        if parts:
            transient = terms.add(f"stage.{name}", total(*parts), "bytes", f"rank r, only when {site.meaning}")
            moments.append(terms.add(f"stage.{name}.all", total(held[site.held], transient), "bytes",
                                     f"rank r, activations and transients when {site.meaning}"))
            default.append(total(moments[-1], *elsewhere[name]))
        elif site.held is Held.ALL and name == "after_forward":
            moments.append(held[Held.ALL])
            default.append(held[Held.ALL])
    terms.add("stage.moment", Max(*moments), "bytes", "rank r: activations and transients at its largest moment")
    lasting = [role for role in STATE_ROLES
               if role is not Role.GRADIENT or not gradients_are_made(implementation.choices)]
    static = [terms[f"stage.{role.value}"].symbol for role in (*lasting, Role.INPUT, Role.BUFFER)]
    terms.add("stage.static", total(*static), "bytes", "rank r: what it keeps at every moment")
    terms.add("stage.total", total(terms["stage.static"].symbol, terms["stage.moment"].symbol), "bytes",
              "all that rank r keeps at its peak")
    if streams:
        add_streams(terms, implementation, Max(*default))


def _kept_by_head(terms: TermSet, implementation: Implementation) -> list[Expr]:
    """Return the tensors that the last stage saves beside its layers, without the loss."""
    names = [part.name for part in components_of(implementation) if held_until(part) is Held.HEAD]
    return [terms[f"stage.{name}.activation"].symbol for name in names if f"stage.{name}.activation" in terms]


def add_peak(terms: TermSet, implementation: Implementation) -> None:
    """Add the peak of the job: the largest total of the ranks that can be it."""
    ranks = candidates(implementation.choices)
    for name, rank in ranks.items():
        if name in OF_EXPERTS:  # a long formula, to which the copy of a term refers by name
            terms.add(f"{name}.rank", *OF_EXPERTS[name])
        terms.at(name, ["stage.total"], {r: rank})
    ends = [terms[f"{name}.total"].symbol for name in ranks]
    terms.add("peak", Max(*ends), "bytes", "largest total of all pipeline ranks")
