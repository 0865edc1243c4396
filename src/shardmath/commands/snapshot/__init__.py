"""Read a snapshot of PyTorch's memory: what is reserved, who holds it, and what is lost to fragmentation."""

from __future__ import annotations

from shardmath.commands.snapshot.answers import Snapshot
from shardmath.commands.snapshot.run import snapshot

__all__ = ["Snapshot", "snapshot"]
