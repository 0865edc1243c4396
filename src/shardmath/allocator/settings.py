"""Settings of the caching allocator, and how it rounds sizes (``c10/core/AllocatorConfig.h`` of PyTorch 2.13)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from shardmath.errors import InputError, nearest_names

MIB = 2**20
#: Bytes that every block is a multiple of, and the smallest rest that is split off in the small pool.
SMALLEST_BLOCK = 512
#: Largest request of the small pool, and largest rest that stays unsplit in the large pool.
LARGEST_SMALL = MIB
#: Segment of the small pool, of requests below ``LEAST_ALONE`` in the large pool, and quantum of larger ones.
SMALL_SEGMENT, LARGE_SEGMENT, LARGE_QUANTUM = 2 * MIB, 20 * MIB, 2 * MIB
#: Smallest request that gets a segment of its own size.
LEAST_ALONE = 10 * MIB


@dataclass(frozen=True)
class Settings:
    """Options of ``PYTORCH_CUDA_ALLOC_CONF`` under their own names, and the memory of the GPU.

    Raises InputError for values that PyTorch refuses.
    """

    expandable_segments: bool = False
    max_split_size_mb: int | None = None
    """MiB from which on blocks are not split; None: all are."""
    max_non_split_rounding_mb: int = 20
    """MiB by which a block that is not split may be larger than the request that it serves."""
    roundup_power2_divisions: int = 0
    """Steps between two powers of two that sizes round up to; 0 or 1: multiples of 512 bytes."""
    garbage_collection_threshold: float = 0.0
    """Share of ``fraction_bytes`` from which on old cached blocks are released; 0: never."""
    fraction_bytes: int | None = None
    """Bytes that ``set_per_process_memory_fraction`` allows; None: it was not called."""
    capacity_bytes: int | None = None
    """Bytes that the driver gives; None: without bound."""

    @classmethod
    def parsed(cls, text: str) -> Settings:
        """Read ``option:value`` pairs with commas between them, as ``PYTORCH_CUDA_ALLOC_CONF`` has them.

        Raises InputError for an option or a value that PyTorch refuses, and for options without a model here.
        """
        values: dict[str, Any] = {}
        for pair in filter(None, (part.strip() for part in text.split(","))):
            name, colon, value = (part.strip() for part in pair.partition(":"))
            if not colon or name not in _READ:
                raise InputError("alloc_conf", pair, f"must be option:value, with one of {', '.join(_READ)}",
                                 nearest_names(name, _READ))
            try:
                values[name] = _READ[name](value)
            except ValueError:
                raise InputError("alloc_conf", pair, f"must be {_FORMS[_READ[name]]}") from None
        return cls(**values)

    def __post_init__(self) -> None:
        if self.max_split_size_mb is not None and self.max_split_size_mb * MIB <= LARGE_SEGMENT:
            raise InputError("max_split_size_mb", self.max_split_size_mb, "must be above 20", "21")
        if self.max_non_split_rounding_mb * MIB < LARGE_SEGMENT:
            raise InputError("max_non_split_rounding_mb", self.max_non_split_rounding_mb, "must be at least 20", "20")
        divisions = self.roundup_power2_divisions
        if divisions < 0 or divisions & (divisions - 1):
            raise InputError("roundup_power2_divisions", divisions, "must be 0 or a power of two")
        if not 0 <= self.garbage_collection_threshold < 1:
            rule = "must be at least 0 and below 1"
            raise InputError("garbage_collection_threshold", self.garbage_collection_threshold, rule)
        for field in ("fraction_bytes", "capacity_bytes"):
            value = getattr(self, field)
            if value is not None and value < 1:
                raise InputError(field, value, "must be at least 1", "1")

    @property
    def max_split_bytes(self) -> float:
        """Bytes from which on blocks are not split; infinite if all are."""
        return float("inf") if self.max_split_size_mb is None else self.max_split_size_mb * MIB

    def rounded(self, requested: int) -> int:
        """Return the bytes of the block for a request of as many bytes."""
        if requested < SMALLEST_BLOCK:
            return SMALLEST_BLOCK
        divisions = self.roundup_power2_divisions
        if divisions > 1 and requested > SMALLEST_BLOCK * divisions:
            step = (1 << (requested.bit_length() - 1)) // divisions
            return -(-requested // step) * step
        return -(-requested // SMALLEST_BLOCK) * SMALLEST_BLOCK


def _switch(text: str) -> bool:
    if text not in ("True", "False"):
        raise ValueError(text)
    return text == "True"


#: Options that ``Settings.parsed`` reads, and what their values must be, in words.
_READ: Mapping[str, Callable[[str], Any]] = {
    "expandable_segments": _switch, "max_split_size_mb": int, "max_non_split_rounding_mb": int,
    "roundup_power2_divisions": int, "garbage_collection_threshold": float,
}
_FORMS: Mapping[Callable[[str], Any], str] = {
    _switch: "True or False", int: "an integer; lists of steps by size are not modelled yet", float: "a number",
}


def segment_bytes(rounded: int) -> int:
    """Return the bytes that are asked from the driver when no cached block serves a rounded request."""
    if rounded <= LARGEST_SMALL:
        return SMALL_SEGMENT
    if rounded < LEAST_ALONE:
        return LARGE_SEGMENT
    return -(-rounded // LARGE_QUANTUM) * LARGE_QUANTUM
