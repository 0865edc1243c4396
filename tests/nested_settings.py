"""Settings by dotted keys, nested as files of programs have them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def nested(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings by dotted keys as a file nests them."""
    data: dict[str, Any] = {}
    for key, value in settings.items():
        *above, last = key.split(".")
        table = data
        for name in above:
            table = table.setdefault(name, {})
        table[last] = value
    return data
