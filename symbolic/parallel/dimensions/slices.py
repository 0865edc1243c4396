"""Slices of a sequence, which share out time instead of ranks: tokens of one slice are on a rank at once."""

from __future__ import annotations

from ...dimensions import SEQUENCE, SEQUENCE_OF_OTHERS, SEQUENCE_SP
from ...functions import Divides
from ...parameters import symbols
from ..rules import ParallelRule, Rule, Split

sn, ts, s = symbols("sn ts s")

RULE = ParallelRule(
    "sequence_slices", "Slices of a sequence (TeraPipe, Seq1F1B)", sn,
    {SEQUENCE: Split.EVEN, SEQUENCE_SP: Split.EVEN, SEQUENCE_OF_OTHERS: Split.EVEN},
    "A pass of the pipeline works on one slice: every tensor of tokens has those of the slice. Former slices have saved"
    " their keys and values themselves.",
    "li2021",
    order=32,
    rules=(Rule("slices", "sn", Divides(sn * ts, s), "times the sequence-parallel ranks must divide seq_length"),),
    options={"slices": ("tokens", "1f1b")},
)
