"""The machines of a job, by what its cluster is: one file for each, and this list."""

from __future__ import annotations

from shardmath.account.alike import Alike, alike_job
from shardmath.account.mixed import Mixed, mixed_job
from shardmath.configuration.run import Run
from shardmath.machines.files import any_cluster

Hardware = Alike | Mixed


def hardware_of(run: Run) -> Hardware:
    """Check a run on its cluster, whatever that is. Raises InputError for every value that is not legal."""
    cluster = any_cluster(run.gpu, run.network)
    return mixed_job(run, cluster) if cluster.kinds else alike_job(run)
