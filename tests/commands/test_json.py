"""What ``--json`` prints: every command's real output against its documented schema, and the page about it."""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest

import shardmath
from shardmath.cli.main import cli, exit_code
from shardmath.reports.answers import VERSIONS, answer, schema_name
from shardmath.schemas import DOCUMENTS, markdown, schema
from shardmath.search.spaces import Best, Space

PAGE = Path(__file__).resolve().parents[2] / "docs" / "json.md"
SPACE = """
[space]
implementation = "megatron"
model = "llama-3.2-1b"
gpu = "a100-40gb"

[fixed]
num_gpus = 8
global_batch_size = 16

[axes]
tensor_parallel = [1, 2, 4]
micro_batch_size = [1, 2]
"""
LLAMA = "llama-3.2-1b --gpu a100-40gb --num-gpus 8 --global-batch-size 16"
#: Commands whose answers have null and other kinds of values in as many places as possible.
COMMANDS = {
    "explain": ("explain llama-3.1-8b --gpu a100-40gb --tp 4 --pp 2 --num-gpus 16 --global-batch-size 64",
                "explain llama-3.2-1b --gpu-memory 24 --implementation huggingface --num-gpus 3",
                "explain mixtral-8x7b --gpu h100-80gb --num-gpus 64 --ep 8 --pp 2"),
    "compare": ("compare llama-3.1-8b --gpu h100-80gb --num-gpus 8 --against '--tp 2' --against '--recompute full'",),
    "moves": (f"moves {LLAMA} --tp 2", f"moves {LLAMA} --tp 2 --formula seq_length"),
    "fit": (f"fit {LLAMA} --tp 2",),
    "sweep": (f"sweep {LLAMA}", "sweep llama-3.1-70b --gpu-memory 8 --num-gpus 8 --global-batch-size 8"),
    "recommend": (f"recommend {LLAMA}",),
    "scale": ("scale llama-3.1-70b --gpu h100-80gb --num-gpus 8,64 --global-batch-size 64 --tp 8",),
    "plan": ("plan llama-3.1-8b --tokens 1T --gpu h100-80gb --num-gpus 64 --tp 2 --pp 1 --cp 1 --price h100-80gb=2",),
    "formula": ("formula swiglu.saved", "formula step.time", "formula fujii2024.total", "formula rajbhandari2020.zero1",
                "formula llama3.flops"),
    "formulas": ("formula --list",), "claims": ("prove --list",),
    "prove": ("prove sequence-parallel-gain", "prove zero1-never-more-than-ddp"),
    "models": ("models", "models llama 3.1"), "gpus": ("gpus", "gpus h100"), "networks": ("networks", "networks efa"),
    "kernels": ("kernels fp8",),
}


def printed(command: str, capsys: pytest.CaptureFixture[str]) -> Any:
    assert exit_code([*shlex.split(command), "--json"]) == 0
    return parsed(capsys.readouterr().out)


def parsed(text: str) -> Any:
    def refuse(word: str) -> None:
        raise AssertionError(f"{word} is no JSON")

    return json.loads(text, parse_constant=refuse)


def leaves(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from leaves(inner, key)
    elif isinstance(value, list):
        for inner in value:
            yield from leaves(inner, name)
    else:
        yield name, value


def refuse_other_than(document: str, found: Any) -> None:
    assert next(iter(found)) == "schema"
    assert found["schema"] == schema_name(document)
    jsonschema.validate(found, schema(document), cls=jsonschema.Draft202012Validator)
    sizes = [value for name, value in leaves(found) if name.endswith("_bytes")]
    assert [size for size in sizes if type(size) not in (int, type(None))] == []


@pytest.mark.slow
@pytest.mark.parametrize(("document", "command"), [
    (document, command) for document, commands in COMMANDS.items() for command in commands
])
def test_output_is_what_the_schema_says(document: str, command: str, capsys: pytest.CaptureFixture[str]) -> None:
    refuse_other_than(document, printed(command, capsys))


@pytest.mark.slow
def test_answers_of_a_space(capsys: pytest.CaptureFixture[str]) -> None:
    answer = printed(f"explore {Path(__file__).resolve().parents[2]}/docs/spaces/llama-70b.toml", capsys)
    refuse_other_than("explore", answer)
    assert answer["answers"]
    assert answer["risk"] == 0.01


@pytest.mark.slow
@pytest.mark.parametrize(("parts", "risk"), [({"axes": {"process_parts": [957_000, 980_000]}}, None),
                                             ({"risk": "5%"}, 0.05)])
def test_the_risk_of_a_space(parts: dict[str, Any], risk: float | None) -> None:
    """Where an axis has shares of the memory, no one risk is accepted."""
    space = Space({"tensor_parallel": [1, 2], **parts.get("axes", {})}, "llama-3.2-1b", cluster="h100-80gb",
                  fixed={"num_gpus": 8, "global_batch_size": 8, "recompute": "none"}, risk=parts.get("risk"),
                  questions=(Best("least", ("peak",), 1),))
    assert shardmath.explore(space).risk == risk


@pytest.mark.slow
def test_what_evaluate_has_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("pyarrow")
    table, output = tmp_path / "table.csv", tmp_path / "out.parquet"
    table.write_text("tensor_parallel,note\n1,a\n2,b\n")
    found = printed(f"evaluate {table} -o {output} --model llama-3.1-8b --gpu h100-80gb --set num_gpus=8"
                    " --set global_batch_size=8", capsys)
    refuse_other_than("evaluate", found)
    assert (found["rows"], found["passed_through"], found["risk"]) == (2, ["note"], 0.01)


@pytest.mark.slow
@pytest.mark.parametrize(("column", "option", "risk"), [("note", "--risk 5%", 0.05), ("process_parts", "", None)])
def test_the_risk_of_a_table(
    column: str, option: str, risk: float | None, tmp_path: Path, capsys: pytest.CaptureFixture[str],
) -> None:
    pytest.importorskip("pyarrow")
    table, output = tmp_path / "table.csv", tmp_path / "out.parquet"
    table.write_text(f"tensor_parallel,{column}\n1,957000\n2,980000\n")
    found = printed(f"evaluate {table} -o {output} --model llama-3.1-8b --gpu h100-80gb --set num_gpus=8"
                    f" --set global_batch_size=8 {option}", capsys)
    assert found["risk"] == risk


@pytest.mark.slow
def test_a_calibration(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("scipy")
    runs = tmp_path / "runs.csv"
    runs.write_text("model,num_gpus,global_batch_size,tensor_parallel,step_seconds\n" + "".join(
        f"llama-3.1-8b,{gpus},64,{tensor},{seconds}\n"
        for gpus, tensor, seconds in ((8, 1, 8.0), (8, 2, 8.6), (16, 2, 4.5))
    ))
    refuse_other_than("calibrate", printed(f"calibrate {runs} --gpu h100-80gb", capsys))


def test_every_command_that_takes_json_has_a_schema() -> None:
    taking = {name for name, command in cli.commands.items() if any("--json" in item.opts for item in command.params)}
    assert taking == set(DOCUMENTS) - {"formulas", "claims"}
    assert DOCUMENTS.keys() == VERSIONS.keys()
    assert COMMANDS.keys() | {"explore", "evaluate", "calibrate", "phases", "snapshot", "verify"} == DOCUMENTS.keys()


@pytest.mark.slow
@pytest.mark.parametrize("document", DOCUMENTS)
def test_schemas_are_schemas_that_leave_nothing_open(document: str) -> None:
    found = schema(document)
    jsonschema.Draft202012Validator.check_schema(found)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"schema": schema_name(document)}, found)
    for part in (found, *found.get("$defs", {}).values()):
        assert part["required"] == list(part["properties"])
        assert part["additionalProperties"] is False or part["title"] == "Found"
        assert part["description"]
    assert [name for name, field in found["properties"].items() if not field.get("description")] == [] or (
        document == "formula"
    )


def test_the_page_is_current() -> None:
    assert PAGE.read_text(encoding="utf-8") == markdown(), "run: shardmath schema --markdown >docs/json.md"


def test_the_command_prints_schemas(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(["schema", "explain"]) == 0
    assert parsed(capsys.readouterr().out) == schema("explain")
    assert exit_code(["schema"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == list(DOCUMENTS)
    assert exit_code(["schema", "explane"]) == 2
    assert "nearest legal: explain" in capsys.readouterr().err


def test_numbers_that_json_lacks_are_null() -> None:
    text = answer("gpus", {"a": [math.inf, -math.inf, math.nan, 1.5], "b": {"c": (math.nan, 2)}})
    assert parsed(text) == {"schema": "shardmath/gpus/1", "a": [None, None, None, 1.5], "b": {"c": [None, 2]}}
