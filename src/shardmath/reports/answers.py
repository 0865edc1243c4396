"""Answers for programs: one JSON document, which names its schema first; ``shardmath schema`` prints the schemas."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from math import isfinite
from typing import Any

from shardmath.reports.waiting import silence

#: The version of every document. It grows when a field goes or means something else; new fields may come at any time.
VERSIONS: Mapping[str, int] = {
    "calibrate": 1, "claims": 1, "compare": 1, "evaluate": 1, "explain": 1, "explore": 1, "fit": 1, "formula": 1,
    "formulas": 1, "gpus": 1, "kernels": 1, "models": 1, "moves": 1, "networks": 1, "phases": 1, "plan": 1, "prove": 1,
    "recommend": 1, "scale": 1, "snapshot": 1, "sweep": 1, "verify": 1,
}


def schema_name(document: str) -> str:
    """Return the name of a document's schema with its version, as its field ``schema`` has it."""
    return f"shardmath/{document}/{VERSIONS[document]}"


def answer(document: str, data: Mapping[str, Any]) -> str:
    """Return the text of a document. A number that is infinite or none is null: JSON has no such numbers."""
    silence()
    return json.dumps({"schema": schema_name(document), **_finite(data)}, indent=2, allow_nan=False,
                      ensure_ascii=not (sys.stdout.encoding or "utf").lower().startswith("utf"))


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if isfinite(value) else None
    if isinstance(value, Mapping):
        return {name: _finite(inner) for name, inner in value.items()}
    return [_finite(inner) for inner in value] if isinstance(value, list | tuple) else value
