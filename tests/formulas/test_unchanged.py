"""`make derive` derives nothing again only where no source, no generated file and no name of one changed."""

from collections.abc import Callable
from pathlib import Path

import pytest

from shardmath.symbolic.unchanged import is_unchanged, keep

CHANGES: dict[str, Callable[[Path], object]] = {
    "a line of the ledger": lambda root: (root / "symbolic" / "terms.py").write_text("total = 3\n"),
    "a template": lambda root: (root / "templates" / "kernel.py.jinja").write_text("{{ more }}\n"),
    "a figure of the catalogue": lambda root: (root / "catalogue" / "gpus.toml").write_text("memory = 81\n"),
    "a generated file edited by hand": lambda root: (root / "generated" / "megatron.py").write_text("x = 2\n"),
    "a generated file that is gone": lambda root: (root / "generated" / "megatron.py").unlink(),
    "an orphan": lambda root: (root / "generated" / "orphan.py").write_text(""),
    "another name": lambda root: (root / "symbolic" / "terms.py").rename(root / "symbolic" / "term.py"),
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name, text in (
        ("symbolic/terms.py", "total = 2\n"), ("templates/kernel.py.jinja", "{{ title }}\n"),
        ("catalogue/gpus.toml", "memory = 80\n"), ("generated/megatron.py", "x = 1\n"),
    ):
        path = tmp_path / name
        path.parent.mkdir()
        path.write_text(text)
    return tmp_path


def test_nothing_is_unchanged_before_it_was_derived(root: Path) -> None:
    assert not is_unchanged(root)


def test_what_was_derived_is_unchanged_whatever_python_compiled(root: Path) -> None:
    keep(root)
    (root / "symbolic" / "__pycache__").mkdir()
    (root / "symbolic" / "__pycache__" / "terms.pyc").write_bytes(b"1")
    assert is_unchanged(root)


@pytest.mark.parametrize("change", CHANGES)
def test_every_change_is_seen(root: Path, change: str) -> None:
    keep(root)
    CHANGES[change](root)
    assert not is_unchanged(root)
