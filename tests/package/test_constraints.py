"""Versions: those that are declared have a floor and a ceiling, and those that are locked are among them, by hash."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = PROJECT["optional-dependencies"]
LOCKED = (ROOT / "constraints.txt").read_text(encoding="utf-8")
#: One version of each package, or one for each kind of machine; then its hashes.
PINS = [line.split(" --hash=") for line in LOCKED.replace("\\\n", "").splitlines() if not line.startswith("#")]
#: What `make constraints` locks, as the Makefile has it.
NAMES = re.search(r"^LOCKED := (.*)$", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
assert NAMES is not None
WANTED = [Requirement(text) for text in
          (*PROJECT["dependencies"], *(text for name in NAMES[1].split() for text in EXTRAS[name]))]


@pytest.mark.parametrize("text", [*PROJECT["dependencies"], *(text for extra in EXTRAS.values() for text in extra)])
def test_every_version_has_a_floor_and_a_ceiling(text: str) -> None:
    operators = {each.operator for each in Requirement(text).specifier}
    assert operators in ({">=", "<"}, {"=="}) or text == "setuptools>=77"


@pytest.mark.parametrize("wanted", WANTED, ids=str)
def test_what_is_declared_is_locked_within_its_range(wanted: Requirement) -> None:
    pins = [Requirement(pin) for pin, *_ in PINS]
    versions = [next(iter(pin.specifier)).version for pin in pins
                if canonicalize_name(pin.name) == canonicalize_name(wanted.name)]
    assert versions, "run make constraints"
    assert all(wanted.specifier.contains(version) for version in versions), "run make constraints"


def test_every_pin_is_one_version_with_hashes() -> None:
    assert len(PINS) > len(WANTED)
    for pin, *hashes in PINS:
        assert [each.operator for each in Requirement(pin).specifier] == ["=="], pin
        assert hashes, pin
        assert all(re.fullmatch(r"sha256:[0-9a-f]{64}", each.strip()) for each in hashes), pin


def test_no_host_is_named() -> None:
    assert not re.search(r"://|index-url|find-links|trusted-host", LOCKED)


def test_the_extras_for_users_are_locked() -> None:
    """All but what works on a GPU, develops, documents, fuzzes or measures."""
    assert NAMES is not None
    assert {*NAMES[1].split()} == EXTRAS.keys() - {"cuda", "bench", "docs", "fuzz", "oracle", "dev"}


def test_classifiers_name_every_python_that_is_tested() -> None:
    loop = re.search(r"^for version in (.*); do$", (ROOT / ".ci" / "matrix").read_text(encoding="utf-8"), re.MULTILINE)
    assert loop is not None
    named = {line.rsplit(" ", 1)[1] for line in PROJECT["classifiers"] if "Python :: 3." in line}
    assert named == {*loop[1].split()}
