"""A section of docs/validation.md: memory outside of PyTorch's allocator, measured by others, beside the constants."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from shardmath.symbolic.overheads import OVERHEADS, UNCOUNTED
from validation.measured.reading import rows, whole
from validation.measured.sections import paragraph
from validation.tables import markdown

TABLE = "outside_allocator.csv"
MIB = 2**20
CONSTANTS = {item.letter: item for item in OVERHEADS}


def section() -> str:
    """Return the section. Raises KeyError for a component that is no constant of the ledger."""
    measured = rows(TABLE)
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
        paragraph(f"Not counted yet: {'; '.join(UNCOUNTED)}."),
    ])


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
