"""Pages name what they may run: the digests of their own scripts and styles, and nothing inline beside them."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping
from html.parser import HTMLParser
from pathlib import Path

import pytest

from shardmath.cli.main import exit_code
from shardmath.commands.page.writing import shown
from shardmath.reports.policy import with_policy


class Inline(HTMLParser):
    """Inline texts by the directive that allows them, attributes that a policy forbids, and the policy."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.texts: dict[str, list[str]] = {"script-src": [], "style-src": []}
        self.forbidden: list[str] = []
        self.policy: dict[str, list[str]] = {}
        self._into: list[str] | None = None
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        known = dict(attributes)
        if known.get("http-equiv") == "Content-Security-Policy":
            self.policy = {rule.split()[0]: rule.split()[1:] for rule in str(known["content"]).split(";")}
        self.forbidden += [name for name in known if name == "style" or name.startswith("on")]
        self._into = None
        if tag == "style" or (tag == "script" and "type" not in known):
            self._into = self.texts[f"{tag}-src"]
            self._into.append("")

    def handle_endtag(self, tag: str) -> None:
        self._into = None

    def handle_data(self, data: str) -> None:
        if self._into is not None:
            self._into[-1] += data


def check(text: str, scripts: int, more: Mapping[str, list[str]] | None = None) -> None:
    """The policy allows the page's own texts, as many ``scripts`` as that, and ``more`` by directive."""
    found = Inline(text)
    assert [len(texts) for texts in found.texts.values()] == [scripts, 1]
    assert found.forbidden == []
    expected = {"default-src": ["'none'"], "base-uri": ["'none'"], "form-action": ["'none'"]} | {
        directive: [f"'sha256-{base64.b64encode(hashlib.sha256(each.encode()).digest()).decode()}'" for each in texts]
        for directive, texts in found.texts.items() if texts
    }
    for directive, sources in (more or {}).items():
        expected[directive] = [*expected.get(directive, []), *sources]
    assert found.policy == expected
    assert "unsafe" not in str(found.policy)
    assert text.index("Content-Security-Policy") < re.search("<style|<script", text).start()  # type: ignore[union-attr]


def test_the_page_allows_its_own_scripts() -> None:
    """Without formulas, which are no scripts before they are unpacked."""
    text = with_policy(shown({}), makes_scripts=True)
    check(text, 2, {"script-src": ["'strict-dynamic'"], "worker-src": ["blob:"]})


@pytest.mark.process
@pytest.mark.parametrize("arguments", [
    ["sweep", "llama-3.2-1b", "--gpu", "h100-80gb", "--num-gpus", "8", "--global-batch-size", "16"],
    ["explain", "llama-3.1-8b", "--gpu", "a100-40gb", "--tp", "4", "--pp", "2"],
], ids=["sweep", "explain"])
def test_a_picture_runs_nothing(arguments: list[str], tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    assert exit_code([*arguments, "--plot", str(tmp_path / "picture.html")]) == 0
    check((tmp_path / "picture.html").read_text(encoding="utf-8"), 0)
