"""The JSON Schema of every document by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import TypeAdapter

from shardmath.errors import InputError, nearest_names
from shardmath.reports.answers import VERSIONS, schema_name
from shardmath.schemas.accounts import Explain
from shardmath.schemas.catalogues import Calibrate, Evaluate, Formula, Formulas, Gpus, Models, Networks
from shardmath.schemas.changes import Fit, Moves
from shardmath.schemas.comparisons import Compare
from shardmath.schemas.layouts import Explore, Recommend, Scale, Sweep

DOCUMENTS: Mapping[str, type] = {
    "calibrate": Calibrate, "compare": Compare, "evaluate": Evaluate, "explain": Explain, "explore": Explore,
    "fit": Fit, "formula": Formula, "formulas": Formulas, "gpus": Gpus, "models": Models, "moves": Moves,
    "networks": Networks, "recommend": Recommend, "scale": Scale, "sweep": Sweep,
}
assert DOCUMENTS.keys() == VERSIONS.keys()

_DIALECT = "https://json-schema.org/draft/2020-12/schema"


def document_of(name: str) -> type:
    """The class of a document. Raises InputError for an unknown one."""
    if name not in DOCUMENTS:
        raise InputError("document", name, "must be a document that a command prints", nearest_names(name, DOCUMENTS))
    return DOCUMENTS[name]


def schema(name: str) -> dict[str, Any]:
    """The JSON Schema of a document; its objects have all fields that are named, and no other.

    Raises InputError for an unknown document.
    """
    found = TypeAdapter(document_of(name)).json_schema(mode="serialization", by_alias=True)
    own = {"schema": {"const": schema_name(name), "description": "Name and version of this document."}}
    found["properties"] = {**own, **found["properties"]}
    for part in (found, *found.get("$defs", {}).values()):
        _close(part)
    return {"$schema": _DIALECT, "$id": schema_name(name), **found}


def _close(part: dict[str, Any]) -> None:
    """Every field of an object is required, and there is no other, unless it says so."""
    if "properties" in part:
        part["required"] = list(part["properties"])
        part.setdefault("additionalProperties", False)
