"""A misspelt term is answered from the stored formulas, before anything is derived."""

from __future__ import annotations

import pytest

from shardmath.commands.formula import run
from shardmath.errors import InputError


@pytest.mark.parametrize(("name", "implementation", "answer"), [
    ("layr.saved", "megatron",
     r"must be a term of megatron \(--kernel layers=experts has others\); nearest legal: layer.saved"),
    ("layr.saved", "nanotron", "must be a term of nanotron; nearest legal: layer.saved"),
    ("fujii2024.totl", "megatron", "must be a term of fujii2024; nearest legal: fujii2024.total"),
])
def test_nothing_is_derived(
    name: str, implementation: str, answer: str, monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(run, "_derived", None)
    with pytest.raises(InputError, match=answer):
        run.formula(name, implementation)
