"""Wahib et al. 2020 (KARMA, arXiv:2008.11421): layers that are swapped to the host or recomputed.

The model in the body of the paper could not be had, and its program is closed. The set is the rule of its abstract:
what runs at the same time lasts as long as the longest of it, so copies are waited for as far as they outlast a pass,
and recomputing lengthens the pass.
"""

from __future__ import annotations

from collections.abc import Mapping

from sympy import Expr, Integer

from ..functions import Max
from ..parameters import symbols
from ..terms import TermSet, product, term_symbol, total
from .sets import PLAIN, Counterpart, PublishedSet

NAME = "wahib2020"
L, ol, rn, rfull, yf, yb, yc = symbols("L ol rn rfull yf yb yc")
_AGAIN = rfull * rn
_KEPT = total(L, -ol, -_AGAIN)
_CHOSEN = {"activation_offload": "karma", "peak": "saved", "recompute_method": "block"}
_TIMES = ("layer.forward_time", "layer.backward_time", "layer.copy_time")


def _outlasting(computing: Expr) -> Expr:
    """Return seconds by which the copies of the swapped layers outlast a pass."""
    return Max(Integer(0), total(product(ol, yc), product(Integer(-1), computing)))


def _build() -> TermSet:
    terms = TermSet(NAME)
    terms.add(f"{NAME}.recomputing", product(_AGAIN, yf), "s", "layers that are computed once more")
    terms.add(f"{NAME}.forward_waiting", _outlasting(L * yf), "s", "copies to the host beside a forward pass")
    terms.add(f"{NAME}.backward_waiting", _outlasting(total(L * yb, product(_AGAIN, yf))), "s",
              "copies back beside a backward pass, which recomputing lengthens")
    return terms


def _beside() -> tuple[Counterpart, ...]:
    forward, backward, copied = map(term_symbol, _TIMES)
    values: Mapping[str, Expr] = {letter: value for letter, value in PLAIN.items() if letter != "rfull"}
    values = {**values, "yf": forward, "yb": backward, "yc": copied}
    same = dict(zip((yf, yb, yc), (forward, backward, copied), strict=True))

    def waiting(way: str, computing: Expr, again: Expr, more: int, words: str) -> Counterpart:
        places = product(-(_KEPT - 2), computing)
        alone = Max(Integer(0), total(ol, product(Integer(-1), _KEPT), Integer(more)))
        counted = Max(
            Integer(0), total(product(ol, copied - computing), places, product(Integer(-1), _AGAIN, again)),
            total(product(alone, copied - computing), places))
        theirs = _outlasting(total(L * computing, product(_AGAIN, again - computing))).xreplace(same)
        return Counterpart(
            f"{NAME}.{way}_waiting", (f"layer.{way}_copy_waiting",), words,
            "the ledger's copies begin when the first layer is done and end before the last one that needs a place: two"
            " layers more to wait for, and others where so few stay that copies wait for each other's places",
            values, theirs - counted, _CHOSEN, kept=_TIMES)

    return (
        Counterpart(f"{NAME}.recomputing", ("layer.forward_time",), "layers that are computed once more, each for one"
                    " forward pass", "equal", {**values, "rfull": Integer(1), "rn": Integer(1)}, Integer(0), _CHOSEN,
                    kept=_TIMES[:1]),
        waiting("forward", forward, forward, 0, "waiting for copies in all forward passes of a micro-batch"),
        waiting("backward", backward, forward + backward, 1, "the same in its backward passes"),
    )


SETS = (
    PublishedSet(
        NAME, "Wahib et al. 2020, KARMA", NAME, _build(), _beside(),
        (
            "The formulas of the paper itself could not be had; these say what its abstract says in words.",
            "All layers take equally long. A pass and the copies of its layers begin and end together, and room on the"
            " GPU bounds nothing.",
            "The abstract's 1.52 is a mean of six networks, most of them convolutional: their times are not in it, so"
            " that no number of the source tests a formula.",
        ),
        system="activation_offload",
    ),
)
