"""Examples of the Python API: ``help()`` of every public name shows one, and each prints what it says."""

from __future__ import annotations

import doctest
import inspect
import json
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import shardmath

OPTIONS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
#: Modules that an example may use without an import.
NAMES = {"shardmath": shardmath, "Path": Path, "json": json, "warnings": warnings}


def _public() -> Iterator[tuple[str, Any]]:
    """Yield the package, its public names, and the methods that its classes do not have from a library."""
    yield "shardmath", shardmath
    for name in dir(shardmath):
        thing = getattr(shardmath, name)
        if callable(thing):
            yield name, thing
        for method, function in inspect.getmembers(thing) if inspect.isclass(thing) else ():
            inner = inspect.unwrap(getattr(function, "__func__", function))
            if not method.startswith("_") and inspect.isfunction(inner) and inner.__module__.startswith("shardmath"):
                yield f"{name}.{method}", inner


PUBLIC = dict(_public())
#: Inherited methods are documented once.
DOCUMENTED = {id(thing): name for name, thing in reversed(PUBLIC.items())}


def examples(name: str) -> doctest.DocTest:
    text = inspect.getdoc(PUBLIC[name]) or ""
    return doctest.DocTestParser().get_doctest(text, dict(NAMES), name, None, 0)


def test_methods_are_looked_at() -> None:
    assert {"explain", "Explanation.memory_of", "Formula.solve", "Gpu.named", "Fits.now"} <= PUBLIC.keys()


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_name_shows_an_example(name: str) -> None:
    shown = examples(name).examples
    assert shown
    assert len(shown) <= 5
    assert all(example.source.strip() != "" and doctest.SKIP not in example.options for example in shown)


@pytest.mark.slow
@pytest.mark.parametrize("name", DOCUMENTED.values())
def test_every_example_prints_what_it_says(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    reports: list[str] = []
    with warnings.catch_warnings():
        failed, tried = doctest.DocTestRunner(optionflags=OPTIONS).run(examples(name), out=reports.append)
    assert tried
    assert not failed, "".join(reports)
