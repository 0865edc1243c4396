"""Check a prediction by running it: programs for one GPU or none, and their results beside the ledger."""

from __future__ import annotations

from shardmath.commands.verify.answers import Verified
from shardmath.commands.verify.programs import hook, program
from shardmath.commands.verify.results import read_result

__all__ = ["Verified", "hook", "program", "read_result"]
