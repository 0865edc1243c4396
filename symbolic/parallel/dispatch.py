"""Dispatch of tokens to experts: how many a rank sends, and how many its own experts work on."""

from __future__ import annotations

from collections.abc import Mapping

from sympy import Eq, Expr, Integer

from ..functions import CeilDiv, Iverson, Max
from ..parameters import symbols

s, b, c, ts, q, E, et, load, cf, ec = symbols("s b c ts q E et load cf ec")

_DROPLESS = Iverson(Eq(cf, 0))
#: Tokens of a rank, once for each expert that they are sent to.
_CHOSEN = s * b * q / (c * ts)


def definitions(choices: Mapping[str, str]) -> dict[str, Expr]:
    """Return the derived symbols of expert layers, in computing order.

    Without a capacity every token reaches its experts, and ``load`` says how many the fullest rank has, rounded
    up to whole tokens. With one, every rank sends ``ec`` tokens to every expert, padding included. Ranks that
    share the width of an expert work on each other's tokens too.
    """
    if choices["layers"] != "experts":
        return {}
    experts = Max(E, Integer(1))  # no experts, no division by their number: a rule refuses it by name
    return {
        "ec": CeilDiv(s * b * q * cf, 100 * c * ts * experts),
        "xs": _DROPLESS * _CHOSEN + E * ec,
        "xn": et * (_DROPLESS * CeilDiv(s * b * q * load, 100 * c * ts) + E * ec),
    }


def freed(choices: Mapping[str, str]) -> tuple[str, ...]:
    """Return letters that have several legal values where Transformers sends tokens to the experts of other ranks."""
    return ("e",) if choices["dispatch"] == "huggingface_sent" else ()
