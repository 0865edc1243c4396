"""The JSON Schema of every document by name, from the class of the answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from shardmath.account.accounting import Explanation
from shardmath.answers import Answer, schema_of
from shardmath.commands.calibrate import Calibration
from shardmath.commands.compare import Comparison
from shardmath.commands.explore import Explored
from shardmath.commands.fit import Fits
from shardmath.commands.formula.run import Formula, Formulas
from shardmath.commands.moves import Moves
from shardmath.commands.phases import Phases
from shardmath.commands.plan import Plan
from shardmath.commands.prove import Proof
from shardmath.commands.prove.listed import Claims
from shardmath.commands.recommend import Advice
from shardmath.commands.scale import Scaling
from shardmath.commands.snapshot import Snapshot
from shardmath.commands.sweep import SweepResult
from shardmath.commands.verify import Verified
from shardmath.configuration.kernel_axes import KernelAxis
from shardmath.errors import InputError, nearest_names
from shardmath.machines import Gpu, Network
from shardmath.models.model import Model
from shardmath.reports.answers import VERSIONS, schema_name
from shardmath.reports.written import Written


@dataclass(frozen=True)
class Models(Answer):
    """The models known by name."""

    models: tuple[Model, ...]
    """Those with the words in their texts."""


@dataclass(frozen=True)
class Gpus(Answer):
    """The GPUs known by name."""

    gpus: tuple[Gpu, ...]
    """Those with the words in their texts."""


@dataclass(frozen=True)
class Networks(Answer):
    """The networks between servers known by name."""

    networks: tuple[Network, ...]
    """Those with the words in their texts."""


@dataclass(frozen=True)
class Kernels(Answer):
    """The axes of kernels."""

    kernels: tuple[KernelAxis, ...]
    """Those with the words in their texts."""


DOCUMENTS: Mapping[str, type[Answer]] = {
    "calibrate": Calibration, "claims": Claims, "compare": Comparison, "evaluate": Written, "explain": Explanation,
    "explore": Explored, "fit": Fits, "formula": Formula, "formulas": Formulas, "gpus": Gpus, "kernels": Kernels,
    "models": Models, "moves": Moves, "networks": Networks, "phases": Phases, "plan": Plan, "prove": Proof,
    "recommend": Advice, "scale": Scaling, "snapshot": Snapshot, "sweep": SweepResult, "verify": Verified,
}
assert DOCUMENTS.keys() == VERSIONS.keys()

_DIALECT = "https://json-schema.org/draft/2020-12/schema"


def schema(name: str) -> dict[str, Any]:
    """Return the JSON Schema of a document; its objects have all fields that are named, and no other.

    Raises InputError for an unknown document.
    """
    if name not in DOCUMENTS:
        raise InputError("document", name, "must be a document that a command prints", nearest_names(name, DOCUMENTS))
    made = schema_of(DOCUMENTS[name])
    own = {"schema": {"const": schema_name(name), "description": "Name and version of this document."}}
    made["properties"] = {**own, **made["properties"]}
    for part in (made, *made.get("$defs", {}).values()):
        _close(part)
    return {"$schema": _DIALECT, "$id": schema_name(name), **made}


def _close(part: dict[str, Any]) -> None:
    """Require every field of an object, without defaults, and forbid others unless it allows them."""
    if "properties" in part:
        part["required"] = list(part["properties"])
        part.setdefault("additionalProperties", False)
        for field in part["properties"].values():
            field.pop("default", None)
