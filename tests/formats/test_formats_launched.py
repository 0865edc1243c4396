"""Published files of programs beside Megatron-LM, torchtitan and NeMo: model, layout and kernels of each."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from nested_settings import nested

from shardmath.formats import read
from shardmath.formats.described import tables

LAUNCHED = Path(__file__).parents[1] / "data" / "launched"
FILES = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted(LAUNCHED.glob("*.json"))}
CASES = [(format, row) for format, rows in FILES.items() for row in rows]
#: Formats that others are written in, or that flags alone show, and those with a reader of their own beside the tables.
NOT_BY_THEMSELVES = {"transformers", "trl_dpo", "trl_kto", "trl_orpo", "trl_cpo", "trl_reward", "swift_rlhf"}
WITHOUT_TABLE = {"bridge", "megatron"}


@pytest.mark.parametrize(("format", "row"), CASES, ids=[f"{format}-{row['file']}" for format, row in CASES])
def test_published_files(format: str, row: dict[str, Any], tmp_path: Path) -> None:
    script = "script" in row
    path = tmp_path / f"run{Path(row['file']).suffix}"
    path.write_text(row["script"] if script else json.dumps(nested(row["settings"])), encoding="utf-8")
    for name, content in row.get("beside", {}).items():
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text(json.dumps(content), encoding="utf-8")
    run = read(path, row["given"])
    arguments = {name: list(value) if isinstance(value, tuple) else value for name, value in run.arguments.items()}
    assert (run.format, run.model.name.lower(), arguments) == (row["format"], row["model"].lower(), row["arguments"])
    assert list(run.unknown) == row["unknown"]


def test_five_published_files_for_each_format() -> None:
    counts = Counter(format for format, _ in CASES)
    assert set(counts) == {table.name for table in tables()} - NOT_BY_THEMSELVES | WITHOUT_TABLE
    assert min(counts.values()) >= 5
    assert all({"file", "repository", "commit", "licence"} <= set(row) for _, row in CASES)
