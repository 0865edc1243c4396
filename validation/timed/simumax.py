"""SimuMax's step times on one server of B200: 12 layers of Llama 3 70B, one to eight tensor-parallel ranks."""

from __future__ import annotations

from functools import cache

from shardmath.commands.calibrate.runs import TimedRun, asked
from shardmath.machines import Cluster
from validation.measured.reading import rows, whole
from validation.measured.sets import simumax
from validation.measured.sets.kernels import NO_OVERLAPS
from validation.timed.public import Public, is_shown

TABLE = "simumax_b200_llama3_70b_l12.csv"


@cache
def simumax_runs() -> tuple[Public, ...]:
    """Return all rows, each laid out as the run of the same name with measured stages, with its own batch."""
    measured = {_layout(case.id): case for case in simumax.read()}
    cluster = Cluster.named(simumax.GPU)
    runs = []
    for row in rows(TABLE):
        case = measured[_layout(row["id"].rpartition("/")[2])]
        assert case.model is not None
        arguments = {**case.arguments, "global_batch_size": whole(row["gbs"])}
        run = TimedRun(asked(case.model, case.gpu, **arguments), float(row["iter_time_s"]), "simumax", NO_OVERLAPS)
        runs.append(Public(row["id"], simumax.GPU.name, is_shown(row["id"]), cluster, run))
    return tuple(runs)


def _layout(name: str) -> str:
    """Return the parts of a name that say model and layout, in any order; without the number of micro-batches."""
    return "_".join(sorted(part for part in name.split("_") if not part.startswith("mbc")))
