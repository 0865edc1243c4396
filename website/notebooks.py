"""Notebooks as pages of the site: their text, their code, and what each cell shows."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

#: Kinds of output that a page shows, the best first.
_KINDS = ("image/svg+xml", "text/html", "text/latex", "text/plain")


def page_of(path: Path) -> str:
    """Return a notebook as Markdown, with a link to the file behind its title."""
    book = json.loads(path.read_text(encoding="utf-8"))
    title, *rest = (part for cell in book["cells"] for part in _cell(cell))
    heading, _, text = title.partition("\n")
    link = f"This page is the notebook [{path.name}]({path.name}), as the tests run it."
    return "\n\n".join((heading, link, text.strip(), *rest)) + "\n"


def _cell(cell: Mapping[str, Any]) -> Iterator[str]:
    source = "".join(cell["source"])
    if cell["cell_type"] == "markdown":
        yield source
        return
    yield f"```python\n{source}\n```"
    for output in cell["outputs"]:
        if output["output_type"] == "stream":
            yield f"```text\n{''.join(output['text']).rstrip()}\n```"
        else:
            kind = next(kind for kind in _KINDS if kind in output["data"])
            yield _shown(kind, "".join(output["data"][kind]))


def _shown(kind: str, text: str) -> str:
    if kind == "text/latex":
        return f"```math\n{text.strip('$').removeprefix(chr(92) + 'displaystyle')}\n```"
    if kind == "text/plain":
        return f"```text\n{text}\n```"
    if kind == "image/svg+xml":
        text = text[text.index("<svg"):]
    # Blank lines would end the block of HTML in Markdown.
    return f"<div>{re.sub(chr(10) + '+', chr(10), text)}</div>"
