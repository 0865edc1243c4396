"""The network between the servers of a cluster."""

from __future__ import annotations

from functools import cache
from typing import Annotated

from pydantic import Field

from shardmath.catalogue import read
from shardmath.input.arguments import typed
from shardmath.input.naming import by_name
from shardmath.input.records import Record
from shardmath.machines.gpu import Nanoseconds

SEND_MB_PER_S = 12_000
"""10^6 bytes/s of messages between two GPUs: NCCL sends pieces of 128 KiB, each of which costs 10 to 12 us."""


class Network(Record):
    """One kind of network.

    ``gbit_per_s``: one port, each direction, in 10^9 bits/s. ``rails``: ports of a server that carry the traffic of its
    GPUs; None where each GPU has one. ``send_mb_per_s``: most that one GPU sends to one of another server, in 10^6
    bytes/s. ``latency_ns``: what one step of a ring over the network takes besides its bytes.
    ``source``: where the figures are from. Raises InputError for anything that breaks a rule.
    """

    name: Annotated[str, Field(min_length=1)]
    gbit_per_s: Annotated[int, Field(ge=1, le=10**6)]
    latency_ns: Nanoseconds
    rails: Annotated[int, Field(ge=1, le=2**16)] | None = None
    send_mb_per_s: Annotated[int, Field(ge=1, le=10**9)] = SEND_MB_PER_S
    source: str
    note: str = ""

    def bandwidth(self, gpus_per_node: int) -> int:
        """Bytes/s of one GPU of a server with ``gpus_per_node`` of them, each direction; cut to whole bytes."""
        return self.gbit_per_s * 10**9 * (self.rails or gpus_per_node) // (8 * gpus_per_node)

    @classmethod
    @typed
    def named(cls, name: str) -> Network:
        """Find a network of the catalogue by its name, or by the beginning of its name if only one begins so.

        ``ndr-400``, ``InfiniBand HDR`` and ``EFA p5`` are names. Raises InputError that lists the candidates.
        """
        return by_name("network", "network", name, _catalogue(), OPERATORS)


@cache
def _catalogue() -> dict[str, Network]:
    return {name: Network(name=name, **fields) for name, fields in read("networks").items()}


OPERATORS = ("infiniband", "ib", "aws", "hpe")
"""Words that people put before the name."""
