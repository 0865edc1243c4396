"""The documentation as a site: every page is in it, links lead somewhere, and nothing comes from another host."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

import shardmath

ROOT = Path(__file__).resolve().parents[2]
CONFIG: dict[str, Any] = yaml.safe_load((ROOT / "website" / "mkdocs.yml").read_text(encoding="utf-8"))
#: Pages by name, in the order of the site.
NAMES = [name for section in CONFIG["nav"] for names in section.values() for name in names]
#: What a browser loads by itself.
LOADED = re.compile(r"""(?:<(?:img|script|source)[^>]*\ssrc|<link[^>]*rel="(?:stylesheet|icon)"[^>]*\shref)="([^"]*)""")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "-f", str(ROOT / "website" / "mkdocs.yml"), "-d", str(folder)]
    done = subprocess.run(command, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}, capture_output=True, text=True,
                          check=False)
    assert done.returncode == 0, done.stderr
    return folder


def test_every_page_of_the_documentation_is_on_the_site() -> None:
    written = {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")}
    assert written <= set(NAMES)
    assert len(set(NAMES)) == len(NAMES)


def test_the_builder_is_pinned_as_its_notes_say() -> None:
    notes = (ROOT / "website" / "README.md").read_text(encoding="utf-8")
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    pins = set(re.findall(r"`(mkdocs[^`]*[<>=][^`]*)`", notes))
    assert pins == {pin for pin in extras["docs"] if pin.startswith("mkdocs")}
    assert pins <= set(extras["dev"])


@pytest.mark.process
def test_the_site_is_whole(site: Path) -> None:
    index = (site / "llms.txt").read_text(encoding="utf-8")
    assert re.findall(r"\]\((.*)\)$", index, re.MULTILINE) == NAMES
    for name in NAMES:
        page = (site / name.replace("README", "index")).with_suffix(".html").read_text(encoding="utf-8")
        assert re.search("^# ", (site / name).read_text(encoding="utf-8"), re.MULTILINE), name
        for path in LOADED.findall(page):
            assert not re.match(r"(https?:)?//", path), f"{name} loads {path}"
    reference = (site / "reference.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^## (\w+)$", reference, re.MULTILINE)) == set(shardmath.__all__) - {"__version__"}
    assert "* `seq_length` (tokens, from 1): Tokens of one sequence." in reference
    assert "* `gpu_memory`: Bytes of the memory of a GPU." in reference
    assert reference.count("```pycon\n>>> ") > len(shardmath.__all__)
    assert (site / "index.html").read_text(encoding="utf-8").count("<math ") == 3
    assert '<script src="filter.js" defer>' in (site / "formulas.html").read_text(encoding="utf-8")
    assert (site / "filter.js").is_file()
