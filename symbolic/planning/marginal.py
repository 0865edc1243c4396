"""Gains of a larger job: tokens per second for each GPU and each watt that it adds (Fernandez et al. 2024)."""

from __future__ import annotations

from ..terms import TermSet
from .letters import quantities

gpus, rate, watts, moregpus, morerate, morewatts = quantities("gpus rate watts moregpus morerate morewatts")


def add(terms: TermSet) -> None:
    """Append the rates of what is added, and how they compare with the rates of what was there before."""
    gain = terms.add("plan.per_added_gpu", (morerate - rate) / (moregpus - gpus), "tokens/s",
                     "tokens per second for each added GPU")
    terms.add("plan.kept_per_gpu", gain / (rate / gpus), "share",
              "the same over the tokens per second of a GPU of the smaller job")
    terms.add("plan.per_added_watt", (morerate - rate) / (moregpus * morewatts - gpus * watts), "tokens/J",
              "tokens per second for each added watt")
