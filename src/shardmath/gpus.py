"""The GPU that a layout has to fit into: its memory, and how many of them share a node."""

import re
from functools import cache
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from shardmath.catalogue import read
from shardmath.errors import InputError, nearest_names

__all__ = ["GIB", "Gpu"]

GIB = 2**30
"""Bytes."""

_LARGEST_GIB = 100 * 1024
"""100 TiB. No single device comes near; it catches bytes that were passed as GiB."""


class Gpu(BaseModel):
    """One kind of GPU.

    ``memory_bytes``: the capacity that estimates are compared with, in bytes; which figure that is, and
    what the driver shows instead, is said in ``note``. ``node_size``: GPUs in the usual server. ``source``:
    the datasheet. ``compute_capability``: NVIDIA's number of the architecture, ``9.0`` for an H100; empty for GPUs
    of other vendors and those given by their memory. Raises ``InputError`` for anything that breaks a rule.
    """

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")

    name: Annotated[str, Field(min_length=1)]
    memory_bytes: Annotated[int, Field(ge=1, le=_LARGEST_GIB * GIB)]
    node_size: Annotated[int, Field(ge=1, le=2**16)]
    source: str
    note: str
    compute_capability: Annotated[str, Field(pattern=r"^(\d+\.\d)?$")] = ""

    def __init__(self, **fields: Any) -> None:
        try:
            super().__init__(**fields)
        except ValidationError as error:
            raise InputError.from_validation(error.errors(include_url=False)) from None

    @property
    def memory_gib(self) -> float:
        """``memory_bytes`` in GiB (2^30 bytes)."""
        return self.memory_bytes / GIB

    @classmethod
    def named(cls, name: str) -> "Gpu":
        """Find a GPU of the catalogue by its name, or by the beginning of its name if only one begins so.

        ``h200``, ``H100-80GB``, ``NVIDIA H100 PCIe`` and ``MI300X`` are names; ``a100`` is not, because it
        has 40 or 80 GB. Case and separators do not matter. Raises ``InputError`` that lists the candidates.
        """
        known = _catalogue()
        words = _words(str(name))
        candidates = [key for key in known if words and _words(key)[: len(words)] == words]
        if len(candidates) == 1:
            return known[candidates[0]]
        if candidates:
            raise InputError("gpu", name, "must say which GPU is meant", " or ".join(candidates))
        rule = "must be a GPU of the catalogue"
        raise InputError("gpu", name, rule, nearest_names("-".join(words), known))

    @classmethod
    def custom(cls, memory_gib: float, node_size: int = 8) -> "Gpu":
        """Describe a GPU that the catalogue does not have by its memory in GiB, cut to whole bytes.

        Raises ``InputError`` unless the memory is a number above 0 and at most 100 TiB.
        """
        a_number = isinstance(memory_gib, int | float) and not isinstance(memory_gib, bool)
        # Compared before it is converted: NaN fails both comparisons, and int(inf) would raise.
        if not a_number or not 1 / GIB <= memory_gib <= _LARGEST_GIB:
            rule = f"must be a number of GiB above 0 and at most {_LARGEST_GIB}"
            raise InputError("gpu_memory_gib", memory_gib, rule)
        return cls(
            name=f"custom-{float(memory_gib):g}gib",
            memory_bytes=int(memory_gib * GIB),
            node_size=node_size,
            source="given by the user",
            note="",
        )


@cache
def _catalogue() -> dict[str, Gpu]:
    return {name: _entry(name, **fields) for name, fields in read("gpus").items()}


def _entry(name: str, memory_gib: int, **fields: Any) -> Gpu:
    return Gpu(name=name, memory_bytes=memory_gib * GIB, **fields)


def _words(name: str) -> list[str]:
    """Split off the parts that distinguish GPUs: ``NVIDIA H100 80 GB`` becomes ``h100``, ``80gb``."""
    joined = re.sub(r"(\d)[\s_-]+gb\b", r"\1gb", name.lower())
    return [word for word in re.split(r"[\s_/-]+", joined) if word not in ("", *_VENDORS)]


_VENDORS = ("nvidia", "amd", "instinct", "tesla", "rtx")
"""Words that vendors put before the name and people leave out."""
