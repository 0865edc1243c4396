"""Real processes on this machine that talk by gloo: one function on every rank, results by rank."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

Work = Callable[..., Any]


def on_ranks(work: Work, count: int, folder: Path, *arguments: Any) -> list[Any]:
    """Run ``work(rank, *arguments)`` in ``count`` processes; return what each returned, which must fit JSON.

    Raises the error of the first process that fails.
    """
    mp.spawn(_process, (work, count, folder, arguments), nprocs=count, join=True)
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(count)]


def _process(rank: int, work: Work, count: int, folder: Path, arguments: tuple[Any, ...]) -> None:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=count)
    try:
        (folder / f"{rank}.json").write_text(json.dumps(work(rank, *arguments)))
    finally:
        dist.destroy_process_group()
