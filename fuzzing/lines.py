"""Readers of what is typed: options of the command line, names of the catalogue, and names as the page shows them."""

from __future__ import annotations

import base64
import contextlib
import io
import json
import os
import zlib
from collections.abc import Callable, Sequence
from functools import cache, partial
from html.parser import HTMLParser
from typing import Any

from fuzzing.files import _symbols
from fuzzing.outcome import Finding, outcome
from fuzzing.reader import DATA, Reader

#: Arguments, one a line.
_COMMANDS = (
    "explain llama-3.1-8b --gpu h100-80gb --tp 2 --pp 2 --num-gpus 16 --global-batch-size 64 --json",
    "explain llama-3.1-8b --gpu a100-40gb --tp 4 --pp 2 --all-ranks --recompute full --csv rows.csv",
    "explain llama-3.1-8b --gpu-memory 40 --node-size 8 --cp 2 --pipeline-layout 15,17 --pp 2 --seq-length 4096",
    "explain llama-3.1-8b --gpu h100-80gb --implementation torchtitan --schedule 1f1b --vocab-multiple 64",
    "explain llama-3.1-8b --gpu h100-80gb --network ndr-400 --write megatron --tp 2 --no-sequence-parallel",
    "explain run.sh --gpu h100-80gb --num-gpus 64 --set num-layers=8",
    "explain llama-3.1-8b --gpu h100-80gb --kernel loss=native --anchor measured.json",
    "sweep llama-3.1-8b --gpu h100-80gb --num-gpus 64 --global-batch-size 64 --top 3 --csv sweep.csv",
    "sweep llama-3.1-8b --gpu h100-80gb --num-gpus 8 --global-batch-size 8 --tp 1,2 --rank-by memory",
    "formula peak --latex", "formula --list", "formula swiglu.saved --python", "models", "models --json", "gpus",
    "networks --json",
    "scale llama-3.1-8b --gpu h100-80gb --num-gpus 8,16 --global-batch-size 64 --json --tp 2",
    "recommend llama-3.1-8b --gpu h100-80gb --num-gpus 8 --global-batch-size 64 --tp 1,2",
    "explore space.toml --json --rows rows.parquet --term peak --among legal --threads 1",
    "evaluate table.csv -o out.parquet --model llama-3.1-8b --gpu h100-80gb --set seq_length=4096 --term peak",
    "calibrate runs.csv --gpu h100-80gb --network ndr-400 --stage-stall", "page missing.json -o page.html",
)
#: Commands and options that take seconds or reach other machines: derivations, fits, pages, clusters.
_SLOW = ("--dask", "--all-terms", "--device")
_FILES: dict[str, Callable[[], str]] = {
    "run.sh": lambda: (DATA / "formats" / "megatron_gpt3_175b.sh").read_text(encoding="utf-8"),
    "space.toml": lambda: 'model = "llama-3.1-8b"\ngpu = "h100-80gb"\n[axes]\ntensor_parallel = [1, 2]\n'
                          '[fixed]\nnum_gpus = 8\n[questions.best]\nbest = ["peak"]\n',
    "table.csv": lambda: "num_gpus,tensor_parallel\n8,2\n16,4\n",
    "runs.csv": lambda: "model,num_gpus,step_seconds\nllama-3.1-8b,8,1\n",
    "measured.json": lambda: json.dumps({"run": {"model": "llama-3.1-8b", "gpu": "h100-80gb"}, "measured": {
        "allocated_bytes": 2**37}}),
}


def _command(data: bytes, folder: str) -> str:
    from shardmath.cli.main import exit_code

    arguments = [os.fsdecode(line) for line in data.replace(b"\0", b"").split(b"\n")[:60]]
    if any(word.startswith(_SLOW) for word in arguments):
        return "refused"
    before = os.getcwd()
    os.chdir(folder)
    for name, content in _FILES.items():
        if not os.path.isfile(name):
            with open(name, "w", encoding="utf-8") as file:
                file.write(content())
    out, err = io.TextIOWrapper(io.BytesIO(), "utf-8", "backslashreplace"), io.StringIO()
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = exit_code(arguments)
    finally:
        os.chdir(before)
    lines = err.getvalue().splitlines()
    if code not in (0, 2):
        raise Finding(f"exit code {code}")
    if code == 2 and not (lines and lines[-1].startswith("error: ")):
        raise Finding(f"no line that says what is wrong: {lines!r:.300}")
    if "Traceback" in err.getvalue() or any(not line.isprintable() for line in lines):
        raise Finding(f"not plain lines: {lines!r:.300}")
    return "answered" if code == 0 else "refused"


def _names(data: bytes, folder: str) -> str:
    """Any text as the name of a model, a GPU, a network, an implementation, a kernel, a term, and in a message."""
    from shardmath.compiler.evaluators import find
    from shardmath.configuration.settings import recompute_switches
    from shardmath.errors import InputError
    from shardmath.machines import Network
    from shardmath.machines.gpu import Gpu
    from shardmath.models.model import Model

    text = data.decode("utf-8", "surrogatepass" if len(data) % 2 else "replace") if _decodes(data) else repr(data)
    named: tuple[Callable[[str], object], ...] = (
        Model.named, Gpu.named, Network.named, recompute_switches, find, lambda name: find("megatron", {name: name}),
        lambda name: find("megatron", {"loss": name}), lambda name: find("megatron").unit_and_meaning(name),
    )
    result = outcome(partial(named[sum(data) % len(named)], text))
    outcome(lambda: _raise(InputError(text, text, text, text)))
    return result


def _decodes(data: bytes) -> bool:
    try:
        data.decode("utf-8", "surrogatepass" if len(data) % 2 else "replace")
    except UnicodeDecodeError:
        return False
    return True


def _raise(error: Exception) -> None:
    raise error


class _Parsed(HTMLParser):
    """Elements of a page, and the text of the one with data."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.data, self._inside = "", False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self._inside = tag == "script" and ("id", "packed") in attrs

    def handle_endtag(self, tag: str) -> None:
        self._inside = self._inside and tag != "script"

    def handle_data(self, data: str) -> None:
        if self._inside:
            self.data += data


def _shown(model: Any) -> str:
    from shardmath.commands.page.catalogue import model_data
    from shardmath.commands.page.writing import shown

    return shown({"start": model.name, "models": [model_data(model)]})


@cache
def _usual_tags() -> list[str]:
    parsed = _Parsed()
    parsed.feed(_shown(_named("plain")))
    return parsed.tags


def _named(name: str) -> Any:
    from shardmath.models.model import Model

    return Model.named("llama-3.1-8b").model_copy(update={"name": name, "source": name, "note": name})


def _page(data: bytes, folder: str) -> str:
    """Any text as the name of a model on the page: the page has the same elements, and its data the same text."""
    text = data.decode("utf-8", "replace")
    page = _shown(_named(text))
    page.encode()
    parsed = _Parsed()
    parsed.feed(page)
    if parsed.tags != _usual_tags():
        raise Finding("other elements in the page")
    if json.loads(zlib.decompress(base64.b64decode(parsed.data)))["models"][0]["name"] != text:
        raise Finding("another name in the page")
    return "answered"


def _arguments() -> Sequence[bytes]:
    return [command.replace(" ", "\n").encode() for command in _COMMANDS]


@cache
def _options() -> Sequence[bytes]:
    import click

    from shardmath.cli.main import cli

    options = {option for command in cli.commands.values() for parameter in command.params
             if isinstance(parameter, click.Option) for option in parameter.opts}
    places = ("/dev/null", "/dev/full", "out.csv", ".", "llama-3.1-8b")
    return [f"\n{word}\n".encode() for word in (*sorted(options), *cli.commands, *places)]


def _catalogue() -> Sequence[bytes]:
    from shardmath.catalogue import read

    return [name.encode() for kind in ("models", "gpus", "networks") for name in read(kind)]


READERS = (
    Reader("command-line", _command, _arguments, _options),
    Reader("names", _names, _catalogue, _symbols, 2),
    Reader("page", _page, _catalogue, _symbols),
)
