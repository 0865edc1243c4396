"""Help: two examples that parse, options under titles, and a table that lists the kernels."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from shardmath.cli.main import cli
from shardmath.cli.titled import Titled, _shortened, under
from shardmath.formats.readers import SUFFIXES
from shardmath.generated.definitions import CHOICES

TABLES = Path(__file__).resolve().parents[2] / "generated" / "formulas.md"
TITLED = {name: command for name, command in cli.commands.items() if isinstance(command, Titled)}
HELP, HELP_ALL = ["-h", "--help"], "--help-all"
#: Lists of names: their help needs no example.
LISTS = {"models", "gpus", "networks", "kernels", "schema", "mcp", "completion"}


def test_every_command_that_computes_has_two_examples() -> None:
    assert TITLED.keys() == cli.commands.keys() - LISTS
    assert {name: len(command.examples) for name, command in TITLED.items()} == dict.fromkeys(TITLED, 2)


@pytest.mark.parametrize("name", TITLED)
def test_examples_come_first_and_parse(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Launch files that examples name are made, as a command looks whether they are there."""
    monkeypatch.chdir(tmp_path)
    text = CliRunner().invoke(cli, [name, "--help"], prog_name="shardmath", terminal_width=100).output
    for example in TITLED[name].examples:
        whole = re.sub(r" \\\n +", " ", text)
        assert whole.index(f"$ shardmath {name} {example}\n") < whole.index("\n  -h, --help ")
        words = shlex.split(example)
        for word in words:
            if Path(word).suffix in SUFFIXES:
                Path(word).parent.mkdir(parents=True, exist_ok=True)
                Path(word).touch()
        context = TITLED[name].make_context(name, words, help_option_names=HELP)
        assert context.params


@pytest.mark.parametrize("name", TITLED)
def test_every_option_stands_once_in_the_help(name: str) -> None:
    text = CliRunner().invoke(cli, [name, HELP_ALL if folded(name) else "--help"], terminal_width=200).output
    options = [item for item in TITLED[name].params if isinstance(item, click.Option) and not item.hidden]
    for option in options:
        names = rf"^  (?:-\w, )?{re.escape(option.opts[-1])}[ ,\n]|^  .*, {re.escape(option.opts[-1])} "
        assert len(re.findall(names, text, re.MULTILINE)) == 1, option.opts


def folded(name: str) -> bool:
    """True for a command with options that only --help-all shows."""
    return any(HELP_ALL in item.opts for item in options_of(name))


def options_of(name: str) -> list[click.Option]:
    """The options of a command, those for help as the command line has them: click makes them once and keeps them."""
    context = click.Context(TITLED[name], help_option_names=HELP)
    return [item for item in TITLED[name].get_params(context) if isinstance(item, click.Option)]


@pytest.mark.parametrize("name", TITLED)
@pytest.mark.parametrize("width", [80, 100])
def test_help_is_short_and_has_an_option_in_a_line(name: str, width: int) -> None:
    lines = CliRunner().invoke(cli, [name, "--help"], terminal_width=width).output.splitlines()
    assert len(lines) < 60
    assert max(map(len, lines)) <= width
    options = [line for line in lines if re.match(r"  -", line)]
    left = [line for line in lines if line.startswith("Not shown: ")]
    assert len(options) == len(options_of(name)) - sum(map(int, re.findall(r"\d+", "".join(left))))


@pytest.mark.parametrize("name", ["", *cli.commands])
def test_help_fits_80_columns_and_begins_with_two_examples(name: str) -> None:
    asked = [*filter(None, [name]), "--help"]
    lines = CliRunner().invoke(cli, asked, prog_name="shardmath", terminal_width=80).output.splitlines()
    assert max(map(len, lines)) <= 80
    assert len(lines) < 60
    examples = [line for line in lines if line.startswith(f"  $ {' '.join(filter(None, ['shardmath', name]))}")]
    assert len(examples) == (0 if name == "mcp" else 2)  # a server that another program starts


def test_switches_that_can_be_set_off_say_so() -> None:
    text = CliRunner().invoke(cli, ["explain", "--help"], terminal_width=80).output
    assert "\n  --[no-]sequence-parallel " in text
    assert "\n  --gbs, --global-batch-size INTEGER  Sequences of one optimizer step\n" in text


@pytest.mark.parametrize("name", ["", *cli.commands])
def test_help_shows_its_lines_and_no_sign_for_click(name: str) -> None:
    text = CliRunner().invoke(cli, [*filter(None, [name]), "--help"], prog_name="shardmath", terminal_width=100).output
    assert "\\b " not in text
    command = cli.commands[name] if name else cli
    for paragraph in (command.help or "").split("\n\n"):
        if paragraph.startswith("\b"):
            assert all(f"\n  {line}\n" in text for line in paragraph.strip("\b\n").split("\n"))


def test_layout_options_have_a_title_of_their_own() -> None:
    text = CliRunner().invoke(cli, ["sweep", HELP_ALL], terminal_width=100).output
    layout = text.split("Job and layout:\n")[1].split("\n\n")[0]
    assert all(f"--{name}" in layout for name in ("tp", "cp", "pp", "ep", "vpp", "num-gpus", "recompute"))
    assert "--matmul-per-mille" in text.split("Machine constants:\n")[1].split("\n\n")[0]


def test_an_unknown_title_is_refused() -> None:
    with pytest.raises(ValueError, match="no title of"):
        under("Other", click.option("--a"))


def test_a_table_lists_every_axis_and_option_of_kernels() -> None:
    section = TABLES.read_text(encoding="utf-8").split("\n## Kernels\n")[1].split("\n## ")[0]
    listed = re.findall(r"^\| `(\w+)` \| .* \| `(\w+)` \| .* \|$", section, re.MULTILINE)
    assert listed == [(axis, option) for axis, (_, options) in CHOICES.items() for option in options]


@pytest.mark.parametrize(("text", "room", "shortened"), [
    ("GPUs of the job", 20, "GPUs of the job"),
    ("Data-parallel size (DP), without CP", 30, "Data-parallel size (DP)"),
    ("ZeRO stage, 0 to 3; DeepSpeed's with huggingface", 40, "ZeRO stage, 0 to 3"),
    ("Solve every row of this table (Parquet, CSV or Arrow) of a space", 45, "Solve every row of this table"),
    ("Pipeline schedule: 1f1b, interleaved, gpipe", 40, "Pipeline schedule: 1f1b, ..."),
    ("Memory of every rank by role: .png, .svg or .html", 31, "Memory of every rank by role"),
    ("Norms and residuals are sharded over TP", 30, "Norms and residuals are ..."),
])
def test_an_option_in_one_line_says_whole_clauses(text: str, room: int, shortened: str) -> None:
    assert _shortened(text, room) == shortened


def test_few_options_end_in_the_middle_of_a_clause() -> None:
    """What a reader of the short help does not see is a further clause or item, but for the longest names."""
    cut = {line.split()[0] for name in TITLED if folded(name)
           for line in CliRunner().invoke(cli, [name, "--help"], terminal_width=80).output.splitlines()
           if line.startswith("  -") and line.endswith(" ...") and not line.endswith(", ...")}
    assert cut <= {"--etp,", "--shared,", "--sequence-parallel"}
