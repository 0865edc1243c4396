"""Examples of the Python API: ``help()`` of every public name shows one, and each prints what it says."""

from __future__ import annotations

import doctest
import inspect
import json
import re
import warnings
from collections.abc import Iterator
from dataclasses import FrozenInstanceError, is_dataclass
from pathlib import Path
from typing import Any

import pytest

import shardmath
from shardmath.answers import schema_of

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
#: Public classes of answers.
RESULTS = [name for name in dir(shardmath) if is_dataclass(getattr(shardmath, name))]
#: Records of the catalogue, whose docstrings say what their fields mean.
CATALOGUED = ("Cluster", "Gpu", "Kind", "Links", "Model", "Network", "RopeScaling")
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


@pytest.mark.parametrize("name", [name for name in dir(shardmath) if callable(getattr(shardmath, name))])
def test_help_has_a_meaning_and_errors(name: str) -> None:
    """Meaning in the first line, and which errors there are."""
    text = inspect.getdoc(PUBLIC[name]) or ""
    assert text.partition("\n")[0].endswith(".")
    assert re.search(r"\b[Rr]aises?\b", text)


@pytest.mark.parametrize("name", RESULTS)
def test_every_field_of_a_result_has_a_meaning(name: str) -> None:
    """Fields, of parts too, have a text behind them; Python's help shows it as the JSON Schema does."""
    schema = schema_of(getattr(shardmath, name))
    for kind, part in {name: schema, **schema.get("$defs", {})}.items():
        for field, told in part.get("properties", {}).items():
            has_own = told.get("description", "").endswith(".") or "$ref" in told  # a part says what it is
            assert has_own or kind in CATALOGUED, (kind, field)


@pytest.mark.slow
def test_errors_that_results_name(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Each error that the docstring of a class names."""
    monkeypatch.chdir(tmp_path)
    job: dict[str, Any] = {"tensor_parallel": 4, "num_gpus": 16}
    fits = shardmath.fit("llama-3.1-8b", "h100-80gb", solve="micro_batch_size", **job)
    account = shardmath.explain("llama-3.1-8b", "h100-80gb", **job)
    layer = shardmath.formula("korthikanti2022.layer_none")
    for result, field in ((fits, "answers"), (account, "ranks"), (layer, "unit")):
        with pytest.raises(FrozenInstanceError):
            setattr(result, field, None)
    for ask in (lambda: account.plot("picture.txt"), lambda: fits["nothing"], lambda: fits.now("nothing"),
                lambda: layer.symbol("nothing"), lambda: shardmath.explain("llama-3.1-8b", "h100-80gb", num_gpus=0)):
        with pytest.raises(shardmath.InputError):
            ask()
    assert issubclass(shardmath.InputError, ValueError)
    for name in RESULTS:
        assert getattr(shardmath, name).__dataclass_params__.frozen


@pytest.mark.slow
@pytest.mark.parametrize("name", DOCUMENTED.values())
def test_every_example_prints_what_it_says(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    reports: list[str] = []
    with warnings.catch_warnings():
        failed, tried = doctest.DocTestRunner(optionflags=OPTIONS).run(examples(name), out=reports.append)
    assert tried
    assert not failed, "".join(reports)
