"""Errors of input: one line whatever the value, the promised wording, and nothing heavy imported."""

import ast
import pickle
import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardmath.errors import ABSENT, InputError, nearest_divisors, nearest_names


def test_the_line_names_field_value_rule_and_nearest() -> None:
    error = InputError("tensor_parallel", 3, "must divide num_attention_heads = 64", "2 or 4")
    line = "tensor_parallel = 3: must divide num_attention_heads = 64; nearest legal: 2 or 4"
    assert str(error) == line
    assert (error.field, error.value, error.nearest) == ("tensor_parallel", 3, "2 or 4")
    assert isinstance(error, ValueError)


def test_without_nearest() -> None:
    assert str(InputError("seq", None, "must be an integer")) == "seq = None: must be an integer"


def test_an_absent_value_is_not_null() -> None:
    assert str(InputError("seq", ABSENT, "must be given")) == "seq = absent: must be given"


UNWIELDY = {
    "line breaks": "a\nb\r\nc",
    "a whole file": "x" * 10**6,
    "a long list": ["\n"] * 999,
    "more digits than Python prints": 10**5000,
    "bytes": b"\0\n",
    "separators and colours": "\u2028\x1b[31m",
    "an undecodable name": "\udc80",
    "a mapping": {"a": "\n"},
    "a float": 1e30,
}


@pytest.mark.parametrize("value", UNWIELDY.values(), ids=UNWIELDY)
def test_one_short_line_for_every_value(value: object) -> None:
    line = str(InputError("field", value, "must be legal"))
    assert len(line.splitlines()) == 1
    assert len(line) <= len("field = : must be legal") + 60


@pytest.mark.slow
def test_a_list_nested_too_deeply_for_repr() -> None:
    nested: list[object] = []
    for _ in range(10**5):
        nested = [nested]
    assert (
        str(InputError("field", nested, "must be legal")) == "field = <list too long to show>: must be legal"
    )


@pytest.mark.slow
@given(st.text(), st.text(), st.text(), st.text())
def test_never_more_than_one_line(field: str, value: str, rule: str, nearest: str) -> None:
    line = str(InputError(field, value, rule, nearest))
    assert line.isprintable()


def test_it_survives_another_process() -> None:
    error = pickle.loads(pickle.dumps(InputError("field", ABSENT, "must be given", "1")))
    assert str(error) == "field = absent: must be given; nearest legal: 1"
    assert error.value is ABSENT


@pytest.mark.parametrize(
    ("value", "whole", "expected"),
    [(3, 64, "2 or 4"), (4, 64, "4"), (100, 64, "64"), (0, 64, "1"), (-5, 1, "1"), (7, 36, "6 or 9")],
)
def test_nearest_divisors(value: int, whole: int, expected: str) -> None:
    assert nearest_divisors(value, whole) == expected


@given(st.integers(-10, 10**6), st.integers(1, 10**5))
def test_nearest_divisors_divide(value: int, whole: int) -> None:
    assert all(whole % int(d) == 0 for d in nearest_divisors(value, whole).split(" or "))


def test_nearest_names() -> None:
    known = ["llama-3.1-8b", "llama-3.1-70b", "qwen3-8b"]
    assert nearest_names("Llama-3.1-80B", known).split(" or ")[:2] == ["llama-3.1-8b", "llama-3.1-70b"]
    assert nearest_names("zzz", known) == "llama-3.1-70b, llama-3.1-8b, qwen3-8b"
    assert nearest_names("x" * 10**6, known)


@pytest.mark.process
def test_nothing_heavy_is_imported() -> None:
    heavy = "{'pydantic', 'numba', 'sympy', 'numpy'}"
    code = f"import sys, shardmath.errors; print(*{heavy}.intersection(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


@pytest.mark.slow
def test_refusals_say_that_something_is_not_counted_yet() -> None:
    """Libraries may well have it: the ledger has it not yet."""
    root, sentences = Path(__file__).resolve().parents[2], set()
    for path in (*root.glob("src/**/*.py"), *root.glob("symbolic/**/*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        explained = {node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)}  # of attributes too
        sentences |= {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and
                      isinstance(node.value, str) and "not counted" in node.value and node not in explained}
    assert len(sentences) > 40
    assert [text for text in sentences if not re.search(r"not counted( together)? yet", text)] == []
