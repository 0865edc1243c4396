"""Anchor estimates to one measured run: the run fixes the constants that no formula knows, and nothing else.

The file is JSON. ``run`` holds the arguments of ``explain`` for the run that was measured (``model``: a name, the path
of a file, or an object of dimensions), and ``measured``
what it took: ``allocated_bytes`` (torch.cuda.max_memory_allocated), ``reserved_bytes`` (max_memory_reserved)
and ``process_bytes`` (what nvidia-smi shows), each of the rank that needed most; the last two may be absent.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from shardmath.answers import Answer
from shardmath.errors import ABSENT, InputError, inside
from shardmath.files.reading import json_object, read_text
from shardmath.files.writing import whole_file
from shardmath.input.arguments import typed
from shardmath.machines.gpu import Gpu
from shardmath.models.model import Model

#: Bytes of a file, far more than a run has.
_LARGEST = 2**20
_MEASURED = ("allocated_bytes", "reserved_bytes", "process_bytes")


@dataclass(frozen=True)
class Anchor(Answer):
    """A measured run, and the constants that it fixed."""

    constants: Mapping[str, int]
    """Fixed constants by parameter name."""
    measured: Mapping[str, int]
    """Measured bytes by name."""
    estimated: int
    """Estimated bytes of tensors at the peak, without the constants."""
    description: str
    """Arguments of the run."""


@typed
def anchored(path: str | os.PathLike[str]) -> Anchor:
    """Read a measured run and find the constants with which the estimate gives what was measured.

    Raises InputError for a file that cannot be read, a run that is not legal, and a measurement that is not
    three growing numbers of bytes.
    """
    run, numbers, _ = read_measured(path)
    explanation = _explained(run)
    constants = {"unexplained_bytes": numbers["allocated_bytes"] - explanation.peak.total}
    process = explanation.process
    if "reserved_bytes" in numbers:
        usual = _explained({**run, **constants, "reserved_per_mille": 1000}).process.reserved
        constants["reserved_per_mille"] = max(1, numbers["reserved_bytes"] * 1000 // usual)
    if "process_bytes" in numbers:
        reserved = numbers.get("reserved_bytes", process.reserved)
        constants["context_bytes"] = max(0, numbers["process_bytes"] - reserved)
        constants["communicator_bytes"] = 0  # one run cannot tell them from the context
    layout = ", ".join(f"{key} {value}" for key, value in run.items())
    return Anchor(constants, numbers, explanation.peak.total, layout)


def read_measured(
    path: str | os.PathLike[str], field: str = "anchor",
) -> tuple[Mapping[str, Any], dict[str, int], Mapping[str, Any]]:
    """Read a measured run: the arguments of ``explain``, the bytes that were measured, and all that the file has.

    Raises InputError, which blames ``field``, for a file that cannot be read, and for a measurement that is not up to
    three growing numbers.
    """
    text = read_text(field, os.fspath(path), "a measured run", _LARGEST)
    content = json_object(field, os.fspath(path), text, "a JSON object with run and measured")
    with inside(field):
        return _part(content, "run"), _measured(_part(content, "measured")), content


def arguments_of(run: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of ``explain`` for a run of an anchor. Raises InputError for one without model or GPU."""
    arguments = dict(run)
    if "anchor" in arguments:
        raise InputError("run", "anchor", "must not be anchored itself")
    if isinstance(arguments.get("model"), dict):
        arguments["model"] = _model(arguments["model"])
    for name, kinds in (("model", (str, Model)), ("gpu", str)):
        if not isinstance(arguments.get(name), kinds):
            raise InputError(name, arguments.get(name, ABSENT), "must be given: a name, or the path of a file")
    return arguments


def _explained(run: Mapping[str, Any]) -> Any:
    from shardmath.account.accounting import explain

    arguments = arguments_of(run)
    return explain(arguments.pop("model"), arguments.pop("gpu"), **arguments)


def _model(dimensions: Mapping[str, Any]) -> Model:
    """Return the model that an anchor has by its dimensions. Raises InputError for dimensions that it cannot have."""
    try:
        return Model.model_validate_json(json.dumps(dimensions))
    except ValidationError as error:
        raise InputError.from_validation(error.errors(include_url=False)) from None


def run_of(model: Model | str, gpu: Any, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return a run as an anchor has it. Raises InputError for a GPU that has no name."""
    name = gpu if isinstance(gpu, str) else gpu.name
    if not isinstance(gpu, str) and gpu != Gpu.named(name):
        raise InputError("gpu", name, "must be a name or a cluster file for an anchor")
    return {"model": model if isinstance(model, str) else model.model_dump(mode="json"), "gpu": name,
            **{key: value for key, value in arguments.items() if value is not None and key != "anchor"}}


def write_anchor(
    path: str, model: Model | str, gpu: Any, arguments: Mapping[str, Any], measured: Mapping[str, int],
) -> None:
    """Write a run and what it took as ``anchored`` reads it.

    Raises InputError for a GPU that has no name, and where no file can be written.
    """
    run, numbers = run_of(model, gpu, arguments), _measured(measured)
    file: Any
    with whole_file("write_anchor", path) as file:
        file.write(json.dumps({"run": run, "measured": numbers}, indent=2) + "\n")


def _measured(measured: Mapping[str, Any]) -> dict[str, int]:
    unknown = sorted(set(measured) - set(_MEASURED))
    if unknown:
        raise InputError("measured", unknown[0], f"must be one of {', '.join(_MEASURED)}")
    if "allocated_bytes" not in measured:
        raise InputError("allocated_bytes", ABSENT, "must be given")
    last = 1
    for name in _MEASURED:
        if name in measured:
            value = measured[name]
            if isinstance(value, bool) or not isinstance(value, int) or not last <= value <= 2**50:
                raise InputError(name, value, f"must be an integer of bytes, at least {last}", str(last))
            last = value
    return {name: measured[name] for name in _MEASURED if name in measured}


def _part(content: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = content.get(name, ABSENT)
    if not isinstance(value, dict):
        raise InputError(name, value, "must be a JSON object")
    return value
