"""Formulas and sentences at the width of a terminal: nothing is lost, no line is wider, and none ends in blanks."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardmath.cli.main import exit_code
from shardmath.reports.folding import folded

_NAMES = ("s", "b", "h", "tₛ", "κ_c", "local.vocab", "first.loss_forward", "12", "2", "γ")
#: Commands that print formulas or long sentences.
COMMANDS = (
    "formula swiglu.saved", "formula layer.saved --expand", "formula layer.saved --parts", "formula --list",
    "fit llama-3.1-8b --gpu h100-80gb --solve hidden_size", "fit llama-3.1-8b --gpu h100-80gb --solve micro_batch_size",
    "explain llama-3.1-8b --gpu h100-80gb", "moves llama-3.1-8b --gpu h100-80gb", "gpus", "networks",
    "models", "kernels",
    "compare llama-3.1-8b --gpu h100-80gb --against published", "scale llama-3.1-8b --gpu h100-80gb --gpus 8 --gbs 64",
    "sweep llama-3.2-1b --gpu h100-80gb --gpus 8 --gbs 64",
    "plan llama-3.2-1b --tokens 1T --gpu h100-80gb --num-gpus 64", "explore docs/systems/karma.toml",
    "phases docs/systems/phases.toml", "prove sequence-parallel-gain", "snapshot docs/snapshots/h100.pickle",
)
_NUMBER = re.compile(r"\d[\d,.]*\d")


def formulas() -> st.SearchStrategy[str]:
    return st.recursive(st.sampled_from(_NAMES), lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from((" + ", " - ", "*", "/", "**")), inner).map("".join),
        inner.map("({})".format), st.tuples(inner, inner).map(", ".join).map("max({})".format),
    ), max_leaves=60)


@given(formula=formulas(), width=st.integers(30, 130), start=st.sampled_from(("", "    ", "where x = ")))
def test_a_folded_formula_is_the_formula(formula: str, width: int, start: str) -> None:
    lines = folded(start + formula, width)
    assert re.sub(r"\s", "", "".join(lines)) == re.sub(r"\s", "", start + formula)
    assert max(map(len, lines)) <= width
    assert all(line == line.rstrip() for line in lines)


def test_a_formula_that_fits_stays_one_line() -> None:
    assert folded("    a*b + c", 11) == ["    a*b + c"]
    assert folded("    a*b + c", 10) == ["    a*b +", "        c"]
    assert folded("x = first.loss_forward*second", 24) == ["x = first.loss_forward*", "    second"]


def _wide(text: str) -> Iterator[str]:
    """Yield lines that end in blanks or are wider than 80 columns; addresses stay whole."""
    yield from (line for line in text.splitlines() if line != line.rstrip() or (len(line) > 80 and "://" not in line))


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
def test_80_columns_are_enough(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert exit_code(shlex.split(command)) == 0
    assert [*_wide(capsys.readouterr().out)] == []


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
def test_60_columns_cut_no_number(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:
    """Every number of a narrow output stands in a wide one too; half of one would not, and none ends in dots."""
    numbers = {}
    for width in (60, 400):
        monkeypatch.setenv("COLUMNS", str(width))
        assert exit_code(shlex.split(command)) == 0
        text = capsys.readouterr().out
        numbers[width] = {*_NUMBER.findall(re.sub(r"\S*://\S*", "", text))}
        assert not re.search(r"\d[.,]?…", text)
    assert numbers[60] <= numbers[400]
