"""Plan files: a TOML file with the phases of one training, checked."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from shardmath.configuration.risk import parts_for
from shardmath.errors import ABSENT, InputError, inside, nearest_names
from shardmath.files.reading import read_text, toml_table
from shardmath.input.parameters import checked

#: Bytes of a file, and phases of a plan.
LARGEST, MOST = 2**16, 64
#: Bytes/s of any storage, and tokens of any phase, with much to spare.
FASTEST, LONGEST = 10**18, 10**18

_JOB = ("model", "gpu", "num_gpus", "phases")
_PHASE = ("tokens", "global_batch_size", "seq_length")
#: Fields of a phase that a layout must not say otherwise.
_ELSEWHERE = ("model", "gpu", "network", "num_gpus", "data_parallel", "implementation", "risk", *_PHASE)


@dataclass(frozen=True)
class PlannedPhase:
    """One phase as it was asked for; ``layout``: options of ``explain``, None for the best one."""

    name: str
    tokens: int
    seq_length: int
    global_batch_size: int
    layout: Mapping[str, Any] | None


@dataclass(frozen=True)
class Plan:
    """A plan; ``write_bandwidth`` and ``read_bandwidth`` are bytes/s of the whole storage, None where unknown.

    ``risk``: accepted probability of running out of memory, None for the usual one.
    """

    model: str
    gpu: str
    network: str | None
    implementation: str | None
    num_gpus: int
    phases: tuple[PlannedPhase, ...]
    write_bandwidth: int | None
    read_bandwidth: int | None
    risk: float | str | None = None


def read_plan(path: str | os.PathLike[str]) -> Plan:
    """Return the plan in the file at ``path``. Raises InputError for everything in it that is wrong."""
    text = os.fspath(path)
    content = read_text("plan", text, "a plan of phases", LARGEST)
    try:
        return plan_of(toml_table("plan", text, content))
    except RecursionError:
        raise InputError("plan", text, "must not have so many lists inside each other") from None


def plan_of(declared: Mapping[str, Any]) -> Plan:
    """Return the plan that plain data describes. Raises InputError as ``read_plan`` does."""
    _refuse_unknown(declared, (*_JOB, "network", "implementation", "risk", "storage", "tokens"))
    _refuse_absent(declared, _JOB)
    listed = declared["phases"]
    if not isinstance(listed, list) or not 1 <= len(listed) <= MOST:
        raise InputError("phases", type(listed).__name__, f"must be 1 to {MOST} tables [[phases]]")
    planned = []
    for index, phase in enumerate(listed):
        with inside(f"phases[{index}]"):
            planned.append(_phase(phase, index))
    tokens = sum(phase.tokens for phase in planned)
    if "tokens" in declared and _whole(declared, "tokens", LONGEST) != tokens:
        raise InputError("tokens", declared["tokens"], "must be the tokens of all phases together", str(tokens))
    names = [phase.name for phase in planned]
    for name in names:
        if names.count(name) > 1:
            raise InputError("phases.name", name, "must not be there twice")
    if (risk := declared.get("risk")) is not None:
        parts_for(risk)
    storage = declared.get("storage", {})
    with inside("storage"):
        rates = _rates(storage)
    return Plan(
        _text(declared, "model"), _text(declared, "gpu"),
        _text(declared, "network") if "network" in declared else None,
        _text(declared, "implementation") if "implementation" in declared else None,
        checked("num_gpus", declared["num_gpus"]), tuple(planned), *rates, risk,
    )


def _phase(declared: object, index: int) -> PlannedPhase:
    if not isinstance(declared, Mapping):
        raise InputError("phase", declared, "must be a table")
    _refuse_unknown(declared, ("name", "layout", *_PHASE))
    _refuse_absent(declared, _PHASE)
    layout = declared.get("layout", "best")
    if layout != "best" and not isinstance(layout, Mapping):
        raise InputError("layout", layout, "must be a table of options of explain, or best", "best")
    if isinstance(layout, Mapping):
        for name in _ELSEWHERE:
            if name in layout:
                raise InputError(f"layout.{name}", layout[name], "must not be given in a layout")
    return PlannedPhase(
        _text(declared, "name") if "name" in declared else f"phase {index + 1}",
        _whole(declared, "tokens", LONGEST), checked("seq_length", declared["seq_length"]),
        checked("global_batch_size", declared["global_batch_size"]), None if layout == "best" else layout,
    )


def _rates(storage: object) -> tuple[int | None, int | None]:
    fields = ("write_bandwidth", "read_bandwidth")
    if not isinstance(storage, Mapping):
        raise InputError("table", storage, "must be a table")
    _refuse_unknown(storage, fields)
    if not storage:
        return None, None
    _refuse_absent(storage, fields)
    return _whole(storage, fields[0], FASTEST), _whole(storage, fields[1], FASTEST)


def _whole(declared: Mapping[str, Any], name: str, largest: int) -> int:
    value = declared[name]
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= largest:
        is_whole = type(value) is int or (isinstance(value, float) and value.is_integer())
        near = str(min(max(int(value), 1), largest)) if is_whole else None
        raise InputError(name, value, f"must be an integer from 1 to {largest}", near)
    return value


def _text(declared: Mapping[str, Any], name: str) -> str:
    value = declared[name]
    if not isinstance(value, str) or not value:
        raise InputError(name, value, "must be text")
    return value


def _refuse_unknown(declared: Mapping[str, Any], known: Collection[str]) -> None:
    for name in declared:
        if name not in known:
            raise InputError(str(name), declared[name], "must be a key of a plan", nearest_names(str(name), known))


def _refuse_absent(declared: Mapping[str, Any], needed: Collection[str]) -> None:
    for name in needed:
        if name not in declared:
            raise InputError(name, ABSENT, "must be given")
