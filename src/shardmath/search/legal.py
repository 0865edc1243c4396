"""Every legal layout of a sweep as columns: what tables of layouts are written from."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from math import isnan
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shardmath.account.judged import NAMES as VERDICT_NAMES
from shardmath.account.judged import RULE_NAMES
from shardmath.generated.definitions import ABSENT_DEGREES
from shardmath.input.parameters import UNEVEN
from shardmath.search.layout import schedules
from shardmath.search.nests.chosen import nest_of
from shardmath.search.nests.nest import Nest
from shardmath.search.nests.rows import Folder, regrouped
from shardmath.search.nests.running import Progress, run
from shardmath.search.spaces import Part, Rows

#: Columns of results, with the term that each has, or the verdict.
RESULTS = {"first_stage_bytes": "first.total", "last_stage_bytes": "last.total", "peak_bytes": "peak",
           "verdict": "verdict", "step_seconds": "step.time", "rule_80": "rule_80"}
#: Terms asked of the nest; the peak and the verdict come with every row.
_ASKED = ("data_parallel", RESULTS["first_stage_bytes"], RESULTS["last_stage_bytes"])
#: Layouts that are handed out at a time.
_MANY = 1 << 17
#: The axes and what else describes a layout, by name; names of modes and verdicts are texts, all others int64
#: but for the seconds of a step, which are not a number where its time is not known.
COUNTS = ("tensor_parallel", "context_parallel", "pipeline_parallel", "data_parallel", "micro_batch_size",
          "sequence_parallel", "virtual_pipeline", "expert_parallel")
_STAGES = (*ABSENT_DEGREES, "expert_tensor_parallel", *UNEVEN)
NAMES = (*COUNTS, "recompute", *(name for name in RESULTS if name != "rule_80"), *_STAGES, "schedule", "rule_80")

Columns = Mapping[str, NDArray[Any]]
OnLayouts = Callable[[Columns], None]


def plain_cells(column: NDArray[Any]) -> list[Any]:
    """Return the values of a column; None for an unknown number."""
    cells: list[Any] = column.tolist()
    return [None if isnan(cell) else cell for cell in cells] if column.dtype.kind == "f" else cells


def legal_layouts(part: Part, progress: Progress | None = None) -> Iterator[Columns]:
    """Return all legal layouts of a part of the standard space as columns ``NAMES``, in the order of shards.

    They are a question of their own to a nest of its own, so that the answers of a sweep do not depend on it.
    """
    nest = nest_of(part, (Rows("rows", (*_ASKED, *_derived(part)), among="legal"),))
    with TemporaryDirectory() as path:
        folder = Folder(Path(path))
        run(nest, progress=progress, on_rows=lambda start, stop, table: folder.add(part.number, start, stop, table))
        yield from _columns(nest, folder)


def _derived(part: Part) -> tuple[str, ...]:
    """Return sizes of stages that follow from others."""
    return tuple(name for name in _STAGES if name in part.derived)


def _columns(nest: Nest, folder: Folder) -> Iterator[Columns]:
    verdicts = np.asarray(VERDICT_NAMES)
    part = nest.part
    shape = [axis.size for axis in part.axes]
    for table in regrouped(folder.tables(part.number), _MANY):
        peak, data, first, last, *sizes = table.values.astype(np.int64).T
        columns = {"data_parallel": data, "first_stage_bytes": first, "last_stage_bytes": last, "peak_bytes": peak}
        columns |= dict(zip(_derived(part), sizes, strict=True))
        for axis, place in zip(part.axes, np.unravel_index(table.numbers, shape), strict=True):
            columns[axis.name] = np.asarray(axis.labels)[place]
        fixed = {**dict.fromkeys(ABSENT_DEGREES, 1), **part.fixed}
        columns |= {name: np.full(len(table), fixed[name]) for name in (*COUNTS, *_STAGES) if name not in columns}
        columns["verdict"] = verdicts[table.verdicts]
        columns["rule_80"] = np.asarray(RULE_NAMES)[nest.rules(table.numbers, peak)]
        columns["schedule"] = schedules(part.evaluator.choices["schedule"], columns["virtual_pipeline"])
        columns["step_seconds"] = nest.seconds(table.numbers)
        yield {name: columns[name] for name in NAMES}
