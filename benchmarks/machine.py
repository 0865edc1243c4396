"""The machine and the versions that a measurement belongs to."""

from __future__ import annotations

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import llvmlite.binding as llvm

from shardmath.compiler.native.measured import quickest_here
from shardmath.compiler.native.options import usual

_PACKAGES = ("numba", "numpy", "sympy", "numexpr", "jax")


def machine() -> dict[str, str]:
    """Processor, memory, system, options of the compiler, versions, and how busy the machine was before the run."""
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return {
        "processor": f"{_processor()}, {os.cpu_count()} cores",
        "memory": f"{pages / 2**30:.1f} GiB",
        "system": f"{platform.system()} {platform.machine()}",
        "compiler": _compiler(),
        "versions": f"Python {platform.python_version()}, {', '.join(_versions())}",
        "load": f"{os.getloadavg()[0]:.2f} (one-minute average before the run; it should be near 0)",
    }


def _compiler() -> str:
    """LLVM, its name for the processor, and the options that were measured here for nests of large spaces."""
    options = quickest_here()
    words = [*options.features, *(name for name in ("masks", "unrolling", "interleaving") if getattr(options, name))]
    chosen = "as usual" if options == usual() else "chosen by measurement"
    version = ".".join(map(str, llvm.llvm_version_info))
    return f"LLVM {version} for {llvm.get_host_cpu_name()}; nests: {', '.join(words) or 'no options'} ({chosen})"


def widths() -> tuple[int, ...]:
    """Return the widths of vectors that the processor says it has, in bits, from 256 on."""
    flags = _described().get("flags", "").split()
    return tuple(bits for bits, flag in ((256, "avx2"), (512, "avx512f")) if flag in flags)


def _processor() -> str:
    """Return Linux's name of the processor, with its widest vectors."""
    fields = _described()
    if not fields:
        return platform.processor() or platform.machine()
    flags = fields.get("flags", "").split()
    widest = next((name for name in ("avx512f", "avx2", "avx") if name in flags), "no AVX")
    family = f"family {fields['cpu family']} model {fields['model']}" if "cpu family" in fields else ""
    return f"{fields.get('model name', platform.machine())} ({', '.join(filter(None, (family, widest)))})"


def _described() -> dict[str, str]:
    path = Path("/proc/cpuinfo")
    return dict(_field(line) for line in path.read_text().splitlines() if ":" in line) if path.exists() else {}


def _field(line: str) -> tuple[str, str]:
    name, _, value = line.partition(":")
    return name.strip(), value.strip()


def _versions() -> list[str]:
    versions = []
    for package in _PACKAGES:
        try:
            versions.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            versions.append(f"no {package}")
    return versions
