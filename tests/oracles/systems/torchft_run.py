"""Local SGD and DiLoCo by torchft's own code, in two groups with its lighthouse and Gloo: states, copies, sent bytes.

``python torchft_run.py`` prints the rows of ``tests/data/torchft_counted.csv``. It needs PyTorch and torchft alone.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from pathlib import Path
from time import sleep
from typing import Any

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch
import torch.distributed as dist
from oracles.instruments.live import Live
from oracles.systems.local_updates import Counted
from torch import nn
from torchft.coordination import LighthouseServer
from torchft.local_sgd import DiLoCo, LocalSGD
from torchft.manager import Manager
from torchft.process_group import ProcessGroupGloo

GROUPS = 2
HOST = "127.0.0.1"
WAIT = timedelta(seconds=60)
#: Kind, matrices, their width, inner steps of a round, fragments, steps that a reduction may take.
CASES = (
    ("average", 4, 16, 2, 1, 0), ("average", 4, 40, 3, 1, 0), ("diloco", 4, 16, 3, 1, 0), ("diloco", 4, 24, 4, 2, 0),
    ("diloco", 4, 32, 8, 4, 1), ("diloco", 4, 48, 6, 2, 2), ("diloco", 4, 64, 12, 4, 2),
)


class Counting(ProcessGroupGloo):  # type: ignore[misc]
    """Gloo, and the bytes of every tensor that was given to an all-reduce."""

    reduced = 0

    def allreduce(self, tensors: list[torch.Tensor], opts: Any) -> Any:
        """Count, then reduce."""
        self.reduced += sum(one.numel() * one.element_size() for one in tensors)
        return super().allreduce(tensors, opts)


@contextmanager
def managed(group: int, lighthouse: str) -> Iterator[tuple[Manager, Counting]]:
    """Yield the manager of one group of one rank, and the process group that joins it to the others."""
    store = dist.TCPStore(HOST, 0, is_master=True, wait_for_workers=False)
    gloo = Counting(timeout=WAIT)
    manager = Manager(
        pg=gloo, min_replica_size=GROUPS, load_state_dict=lambda _: None, state_dict=dict, use_async_quorum=False,
        replica_id=str(group), store_addr=HOST, store_port=store.port, rank=0, world_size=1, lighthouse_addr=lighthouse,
        timeout=WAIT, quorum_timeout=WAIT, hostname=HOST,
    )
    try:
        yield manager, gloo
    finally:
        manager.shutdown(wait=False)


def group_of(number: int, lighthouse: str, case: tuple[str, int, int, int, int, int]) -> Counted:
    """Train one group for three rounds, of which the last two are counted."""
    kind, layers, width, steps, fragments, overlap = case
    torch.manual_seed(0)
    model = nn.Sequential(*(nn.Linear(width, width, bias=False) for _ in range(layers)))
    share = layers // fragments
    parts = [model[place * share:(place + 1) * share] for place in range(fragments)]
    inner = torch.optim.SGD(model.parameters(), lr=0.01)
    gradients = [torch.ones_like(one) for one in model.parameters()]
    with ExitStack() as stack:
        manager, gloo = stack.enter_context(managed(number, lighthouse))
        outer = [torch.optim.SGD(part.parameters(), lr=0.7, momentum=0.9, nesterov=True, foreach=True)
                 for part in parts]
        if kind == "average":
            stack.enter_context(LocalSGD(manager, model, inner, steps))
            backups: list[torch.Tensor] = []
            waiting: list[dict[str, torch.Tensor]] = []
        else:
            rule = stack.enter_context(DiLoCo(manager, parts, inner, outer, steps, fragment_sync_delay=overlap))
            backups = [kept for part in rule._fragments for kept in part.original_parameters.values()]
            waiting = [part._grads for part in rule._fragments]
        beside, sent = [], []
        for step in range(3 * steps):
            for one, gradient in zip(model.parameters(), gradients, strict=True):
                one.grad = gradient
            before = gloo.reduced
            if step < steps:  # momenta of the outer optimizer exist after the first round
                inner.step()
                continue
            if step == steps:
                known = [kept for one in outer for state in one.state.values() for kept in state.values()
                         if isinstance(kept, torch.Tensor)]
                live = stack.enter_context(Live(model, gradients, known, backups))
            live.restart()
            inner.step()
            beside.append(live.peak)
            sent.append(gloo.reduced - before)
            kept_back = sum(one.numel() * one.element_size() for part in waiting for one in part.values())
            while live.now > kept_back:  # the thread that ended a reduction lets go of its tensor a little later
                sleep(0.001)
        momentum = sum(kept.numel() * kept.element_size() for one in outer for state in one.state.values()
                       for kept in state.values() if isinstance(kept, torch.Tensor))
    backup = sum(one.numel() * one.element_size() for one in backups)
    return Counted(momentum, backup, tuple(beside), tuple(sent))


def count(case: tuple[str, int, int, int, int, int]) -> Counted:
    """Run all groups of a case, each in a thread of its own; they count the same."""
    lighthouse = LighthouseServer(bind=f"{HOST}:0", min_replicas=GROUPS, join_timeout_ms=60_000)
    try:
        with ThreadPoolExecutor(GROUPS) as pool:
            first, *others = pool.map(lambda number: group_of(number, lighthouse.address(), case), range(GROUPS))
    finally:
        lighthouse.shutdown()
    assert all((one.momentum, one.backup, one.sent) == (first.momentum, first.backup, first.sent) for one in others)
    return first


def main() -> None:
    """Print one row for each case."""
    table = csv.writer(sys.stdout, lineterminator="\n")
    table.writerow(["kind", "layers", "width", "steps", "fragments", "overlap", "momentum", "backup", "beside", "sent"])
    for case in CASES:
        counted = count(case)
        table.writerow([*case, counted.momentum, counted.backup, " ".join(map(str, counted.beside)),
                        " ".join(map(str, counted.sent))])
        sys.stdout.flush()


if __name__ == "__main__":
    main()
