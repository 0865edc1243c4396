"""Lines of catalogue/code_lines.toml against the packages as they are installed, and the table of docs/coverage.md."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

import pytest

from shardmath.catalogue import read
from shardmath.catalogue.code import Entry, Fact, packages, places
from validation.code_lines import digest, installed, line_of

LINES = read("code_lines")
HERE = [entry for entry in places() if "distribution" in packages()[entry.package]]
#: Files of a repository that its package does not install.
NOT_INSTALLED = {"pretrain_gpt.py", "megatron/training/utils.py"}


@pytest.mark.parametrize("entry", [entry for entry in HERE if entry.file not in NOT_INSTALLED],
                         ids=lambda entry: f"{entry.package} {entry.name}")
def test_the_installed_file_has_the_name_at_that_line(entry: Entry | Fact) -> None:
    stated = packages()[entry.package]
    try:
        here = version(stated["distribution"]).partition("+")[0]
    except PackageNotFoundError:
        pytest.skip(f"{entry.package} is not here")
    if here != stated["version"]:
        pytest.skip(f"{entry.package} {here} is here, lines are of {stated['version']}")
    content = installed(entry.package, entry.file)
    assert content is not None
    known = LINES[entry.package][entry.file]
    assert digest(content) == known["digest"]
    assert line_of(content.decode(), entry.name) == known["lines"][entry.name]


def test_every_entry_has_a_line_and_no_other_is_kept() -> None:
    stated = {(entry.package, entry.file, entry.name) for entry in places()}
    kept = {(package, file, name) for package, files in LINES.items() for file, known in files.items()
            for name in known["lines"]}
    assert kept == stated, "run: python -m validation.code_lines"
