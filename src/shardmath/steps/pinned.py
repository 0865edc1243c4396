"""Pinned memory of a host, block by block: shards that FSDP2 and DeepSpeed's stage 3 keep there.

FSDP2 (``_fully_shard`` of PyTorch 2.13) pins the shard of each parameter and each reduced gradient. DeepSpeed 0.19.8
(``runtime/zero``) pins in this order: the part of each parameter that does not stay gathered (``pin_memory`` of
``offload_param``); the parts of all that are trained, in one block for each group of the optimizer, also where nobody
asks for it; then the fp32 gradients of each subgroup and the gradients of all of them (``pin_memory`` of
``offload_optimizer``). Parts of trained parameters are free when they lie in the block of their group. Masters and
moments are not pinned. Hugging Face's trainer makes two groups: without weight decay those whose name has bias or norm.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from shardmath.allocator.pinned import PinnedAllocator
from shardmath.compiler.evaluators import Evaluator, terms_at
from shardmath.steps.rows import Rows

#: Bytes of an element of an fp32 gradient.
_FP32 = 4
#: Terms of the elements that a rank has of all parameters, with the padding of their parts.
_SHARDS = ("stage.shard_elements", "stage.frozen_shard_elements")
#: Parts of names of parameters without weight decay.
_NO_DECAY = ("bias", "norm")


class Part(NamedTuple):
    """Part of a parameter on a rank: its elements, those of the parameter; True if trained, and with weight decay."""

    elements: int
    whole: int
    is_trained: bool
    decays: bool


def pinned_beyond(evaluator: Evaluator, values: Mapping[str, int]) -> int | None:
    """Return bytes that pinned blocks of a rank have beyond what is offloaded in them; 0 where nothing is pinned.

    None where its parts are not known one by one: with experts, and with FSDP2 where ranks do not divide the
    parameters.
    """
    choices = evaluator.choices
    if choices["zero_offload"] == "none" or (choices["zero_offload"], choices["pinned"]) == ("fsdp", "none"):
        return 0
    if choices["layers"] != "dense":
        return None
    account = terms_at(evaluator.terms, values)
    rows = Rows.of(evaluator, values, account)
    parts = parts_of(rows, int(account["optimizer_shards"]))
    if sum(part.elements for part in parts) != sum(int(account.get(name, 0)) for name in _SHARDS):
        return None
    width = rows.sizes["state.weight"]
    if choices["zero_offload"] == "fsdp":
        return _of_fsdp(parts, width)
    return of_deepspeed(parts, values, width, choices)


def parts_of(rows: Rows, ranks: int) -> list[Part]:
    """List the parts of all parameters in the order of the model."""
    return [
        Part(-(-size // ranks), size, row.name not in rows.frozen, not any(word in row.name for word in _NO_DECAY))
        for row in rows.ordered_weights(experts=False, modules=rows.modules, frozen=None)
        for size in rows.parameters(row)
    ]


def _of_fsdp(parts: Sequence[Part], width: int) -> int:
    blocks, offloaded = PinnedAllocator(), 0
    for part in parts:
        for _ in range(1 + part.is_trained):
            blocks.allocate(width * part.elements)
            offloaded += width * part.elements
    return blocks.total - offloaded


def of_deepspeed(parts: Sequence[Part], values: Mapping[str, int], width: int, choices: Mapping[str, str]) -> int:
    """Return bytes of blocks beyond what is offloaded in them; ``width`` is that of an element of a parameter."""
    blocks, pinned = PinnedAllocator(), choices["pinned"]
    trained = [part for part in parts if part.is_trained]
    groups = [group for decays in (True, False) if (group := [part for part in trained if part.decays is decays])]
    elements = sum(part.elements for part in trained)
    offloaded = 0
    if choices["zero_offload"] == "parameters":
        alone = [part for part in parts if part.whole > values["param_persistence_threshold"]]
        alone = alone if pinned in ("all", "parameters") else []
        own = [(part, blocks.allocate(width * part.elements)) for part in alone]
        for group in groups:
            blocks.allocate(width * sum(part.elements for part in group))
        for part, block in own:
            if part.is_trained:
                blocks.free(block)
        offloaded += width * (elements + sum(part.elements for part in alone if not part.is_trained))
    if pinned in ("all", "optimizer"):
        for group in groups:
            for size in _subgroups(group, values["sub_group_size"]):
                blocks.allocate(_FP32 * size)
        blocks.allocate(values["gradient_bytes"] * elements)
        offloaded += (_FP32 + values["gradient_bytes"]) * elements
    return blocks.total - offloaded


def _subgroups(parts: Sequence[Part], wanted: int) -> Iterator[int]:
    """Yield the elements of each subgroup: one ends with the parameter that makes it as large as is wanted."""
    size = 0
    for part in parts:
        size += part.elements
        if size >= wanted:
            yield size
            size = 0
    if size:
        yield size
