"""Write a stream of record batches as Parquet, one row group for each, whole or not at all."""

from __future__ import annotations

from collections import Counter
from os import PathLike, fspath

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from shardmath.commands.evaluate.columns import LEFT_OUT, PASSED_THROUGH
from shardmath.commands.evaluate.run import ACCEPTED
from shardmath.errors import InputError
from shardmath.files.writing import whole_file
from shardmath.generated.definitions import VERDICTS
from shardmath.reports.written import Written


def write_parquet(reader: pa.RecordBatchReader, path: str | PathLike[str]) -> Written:
    """Write the answer of ``evaluate``; return a summary.

    The file takes its place when it is complete; until then, and after an error or an interruption, it does not
    exist. Raises InputError where no file can be written, or its name does not end like a Parquet file's.
    """
    path = fspath(path)
    if not path.endswith((".parquet", ".pq")):
        raise InputError("output", path, "must end with .parquet")
    counts: Counter[str] = Counter()
    with whole_file("output", path, "wb") as file, parquet.ParquetWriter(file, reader.schema) as writer:
        for batch in reader:
            writer.write_batch(batch, row_group_size=batch.num_rows)
            counts["illegal"] += batch.column("verdict").null_count
            legal = batch.column("verdict").indices.drop_null().to_numpy()
            for (name, _), count in zip(VERDICTS, np.bincount(legal, minlength=len(VERDICTS)), strict=True):
                counts[name] += int(count)
    said = reader.schema.metadata or {}
    passed, left_out = (tuple(filter(None, said.get(key, b"").decode().split("\n")))
                        for key in (PASSED_THROUGH, LEFT_OUT))
    risk = float(said[ACCEPTED]) if ACCEPTED in said else None
    return Written(path, counts.total(), dict(counts), passed, left_out, risk)
