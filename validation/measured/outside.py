"""A section of docs/validation.md: memory outside of PyTorch's allocator, measured by others, beside the constants."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from shardmath.symbolic.overheads import OVERHEADS, UNCOUNTED
from shardmath.symbolic.run_out import OFFERED
from validation.measured import one_h100
from validation.measured.reading import rows, whole
from validation.measured.sections import paragraph
from validation.tables import markdown

TABLE = "outside_allocator.csv"
MIB = 2**20
CONSTANTS = {item.letter: item for item in OVERHEADS}
#: The driver's part of the memory, no constant of its own: ``OFFERED`` takes it off.
DRIVER = "driver"
#: Constants that differ by GPU.
NAMES = ("context", "nccl")
#: Generations whose GPUs train large models, newest first.
GENERATIONS = ("Blackwell", "Hopper", "Ampere")


def section() -> str:
    """Return the section. Raises KeyError for a component that is no constant of the ledger."""
    measured = [row for row in rows(TABLE) if row["component"] != DRIVER]
    inside = Counter(row["component"] for row in measured if is_inside(row))
    numbers = Counter(row["component"] for row in measured)
    words = "; ".join(f"{CONSTANTS[name].meaning}: {inside[name]} of {count}" for name, count in numbers.items())
    return "\n\n".join([
        "## Outside of PyTorch's allocator",
        paragraph(f"""What a process takes of a GPU beside the allocator's memory, as people measured it, and the
        constants that `explain` adds. Inside of their ranges are: {words}. A context grows with the GPU and with the
        kernels that
        are loaded. A communicator has buffers for each channel and each GPU that it sends to, so that exchanges of all
        with all (experts, all-to-all context parallelism) need far more than a ring. Neither is in the formula, so the
        constants are rough; the probability of running out was fitted with them as they are."""),
        f"Table: `tests/data/{TABLE}`.",
        table(measured),
        by_generation(),
        _at_work(),
        paragraph(f"Not counted yet: {'; '.join(UNCOUNTED)}."),
    ])


def context_of(generation: str) -> int | None:
    """Return the bytes of a context with cuBLAS's handles on a training GPU of a generation, None if not measured."""
    sizes = [whole(row["mib"]) for row in rows(TABLE) if row["component"] == "context"
             and row["generation"] == generation and "cuBLAS" in row["measured"]]
    return max(sizes) * MIB if sizes else None


def by_generation() -> str:
    """Return the contexts and groups of each generation beside each other, and say which were not measured."""
    lines = []
    for generation in GENERATIONS:
        own = [row for row in rows(TABLE) if row["generation"] == generation]
        training = context_of(generation)
        lines.append((generation, ", ".join(dict.fromkeys(row["gpu"] for row in own)), *(
            _range([whole(row["mib"]) for row in own if row["component"] == name]) for name in NAMES
        ), f"{training // MIB}" if training else "not measured"))
    heads = ("generation", "GPUs", *(f"{name}, MiB" for name in NAMES), "context of a training GPU with cuBLAS, MiB")
    return markdown(heads, lines)


def _range(sizes: Sequence[int]) -> str:
    return f"{min(sizes)} to {max(sizes)}" if sizes else "not measured"


def _at_work() -> str:
    """Say what whole steps took outside of the allocator on one H100, and what its driver keeps."""
    steps = {row["program"]: whole(row["outside_bytes"]) for row in rows(one_h100.TABLE)}
    group, further = (whole(row["mib"]) * MIB for row in rows(TABLE)
                      if row["component"] == "nccl" and row["source"].startswith("measured here"))
    context = context_of("Hopper") or 0
    groups = 1 + round((steps["megatron-core"] - context - group) / further)
    driver = next(whole(row["mib"]) for row in rows(TABLE) if row["component"] == DRIVER)
    memory = 80 * 1024
    return paragraph(f"""A training GPU of Hopper has {context // MIB} MiB before any communication, where the constant
        is {CONSTANTS["context"].typical // MIB}; of Ampere and Blackwell no training GPU was measured, so the constant
        is all there is. Whole steps on one H100 take {steps["fsdp2"] / 1e9:.2f} GB outside with FSDP2, which makes one
        group, and {steps["megatron-core"] / 1e9:.2f} GB with Megatron-Core on one rank, as much as {groups} groups of
        NCCL: it makes one for each kind of parallelism, of one rank too, which `explain` does not count. The driver
        keeps {driver} MiB of 80 GiB, {driver / memory:.2%}; the probability of running out takes
        {float(1 - OFFERED):.1%} off. `--context-bytes` and `--communicator-bytes` say what a cluster has.""")


def is_inside(row: Mapping[str, str]) -> bool:
    """Tell whether a measured row lies in the range of its constant."""
    constant = CONSTANTS[row["component"]]
    return constant.low <= whole(row["mib"]) * MIB <= constant.high


def table(measured: Sequence[Mapping[str, str]]) -> str:
    """Return one line for each measurement, in MiB."""
    lines = []
    for row in measured:
        constant = CONSTANTS[row["component"]]
        low, usual, high = (size // MIB for size in (constant.low, constant.typical, constant.high))
        lines.append((row["component"], row["gpu"], row["ranks"], row["mib"], f"{usual} ({low} to {high})",
                      "yes" if is_inside(row) else "**no**", row["measured"], row["source"]))
    return markdown(("constant", "GPU", "ranks", "measured MiB", "constant MiB", "inside", "how", "source"), lines)
