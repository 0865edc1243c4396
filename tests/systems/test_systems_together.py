"""Which systems are counted together: each says what of training it changes, and none names another."""

from __future__ import annotations

import re
from itertools import combinations
from pathlib import Path

import pytest

from shardmath.symbolic.implementations import IMPLEMENTATIONS
from shardmath.symbolic.parallel.uncounted import refuse_impossible
from shardmath.symbolic.systems import SYSTEMS, refusals

ROOT = Path(__file__).resolve().parents[2]
MEGATRON = {**IMPLEMENTATIONS["megatron"].choices, "peak": "saved"}
#: An option of every system of Megatron-Core, with what goes with it.
CHOSEN = {
    "tensor_axes": {"tensor_axes": "three", "weight_gradient": "separate"}, "slices": {"slices": "1f1b"},
    "links": {"links": "measured"}, "gpus": {"gpus": "mixed", "stages": "listed"},
    "local_updates": {"local_updates": "diloco"}, "optimizer_offload": {"optimizer_offload": "cpu"},
    "activation_offload": {"activation_offload": "layers"},
    "expert_passes": {"expert_passes": "combined", "layers": "experts"},
    "module_offload": {"module_offload": "expert_fc1", "layers": "experts"},
}
#: By axis, those that docs/systems.md says it is counted with.
TOGETHER = {
    axis: set(re.findall(r"`(\w+)`", others))
    for axis, others in re.findall(r"^\| `(\w+)` \|(.*)\|$", (ROOT / "docs" / "systems.md").read_text(encoding="utf-8"),
                                   re.MULTILINE)
}


@pytest.mark.parametrize("pair", [*combinations(CHOSEN, 2)], ids=" ".join)
def test_pairs(pair: tuple[str, str]) -> None:
    choices = {**MEGATRON, **CHOSEN[pair[0]], **CHOSEN[pair[1]]}
    assert (pair[0] in TOGETHER[pair[1]]) == (pair[1] in TOGETHER[pair[0]])
    if pair[0] in TOGETHER[pair[1]]:
        refuse_impossible(choices)
        return
    with pytest.raises(ValueError, match=r"not counted yet: .*: choose") as refused:
        refuse_impossible(choices)
    # The message says what to do without, and that it is one of both.
    axis, option = re.findall(r"choose (\w+) = (\w+)$", str(refused.value))[0]
    assert axis in pair
    assert option == next(system.absent for system in SYSTEMS if system.axis.name == axis)


def test_each_alone_and_none() -> None:
    assert {system.axis.name for system in SYSTEMS if "megatron" in system.frameworks} == {*CHOSEN} == {*TOGETHER}
    for kernels in ({}, *CHOSEN.values()):
        assert not any(refusal.holds for refusal in refusals({**MEGATRON, **kernels}))


def test_no_system_names_the_axis_of_another() -> None:
    for file in (ROOT / "symbolic" / "systems").glob("*.py"):
        text = file.read_text(encoding="utf-8")
        own = re.findall(r'^NAME = "(\w+)"', text, re.MULTILINE)
        assert not [axis for axis in CHOSEN if f'"{axis}"' in text and axis not in own], file.name
