"""Rows of the leaderboard: measured bytes with their runs, and what estimators predict; columns of others are files.

A column is a CSV file with the columns ``row`` and ``bytes``. Rows without a prediction are left out of it.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from io import StringIO
from pathlib import Path
from statistics import median
from typing import Any

from shardmath.account.configured import configured
from shardmath.compiler.evaluators import terms_at
from shardmath.configuration.job import Job
from shardmath.errors import InputError
from shardmath.files.reading import read_text
from validation.measured.case import GIB, Case
from validation.measured.datasets import DATASETS, Dataset, cases_of
from validation.measured.metrics import Pair, pairs
from validation.measured.reading import DATA, rows, whole
from validation.measured.sets import simumax

#: Columns of others, one file for each.
FOLDER = DATA / "leaderboard"
#: Errors of at most this size count as near.
NEAR = 0.1
SHARDMATH, MEGATRON, PLAYBOOK, SIMUMAX = "shardmath", "Megatron-LM's function", "Ultra-Scale Playbook", "SimuMax"
#: Columns that are computed here, and SimuMax's own, which stand in its table.
COMPUTED = (SHARDMATH, MEGATRON, PLAYBOOK, SIMUMAX)
#: Sizes of models and of runs that the file of rows has, for other estimators.
_OF_MODEL = ("num_layers", "hidden_size", "ffn_hidden_size", "num_attention_heads", "num_kv_heads", "vocab_size",
             "tied_embeddings", "mlp", "normalisation", "num_experts", "kv_lora_rank")
_OF_RUN = ("seq_length", "micro_batch_size", "tensor_parallel", "sequence_parallel", "context_parallel",
           "pipeline_parallel", "virtual_pipeline", "expert_parallel", "data_parallel", "num_microbatches",
           "distributed_optimizer", "sharded_gradients", "sharded_weights", "gradient_bytes")
HEADS = ("row", "table", "quantity", "measured_bytes", "gpu", "implementation", "pipeline_rank", *_OF_MODEL, *_OF_RUN,
         "recompute", "adapters", *COMPUTED)
_BYTES, _ROW = "bytes", "row"
#: Bytes of a column that no GPU has: a mistake in the unit.
_MOST_BYTES = 2**50


@dataclass(frozen=True)
class Line:
    """One estimator on one table: rows that it has, errors without sign, and ours on the same rows."""

    table: str
    tool: str
    count: int
    median: float
    worst: float
    near: float
    ours: float


def described() -> str:
    """Return the file of rows: every measured number with its run and what is predicted for it."""
    text = StringIO()
    writer = csv.DictWriter(text, HEADS, lineterminator="\n")
    writer.writeheader()
    for dataset in DATASETS:
        for quantity in dataset.quantities[:1]:
            for pair in pairs(cases_of(dataset), quantity):
                writer.writerow(_record(dataset, pair))
    return text.getvalue()


def _record(dataset: Dataset, pair: Pair) -> dict[str, Any]:
    case, rank = pair.case, pair.measured.rank
    assert case.model is not None
    job = configured(case.model, case.gpu, **case.arguments).job
    values = job.values
    name = f"{dataset.name}: {case.id}" + ("" if rank is None else f", rank {rank}")
    return {
        "row": name, "table": dataset.name, "quantity": pair.measured.quantity, "measured_bytes": pair.measured.bytes,
        "gpu": case.gpu.name, "implementation": case.arguments["implementation"],
        "pipeline_rank": "fullest" if rank is None else rank,
        **{field: getattr(case.model, field) for field in _OF_MODEL},
        **{field: values.get(field, 1) for field in _OF_RUN}, "recompute": case.arguments.get("recompute", "none"),
        "adapters": case.arguments.get("kernels", {}).get("adapters", "none"),
        SHARDMATH: pair.predicted, MEGATRON: _published(pair), PLAYBOOK: _playbook(case, job),
        SIMUMAX: _simumax().get((case.id, rank or 0), "") if dataset.name == "simumax" else "",
    }


def _published(pair: Pair) -> int | str:
    """Return the estimate of Megatron-LM's function, which knows the first rank, or an empty cell."""
    return "" if pair.published is None or pair.measured.rank not in (0, None) else round(pair.published)


def _playbook(case: Case, job: Job) -> int | str:
    """Return the playbook's states and activations, or an empty cell where it has no formula.

    It has none of tensor, pipeline or context parallelism, experts, adapters, or recompute.
    """
    model, values, split = case.model, job.values, ("tensor_parallel", "pipeline_parallel", "context_parallel")
    assert model is not None
    adapted = case.arguments.get("kernels", {}).get("adapters", "none") != "none"
    if model.num_experts or adapted or any(values.get(name, 1) > 1 for name in split) or (
            case.arguments.get("recompute", "none") != "none"):
        return ""
    module: Any = import_module("shardmath.generated.ultrascale")
    parameters = terms_at(job.evaluator.terms, job.on_rank(0))["model.all_parameters"]
    inputs = {"data_parallel": 1, **values, "total_parameters": int(parameters)}
    known = module.terms(**{name: inputs[name] for name in module.INPUTS})
    stage = next((name for name, switch in (
        ("zero3", "sharded_weights"), ("zero2", "sharded_gradients"), ("zero1", "distributed_optimizer"))
        if values.get(switch)), "states")
    parts = [stage, "activations"]
    if values["gradient_bytes"] > 2 and stage in ("states", "zero1"):  # its own words: some libraries keep them besides
        parts.append("fp32_gradient")
    return round(float(sum(known[f"ultrascale.{part}"] for part in parts)))


def _simumax() -> Mapping[tuple[str, int], int]:
    """Return what SimuMax's authors print for its own runs, by run and pipeline rank."""
    return {(row["case"], whole(row["pipeline_rank"])): round(float(row["simumax_peak_gib"]) * GIB)
            for row in rows(simumax.TABLE)}


def known_rows(text: str) -> list[dict[str, str]]:
    """Return the rows of the file that ``described`` writes."""
    return list(csv.DictReader(StringIO(text)))


def column(path: str | Path, known: Sequence[Mapping[str, str]]) -> dict[str, int]:
    """Read the column of another estimator: bytes by row.

    Raises InputError for a file that is no such table, a row that is not known or there twice, and bytes that are no
    whole number from 1 on.
    """
    text = read_text("column", path, "a CSV file with the columns row and bytes", 2**24)
    reader = csv.DictReader(StringIO(text), strict=True)
    names, predicted = {line["row"] for line in known}, dict[str, int]()
    if not {_ROW, _BYTES} <= {*(reader.fieldnames or ())}:
        raise InputError("column", str(path), "must have the columns row and bytes in its first line")
    try:
        for line in reader:
            place, row, size = f"line {reader.line_num}", line[_ROW], (line[_BYTES] or "").strip()
            if row not in names:
                raise InputError(place, row, "must be a row of docs/leaderboard/rows.csv")
            if row in predicted:
                raise InputError(place, row, "must not be there twice")
            if not size.isascii() or not size.isdecimal() or not 0 < int(size) < _MOST_BYTES:
                raise InputError(place, size, "must be a whole number of bytes, at least 1 and below 2^50")
            predicted[row] = int(size)
    except csv.Error as error:
        raise InputError("column", str(path), f"must be CSV: {error} in line {reader.line_num}") from None
    if not predicted:
        raise InputError("column", str(path), "must have a row beside the first line")
    return predicted


def stored_columns(known: Sequence[Mapping[str, str]]) -> dict[str, dict[str, int]]:
    """Return all columns by estimator: those of the file of rows, and those in files of their own."""
    computed = {name: {line["row"]: int(line[name]) for line in known if line[name]} for name in COMPUTED}
    return computed | {path.stem: column(path, known) for path in sorted(FOLDER.glob("*.csv"))}


def lines(known: Sequence[Mapping[str, str]], columns: Mapping[str, Mapping[str, int]]) -> Iterator[Line]:
    """Judge every column on every table that it has rows of."""
    for table in dict.fromkeys(line["table"] for line in known):
        measured = {line["row"]: int(line["measured_bytes"]) for line in known if line["table"] == table}
        for tool, predicted in columns.items():
            if own := [row for row in measured if row in predicted]:
                errors, ours = (_errors(measured, by, own) for by in (predicted, columns[SHARDMATH]))
                yield Line(table, tool, len(own), median(errors), max(errors),
                           sum(error <= NEAR for error in errors) / len(own), median(ours))


def _errors(measured: Mapping[str, int], predicted: Mapping[str, int], own: Iterable[str]) -> list[float]:
    return [abs(predicted[row] / measured[row] - 1) for row in own]
