"""The page about formulas to compute with: what it shows is what Python prints."""

from __future__ import annotations

import doctest
import os
import re
from pathlib import Path
from typing import Any

import pytest

PAGE = Path(__file__).resolve().parents[2] / "docs" / "algebra.md"


class Runner(doctest.DocTestRunner):
    """Keeps what differs from the page: example and output."""

    def __init__(self) -> None:
        super().__init__(optionflags=doctest.IGNORE_EXCEPTION_DETAIL)
        self.others: list[tuple[doctest.Example, str]] = []

    def report_failure(self, out: Any, test: doctest.DocTest, example: doctest.Example, got: str) -> None:
        """Keep the output of an example."""
        self.others.append((example, got))


@pytest.mark.slow
def test_the_page_prints_what_it_shows() -> None:
    """With UPDATE_DOCUMENTS=1 in the environment, write what Python prints to the page instead of comparing it."""
    text = PAGE.read_text(encoding="utf-8")
    blocks = re.findall(r"```pycon\n(.*?)```", text, re.DOTALL)
    test = doctest.DocTestParser().get_doctest("\n".join(blocks), {}, PAGE.name, str(PAGE), 0)
    runner = Runner()
    results = runner.run(test)
    assert results.attempted == len(test.examples) > 40
    assert results.failed == len(runner.others), "an example raises what the page does not show"
    if os.environ.get("UPDATE_DOCUMENTS"):
        for example, got in runner.others:
            text = text.replace(f"{example.source.splitlines()[-1]}\n{example.want}",
                                f"{example.source.splitlines()[-1]}\n{got}", 1)
        PAGE.write_text(text, encoding="utf-8")
    else:
        assert [(example.source, example.want, got) for example, got in runner.others] == []
