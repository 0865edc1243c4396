"""A small extent of `make fuzz`: every reader answers or refuses in one line whatever it is given; needs no atheris."""

from __future__ import annotations

import random
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fuzzing import files, findings, run
from fuzzing.mutating import HOSTILE, mutated
from fuzzing.outcome import Finding, limited, outcome, scratch_folder, watched
from fuzzing.reader import Reader
from fuzzing.readers import READERS
from shardmath.errors import InputError

#: Inputs of a reader; of those that compute with what they read, fewer.
USUAL, FEW = 60, 20
COSTLY = {"command-line", "checkpoint", "nemo", "megatron-script", "space-yaml", "table-csv", "table-parquet",
          "table-arrow",
          "table-stream"}


@pytest.fixture(scope="module")
def folder() -> Iterator[str]:
    path = Path(scratch_folder())
    yield str(path)
    for file in path.iterdir():
        file.unlink()
    path.rmdir()


@pytest.mark.slow
@pytest.mark.parametrize("name", READERS)
def test_a_reader_answers_or_refuses(name: str, folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    reader = READERS[name]
    if name.startswith("table"):
        pytest.importorskip("pyarrow")
    seeds, words = [*reader.seeds()], [*reader.words()]
    monkeypatch.setattr(files, "_DEEPER", sys.maxsize)  # no account of what is read: formulas would be derived for some
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for seed in seeds[:3]:
            reader.read(seed, folder)  # imports, derives and compiles what it needs

        @settings(max_examples=FEW if name in COSTLY else USUAL)
        @given(st.integers(0, len(seeds) - 1), st.integers(0, 2**32))
        def tried(place: int, chance: int) -> None:
            data = mutated(seeds[place], random.Random(chance), words, seeds)
            with watched(folder, str(Path.home()), "/tmp"), limited():
                reader.read(data, folder)

        tried()


@pytest.mark.slow
@pytest.mark.parametrize("name", READERS)
def test_an_example_is_answered(name: str, folder: str) -> None:
    """Else all inputs would be made from what is refused."""
    reader = READERS[name]
    if name.startswith("table"):
        pytest.importorskip("pyarrow")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert any(reader.read(seed, folder) == "answered" for seed in reader.seeds())


@pytest.mark.slow
def test_what_a_reader_may_not_do_is_found(tmp_path: Path) -> None:
    import pickle
    import subprocess
    import sys

    with watched(str(tmp_path)):
        with pytest.raises(Finding, match="subprocess"):
            subprocess.run([sys.executable, "-c", ""], check=False)
        with pytest.raises(Finding, match="find_class"):
            pickle.loads(b"cos\nsystem\n(S'true'\ntR.")
        (tmp_path / "own").write_text("")
        with pytest.raises(PermissionError):
            (tmp_path.parent / "other").write_text("")
    with pytest.raises(Finding, match="more than"), limited(0.05):
        _endless()
    with pytest.raises(Finding, match="not one short printable line"):
        outcome(lambda: _raise(_TwoLinesError("a", 1, "must")))
    with pytest.raises(ZeroDivisionError):
        outcome(lambda: 1 // 0)
    assert outcome(lambda: _raise(InputError("a", 1, "must"))) == "refused"
    assert outcome(list) == "answered"


def _raise(error: Exception) -> None:
    raise error


def _endless() -> None:
    while True:
        pass


class _TwoLinesError(InputError):
    def __str__(self) -> str:
        return "one\ntwo"


def test_inputs_are_repeated_by_their_number() -> None:
    seed = b'{"num_layers": 32}'
    inputs = {mutated(seed, random.Random(number), [b"word"], [b"other"]) for number in range(300)}
    assert inputs == {mutated(seed, random.Random(number), [b"word"], [b"other"]) for number in range(300)}
    assert len(inputs) > 200
    assert sum(any(token in found for token in HOSTILE if len(token) > 4) for found in inputs) > 20


def test_a_finding_is_kept_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(findings, "CACHE", tmp_path)

    def failing(text: bytes) -> bool:
        try:
            int(text, 99)
        except ValueError as error:
            return findings.keep("reader", text, error)
        return False

    assert [failing(text) for text in (b"1", b"2")] == [True, False]
    (found,) = findings.found("reader")
    assert found.read_bytes() == b"1"
    assert "ValueError" in found.with_suffix(".txt").read_text()


@pytest.mark.parametrize("inputs", [1_000_000, 1_000, 17])
def test_every_reader_gets_its_share(inputs: int) -> None:
    readers: list[Reader] = [*READERS.values()]
    shares = run.shared_out(readers, inputs)
    assert sum(shares) == inputs
    if inputs == 1_000_000:
        assert min(shares) >= 50_000 or len(readers) > 20
