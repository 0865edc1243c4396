"""Read measured runs from a CSV file: one row for each, with the parameters of shardmath as columns."""

from __future__ import annotations

import csv
import math
import os
from collections.abc import Mapping, Sequence
from io import StringIO

from shardmath.commands.calibrate.runs import TimedRun, asked
from shardmath.configuration.fields import Layout, names_of
from shardmath.configuration.settings import as_model
from shardmath.errors import ABSENT, InputError, inside, nearest_names
from shardmath.files.reading import read_text
from shardmath.generated.definitions import PARAMETERS
from shardmath.input.parameters import OTHERS
from shardmath.machines import Cluster
from shardmath.models.model import Model

#: Bytes of a file and runs in it, far more than a fit needs.
LARGEST, MOST = 2**24, 10_000
SECONDS, RATE = "step_seconds", "tokens_per_second_per_gpu"
MODEL, GROUP = "model", "group"
#: Columns with text instead of a number.
TEXTS = ("recompute", "implementation", "gradients", "schedule", "pipeline_layout")
NUMBERS = tuple(name for name in (*names_of(Layout), *OTHERS) if name in PARAMETERS or name == "zero_stage")
COLUMNS = (MODEL, GROUP, SECONDS, RATE, *TEXTS, *NUMBERS)


def read_runs(
    path: str | os.PathLike[str], cluster: Cluster, implementation: str | None = None,
    kernels: Mapping[str, str] | None = None,
) -> list[TimedRun]:
    """Read the runs of a file, in its order; empty cells are left out.

    Every row has a ``model`` and either ``step_seconds`` or ``tokens_per_second_per_gpu``; other columns are parameters
    by name. Runs of a ``group`` are judged together; without that column it is model, GPUs and tokens of a sequence.
    ``implementation`` is that of rows that have none, ``kernels`` are choices of all. Raises InputError, which names
    line and column, for everything that is wrong.
    """
    text = read_text("runs", path, "a CSV file", LARGEST)
    reader = csv.reader(StringIO(text, newline=""), strict=True)
    try:
        table = [(reader.line_num, [cell.strip() for cell in line]) for line in reader if any(line)]
    except csv.Error as error:
        raise InputError("runs", os.fspath(path), f"must be a CSV file: {error}") from None
    if not table:
        raise InputError("runs", os.fspath(path), "must have a line with the names of columns")
    heads, *lines = table
    columns = _columns(heads[1])
    if not 1 < len(lines) <= MOST:
        raise InputError("runs", os.fspath(path), f"must have 2 to {MOST} runs, has {len(lines)}")
    models: dict[str, Model] = {}
    runs = []
    for line, cells in lines:
        with inside(f"line {line}"):
            if len(cells) != len(columns):
                raise InputError("cells", len(cells), f"must be as many as columns, {len(columns)}")
            row = {name: cell for name, cell in zip(columns, cells, strict=True) if cell}
            runs.append(_run(row, models, cluster, implementation, kernels))
    return runs


def _columns(heads: Sequence[str]) -> Sequence[str]:
    for place, name in enumerate(heads):
        if name not in COLUMNS:
            raise InputError("column", name, "must be a parameter, model, group or a measured time",
                             nearest_names(name, COLUMNS))
        if name in heads[:place]:
            raise InputError("column", name, "must not be there twice")
    if MODEL not in heads:
        raise InputError(f"column {MODEL}", ABSENT, "must be given")
    if (SECONDS in heads) == (RATE in heads):
        raise InputError(f"columns {SECONDS} and {RATE}", "both" if SECONDS in heads else ABSENT,
                         "must be one of the two")
    return heads


def _run(
    row: Mapping[str, str], models: dict[str, Model], cluster: Cluster, implementation: str | None,
    kernels: Mapping[str, str] | None,
) -> TimedRun:
    if MODEL not in row:
        raise InputError(MODEL, ABSENT, "must be given")
    name = row[MODEL]
    if name not in models:
        models[name] = as_model(name)
    texts: dict[str, str | int] = {column: row[column] for column in TEXTS if column in row}
    texts |= {column: _number(column, row[column]) for column in NUMBERS if column in row}
    for column in ("sequence_parallel", "distributed_optimizer"):
        if column in texts:
            texts[column] = bool(texts[column])
    usual = {"implementation": implementation, "node_size": cluster.node_size}
    job = asked(models[name], cluster.gpu, **{**usual, **texts}, kernels=kernels)
    gpus, length = job.values["num_gpus"], job.values["seq_length"]
    seconds = _measured(row, job.values["global_batch_size"] * length / gpus)
    return TimedRun(job, seconds, row.get(GROUP, f"{job.model.name}, {gpus} GPUs, {length} tokens"))


def _measured(row: Mapping[str, str], tokens_per_gpu: float) -> float:
    column = SECONDS if SECONDS in row else RATE
    if column not in row:
        raise InputError(f"{SECONDS} or {RATE}", ABSENT, "must be given")
    try:
        value = float(row[column])
    except ValueError:
        value = math.nan
    if not (value > 0 and math.isfinite(value)):
        raise InputError(column, row[column], "must be a number above 0")
    return value if column == SECONDS else tokens_per_gpu / value


def _number(column: str, cell: str) -> int:
    truths = {"true": 1, "false": 0}
    if cell.lower() in truths and PARAMETERS.get(column, (0, 0, 0, 1))[3] == 1:
        return truths[cell.lower()]
    try:
        value = float(cell)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value.is_integer()):
        raise InputError(column, cell, "must be an integer")
    return int(value)
