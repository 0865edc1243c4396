"""The server of the Model Context Protocol: its tools against the commands, and a real client on a real process."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from shardmath.cli.main import cli, exit_code
from shardmath.cli.tools import called, tools
from shardmath.schemas.documents import DOCUMENTS, schema

TOOLS = {tool.name: tool for tool in tools(cli.commands, DOCUMENTS)}
CALLS: dict[str, dict[str, Any]] = {
    "explain": {"model": "llama-3.2-1b", "gpu": "h100-80gb", "num_gpus": 8, "tensor_parallel": 2,
                "sequence_parallel": True, "kernels": ["swiglu=eager"], "overlap_grad_reduce": True},
    "models": {"words": ["mixtral", "8x7b"]},
    "formula": {"term": "swiglu.saved"},
    "claims": {},
}


def test_every_document_is_a_tool_but_one_that_needs_a_file() -> None:
    assert TOOLS.keys() == DOCUMENTS.keys() - {"evaluate"}


@pytest.mark.parametrize("name", TOOLS)
def test_arguments_are_the_options_of_the_command(name: str) -> None:
    made = TOOLS[name].schema()
    jsonschema.Draft202012Validator.check_schema(made)
    assert made["properties"].keys() <= {item.name for item in TOOLS[name].command.params}
    assert set(made["required"]) <= made["properties"].keys()
    assert not {"csv", "parquet", "plot", "output", "checkpoint"} & made["properties"].keys()
    assert all(item["description"] for item in made["properties"].values())


@pytest.mark.parametrize("name", CALLS)
def test_words_say_what_the_command_line_would(name: str) -> None:
    tool, arguments = TOOLS[name], CALLS[name]
    jsonschema.validate(arguments, tool.schema())
    words = tool.words(arguments)
    command = cli.commands[words[0]]
    root = cli.make_context("shardmath", [words[0]], resilient_parsing=True)
    with command.make_context(words[0], words[1:], parent=root, resilient_parsing=True) as context:
        for field, value in arguments.items():
            assert context.params[field] == (tuple(value) if isinstance(value, list) else value), field
        assert context.params["json"]


def test_switches_are_set_off_where_that_is_possible() -> None:
    assert "--no-sequence-parallel" in TOOLS["explain"].words({"model": "m", "sequence_parallel": False})
    assert "--all-ranks" not in TOOLS["explain"].words({"model": "m", "all_ranks": False})
    assert "--tensor-parallel=1,2" in TOOLS["sweep"].words({"model": "m", "tensor_parallel": [1, 2]})


def test_a_value_is_never_an_option() -> None:
    assert TOOLS["snapshot"].words({"file": "--device"})[-2:] == ["--", "--device"]


@pytest.mark.parametrize(("name", "arguments", "line"), [
    ("explain", {"model": "llama-3.2-1b", "gpus": 8}, "error: gpus = 8: must be an argument of explain"),
    ("explain", {"model": "llama-3.2-1b", "tp": 2},
     "error: tp = 2: must be an argument of explain; nearest legal: tensor_parallel"),
    ("explain", {"model": "llama-3.2-1b"}, "error: gpu = absent: must be given"),
    ("explain", {"model": "llama-3.2-1b", "gpu": "h100", "tensor_parallel": 3}, "error: gpu = 'h100'"),
    ("models", {"words": "mixtral", "word": "x"}, "error: word = 'x'"),
])
def test_bad_input_is_one_line(name: str, arguments: dict[str, Any], line: str) -> None:
    done = called(TOOLS[name], arguments, exit_code)
    assert (done.code, done.document) == (2, "")
    assert done.notes.startswith(line)
    assert "\n" not in done.notes


def test_a_document_keeps_its_schema() -> None:
    done = called(TOOLS["models"], CALLS["models"], exit_code)
    assert (done.code, done.notes) == (0, "")
    jsonschema.validate(json.loads(done.document), schema("models"))


@pytest.mark.process
def test_a_client_of_the_protocol_gets_answers_and_errors() -> None:
    import anyio
    from mcp import Client, StdioServerParameters, stdio_client

    command = Path(sys.executable).parent / "shardmath"

    async def talk() -> None:
        async with Client(stdio_client(StdioServerParameters(command=str(command), args=["mcp"]))) as client:
            listed = {tool.name: tool for tool in (await client.list_tools()).tools}
            assert listed.keys() == TOOLS.keys()
            for name, tool in listed.items():
                assert tool.input_schema == TOOLS[name].schema()
                assert tool.output_schema == schema(name)
            answer = await client.call_tool("explain", CALLS["explain"])
            assert not answer.is_error
            jsonschema.validate(answer.structured_content, schema("explain"))
            assert json.loads(answer.content[0].text) == answer.structured_content  # type: ignore[union-attr]
            refused = await client.call_tool("explain", {**CALLS["explain"], "tensor_parallel": 3})
            assert refused.is_error
            assert refused.content[0].text.startswith("error: num_gpus = 8: must be a multiple")  # type: ignore[union-attr]
            unknown = await client.call_tool("delete", {})
            assert unknown.is_error
            assert not (await client.call_tool("models", CALLS["models"])).is_error

    anyio.run(talk)


#: Answers without any of the extras, in a process of its own: modules that were imported would hide what is missing.
WITHOUT_EXTRAS = """
import subprocess
import sys
sys.modules |= dict.fromkeys(("matplotlib", "pyarrow", "scipy", "tree_sitter", "tree_sitter_bash", "yaml"))
from shardmath.cli.main import cli, exit_code
from shardmath.cli.mcp import server
from shardmath.schemas import DOCUMENTS
server(cli, exit_code)
sys.exit(max(exit_code(["schema", name]) for name in DOCUMENTS))
"""


@pytest.mark.slow
def test_the_server_and_the_schemas_need_no_other_extra() -> None:
    done = subprocess.run([sys.executable, "-c", WITHOUT_EXTRAS], check=False, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
