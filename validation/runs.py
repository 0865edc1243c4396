"""The runs of Fujii et al. 2024 on A100-40GB, as they stand in their table."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path

from shardmath.machines.gpu import Gpu
from shardmath.models.model import Model

TABLE = Path(__file__).resolve().parents[1] / "tests" / "data" / "fujii2024_runs.csv"
MODEL = Model.named("llama-3.1-8b")
GPU = Gpu.named("a100-40gb")
#: Of all runs: tokens of a sequence, and sequences of an optimizer step.
SEQ_LENGTH, GLOBAL_BATCH_SIZE = 8192, 1024
STATUSES = ("ok", "dash", "not_run")


@dataclass(frozen=True)
class Run:
    """One cell of the authors' table.

    ``status`` is ok (with TFLOP/s per GPU), dash (no result, read as out of memory) or not_run.
    """

    num_gpus: int
    tensor_parallel: int
    context_parallel: int
    pipeline_parallel: int
    micro_batch_size: int
    status: str
    tflops: str

    @property
    def model_parallel(self) -> int:
        """GPUs that share one copy of the model."""
        return self.tensor_parallel * self.context_parallel * self.pipeline_parallel

    @property
    def data_parallel(self) -> int | None:
        """Copies of the model, or None where the GPUs are not enough for one: there is no such layout."""
        return self.num_gpus // self.model_parallel or None

    @property
    def layout(self) -> str:
        """TP, CP, PP and micro-batch size in words."""
        return (f"TP {self.tensor_parallel}, CP {self.context_parallel}, PP {self.pipeline_parallel}, "
                f"micro-batch {self.micro_batch_size}")


def read(path: Path = TABLE) -> tuple[Run, ...]:
    """Read the runs in the order of the table.

    Raises ValueError for another GPU or sequence length, an unknown status, and a run that is there twice.
    """
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    runs = tuple(_run(row) for row in rows)
    places = [(run.num_gpus, run.layout) for run in runs]
    if len(set(places)) != len(places):
        raise ValueError(f"{path.name}: a run is there twice")
    return runs


def _run(row: dict[str, str]) -> Run:
    if (row["gpu"].lower(), int(row["seq"])) != (GPU.name, SEQ_LENGTH) or row["status"] not in STATUSES:
        raise ValueError(f"unexpected run {row}")
    names = ("n_gpus", "tp", "cp", "pp", "mbs")
    gpus, tensor, context, pipeline, micro_batch = (int(row[name]) for name in names)
    return Run(gpus, tensor, context, pipeline, micro_batch, row["status"], row["tflops_per_gpu"])
