"""The question of ``plan``, checked: tokens and phases, deadline and budget, prices, failures and electricity."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import log2

from shardmath.catalogue import read
from shardmath.errors import ABSENT, InputError, nearest_names
from shardmath.input.parameters import checked
from shardmath.input.quantities import amount, duration, length, whole

#: Failure rate that plans assume where none is named.
USUAL_FAILURES = "llama-3"
#: Tokens of a step that plans assume: those of Llama 3 405B (arXiv:2407.21783, table 4).
BATCH_TOKENS = 2**24
#: Largest CO2-equivalent of a kWh in grams, with much to spare.
_MOST = 10**6


@dataclass(frozen=True)
class Tokens:
    """Tokens of one phase, with the tokens of a sequence."""

    tokens: int
    seq_length: int


@dataclass(frozen=True)
class Failures:
    """Interruptions in GPU-days: of the usual training, the most reliable and the least reliable one."""

    source: str
    usual: tuple[float, float]
    fewest: tuple[float, float]
    most: tuple[float, float]
    pause: float
    restart: float


def phases_of(tokens: object, seq_length: int, more: Sequence[str]) -> tuple[Tokens, ...]:
    """Return the phases: ``tokens`` of the whole training, less those of ``more``, then each of ``more``.

    Each of ``more`` is ``TOKENS@LENGTH``. Raises InputError for other texts, and where nothing is left for the first.
    """
    total, later = whole("tokens", tokens), [_phase(text) for text in more]
    left = total - sum(item.tokens for item in later)
    if left < 1:
        rule = "must be more than the tokens of all phases together"
        raise InputError("tokens", tokens, rule, str(total - left + 1))
    return (Tokens(left, seq_length), *later)


def _phase(text: str) -> Tokens:
    tokens, at, long = text.partition("@")
    if not at:
        raise InputError("phase", text, "must be written TOKENS@LENGTH", f"{text}@128k")
    size = length(long)
    return Tokens(whole("phase", tokens), checked("seq_length", whole("phase", long) if size is None else size))


def batch_of(batch_tokens: object, seq_length: int) -> int:
    """Return the sequences of a step: without ``batch_tokens`` as many whole ones as ``BATCH_TOKENS`` hold.

    Raises InputError for tokens that are no whole sequences.
    """
    if batch_tokens is None:
        return max(1, BATCH_TOKENS // seq_length)
    size = whole("batch_tokens", batch_tokens, 2**40)
    sequences, rest = divmod(size, seq_length)
    if rest or not sequences:
        power = 1 << max(0, round(log2(size / seq_length)))
        near = [str(count * seq_length) for count in dict.fromkeys((power, max(1, sequences)))]
        rule = f"must be whole sequences of {seq_length} tokens, best a power of two of them"
        raise InputError("batch_tokens", batch_tokens, rule, " or ".join(near))
    return sequences


def failures_of(name: str | None, pause: object, restart: object) -> Failures | None:
    """Return what is known of failures; None where neither ``pause`` nor ``restart`` are given.

    ``name`` is one of the catalogue, or a number of interruptions for 1000 GPU-days. Raises InputError for others, and
    where only one of ``pause`` and ``restart`` is given.
    """
    if pause is None and restart is None:
        if name is not None:
            raise InputError("pause", ABSENT, "must be given with failures: seconds that a checkpoint stops training")
        return None
    for field, value in (("pause", pause), ("restart", restart)):
        if value is None:
            raise InputError(field, ABSENT, "must be given where failures are counted", "5m")
    waits = float(duration("pause", pause)), float(duration("restart", restart, least=0))
    known = {key: (float(item["interruptions"]), float(item["gpu_days"])) for key, item in read("failures").items()}
    if name is not None and name not in known:
        try:
            rate = float(amount("failures", name, 10**6, 0)), 1000.0
        except InputError:
            rule = "must be a name of the catalogue, or interruptions for 1000 GPU-days"
            raise InputError("failures", name, rule, nearest_names(name, known)) from None
        if not rate[0]:
            raise InputError("failures", name, "must be above 0", "0.1")
        return Failures(f"{name} for 1000 GPU-days", rate, rate, rate, *waits)
    ordered = sorted(known.values(), key=lambda rate: Fraction(*map(int, rate)))
    usual = name or USUAL_FAILURES
    source = str(read("failures")[usual]["source"])
    return Failures(source, known[usual], ordered[0], ordered[-1], *waits)


def electricity_of(carbon: str | None) -> tuple[float | None, str]:
    """Return grams of CO2-equivalent for one kWh with their source; None where nobody says.

    Raises InputError for text that is neither a name of the catalogue nor a number of grams.
    """
    if carbon is None:
        return None, ""
    known = read("electricity")
    if carbon in known:
        return float(known[carbon]["grams_per_kwh"]), str(known[carbon]["source"])
    try:
        return float(amount("carbon", carbon, _MOST, 0)), f"{carbon} g/kWh"
    except InputError:
        rule = "must be a name of the catalogue, or grams of CO2 for one kWh"
        raise InputError("carbon", carbon, rule, nearest_names(carbon, known)) from None
