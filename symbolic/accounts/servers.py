"""Bytes on the host of a server: what its GPUs offload, for the server whose GPUs offload most.

Stages follow each other on the GPUs, N/p of them each. Stages with as many layers of the same kinds offload alike, so
that there are few kinds of stages, which change at few borders. A server that no border cuts has one kind of stage. So
the fullest one is the first, one that a border cuts, or the first one behind a border.
"""

from __future__ import annotations

from collections.abc import Mapping

from sympy import Expr, Integer, Symbol

from ..functions import CeilDiv, FloorDiv, Max, Min
from ..implementations import Implementation
from ..parameters import symbols
from ..terms import TermSet, product, total
from .peak import OF_EXPERTS, candidates

N, p, r, gs = symbols("N p r gs")


def add_servers(terms: TermSet, implementation: Implementation) -> None:
    """Add the bytes on the host of the fullest server, unless no rank offloads anything or stages are listed."""
    if "stage.host" not in terms or implementation.choices["stages"] == "listed":
        return
    size = terms.add("server.gpus", Min(N, gs), "GPUs", "GPUs of the job in one server")
    servers = [product(size, terms["stage.host"].symbol)]
    ranks = candidates(implementation.choices)
    for name, rank in ranks.items():
        terms.at(name, ["stage.host"], {r: rank})
    if "first.host" in terms:  # else all ranks offload alike
        borders = _borders(terms, experts=not ranks.keys().isdisjoint(OF_EXPERTS))
        starts = [Integer(0)]
        starts += [product(size, divided(border, size))
                   for border in list(borders.values())[:-1] for divided in (FloorDiv, CeilDiv)]
        servers = [_offloaded(terms, number, start, size, borders) for number, start in enumerate(starts)]
    terms.add("server.host", Max(*servers), "bytes", "what the GPUs of one server offload to its host, of the fullest")


def _borders(terms: TermSet, *, experts: bool) -> Mapping[str, Symbol]:
    """GPUs up to the last stage of each kind, by the rank that stands for the kind."""
    width = terms.add("server.stage_gpus", N / p, "GPUs", "GPUs of a pipeline stage")
    before_last = terms.add("server.before_last", Max(width, N - width), "GPUs", "GPUs in front of the last stage")
    if not experts:
        return {"first": width, "second": before_last, "last": N}
    dense = terms["dense_end.rank"].symbol
    inner = [
        terms.add(f"server.{name}", Min(Max(product(stages, width), width), before_last), "GPUs", f"GPUs {words}")
        for name, stages, words in (
            ("before_mixed", dense, "in front of the last stage with layers before the first experts"),
            ("before_experts", total(dense, Integer(1)), "in front of the stages with experts alone"))
    ]
    return dict(zip(("first", "second", "dense_end", "penultimate", "last"), (width, *inner, before_last, N),
                    strict=True))


def _offloaded(terms: TermSet, number: int, start: Expr, size: Symbol, borders: Mapping[str, Symbol]) -> Symbol:
    """Return bytes that the GPUs of a server offload, whose first one is ``start``."""
    first = terms.add(f"server.start_{number}", start, "GPUs", "GPUs in front of a server that may be the fullest")
    sizes, before = list[Expr](), Integer(0)
    for name, border in borders.items():
        own = total(Min(total(first, size), border), product(Integer(-1), Max(first, before)))
        sizes.append(product(Max(Integer(0), own), terms[f"{name}.host"].symbol))
        before = border
    return terms.add(f"server.host_{number}", total(*sizes), "bytes", "what the GPUs of that server offload")
