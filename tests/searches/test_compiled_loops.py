"""Loops compiled from plain Python do what Python does; their object files are found again, or made anew."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from searches.test_compiler_options import every
from searches.test_nests_random import THOROUGH, compare_random

from shardmath.compiler.native import objects
from shardmath.compiler.native.objects import Native, native
from shardmath.compiler.native.options import Options
from shardmath.files import cached
from shardmath.files.cached import module_of
from shardmath.search.nests.compiled import CompiledNest
from shardmath.search.nests.nest import Nest

SOURCE = '''
"""Everything that generated loops are made of."""
import math
import numpy as np

OFFSET = np.uint64(2)
INFINITY = math.inf


def larger(left, right) -> float:
    return left if left > right else right


def divides(divisor, dividend) -> bool:
    quotient = dividend / divisor
    return np.floor(quotient) == quotient


def gcd(left, right) -> int:
    first, second = np.int64(left), np.int64(right)
    while second != 0:
        first, second = second, first % second
    return first


def last_below(edges, value) -> int:
    place = 0
    while place < edges.size and value >= edges[place]:
        place += 1
    return place


def put(table, keys, place) -> None:
    if place < 0:
        return
    for column in range(len(keys)):
        table[place, column] = keys[column]


def sweep(start, stop, numbers, values, table, small) -> int:
    """A function of all kinds of statements."""
    count, seen = 0, False
    best = -INFINITY
    for i in range(start, stop):
        x = values[i]
        if not divides(2.0, x) and x != 3.0:
            numbers[0] += 1
            continue
        elif x < 0.0 or x > 90.0:
            numbers[1] -= 1
            count += gcd(i, 12) // 2
        else:
            numbers[OFFSET] += i * 3 - numbers.size % 4
        seen |= (x <= 7.0) & (i > 2)
        best = larger(best, -x / 4 + np.ceil(x / 3.0))
        keys = (x, i, best if seen else 1.0)
        put(table, keys, i - 1)
        row = table[i]
        row[0] = row[2] + table.shape[1] + True
        small[i] = last_below(values, x) - 1
        count += small[i]
    return -1 if count == 0 else count
'''


@pytest.fixture(scope="module")
def module(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    path = tmp_path_factory.mktemp("loops") / "loops.py"
    path.write_text(SOURCE)
    return module_of("loops_under_test", path)


@pytest.fixture(autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path_factory.getbasetemp() / "cache"
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder))
    return folder / "shardmath" / cached.versions() / "objects"


def arrays(values: list[float]) -> tuple[np.ndarray, ...]:
    size = len(values)
    return np.zeros(5, np.int64), np.array(values, np.float64), np.zeros((size + 1, 3)), np.zeros(size, np.int8)


@pytest.mark.slow
@given(values=st.lists(st.integers(-50, 120), min_size=1, max_size=60))
def test_they_do_what_python_does(module: ModuleType, values: list[float]) -> None:
    ours, theirs = arrays(values), arrays(values)
    compiled = objects.native(module, "sweep")
    assert compiled(0, len(values), *ours) == module.sweep(0, len(values), *theirs)
    for one, other in zip(ours, theirs, strict=True):
        assert one.tolist() == other.tolist()


def test_an_object_file_is_found_again(module: ModuleType, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    values = [4.0, 6.0, 3.0]
    first = Native(module, "sweep")(0, 3, *arrays(values))
    monkeypatch.setattr(objects, "compiled", lambda *_: pytest.fail("compiled once more"))
    assert Native(module, "sweep")(0, 3, *arrays(values)) == first
    assert list(cache.glob("*.o"))


def test_a_damaged_object_file_is_made_anew(
    module: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    first = Native(module, "sweep")(0, 2, *arrays([2.0, 4.0]))
    (path,) = (tmp_path / "shardmath" / cached.versions() / "objects").glob("*.o")
    whole = path.read_bytes()
    path.write_bytes(whole[:-100] + bytes(100))
    with pytest.warns(UserWarning, match="is damaged, and is made anew"):
        assert Native(module, "sweep")(0, 2, *arrays([2.0, 4.0])) == first
    assert path.read_bytes() == whole


@pytest.mark.parametrize(("body", "told"), [
    ("print(count)", "print"), ("import os", "import os"), ("x = [1]", "[1]"), ("x = unknown", "unknown"),
    ("count = values", "an array in another"), ("try:\n        pass\n    finally:\n        pass", "try"),
    ("count = 'text'", "text"), ("count = 1.5", "is no"), ("count = 2", "must end with"),
])
def test_what_loops_have_no_use_for_is_refused(tmp_path: Path, body: str, told: str) -> None:
    path = tmp_path / "refused.py"
    path.write_text(f"def sweep(count, values) -> int:\n    {body}\n")
    module = module_of(f"refused_{tmp_path.name}", path)
    with pytest.raises(TypeError, match=told):
        Native(module, "sweep")(1, np.zeros(2))


@pytest.mark.slow
@settings(max_examples=400 if THOROUGH else 25)
@given(data=st.data())
def test_compiled_random_nests_answer_as_exact_counting(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory,
) -> None:
    literal, options = data.draw(st.booleans()), data.draw(st.sampled_from(every()))

    def made(part: object, asked: object, source: object) -> Nest:
        path = tmp_path_factory.mktemp("nest") / "nest.py"
        path.write_text(source(literal=literal))  # type: ignore[operator]
        module = module_of(f"nest_{path.parent.name}", path)
        compiled = partial(native, options=partial(Options, **asdict(options)))
        return CompiledNest(part, asked, module, compiled)  # type: ignore[arg-type]

    compare_random(data, made)
