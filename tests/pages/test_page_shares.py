"""Shares of the page by implementation: counted while they are derived, and the same from one process and from more."""

from __future__ import annotations

import os
import subprocess
import sys
from types import ModuleType

import pytest

from shardmath.commands.page import shares
from shardmath.commands.page.shares import Asking, _Counted, shares_of
from shardmath.errors import InputError
from shardmath.machines import Cluster
from shardmath.models.model import Model

MODEL = Model.named("llama-3.1-8b")
ASKING = Asking([MODEL], [], (), MODEL, {}, Cluster.named("h100-80gb"))


def test_nobody_knows_how_many_there_are_before_each_has_said_it() -> None:
    seen: list[tuple[int, int | None]] = []
    counted = _Counted(2, lambda done, known: seen.append((done, known)))
    for note in ((0, 3), (1, 0), (0, 2), (1, 0)):
        counted(*note)
    assert seen == [(0, None), (1, None), (1, 5), (2, 5)]


def test_an_unknown_kernel_is_refused_before_anything_is_derived() -> None:
    with pytest.raises(InputError, match="los"):
        shares_of(ASKING._replace(kernels={"los": "liger"}), ["nanotron"], None)


@pytest.mark.process
@pytest.mark.slow
def test_processes_derive_what_one_does() -> None:
    """In a process of its own, as the test's may have threads of JAX: a copy of it would not be safe."""
    subprocess.run([sys.executable, __file__], check=True)


def _side_by_side_and_alone() -> None:
    seen: list[tuple[int, int | None]] = []
    names = ["nanotron", "torchtitan"]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(os, "cpu_count", lambda: 2)
        side_by_side = shares_of(ASKING, names, lambda done, known: seen.append((done, known)))
        patched.setattr(os, "cpu_count", lambda: 1)
        assert shares_of(ASKING, names, None) == side_by_side
    assert seen[-1] == (seen[-1][0], seen[-1][0])
    assert len(seen) == seen[-1][0] + len(names)


def test_beside_jax_no_process_is_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jax", ModuleType("jax"))
    assert not shares.is_safe_to_copy()


if __name__ == "__main__":
    _side_by_side_and_alone()
