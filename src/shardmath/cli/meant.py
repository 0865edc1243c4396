"""Commands and options that people look for by other names, with those that answer."""

from __future__ import annotations

import click

from shardmath.catalogue import read
from shardmath.errors import nearest_names
from shardmath.generated.definitions import CHOICES
from shardmath.input.meant import MEANT, RECIPES

#: Commands that people look for, with those that answer.
_COMMANDS = {
    "help": "--help", "version": "--version", "list": "models, gpus or networks", "run": "explain or sweep",
    **dict.fromkeys(("estimate", "estimate-memory", "memory", "predict", "analyze", "profile", "show"), "explain"),
    **dict.fromkeys(("search", "optimize", "tune", "autotune", "best", "suggest"), "recommend or sweep"),
    **dict.fromkeys(("cost", "price", "budget"), "plan"), "diff": "compare", "validate": "check or verify",
    "clusters": "gpus or networks", "terms": "formula", "formulas": "formula", "claims": "prove",
    **dict.fromkeys(("parameters", "options", "axes", "implementations", "frameworks"), "kernels"),
}
#: Endings of files that commands take as a model.
_OF_MODELS = (".json", ".sh", ".toml", ".yaml", ".yml")
#: Commands with an option that are named.
_FEW = 3
#: Commands that search layouts.
_SEARCHES = ("plan", "recommend", "scale", "sweep")
#: Ways to say what options of other commands do: in searches, and in `shardmath plan`, `fit` and `mcp`.
_OF_SEARCHES = {
    "the number of GPUs alone: data parallelism is what TP x CP x PP leave of them":
        "--dp --data-parallel --data-parallel-size --dp-size --dp-shard",
}
_OF_PLAN = {
    "--batch-tokens, tokens of a step: its sequences x --seq":
        "--gbs --global-batch-size --global-batch --batch --batch-size --train-batch-size",
    "--deadline, such as 90d": "--days --weeks --months --time --until --duration",
    "--carbon": "--grid --co2 --country --region",
    "--failures": "--mtbf --mttf --failure-rate",
    "--tokens, those of the whole training": "--train-tokens --total-tokens --num-tokens --train-iters --steps",
}
_OF_FIT = {
    "--solve seq_length": "--max-seq --max-sequence --longest",
    "--solve micro_batch_size": "--max-batch --max-batch-size --max-micro-batch-size --max-mbs --largest-batch",
    "--solve num_gpus": "--min-gpus --fewest-gpus",
}
_OF_SERVER = {
    "no address: a client starts `shardmath mcp` itself, and speaks on its standard input and output":
        "--port -p --host --bind --address --url --transport --stdio --sse --http",
}


def meant_option(option: str, context: click.Context | None) -> str:
    """Return how a command says what an unknown ``option`` does elsewhere, as a sentence; empty where nobody knows."""
    command = None if context is None else context.command
    name, own = ("", set()) if command is None else (str(command.name), {*_options(command)})
    groups = (_OF_SEARCHES if name in _SEARCHES else {}, _OF_PLAN if name == "plan" else {},
              _OF_FIT if name == "fit" else {}, _OF_SERVER if name == "mcp" else {})
    ways = [way for group in groups for way, options in group.items() if option in options.split()]
    known = MEANT.get(option, "")
    first = known.split(" ")[0].strip(",")
    if known and (first in own or not first.startswith("--") or context is None):
        ways.append(known)
    if ways:
        return f" Give {ways[0]}."
    axis = option.lstrip("-").replace("-", "_")
    if axis in CHOICES and "--kernel" in own:
        others = f"; FP8 and FP4 are --kernel fp8=RECIPE, one of {', '.join(RECIPES)}" if axis == "precision" else ""
        return f" Write --kernel {axis}=OPTION, one of {', '.join(CHOICES[axis][1])}{others}."
    if name == "explore" and option in {*_options(_of(context, "sweep")), *_options(_of(context, "explain"))}:
        return " The file SPACE says it, under [fixed] or [axes]."
    return ""


def commands_with(option: str, context: click.Context | None) -> str:
    """Return the commands that have an ``option``, as a sentence; empty where none has it."""
    if context is None or not isinstance(group := context.find_root().command, click.Group):
        return ""
    names = [f"`shardmath {name}`" for name, command in group.commands.items() if option in _options(command)]
    if len(names) > _FEW:
        names = [*names[:_FEW], f"{len(names) - _FEW} more commands"]
    if len(names) > 1:
        return f" {', '.join(names[:-1])} and {names[-1]} have it."
    return f" {names[0]} has it." if names else ""


def _of(context: click.Context | None, name: str) -> click.Command | None:
    group = None if context is None else context.find_root().command
    return group.commands.get(name) if isinstance(group, click.Group) else None


def _options(command: click.Command | None) -> list[str]:
    return [] if command is None else [name for item in command.params for name in (*item.opts, *item.secondary_opts)]


def with_hyphens(name: str) -> str:
    """Return the name of an option as it is here, where Python and other programs have underscores."""
    return name.replace("_", "-")


def meant_command(name: str, known: list[str]) -> str:
    """Return the commands that are closest to a name, those that do what it promises, or those that take a model."""
    if name in read("models") or "/" in name or name.endswith(_OF_MODELS):
        return f"`shardmath explain {name}` or `shardmath recommend {name}`"
    return _COMMANDS.get(name.lower()) or nearest_names(name, known)
