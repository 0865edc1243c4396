"""Snapshots as PyTorch writes them, made from a replay: its allocator gives addresses, segments and blocks."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from shardmath.allocator.blocks import Block
from shardmath.allocator.caching import CachingAllocator
from shardmath.allocator.settings import Settings
from shardmath.allocator.trace import Action, Event

#: Frames that PyTorch records above those of Python.
RECORDER = [{"filename": "??", "line": 0, "name": "torch::unwind::unwind()"},
            {"filename": "memory_snapshot.cpp", "line": 0, "name": "torch::cuda::gather_with_cpp()"}]


def frames_of(row: str, line: int, file: str = "/home/user/model.py") -> list[dict[str, Any]]:
    """Return a stack whose innermost frame of Python has a function called ``row``."""
    return [*RECORDER, {"filename": file, "line": line, "name": row},
            {"filename": "/home/user/train.py", "line": 80, "name": "step"}]


def made(
    events: Iterable[Event], frames: Callable[[Event], list[dict[str, Any]]], settings: Settings = Settings(),  # noqa: B008
) -> dict[str, Any]:
    """Replay events through the allocator and return what ``_dump_snapshot`` would have written."""
    allocator = CachingAllocator(settings)
    live: dict[int, tuple[Block, list[dict[str, Any]]]] = {}
    waiting: list[tuple[Block, int, int]] = []
    trace: list[dict[str, Any]] = []
    stacks: dict[int, list[dict[str, Any]]] = {}

    def entry(action: str, address: int, size: int, stack: list[dict[str, Any]], stream: int = 0) -> None:
        trace.append({"action": action, "addr": address, "size": size, "stream": stream, "frames": stack})

    for event in events:
        if event.action is Action.ALLOCATE:
            reserved = allocator.statistics.reserved_bytes
            block = allocator.allocate(event.size, event.stream)
            for passed in [item for item in waiting if not item[0].events]:
                waiting.remove(passed)
                entry("free_completed", passed[1], passed[2], [])
            if (grown := allocator.statistics.reserved_bytes - reserved) > 0:
                entry("segment_alloc", block.address, grown, [], event.stream)
            stack = frames(event)
            entry("alloc", block.address, event.size, stack, event.stream)
            live[event.key], stacks[block.address] = (block, stack), stack
        elif event.action is Action.FREE:
            block, stack = live.pop(event.key)
            held = bool(block.used_by)
            address, requested = block.address, block.requested
            allocator.free(block)
            entry("free_requested", address, requested, stack)
            if held:
                waiting.append((block, address, requested))
            else:
                entry("free_completed", address, requested, stack)
        elif event.action is Action.RECORD:
            allocator.record_stream(live[event.key][0], event.stream)
        elif event.action is Action.REACH:
            allocator.reach(event.stream, event.size or None)
        else:
            allocator.empty_cache()
    return {"segments": [_segment(address, blocks, stacks) for address, blocks in allocator.blocks().items()],
            "device_traces": [trace], "allocator_settings": {"PYTORCH_CUDA_ALLOC_CONF": ""}}


def _segment(address: int, blocks: list[Block], stacks: dict[int, list[dict[str, Any]]]) -> dict[str, Any]:
    segment = blocks[0].segment
    return {
        "device": 0, "address": address, "total_size": sum(block.size for block in blocks), "stream": segment.stream,
        "segment_type": "small" if segment.small else "large", "is_expandable": segment.expandable,
        "blocks": [{"address": block.address, "size": block.size, "requested_size": block.requested,
                    "state": _state(block), "frames": stacks.get(block.address, []) if block.allocated else []}
                   for block in blocks],
    }


def _state(block: Block) -> str:
    if block.allocated:
        return "active_allocated"
    return "inactive" if block.is_free else "active_awaiting_free"
