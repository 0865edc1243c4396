"""A section of docs/validation.md: memory outside of PyTorch's allocator, measured by others, beside the constants."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from shardmath.catalogue import read
from shardmath.machines.gpu import Gpu
from shardmath.symbolic.overheads import OVERHEADS, UNCOUNTED
from shardmath.symbolic.run_out import OFFERED
from validation.measured.reading import rows, whole
from validation.measured.sections import paragraph
from validation.measured.sets import one_h100
from validation.tables import markdown

TABLE, LIBRARIES = "outside_allocator.csv", "outside_libraries.csv"
MIB = 2**20
CONSTANTS = {item.letter: item for item in OVERHEADS}
#: The driver's part of the memory, no constant of its own: ``OFFERED`` takes it off.
DRIVER = "driver"
NAMES = {"context": "contexts", "nccl": "communicators"}


def section() -> str:
    """Return the section. Raises KeyError for a component that is no constant of the ledger."""
    measured = [row for row in rows(TABLE) if row["component"] != DRIVER]
    inside = Counter(row["component"] for row in measured if is_inside(row))
    numbers = Counter(row["component"] for row in measured)
    words = "; ".join(f"{NAMES[name]}: {inside[name]} of {count}" for name, count in numbers.items())
    return "\n\n".join([
        "## Outside of PyTorch's allocator",
        paragraph(f"""What a process takes of a GPU beside the allocator's memory, as people measured it, and what
        `explain` adds. The context is that of the GPU (`context_mib` in `catalogue/gpus.toml`), and
        {CONSTANTS["context"].typical // MIB} MiB on GPUs without one. Inside of the ranges are: {words}. A context
        grows with the GPU and with the kernels that are loaded, so idle processes have less; no row tells how much
        drivers differ. A communicator has buffers for each channel and each GPU that it sends to, so that exchanges of
        all with all (experts, all-to-all context parallelism) need far more than a ring. Neither is in the formula, so
        all are rough."""),
        f"Table: `tests/data/{TABLE}`.",
        table(measured),
        paragraph("""An error of PyTorch names the process's memory and what it allocated and cached. The rest is the
        context and what libraries hold, to 10 MiB; such rows are of one process on one GPU. The context of a GPU is the
        median of the rows that it has here:"""),
        by_gpu(),
        _at_work(),
        paragraph("""Libraries beside PyTorch take memory inside of its allocator, where reserved memory has it, or
        outside of it, where the process has it alone:"""),
        f"Table: `tests/data/{LIBRARIES}`.",
        libraries(),
        paragraph(f"Without a public figure: {'; '.join(unmeasured())}."),
        paragraph(f"Not counted yet: {'; '.join(UNCOUNTED)}."),
    ])


def sizes_of(gpu: str) -> list[int]:
    """Return the MiB of contexts that set that of a GPU: measured on it, or on another with its chip."""
    return [whole(row["mib"]) for row in rows(TABLE) if gpu in row["sets"].split()]


def by_gpu() -> str:
    """Return the contexts of the catalogue: GPUs, MiB, the measured MiB and on which GPUs."""
    groups: dict[tuple[int, ...], list[str]] = {}
    for name in read("gpus"):
        if sizes := sizes_of(name):
            groups.setdefault(tuple(sizes), []).append(name)
    lines: list[tuple[object, ...]] = []
    for measured, names in groups.items():
        on = dict.fromkeys(row["gpu"] for row in rows(TABLE) if names[0] in row["sets"].split())
        lines.append((", ".join(names), Gpu.named(names[0]).context_mib, ", ".join(map(str, measured)), ", ".join(on)))
    rest = ", ".join(name for name in read("gpus") if Gpu.named(name).context_mib is None)
    lines.append((rest, f"{CONSTANTS['context'].typical // MIB}, as usual", "none", ""))
    return markdown(("GPUs", "context, MiB", "measured, MiB", "on"), lines)


def _at_work() -> str:
    """Say what whole steps took outside of the allocator on one H100, and what its driver keeps."""
    steps = {row["program"]: whole(row["outside_bytes"]) for row in rows(one_h100.TABLE)}
    group, further = (whole(row["mib"]) * MIB for row in rows(TABLE)
                      if row["component"] == "nccl" and row["source"].startswith("measured here"))
    context = (Gpu.named("h100-80gb").context_mib or 0) * MIB
    groups = 1 + round((steps["megatron-core"] - context - group) / further)
    driver = next(whole(row["mib"]) for row in rows(TABLE) if row["component"] == DRIVER)
    memory = 80 * 1024
    return paragraph(f"""Whole steps on one H100 take {steps["fsdp2"] / 1e9:.2f} GB outside with FSDP2, which makes one
        group, and {steps["megatron-core"] / 1e9:.2f} GB with Megatron-Core on one rank, as much as {groups} groups of
        NCCL: it makes one for each kind of parallelism, of one rank too, which `explain` does not count. The driver
        keeps {driver} MiB of 80 GiB, {driver / memory:.2%}; the probability of running out takes
        {float(1 - OFFERED):.1%} off. `--context-bytes` and `--communicator-bytes` say what a cluster has.""")


def libraries() -> str:
    """Return a line for each part of a library: where it lies, what was measured, and what counts it."""
    return markdown(
        ("library", "part", "inside of the allocator", "GPU", "MiB", "how", "source", "counted"),
        [(row["library"], row["part"], row["inside"], row["gpu"], row["mib"] or "no public figure", row["measured"],
          row["source"], row["counted"]) for row in rows(LIBRARIES)])


def unmeasured() -> list[str]:
    """Name the parts of libraries of which nobody published a number."""
    return [f"{row['library']}, {row['part']}" for row in rows(LIBRARIES) if not row["mib"]]


def range_of(row: Mapping[str, str]) -> tuple[int, int, int]:
    """Return the usual bytes of a row's component on its GPU, and the ends of their range."""
    constant = CONSTANTS[row["component"]]
    own = Gpu.named(row["name"]).context_mib if row["name"] and row["component"] == "context" else None
    usual = constant.typical if own is None else own * MIB
    return usual, usual * constant.low // 1000, usual * constant.high // 1000


def is_inside(row: Mapping[str, str]) -> bool:
    """Tell whether a measured row lies in the range of its constant."""
    _, low, high = range_of(row)
    return low <= whole(row["mib"]) * MIB <= high


def table(measured: Sequence[Mapping[str, str]]) -> str:
    """Return one line for each measurement, in MiB."""
    lines = []
    for row in measured:
        usual, low, high = (size // MIB for size in range_of(row))
        lines.append((row["component"], row["gpu"], row["ranks"], row["mib"], f"{usual} ({low} to {high})",
                      "yes" if is_inside(row) else "**no**", row["measured"], row["source"]))
    return markdown(("constant", "GPU", "ranks", "measured MiB", "constant MiB", "inside", "how", "source"), lines)
