"""Real processes on this machine that talk by gloo: one function on every rank, results by rank.

They are forked from one process that has imported the libraries, which takes longer than what is counted.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Mapping
from datetime import timedelta
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.distributed import distributed_c10d
from torch.utils._python_dispatch import _disable_current_modes

Work = Callable[..., Any]
#: Slow imports of functions that run on ranks.
_LIBRARIES = (
    "torch.distributed.fsdp", "torch.distributed.pipelining", "transformers.models.llama.modeling_llama",
    "megatron.core.models.gpt", "shardmath.symbolic.timing",
)

get_context("forkserver").set_forkserver_preload([*_LIBRARIES])


def on_ranks(work: Work, count: int, folder: Path, *arguments: Any) -> list[Any]:
    """Run ``work(rank, *arguments)`` in ``count`` processes; return what each returned, which must fit JSON.

    Raises the error of the first process that fails.
    """
    mp.start_processes(_process, (work, count, folder, arguments), count, start_method="forkserver")
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(count)]


def on_first_rank(work: Work, row: Mapping[str, Any]) -> dict[str, Any]:
    """Start the ranks of a row of a table, and return what its first rank counted."""
    with TemporaryDirectory() as folder:
        counted: dict[str, Any] = on_ranks(work, int(row["ranks"]), Path(folder), dict(row))[0]
    return counted


class OneThread(distributed_c10d.ProcessGroupGloo):
    """gloo with one thread, where its default is two.

    A thread holds the tensors of a message until it looks for the next one, which may be long after whoever waited
    for the message goes on.
    """

    def __init__(self, store: dist.Store, rank: int, size: int, timeout: timedelta) -> None:
        options = self._Options()
        options._devices, options._threads, options._timeout = [self.create_default_device()], 1, timeout
        super().__init__(store, rank, size, options)


def let_go() -> None:
    """Wait until no thread of gloo holds tensors of a message: one of a single number follows it on the same thread.

    A barrier would not do: it holds the works before it as weak references, and these their tensors. Modes that count
    bytes do not see the number, which its thread may hold.
    """
    with _disable_current_modes():
        for group in list(distributed_c10d._world.pg_map):
            dist.all_reduce(torch.zeros(1), group=group)


def _process(rank: int, work: Work, count: int, folder: Path, arguments: tuple[Any, ...]) -> None:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    distributed_c10d.ProcessGroupGloo = OneThread  # type: ignore[misc]
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=count)
    try:
        (folder / f"{rank}.json").write_text(json.dumps(work(rank, *arguments)))
    finally:
        dist.destroy_process_group()
