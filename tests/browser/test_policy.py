"""Content security policies: pages do all that they should under theirs, and nothing that is added to them runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from shardmath.cli.main import exit_code

PICTURES = {
    "sweep": ["sweep", "llama-3.2-1b", "--gpu", "h100-80gb", "--num-gpus", "8", "--global-batch-size", "16"],
    "explain": ["explain", "llama-3.1-8b", "--gpu", "a100-40gb", "--tp", "4", "--pp", "2"],
    "scale": ["scale", "llama-3.2-1b", "--gpu", "h100-80gb", "--num-gpus", "8,16", "--global-batch-size", "16"],
}
#: Properties of drawn elements, as the browser has computed them.
COMPUTED = """() => [...document.querySelectorAll("figure svg *")].map((node) => {
  const style = getComputedStyle(node);
  return [style.fill, style.stroke, style.strokeWidth, style.strokeLinejoin, style.strokeLinecap, style.font];
})"""


@pytest.fixture(params=PICTURES)
def picture(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path = tmp_path / "picture.html"
    assert exit_code([*PICTURES[request.param], "--plot", str(path)]) == 0
    return path


def test_a_picture_looks_as_without_a_policy(picture: Path, opened: Callable[..., Any], tmp_path: Path) -> None:
    """The fixture fails at a violation. Without the policy, and with styles at their elements, all is the same."""
    text = picture.read_text(encoding="utf-8")
    sheet = dict(line[1:-2].split(" { ", 1) for line in text.splitlines() if line.startswith(".drawn-"))
    assert len(sheet) > 5
    for name, style in sheet.items():
        text = text.replace(f'class="{name}"', f'style="{style}"').replace(f".{name} {{ {style} }}\n", "")
    plain = tmp_path / "plain.html"
    plain.write_text(text.replace("http-equiv", "data-none"), encoding="utf-8")
    found, expected = (opened(path=path).evaluate(COMPUTED) for path in (picture, plain))
    assert found == expected
    assert len({tuple(item) for item in found}) > 5


@pytest.mark.parametrize("added", [
    "<script>document.title = 'changed'</script>", "<style>body { color: rgb(1, 2, 3) }</style>",
    "<b style='color: rgb(1, 2, 3)'>text</b>", "<img src='x:' onerror=\"document.title = 'changed'\">",
    "<script src='https://example.org/script.js'></script>",
], ids=["script", "style", "attribute", "handler", "address"])
@pytest.mark.parametrize("kind", ["page", "picture"])
def test_what_is_added_is_refused(kind: str, added: str, chromium: Any, written: Path, tmp_path: Path) -> None:
    path = tmp_path / "changed.html"
    if kind == "picture":
        assert exit_code([*PICTURES["explain"], "--plot", str(path)]) == 0
    else:
        path.write_bytes(written.read_bytes())
    before = path.read_text(encoding="utf-8")
    path.write_text(before.replace("</body>", added + "</body>"), encoding="utf-8")
    violations: list[str] = []
    tab = chromium.new_page()
    tab.on("console", lambda message: violations.append(message.text) if message.type == "error" else None)
    tab.goto(path.as_uri())
    tab.wait_for_load_state()
    assert tab.locator("h1").count() == 1
    assert tab.title() != "changed"
    assert tab.evaluate("""() => [...document.querySelectorAll("body, b")].filter(
        (node) => getComputedStyle(node).color === "rgb(1, 2, 3)").length""") == 0
    tab.close()
    assert [text for text in violations if "Content Security Policy" in text]
