"""Terms of step time: exact on fractions, equal to 50 digits of the mathematics, and moving the way they must."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Any

import mpmath
import pytest
from formulas.test_evaluators_oracles import _assignments, _run
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles.extent import FULL
from random_layouts import legal_rows

from shardmath.compiler.evaluators import find
from shardmath.generated.definitions import SPENT as SHOWN
from shardmath.symbolic.implementations import IMPLEMENTATIONS
from shardmath.symbolic.parameters import BY_NAME, PARAMETERS, Kind
from shardmath.symbolic.timing import build_times
from shardmath.symbolic.timing.step import SPENT

NAMES = list(IMPLEMENTATIONS)
DRAWN = settings(max_examples=50 if FULL else 2)
#: A machine like those that there are, by letter; bandwidths and peaks are drawn around it.
MACHINE = {
    "Fm": 989 * 10**12, "Fa": 989 * 10**12, "Wm": 3350 * 10**9, "Wn": 450 * 10**9, "Wx": 50 * 10**9, "dom": 8,
    "pw": 700, "chi": 2000,
}
#: Parameters that make a machine faster or slower.
FASTER = ("Wm", "Wn", "Wx", "ew", "en", "ex", "ot", "Fm", "Fa", "em", "ea")
SLOWER = ("an", "ax", "tau", "gap", "sl")
#: Transfers hide behind the time of kernels alone. So where the host is slower than these, faster ones shorten no
#: layer but hide less; and where keys and values and shared-out weights hide behind one kernel, it counts for both.
#: Kernels are therefore compared with a host that takes no time, and with at most one thing beside them.
OF_KERNELS = ("Fm", "Fa", "em", "ea", "Wm", "ew", "gap")
ALONE = {"launch_ns": 0, "overlap_grad_reduce": 0, "overlap_param_gather": 0}


@cache
def module(name: str) -> ModuleType:
    """The generated evaluator of time."""
    return import_module(f"shardmath.generated.{name}_time")


def evaluated(name: str, row: dict[str, Any]) -> dict[str, Fraction]:
    """All terms on fractions."""
    return module(name).terms(**{item: Fraction(row[item]) for item in module(name).INPUTS})


@st.composite
def rows(draw: st.DrawFn, name: str) -> dict[str, int]:
    """A legal layout on some machine, by parameter name, on any of its pipeline ranks."""
    row = draw(legal_rows(IMPLEMENTATIONS[name], find(name).terms))
    machine = {}
    for item in PARAMETERS:
        if item.kind is Kind.MACHINE and item.maximum:
            machine[item.name] = draw(st.integers(item.minimum, item.maximum))
        elif item.kind is Kind.MACHINE:
            usual = MACHINE.get(item.letter) or item.default or 0
            machine[item.name] = max(item.minimum, usual * draw(st.sampled_from((1, 2, 10, 20))) // 10)
    return {**row, **machine}


@pytest.fixture(autouse=True)
def fifty_digits() -> Iterator[None]:
    with mpmath.workdps(50):
        yield


@pytest.mark.parametrize("name", NAMES)
def test_fractions_equal_the_mathematics(name: str) -> None:
    terms = build_times(IMPLEMENTATIONS[name]).terms.values()
    compiled = _assignments(list(terms))

    @DRAWN
    @given(rows(name))
    def compare(row: dict[str, int]) -> None:
        known = {BY_NAME[item].letter: mpmath.mpf(row[item]) for item in module(name).INPUTS}
        found = evaluated(name, row)
        for term, code in compiled:
            known[term] = _run(code, known)
        for term in terms:
            value, exact = known[term.symbol.name], found[term.name]
            expected = mpmath.mpf(exact.numerator) / exact.denominator
            assert abs(value - expected) <= mpmath.mpf(10) ** -35 * (1 + abs(expected)), term.name

    compare()

@pytest.mark.parametrize("name", NAMES)
@DRAWN
@given(st.data())
def test_parts_sum_to_the_step_and_rates_are_sane(name: str, data: st.DataObject) -> None:
    row = data.draw(rows(name))
    found = evaluated(name, row)
    spent = {term: value for term, value in found.items() if term.startswith("spent.")}
    assert sum(spent.values()) == found["step.time"] > 0
    assert {f"spent.{kind}" for kind, (parts, _) in SPENT.items()
            if any(f"stage.{part}" in found for part in parts)} <= set(spent)
    assert all(value >= 0 for value in spent.values()), spent
    assert {term.removeprefix("spent.") for term in spent} <= set(SHOWN), "each has its words where a step is shown"
    assert 0 < found["step.mfu"] <= found["step.hfu"]
    # A recipe in 8 bits runs linear layers faster than its attention: both peaks bound what can be reached.
    if row["matmul_flops"] <= row["attention_flops"]:
        attention_faster = Fraction(row["attention_flops"], row["matmul_flops"])
        assert found["step.hfu"] <= attention_faster
    assert found["step.tokens_per_second"] * found["step.time"] == found["step.tokens"]


@pytest.mark.parametrize("name", NAMES)
@DRAWN
@given(st.data())
def test_a_faster_machine_is_never_slower(name: str, data: st.DataObject) -> None:
    row = data.draw(rows(name))
    beside = row["context_parallel"] > 1 or row["tp_comm_overlap"]
    two_hide = beside and "stage.sharding_waiting" in module(name).TERMS
    for letter in (*FASTER, *SLOWER):
        if letter in OF_KERNELS and two_hide:
            continue
        start = {**row, **(ALONE if letter in OF_KERNELS else {})}
        before = evaluated(name, start)["step.time"]
        parameter = next(item for item in PARAMETERS if item.letter == letter)
        if parameter.name not in module(name).INPUTS:
            continue
        doubled = 2 * start[parameter.name] + parameter.is_switch
        more = {**start, parameter.name: min(doubled, parameter.maximum or doubled)}
        after = evaluated(name, more)["step.time"]
        assert after <= before if letter in FASTER else after >= before, parameter.name


@pytest.mark.parametrize("name", NAMES)
def test_work_does_not_depend_on_the_machine(name: str) -> None:
    """FLOPs, bytes, passes and messages have no machine in them, and calls none but what runs beside a pass."""
    terms = build_times(IMPLEMENTATIONS[name])
    machine = {item.symbol for item in PARAMETERS if item.kind is Kind.MACHINE and item.letter not in ("og", "ow")}
    counted = [term for term in terms.terms.values() if term.unit in ("FLOP", "bytes", "passes", "calls", "messages")]
    assert len(counted) > 30
    for term in terms.closure(term.name for term in counted):
        assert not term.expression.free_symbols & machine, term.name
