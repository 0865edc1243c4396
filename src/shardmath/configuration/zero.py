"""ZeRO stages by number: the switches and the kind of data parallelism that a stage stands for."""

from __future__ import annotations

from collections.abc import Mapping

from shardmath.errors import InputError

#: Switches of each stage, by parameter name; the first is an argument of its own wherever a job is described.
SWITCHES = ("distributed_optimizer", "sharded_gradients", "sharded_weights")
#: Choices of frameworks that have the stages only through another library.
THROUGH: Mapping[str, Mapping[str, str]] = {
    "huggingface": {"data_parallel": "deepspeed", "precision": "mixed"},
    "megatron": {"data_parallel": "megatron_fsdp"},
}
#: The first stage that a framework has through the library; those before are its own.
FIRST_THROUGH: Mapping[str, int] = {"megatron": 2}


def stage_switches(stage: int | str) -> dict[str, int]:
    """Return the switches of a ZeRO stage, by parameter name. Raises InputError for a stage that does not exist."""
    number = int(stage) if isinstance(stage, str) and stage.isdecimal() else stage
    if isinstance(number, bool) or not isinstance(number, int):
        raise InputError("zero_stage", stage, "must be an integer from 0 to 3")
    if not 0 <= number <= len(SWITCHES):
        raise InputError("zero_stage", stage, "must be an integer from 0 to 3", str(min(max(number, 0), len(SWITCHES))))
    return {name: int(number > index) for index, name in enumerate(SWITCHES)}


def staged(
    stage: int | None,
    implementation: str,
    kernels: Mapping[str, str] | None,
    distributed_optimizer: bool | None,
    others: Mapping[str, int],
) -> tuple[Mapping[str, str] | None, bool | None, Mapping[str, int]]:
    """Kernel choices, distributed optimizer and other parameters with a ZeRO stage put in.

    Without a stage all stay as they are. ``kernels`` that are given win over those that the stage brings. Raises
    InputError for a stage that does not exist, and for one next to a switch that says otherwise.
    """
    if stage is None:
        return kernels, distributed_optimizer, others
    switches = stage_switches(stage)
    asked = {**others} if distributed_optimizer is None else {**others, SWITCHES[0]: int(distributed_optimizer)}
    for name, value in switches.items():
        if asked.get(name, value) != value:
            raise InputError(name, asked[name], f"must be {value} or left out with zero_stage = {stage}", str(value))
    through = THROUGH.get(implementation, {}) if stage >= FIRST_THROUGH.get(implementation, 0) else {}
    chosen = {**through, **(kernels or {})}
    first, *rest = SWITCHES
    return chosen, bool(switches[first]), {**others, **{name: switches[name] for name in rest}}
