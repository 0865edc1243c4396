"""The GPU that a layout has to fit into: its memory, its speeds, and how many of them share a node."""

from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any, Literal, Self

from annotated_types import Ge, Le
from pydantic import Field, model_validator

from shardmath.catalogue import read
from shardmath.errors import ABSENT, InputError
from shardmath.generated.definitions import MEASURED, MEASURED_GPUS
from shardmath.input.arguments import typed
from shardmath.input.naming import by_name
from shardmath.input.records import Record

__all__ = ["GIB", "Gpu"]

GIB = 2**30
"""Bytes."""

#: The source of a GPU of which nothing but the memory was given.
GIVEN = "given by the user"
#: Speeds that most of a step's time depends on.
_SPEEDS = ("bf16_gflops", "hbm_mb_per_s")
#: With the links between GPUs, which tell exported and PCIe boards from those that steps were measured on.
_LIKENESS = (*_SPEEDS, "link_mb_per_s")

_LARGEST_GIB = 4096
"""4 TiB. No single device comes near; it catches MiB and bytes that were passed as GiB."""
_UNITS = ("MiB", "KiB", "bytes")
"""Units below a GiB, each 1024 times as small as the one before."""

Speed = Annotated[int, Ge(1), Le(10**9)] | None
"""10^9 FLOP/s or 10^6 bytes/s, at most 10^18 FLOP/s and 10^15 bytes/s; None where it is not known."""
Nanoseconds = Annotated[int, Ge(0), Le(10**9)]
"""At most a second."""


class Gpu(Record):
    """One kind of GPU.

    ``memory_bytes``: the capacity that estimates are compared with, in bytes; which figure that is, and
    what the driver shows instead, is said in ``note``. ``node_size``: GPUs in the usual server. ``source``:
    the datasheet. ``compute_capability``: NVIDIA's number of the architecture, ``9.0`` for an H100; empty for GPUs
    of other vendors and those given by their memory. Raises ``InputError`` for anything that breaks a rule.

    Speeds are peaks, and None where they are not known. ``bf16_gflops``, ``fp8_gflops``: dense matrix products, in
    10^9 FLOP/s. ``hbm_mb_per_s``: device memory, in 10^6 bytes/s. ``link_mb_per_s``: all of a GPU's links (``link``:
    NVLink or xGMI) together, each direction; ``link_size``: how many GPUs they join. ``mesh_size``: boards of so
    many GPUs have no switch, so that each pair has an equal part of the links. ``pcie_mb_per_s``: PCIe, each direction.
    ``link_latency_ns``, ``pcie_latency_ns``: what one step of a ring takes besides its bytes.
    ``power_watts``: what the board draws at most. ``network``: the vendor's own servers have it, by its name.
    ``host_mb_per_s``, ``host_memory_gib``: memory of the host in these servers, all of its channels together, in 10^6
    bytes/s, and how much of it there is. ``context_mib``: CUDA context of a process with its kernels, in MiB.

    Example:
        >>> gpu = shardmath.Gpu.named("h100-80gb")
        >>> gpu.memory_bytes, gpu.bf16_gflops, gpu.node_size
        (85899345920, 989400, 8)
    """

    name: Annotated[str, Field(min_length=1)]
    memory_bytes: Annotated[int, Field(ge=1, le=_LARGEST_GIB * GIB)]
    node_size: Annotated[int, Field(ge=1, le=2**16)]
    source: str
    note: str
    compute_capability: Annotated[str, Field(pattern=r"^(\d+\.\d)?$")] = ""
    bf16_gflops: Speed = None
    fp8_gflops: Speed = None
    hbm_mb_per_s: Speed = None
    link: Literal["nvlink", "xgmi"] | None = None
    link_mb_per_s: Speed = None
    link_size: Annotated[int, Field(ge=2, le=2**16)] | None = None
    mesh_size: Annotated[int, Field(ge=2, le=2**16)] | None = None
    link_latency_ns: Nanoseconds | None = None
    pcie_mb_per_s: Speed = None
    pcie_latency_ns: Nanoseconds | None = None
    power_watts: Annotated[int, Field(ge=1, le=10**5)] | None = None
    network: str | None = None
    host_mb_per_s: Speed = None
    host_memory_gib: Annotated[int, Field(ge=1, le=2**20)] | None = None
    context_mib: Annotated[int, Field(ge=0, le=2**20)] | None = None

    @model_validator(mode="after")
    def _link_is_whole(self) -> Self:
        link = {name: getattr(self, name) for name in ("link", "link_mb_per_s", "link_size")}
        absent = [name for name, value in link.items() if value is None]
        present = [name for name in link if name not in absent]
        if absent and present:
            raise InputError(absent[0], ABSENT, f"must be given with {' and '.join(present)}")
        return self

    @property
    def architecture(self) -> str:
        """NVIDIA's name of the architecture, as far as figures depend on it; empty where it is not known."""
        if not self.compute_capability:
            return ""
        major = int(self.compute_capability.partition(".")[0])
        return "ampere" if major < 9 else "hopper" if major == 9 else "blackwell"

    @property
    def generation(self) -> str:
        """Name of the generation, as far as constants of time depend on it; empty where no run was ever fitted."""
        if self.compute_capability.startswith("12."):  # GeForce and RTX PRO: other tensor cores than those of B200
            return ""
        return "blackwell_ultra" if self.compute_capability == "10.3" else self.architecture

    @property
    def is_measured(self) -> bool:
        """True if steps were measured on GPUs of this compute capability, and the speeds are those of such a GPU."""
        if self.compute_capability != MEASURED.get(self.generation):
            return False
        return any(self.compute_capability == known.compute_capability and self._is_as_fast(known, _SPEEDS)
                   for known in _catalogue().values())

    @property
    def has_measured_steps(self) -> bool:
        """True if steps were measured on this very kind of GPU, not on others of its compute capability alone."""
        known = (_catalogue()[name] for name in MEASURED_GPUS.get(self.generation, ()))
        return any(self._is_as_fast(gpu, _LIKENESS) for gpu in known)

    def _is_as_fast(self, known: Self, speeds: tuple[str, ...]) -> bool:
        return all(getattr(self, speed) == getattr(known, speed) for speed in speeds)

    @property
    def domain_size(self) -> int:
        """GPUs that reach each other without the network: those of a server, or of a link that spans servers."""
        return max(self.node_size, self.link_size or 1)

    @property
    def servers(self) -> dict[str, int]:
        """Parameters of the usual server's host: the GPUs that share it, and its memory, 0 where it is not known."""
        return {"server_gpus": self.node_size, "host_memory": (self.host_memory_gib or 0) * GIB}

    @property
    def memory_gib(self) -> float:
        """``memory_bytes`` in GiB (2^30 bytes)."""
        return self.memory_bytes / GIB

    @classmethod
    @typed
    def named(cls, name: str) -> "Gpu":
        """Find a GPU of the catalogue by its name, or by the beginning of its name if only one begins so.

        ``h200``, ``H100-80GB``, ``NVIDIA H100 PCIe`` and ``MI300X`` are names; ``a100`` is not, because it
        has 40 or 80 GB. Case and separators do not matter. Raises ``InputError`` that lists the candidates.

        Example:
            >>> shardmath.Gpu.named("NVIDIA H200").name
            'h200-141gb'
        """
        return by_name("gpu", "GPU", name, _catalogue(), VENDORS)

    @classmethod
    @typed
    def of(cls, figures: Mapping[str, Any]) -> "Gpu":
        """Make a GPU of the figures of a catalogue's entry and its name, with the memory in GiB.

        A link or PCIe whose latency is not given has the usual one. Raises ``InputError`` as the class does.

        Example:
            >>> figures = {"name": "mine", "memory_gib": 48, "node_size": 4, "source": "datasheet", "note": ""}
            >>> shardmath.Gpu.of(figures).memory_bytes
            51539607552
        """
        usual = {kind: link["latency_ns"] for kind, link in read("links").items()}
        latencies = {
            f"{way}_latency_ns": usual[kind]
            for way, kind in (("link", str(figures.get("link"))), ("pcie", "pcie"))
            if f"{way}_mb_per_s" in figures and kind in usual
        }
        others = {key: value for key, value in figures.items() if key != "memory_gib"}
        memory_bytes = from_gib("memory_gib", figures.get("memory_gib", ABSENT))
        return cls(memory_bytes=memory_bytes, **{**latencies, **others})

    @classmethod
    @typed
    def custom(cls, memory_gib: float, node_size: int = 8) -> "Gpu":
        """Describe a GPU that the catalogue does not have by its memory in GiB, cut to whole bytes.

        Raises ``InputError`` unless the memory is a number above 0 and at most 4 TiB.

        Example:
            >>> shardmath.explain("llama-3.2-1b", shardmath.Gpu.custom(64)).gpu.name
            'custom-64gib'
        """
        memory_bytes = from_gib("gpu_memory_gib", memory_gib)
        return cls(
            name=f"custom-{float(memory_gib):g}gib",
            memory_bytes=memory_bytes,
            node_size=node_size,
            source=GIVEN,
            note="",
        )


def from_gib(field: str, memory_gib: object) -> int:
    """GiB as bytes, cut to whole ones. Raises ``InputError``, which blames ``field``, unless it is a number of GiB."""
    a_number = isinstance(memory_gib, int | float) and not isinstance(memory_gib, bool)
    # Compared before it is converted: NaN fails both comparisons, and int(inf) would raise.
    if not a_number or not 1 / GIB <= memory_gib <= _LARGEST_GIB:  # type: ignore[operator]
        raise InputError(field, memory_gib, f"must be a number of GiB above 0 and at most {_LARGEST_GIB}",
                         _meant_gib(memory_gib) if a_number else None)
    return int(memory_gib * GIB)  # type: ignore[operator]


def _meant_gib(number: Any) -> str | None:
    """Return the GiB of a number that is too large to be GiB, in the first unit in which a GPU may have so much."""
    units = ((1024**power, unit) for power, unit in enumerate(_UNITS, 1))
    return next((f"{number / size:g} if {number:.15g} is in {unit}" for size, unit in units
                 if size <= number <= _LARGEST_GIB * size), None)


@cache
def _catalogue() -> dict[str, Gpu]:
    return {name: Gpu.of({"name": name, **figures}) for name, figures in read("gpus").items()}


VENDORS = ("nvidia", "amd", "instinct", "tesla", "rtx", "geforce")
"""Words that vendors put before the name and people leave out."""
