"""Time of a training in phases: the phases, and the changes of layout between them."""

from __future__ import annotations

from collections.abc import Mapping

from sympy import Expr, Rational, Symbol

from ..parameters import symbols
from ..rates import UNSHARED

Wx, ex, kx, dom, N = symbols("Wx ex kx dom N")
tokens, rate, seconds = (Symbol(name, positive=True) for name in ("tokens", "tokens_per_second", "seconds"))
most, written, read = (Symbol(name, nonnegative=True) for name in ("most_received", "written", "read"))
write_rate, read_rate = (Symbol(name, positive=True) for name in ("write_bandwidth", "read_bandwidth"))
#: Symbols beside letters of parameters.
QUANTITIES = (tokens, rate, seconds, most, written, read, write_rate, read_rate)

PHASE = tokens / rate
GPU_HOURS = N * seconds / 3600
OVER_NETWORK = most / (Wx * ex / 1000 * UNSHARED)
BY_CHECKPOINT = written / write_rate + read / read_rate

#: Formulas by name, each with its unit and meaning.
FORMULAS: Mapping[str, tuple[Expr, str, str]] = {
    "phase": (PHASE, "s", "seconds of a phase"),
    "GPU-hours": (GPU_HOURS, "h", "GPU-hours of some seconds"),
    "network": (OVER_NETWORK, "s", "seconds of a change over the network: the rank that receives most, at the network's"
                " bandwidth of one GPU; all comes from another server, and senders are fast enough"),
    "checkpoint": (BY_CHECKPOINT, "s", "seconds of a change by way of a checkpoint: all ranks write it, then each reads"
                   " its part"),
}


def value(formula: Expr, known: Mapping[Symbol, int | float]) -> float:
    """Return the value of a formula."""
    return float(formula.xreplace({symbol: Rational(number) for symbol, number in known.items()}))
