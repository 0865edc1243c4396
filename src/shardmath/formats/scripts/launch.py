"""The training command among those of a script: its program, its flags, and the GPUs that its launcher starts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from shardmath.errors import InputError
from shardmath.formats.scripts.expansion import marked
from shardmath.formats.scripts.shell import Script

#: Flags without which no program of Megatron-LM trains; a command with one of them is a training command.
_TRAINING = ("--num-layers", "--hidden-size", "--tensor-model-parallel-size", "--micro-batch-size", "--seq-length")
#: Options of torchrun.
NODES = ("nnodes",)
PROCESSES = ("nproc_per_node", "nproc-per-node")
OF_LAUNCHER = (*NODES, *PROCESSES, "node_rank", "master_addr", "master_port", "rdzv_id", "rdzv_backend",
                "rdzv_endpoint", "node-rank", "master-addr", "master-port")
#: Endings of files with the settings of a training.
_CONFIGURATIONS = (".json", ".toml", ".yaml", ".yml")

Flags = Mapping[str, tuple[str, ...]]


@dataclass(frozen=True)
class Launch:
    """One training command: ``flags`` of the program with their words, by name without dashes; GPUs if known."""

    program: str
    flags: Flags
    num_gpus: int | None
    notes: tuple[str, ...] = ()


def launch_of(path: str, script: Script) -> Launch:
    """Return the last training command of a script; a file that is nothing but flags is one.

    Raises InputError if there is none.
    """
    bare = [command for command in script.commands if command[0].startswith("--")]
    trainings = [command for command in script.commands if any(flag in command for flag in _TRAINING)]
    if not trainings:
        rule = ("must start a training program with its settings: flags of Megatron-LM, such as --hidden-size, or the"
                " file of another trainer; give that file itself where the script is told its name")
        raise InputError("script", path, rule, _configured_by(script))
    if trainings[-1] in bare:
        return Launch("", flags_of([word for command in bare for word in command]), None)
    command = trainings[-1]
    notes = () if len(trainings) == 1 else (f"the last of {len(trainings)} training commands is read",)
    place = next((place for place, word in enumerate(command) if word.endswith(".py")), -1)
    program = command[place].rsplit("/", 1)[-1] if place >= 0 else ""
    flags = flags_of(command[place + 1:])
    launcher = flags_of(command[:place]) if place >= 0 else flags
    return Launch(program, {name: words for name, words in flags.items() if name not in OF_LAUNCHER},
                  _gpus(launcher), notes)


def _configured_by(script: Script) -> str | None:
    """Return the last file of settings that a flag such as ``--job.config_file`` names; None if there is none."""
    named = (words[0] for command in script.commands for flag, words in flags_of(command).items()
             if words and "config" in flag.lower() and words[0].endswith(_CONFIGURATIONS) and not marked(words[0]))
    return next(reversed([*named]), None)


def flags_of(words: Sequence[str]) -> Flags:
    """Return flags with the words that follow each, the last of equal ones; ``--name=word`` too."""
    flags: dict[str, tuple[str, ...]] = {}
    name = ""
    for word in words:
        if word.startswith("--") and len(word) > 2:
            name, equals, value = word.removeprefix("--").partition("=")
            flags[name] = (value,) if equals else ()
        elif name:
            flags[name] = (*flags[name], word)
    return flags


def value_of(flags: Flags, names: Sequence[str]) -> str | None:
    """Return the first word of the first of some flags that has one."""
    return next((flags[name][0] for name in names if flags.get(name)), None)


def _gpus(launcher: Flags) -> int | None:
    """Return processes of all nodes, one for each GPU; None where the launcher does not say how many."""
    sizes = []
    for names in (NODES, PROCESSES):
        words = next((launcher[name] for name in names if name in launcher), ("",))[:1]
        if not (words and words[0].isascii() and words[0].isdecimal() and len(words[0]) < 8):
            return None
        sizes.append(int(words[0]))
    return sizes[0] * sizes[1] or None
