"""CITATION.cff: complete, in step with pyproject.toml, and citing what the ledger cites."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from shardmath.symbolic.sources import SOURCES

ROOT = Path(__file__).resolve().parents[2]
REQUIRED = {"cff-version", "message", "title", "version", "license", "abstract", "keywords", "authors", "references"}


@pytest.fixture(scope="module")
def citation() -> dict[str, Any]:
    return yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))


def _authors(people: list[dict[str, str]]) -> str:
    return ", ".join(person.get("name") or f"{person['given-names']} {person['family-names']}" for person in people)


def test_has_all_that_the_format_and_readers_ask_for(citation: dict[str, Any]) -> None:
    assert citation.keys() >= REQUIRED
    assert citation["cff-version"] == "1.2.0"
    assert all(citation[key] for key in REQUIRED)


def test_no_author_stands_twice(citation: dict[str, Any]) -> None:
    """The format refuses a reference with the same author twice: two of one name need their given names."""
    for reference in citation["references"]:
        names = [tuple(sorted(author.items())) for author in reference["authors"]]
        assert len({*names}) == len(names), reference["title"]


def test_agrees_with_the_project_file(citation: dict[str, Any]) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert (citation["title"], citation["version"], citation["license"]) == (
        project["name"], project["version"], project["license"],
    )


def test_references_are_the_sources_of_the_ledger(citation: dict[str, Any]) -> None:
    cited = [
        (
            reference["type"], _authors(reference["authors"]), reference["title"], reference["year"], reference["url"],
            *(item["value"] for item in reference.get("identifiers", ())),
        )
        for reference in citation["references"]
    ]
    sources = [
        ("software" if source.where == "program" else "article", source.authors, source.title, source.year, source.url)
        + (() if source.where == "program" else (source.where,))
        for source in SOURCES
    ]
    missing = [source for source in sources if source not in cited]
    orphans = [reference for reference in cited if reference not in sources]
    assert not missing, f"add these to CITATION.cff, or make them agree with symbolic/sources.py: {missing}"
    assert not orphans, f"symbolic/sources.py does not have these references of CITATION.cff: {orphans}"
    assert len(cited) == len(sources)
