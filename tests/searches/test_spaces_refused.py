"""What is wrong with a declared space is refused in one line: its path, its value, a rule, and what is near."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from shardmath import InputError
from shardmath.search.spaces import Space, space_of

GOOD: dict[str, Any] = {
    "model": "llama-3.2-1b", "gpu": "h100-80gb", "axes": {"tensor_parallel": [1, 2]},
    "fixed": {"num_gpus": 8, "global_batch_size": 32},
}
WRONG = tomllib.loads((Path(__file__).parents[1] / "data" / "spaces_refused.toml").read_text(encoding="utf-8"))


def changed(changes: dict[str, Any]) -> dict[str, Any]:
    """The good space with what ``with`` says and without what ``without`` names."""
    declared = {key: dict(value) if isinstance(value, dict) else value for key, value in GOOD.items()}
    for path in changes.get("without", ()):
        table, _, key = path.rpartition(".")
        del (declared[table] if table else declared)[key]
    for path, value in changes.get("with", {}).items():
        table, _, key = path.rpartition(".")
        (declared.setdefault(table, {}) if table else declared)[key] = value
    return declared


def test_the_good_space_is_good() -> None:
    assert [part.size for part in space_of(changed({})).parts()] == [2]


@pytest.mark.slow
@pytest.mark.parametrize("case", WRONG.values(), ids=WRONG)
def test_what_is_wrong_is_refused_in_one_line(case: dict[str, Any]) -> None:
    with pytest.raises(InputError) as caught:
        space_of(changed(case)).parts()
    assert str(caught.value).startswith(case["line"])
    assert len(str(caught.value)) < 800
    assert caught.value.rule.startswith("must ")


def test_what_two_axes_never_meet_is_left_to_the_sweep() -> None:
    declared = changed({"with": {
        "axes.pipeline_parallel": [1, 2], "constraints": {"never": "tensor_parallel > 2 * pipeline_parallel"},
    }})
    part, = space_of(declared).parts()
    assert part.size == 4


def test_symbols_are_no_arguments() -> None:
    with pytest.raises(TypeError):
        Space({"tensor_parallel": (1,)}, seq_length=3)  # type: ignore[call-arg]
