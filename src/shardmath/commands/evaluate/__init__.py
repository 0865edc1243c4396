"""Evaluate the rows of a given table: any kind of table in, the same rows with terms as columns out, streamed."""

from __future__ import annotations

from shardmath.errors import ABSENT, InputError

try:
    from shardmath.commands.evaluate.run import SWEEP_TERMS, evaluate
except ModuleNotFoundError as error:
    if error.name != "pyarrow":
        raise
    raise InputError("pyarrow", ABSENT, "must be installed to read tables: pip install 'shardmath[parquet]'") from None

__all__ = ["SWEEP_TERMS", "evaluate"]
