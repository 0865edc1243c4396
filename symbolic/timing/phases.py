"""Time of a training in phases: the phases, and the changes of layout between them."""

from __future__ import annotations

from collections.abc import Mapping

from sympy import Expr, Rational, Symbol

from ..parameters import symbols

Wx, ex, N = symbols("Wx ex N")
tokens, rate, seconds = (Symbol(name, positive=True) for name in ("tokens", "tokens_per_second", "seconds"))
most, written, read = (Symbol(name, nonnegative=True) for name in ("most_received", "written", "read"))
write_rate, read_rate = (Symbol(name, positive=True) for name in ("write_bandwidth", "read_bandwidth"))

#: Seconds of a phase.
PHASE = tokens / rate
#: GPU-hours of some seconds.
GPU_HOURS = N * seconds / 3600
#: Seconds of a change over the network: the rank that receives most, at the network's bandwidth of one GPU. All that it
#: receives is counted as if it came from another server, and senders as fast enough.
OVER_NETWORK = most / (Wx * ex / 1000)
#: Seconds of a change by way of a checkpoint: all ranks write it, then each reads its part.
BY_CHECKPOINT = written / write_rate + read / read_rate


def value(formula: Expr, known: Mapping[Symbol, int | float]) -> float:
    """Return the value of a formula."""
    return float(formula.xreplace({symbol: Rational(number) for symbol, number in known.items()}))
