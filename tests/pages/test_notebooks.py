"""Notebooks of the documentation, run from the first cell to the last: every cell prints what the file says."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))
#: Drawings have numbers of their own in every process and version: that there is one is compared.
_DRAWN = ("image/svg+xml",)


def outputs(book: Any) -> list[list[Any]]:
    """Return what each cell of code prints and shows."""
    return [[_output(item) for item in cell.outputs] for cell in book.cells if cell.cell_type == "code"]


def _output(item: Any) -> Any:
    if item.output_type == "stream":
        return item.text
    assert item.output_type in ("execute_result", "display_data"), item
    return {kind: "" if kind in _DRAWN else _plain(text) for kind, text in item.data.items()}


def _plain(text: str) -> str:
    """Return a text without pandas' style sheet, which its versions write differently."""
    return re.sub(r"<style scoped>.*?</style>", "", text, flags=re.DOTALL)


def test_there_are_three() -> None:
    assert [path.stem for path in NOTEBOOKS] == ["choose_a_layout", "cite_and_extend", "plan_a_cluster"]


@pytest.mark.process
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_every_cell_prints_what_the_notebook_shows(path: Path) -> None:
    book = nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]
    before = outputs(book)
    NotebookClient(book, kernel_name="python3", timeout=None, record_timing=False).execute()
    if os.environ.get("UPDATE_DOCUMENTS"):
        for cell in book.cells:
            cell.metadata.clear()
        book.metadata.pop("language_info", None)
        nbformat.write(book, path)  # type: ignore[no-untyped-call]
        return
    assert outputs(book) == before
