"""The table of published files with kernels of their own: derived from the files, with no key that decides nothing."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from shardmath.commands.page.catalogue import models
from shardmath.commands.page.families import FAMILIES, kernels_of, published_keys, usual_config
from shardmath.errors import InputError
from shardmath.models.config_json import family_of, model_of

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
TABLE = ROOT / "catalogue" / "public_kernels.toml"
PUBLIC = json.loads((ROOT / "tests" / "data" / "public_configs.json").read_text(encoding="utf-8"))
HEADER = """# Published config.json files whose kernels neither the models of the catalogue nor the usual file of a
# family have: the keys that decide it, which `shardmath page` adds to the usual file. Written from
# tests/data/public_configs.json by UPDATE_DOCUMENTS=1 pytest tests/models/test_public_kernels.py
"""


def _kernels(model_type: str, keys: Mapping[str, Any]) -> str | None:
    """Return the kernels of the usual file of a family with other keys; None where it is refused."""
    try:
        return kernels_of(model_of({**usual_config(model_type), **keys}, "file", "file")[0])
    except InputError:
        return None


def _derived() -> dict[str, tuple[str, dict[str, Any]]]:
    """Return the least keys of each published file that has kernels of its own, the first file of equal ones."""
    known = {*map(kernels_of, models((), only=False)), *(_kernels(name, {}) for name in FAMILIES)}
    rows = {}
    for name, file in PUBLIC.items():
        try:
            kernels = kernels_of(model_of(file["config"], name, name)[0])
        except InputError:
            continue
        if kernels in known:
            continue
        known.add(kernels)
        model_type, stated, _ = family_of(file["config"])
        usual = usual_config(model_type)
        keys = {key: stated[key] for key in sorted(stated)
                if key != "model_type" and usual.get(key, ...) != stated[key]}
        assert _kernels(model_type, keys) == kernels, name
        for key in tuple(keys):
            fewer = {other: value for other, value in keys.items() if other != key}
            keys = fewer if _kernels(model_type, fewer) == kernels else keys
        rows[name] = model_type, keys
    return rows


def _table(rows: Mapping[str, tuple[str, Mapping[str, Any]]]) -> str:
    lines = [HEADER]
    for name, (model_type, keys) in rows.items():
        nulls = [key for key, value in keys.items() if value is None]
        lines += [f'["{name}"]', f'model_type = "{model_type}"', *([f"null = {json.dumps(nulls)}"] if nulls else [])]
        said = ", ".join(f"{key} = {json.dumps(value)}" for key, value in keys.items() if value is not None)
        lines += [f"keys = {{ {said} }}" if said else "keys = {}", ""]
    return "\n".join(lines)


def test_the_table_has_the_published_files_with_other_kernels() -> None:
    """With UPDATE_DOCUMENTS=1 in the environment, write the table instead of comparing it."""
    rows = _derived()
    if os.environ.get("UPDATE_DOCUMENTS"):
        TABLE.write_text(_table(rows), encoding="utf-8")
    assert TABLE.read_text(encoding="utf-8") == _table(rows)
    assert published_keys() == list(rows.values())
