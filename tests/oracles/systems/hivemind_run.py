"""Averaging by hivemind's own code, among peers on the loopback: bytes that all of them send in one round.

``python hivemind_run.py`` prints the rows of ``tests/data/hivemind_counted.csv``. It needs PyTorch and hivemind alone.
"""

from __future__ import annotations

import csv
import multiprocessing
import sys
from collections.abc import AsyncIterator
from typing import Any

import hivemind
import numpy
import torch
from hivemind.averaging.allreduce import AllReduceRunner
from hivemind.averaging.partition import TensorPartContainer
from hivemind.compression import Float16Compression, NoCompression, Uniform8BitQuantization, quantization

LOOPBACK = ["/ip4/127.0.0.1/tcp/0"]
CODES = {32: NoCompression, 16: Float16Compression, 8: Uniform8BitQuantization}
#: Peers, bits of an element, elements of each tensor.
CASES = (
    (2, 32, (4096, 1000, 37)), (3, 32, (300_000, 4096, 4096)), (4, 32, (65_536,) * 8),
    (2, 16, (4096, 1000, 37)), (3, 16, (65_536,) * 6), (2, 8, (65_536,) * 4), (3, 8, (40_000, 300_000)),
)

#: Bytes of tensors in messages, and messages with one, of all processes.
SENT = multiprocessing.Value("q", 0)
PARTS = multiprocessing.Value("q", 0)


class Numpy:
    """NumPy as hivemind 1.1.12 knows it: an array of one element still becomes a number, for codes of 8 bits."""

    def __getattr__(self, name: str) -> Any:
        return getattr(numpy, name)

    def frombuffer(self, buffer: Any, count: int = -1, **others: Any) -> Any:
        """Read an array, or its only element where ``count`` asks for one."""
        array = numpy.frombuffer(buffer, count=count, **others)
        return array[0] if count == 1 else array


def note(part: Any) -> None:
    """Count one message with a part of a tensor."""
    with SENT.get_lock():
        SENT.value += len(part.buffer)
        PARTS.value += 1


def count_messages() -> None:
    """Let hivemind's classes count what they send: parts to those who average them, and averages back."""
    given, averaged = TensorPartContainer.iterate_input_parts_for, AllReduceRunner._accumulate_parts_streaming

    async def counted_parts(self: Any, peer: int) -> AsyncIterator[Any]:
        async for part in given(self, peer):
            note(part)
            yield part

    async def counted_averages(self: Any, *arguments: Any) -> AsyncIterator[Any]:
        async for message in averaged(self, *arguments):
            note(message.tensor_part)
            yield message

    TensorPartContainer.iterate_input_parts_for = counted_parts
    AllReduceRunner._accumulate_parts_streaming = counted_averages


def count(peers: int, bits: int, sizes: tuple[int, ...]) -> tuple[int, int]:
    """Average once among so many peers: bytes and messages that they sent together."""
    SENT.value = PARTS.value = 0
    tables = [hivemind.DHT(start=True, host_maddrs=LOOPBACK)]
    for _ in range(1, peers):
        tables.append(hivemind.DHT(start=True, host_maddrs=LOOPBACK, initial_peers=tables[0].get_visible_maddrs()))
    own = [[torch.randn(size, generator=torch.Generator().manual_seed(number)) for size in sizes]
           for number in range(peers)]
    averagers = [
        hivemind.averaging.DecentralizedAverager(
            [one.clone() for one in own[number]], table, prefix="counted", start=True,
            target_group_size=peers, min_group_size=peers, compression=CODES[bits](), min_matchmaking_time=5.0,
            request_timeout=3.0, bandwidth=1.0,
        ) for number, table in enumerate(tables)
    ]
    for round_of_all in [one.step(wait=False) for one in averagers]:
        assert len(round_of_all.result(timeout=60)) == peers
    means = [torch.stack(same).mean(0) for same in zip(*own, strict=True)]
    for one in averagers:
        with one.get_tensors() as tensors:  # 8 bits leave an element a few hundredths off
            assert all(((mean - tensor).square().mean() < 0.01) for mean, tensor in zip(means, tensors, strict=True))
        one.shutdown()
    for table in tables:
        table.shutdown()
    return SENT.value, PARTS.value


def main() -> None:
    """Print one row for each case."""
    quantization.np = Numpy()
    count_messages()
    table = csv.writer(sys.stdout, lineterminator="\n")
    table.writerow(["peers", "bits", "elements", "tensors", "sent", "messages"])
    for peers, bits, sizes in CASES:
        table.writerow([peers, bits, sum(sizes), len(sizes), *count(peers, bits, sizes)])
        sys.stdout.flush()


if __name__ == "__main__":
    main()
