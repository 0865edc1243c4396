"""The field above the tables of formulas, which leaves the rows that have a letter, a tensor or words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
#: Rows that are shown, as the names in their first cells, and headings of sections that are shown.
SHOWN = """() => [[...document.querySelectorAll("tbody tr")].filter((row) => row.checkVisibility())
  .map((row) => row.cells[0].textContent), [...document.querySelectorAll("h2")]
  .filter((part) => part.checkVisibility()).map((part) => part.textContent)]"""


@pytest.fixture(scope="module")
def tab(chromium: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    markdown = pytest.importorskip("markdown")
    page = tmp_path_factory.mktemp("formulas") / "formulas.html"
    tables = markdown.markdown((ROOT / "generated" / "formulas.md").read_text(encoding="utf-8"), extensions=["tables"])
    script = (ROOT / "website" / "filter.js").as_uri()
    page.write_text(f'<meta charset="utf-8"><article>{tables}</article><script src="{script}"></script>', "utf-8")
    opened = chromium.new_page()
    opened.goto(page.as_uri())
    return opened


def shown(tab: Any, words: str) -> tuple[list[str], list[str]]:
    tab.fill("input[type=search]", words)
    names, headings = tab.evaluate(SHOWN)
    return names, headings


def test_a_tensor_is_found_by_the_name_that_formulas_have(tab: Any) -> None:
    names, headings = shown(tab, "swiglu.gate_up.weight")
    assert names[0] == "gate_up.weight"
    assert headings[0] == "SwiGLU"
    assert "Word embedding" not in headings
    row = tab.locator("tbody tr:visible").first
    assert "/mlp.py#L" in row.locator("a").first.get_attribute("href")
    assert tab.inner_text("output").endswith("rows")


def test_a_letter_is_a_symbol_and_not_a_sign_of_a_word(tab: Any) -> None:
    everything, _ = shown(tab, "")
    names, headings = shown(tab, "f swiglu")
    assert 0 < len(names) < len(everything) / 10
    assert "SwiGLU" in headings
    codes = [row.locator("code").all_inner_texts() for row in tab.locator("tbody tr:visible").all()[:20]]
    assert all("f" in "".join(sign if sign.isalnum() or sign == "_" else " " for sign in " ".join(row)).split()
               for row in codes)
    assert shown(tab, "f swiglu zzz") == ([], [])
    assert shown(tab, "")[0] == everything
