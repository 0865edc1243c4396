"""Sentences about Llama 7B with DeepSpeed on A800; every number in them is computed."""

from __future__ import annotations

from collections.abc import Sequence

from validation.measured.case import PEAK, Case
from validation.measured.claims import check
from validation.measured.estimates import Estimate, other_estimate
from validation.measured.metrics import Pair, pairs
from validation.measured.sets import deepspeed_a800

#: Errors above this need a cause, or the words that none is known.
_FAR = 0.03


def remarks(cases: Sequence[Case]) -> list[str]:
    """Return the paragraphs. Raises ValueError if another reading would mend all rows that are far off."""
    far = [pair for pair in pairs(cases, PEAK) if abs(pair.error) > _FAR]
    readings = {name: [error for pair in far if (error := _error(pair, name)) is not None]
                for name in deepspeed_a800.OTHERS}
    check({f"{name} does not mend all": any(abs(error) > _FAR for error in errors)
           for name, errors in readings.items()})
    tried = "; ".join(f"{name}: {', '.join(f'{error:+.1%}' for error in errors)}" for name, errors in readings.items())
    return [f"""{len(far)} of the rows are more than {_FAR:.0%} off, in both directions, and the cause is not known.
        Their errors: {', '.join(f'{pair.error:+.1%}' for pair in far)}. Other readings of what the table does not say,
        each on as many of these rows as have it, change them to: {tried}. None of them mends all."""]


def _error(pair: Pair, name: str) -> float | None:
    said = other_estimate(pair.case, name)
    return said.of(pair.measured) / pair.measured.bytes - 1 if isinstance(said, Estimate) else None
