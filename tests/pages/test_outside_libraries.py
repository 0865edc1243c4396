"""Memory of libraries beside PyTorch: differences of measured processes, what counts it, and what is unknown."""

from __future__ import annotations

import re

from shardmath.symbolic.components import workspaces
from validation.measured import outside
from validation.measured.reading import rows, whole

LIBRARIES = rows(outside.LIBRARIES)
BY_PART = {(row["library"], row["part"]): row for row in LIBRARIES}


def _process(how: str) -> int:
    (row,) = [row for row in rows(outside.TABLE) if row["measured"].startswith(how) and row["gpu"] == "H100"]
    return whole(row["mib"])


def test_handles_are_differences_of_measured_processes() -> None:
    tensor, products = _process("idle: after the first tensor"), _process("after the first products")
    attention = _process("after attention by cuDNN")
    assert whole(BY_PART["cuBLAS", "handle and kernels"]["mib"]) == products - tensor
    assert whole(BY_PART["cuDNN, Triton, fused AdamW", "handle and kernels"]["mib"]) == attention - products


def test_a_row_says_where_its_memory_lies_and_what_counts_it() -> None:
    assert len(BY_PART) == len(LIBRARIES)
    names = {component.name for component in workspaces.COMPONENTS} | {"process.dispatch", "compile"}
    for row in LIBRARIES:
        assert row["inside"].split()[0] in ("yes", "no", "since")
        assert row["source"]
        assert {*re.findall(r"`(\S+?)`", row["counted"])} <= names, row


def test_parts_without_a_public_figure_are_named() -> None:
    named = outside.unmeasured()
    assert len(named) == sum(not row["mib"] for row in LIBRARIES) > 0
    assert any("tp_comm_overlap" in words for words in named)
    assert all(words in outside.section().replace("\n", " ") for words in named)
