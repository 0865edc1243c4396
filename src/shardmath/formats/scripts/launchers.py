"""Commands that start a training by a file or by flags of Hugging Face's trainers, and the GPUs that they start."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from shardmath.errors import InputError
from shardmath.formats.bridge import reading as bridge
from shardmath.formats.described import beside, format_of, read_settings, refuse_unread, words_of
from shardmath.formats.run import Run
from shardmath.formats.scripts.arithmetic import Value
from shardmath.formats.scripts.expansion import behind_unknown, unmarked
from shardmath.formats.scripts.launch import flags_of, value_of
from shardmath.formats.scripts.shell import Script
from shardmath.formats.table import Words, table
from shardmath.formats.trainers.accelerate_launch import MISSING, launcher_of, of_launcher

#: Words of a command that start a program: the format of its settings, and the flags that name a file with them.
_STARTS: tuple[tuple[tuple[str, ...], str, tuple[str, ...]], ...] = (
    (("axolotl", "train"), "axolotl", ("",)), (("axolotl.cli.train",), "axolotl", ("",)),
    (("llamafactory-cli", "train"), "llamafactory", ("",)), (("src/train.py",), "llamafactory", ("",)),
    (("llamafactory-cli", "sft"), "llamafactory_v1", ("",)),
    (("swift", "sft"), "swift", ("config", "")), (("swift", "pt"), "swift", ("config", "")),
    (("swift/cli/sft.py",), "swift", ("config", "")), (("swift/cli/pt.py",), "swift", ("config", "")),
    (("swift", "rlhf"), "swift_rlhf", ("config", "")), (("swift/cli/rlhf.py",), "swift_rlhf", ("config", "")),
    (("megatron", "sft"), "swift_megatron", ("config", "")), (("megatron", "pt"), "swift_megatron", ("config", "")),
    (("trl", "sft"), "trl", ("config",)), (("trl/scripts/sft.py",), "trl", ("config",)),
    (("trl", "dpo"), "trl_dpo", ("config",)), (("trl/scripts/dpo.py",), "trl_dpo", ("config",)),
    (("trl", "kto"), "trl_kto", ("config",)), (("trl/scripts/kto.py",), "trl_kto", ("config",)),
    (("examples/scripts/orpo.py",), "trl_orpo", ("config",)), (("examples/scripts/cpo.py",), "trl_cpo", ("config",)),
    (("trl", "reward"), "trl_reward", ("config",)), (("trl/scripts/reward.py",), "trl_reward", ("config",)),
    (("tune", "run"), "torchtune", ("config",)),
    (("run_train.py",), "nanotron", ("config-file",)), (("run_recipe.py",), "bridge", ()),
)
#: Commands of the same programs that train otherwise.
_OTHERS: Mapping[tuple[str, ...], str] = {
    ("trl", "grpo"): "reinforcement learning",
    ("llamafactory-cli", "dpo"): "preference training", ("llamafactory-cli", "rm"): "training of reward models",
    ("megatron", "rlhf"): "preference training and reinforcement learning",
}
#: Commands of the same programs that do not train.
_IDLE = tuple((program, command) for program, commands in (
    ("swift", ("infer", "export", "deploy", "app", "eval", "sample", "rollout")), ("megatron", ("export",)),
    ("llamafactory-cli", ("api", "chat", "export", "webchat", "webui")),
    ("axolotl", ("evaluate", "inference", "merge-lora", "preprocess", "vllm-serve")),
) for command in commands)
#: Flags by which a script of one's own is one of Hugging Face's trainers.
_TRAINER = ("--per_device_train_batch_size", "--model_name_or_path", "--gradient_accumulation_steps")
#: Names of GPUs and nodes in flags of launchers and of Slurm, and in variables.
_PROCESSES = ("nproc_per_node", "nproc-per-node", "num_gpus")
_NODES = ("nnodes", "num_nodes")
_TOTAL = ("num_processes", "num-processes", "num_gpus_total")
#: Program that spreads the layers of a process over the GPUs that it sees.
_SPREADS = "swift"
_SBATCH = re.compile(r"^#SBATCH\s+(?:--|-)([A-Za-z-]+)(?:[= ]\s*|)(\S+)", re.MULTILINE)


@dataclass(frozen=True)
class _Started:
    """One command: the format of its settings, its words in front of the program and behind it."""

    format: str
    files: tuple[str, ...]
    before: Sequence[str]
    behind: Sequence[str]


def allocation(text: str) -> dict[str, str]:
    """Return variables of Slurm that the head of a batch script decides: nodes, and GPUs of each."""
    asked: dict[str, str] = dict(_SBATCH.findall(text))
    nodes = asked.get("nodes", asked.get("N", "")).partition("-")[0]
    numbers = (re.search(r"[0-9]+$", asked.get(name, "")) for name in ("gpus-per-node", "gres"))
    gpus = next((match[0] for match in numbers if match is not None), "")
    known = {"SLURM_NNODES": nodes, "SLURM_JOB_NUM_NODES": nodes, "SLURM_GPUS_ON_NODE": gpus,
             "SLURM_GPUS_PER_NODE": gpus}
    return {name: value for name, value in known.items() if value}


def run_of_script(path: str, script: Script, values: Mapping[str, str]) -> Run | None:
    """Return the run that the last command of a known program starts; None if there is no such command.

    ``values`` win over the command's settings. Raises InputError that blames a setting.
    """
    started = [start for command in script.commands for start in _started(path, command)]
    if not started:
        idle = [start for command in script.commands for start in _IDLE if _place(command, start) is not None]
        if idle:
            raise InputError("script", " ".join(idle[0]), "must start a training: this command does not train")
        return None
    last = started[-1]
    launched = flags_of(launcher_of(last.before))
    if last.format == "bridge":
        asked = _flags(last) | {key: tuple(value.split()) for key, value in values.items()}
        recipe = (asked.pop("recipe", ()) or ("absent",))[0]
        return bridge.of_recipe(path, recipe, recipe, {key: words for key, words in asked.items() if "." in key},
                                _gpus(launched, script.variables))
    format = table(last.format)
    words: dict[str, Words] = {}
    notes = [] if len(started) == 1 else [f"the last of {len(started)} training commands is read"]
    around = of_launcher(path, launched, notes)
    for file in _files(last):
        rest = behind_unknown(file)
        there = beside(path, rest) if rest else None
        if there is None:
            raise InputError("script", unmarked(file), MISSING)
        if rest != file:
            notes.append(f"{unmarked(file)}: {rest} is looked for from the script's folder")
        inner = words_of(there, os.path.splitext(there)[1].lower(), notes)
        words |= inner
        format = format if last.format != "transformers" else format_of(inner) or format
    words |= _flags(last)
    words |= {key: tuple(value.split()) for key, value in values.items()}
    gpus = _gpus(launched, script.variables)
    spread = 1 if launched or "deepspeed" in words else _visible(script.variables) // (gpus or 1)
    if format.program == _SPREADS and spread > 1:
        notes.append(f"CUDA_VISIBLE_DEVICES: layers of a process are spread over {spread} GPUs (device_map), which is"
                     " not counted yet: all of them stand on one")
    return read_settings(format, path, words, gpus, tuple(notes), {
        name: words for name, words in around.items() if gpus is None or name != "num_gpus"})


def _started(path: str, command: Sequence[str]) -> Iterator[_Started]:
    for start, noun in _OTHERS.items():
        if _place(command, start) is not None:
            rule = f"must start a training that is counted: {noun} is not read yet"
            raise InputError("script", " ".join(start), rule)
    refuse_unread(flags_of(command), command)
    for start, format, files in _STARTS:
        place = _place(command, start)
        if place is not None:
            yield _Started(format, files, command[:place], command[place + len(start):])
            return
    flag = next((place for place, word in enumerate(command) if word.partition("=")[0] in _TRAINER), len(command))
    programs = [place for place, word in enumerate(command[:flag]) if word.endswith(".py")]
    program = programs[-1 if flag < len(command) else 0] if programs else None  # a launcher can be a script too
    if program is not None and flag < len(command):
        yield _Started("transformers", (), command[:program], command[program + 1:])
    elif program is not None and command[0] in ("accelerate", "deepspeed", "torchrun", "srun", "python", "python3"):
        file = next((word for word in command[program + 1:] if word.endswith((".yaml", ".yml", ".json"))), None)
        if file is not None and beside(path, file) is not None and not any(
                word in ("--deepspeed",) for word in command):
            yield _Started("transformers", ("",), command[:program], command[program + 1:])


def _place(command: Sequence[str], start: tuple[str, ...]) -> int | None:
    """Return the place of the words that start a program, the first of them with a folder in front or not."""
    for place in range(len(command) - len(start) + 1):
        first, *rest = command[place:place + len(start)]
        if (first == start[0] or first.endswith(f"/{start[0]}")) and tuple(rest) == start[1:]:
            return place
    return None


def _files(started: _Started) -> Iterator[str]:
    """Yield files with settings: behind a flag, or the first word that is no flag."""
    flags = flags_of(started.behind)
    for flag in started.files:
        if flag and flag in flags and flags[flag]:
            yield flags[flag][0]
            return
        if not flag and started.behind and not started.behind[0].startswith("-"):
            yield started.behind[0]
            return


def _flags(started: _Started) -> dict[str, Words]:
    """Return settings of the command line: flags with dashes or underscores, and Hydra's ``key=value``."""
    settings = {name.replace("-", "_"): words or ("true",) for name, words in flags_of(started.behind).items()
                if name not in started.files and name not in ("config", "config-file")}
    for word in started.behind:
        key, equals, value = word.partition("=")
        if equals and not key.startswith("-") and "=" not in value:
            settings[key] = (value,)
    return settings


def _gpus(launcher: Mapping[str, Words], variables: Mapping[str, Value]) -> int | None:
    """Return processes of all nodes, one for each GPU; None where nothing says how many."""
    total = value_of(launcher, _TOTAL)
    if total is not None and total.isdecimal():
        return int(total) or None
    nodes = _number(value_of(launcher, _NODES) or variables.get("NNODES") or "1")
    each = _number(value_of(launcher, _PROCESSES) or variables.get("NPROC_PER_NODE") or "")
    return nodes * each if nodes and each else None


def _visible(variables: Mapping[str, Value]) -> int:
    """Return the number of GPUs that a process sees, 1 where nothing says it."""
    named = variables.get("CUDA_VISIBLE_DEVICES")
    return named.count(",") + 1 if isinstance(named, str) else 1


def _number(word: Value) -> int | None:
    return int(word) if isinstance(word, str) and word.isascii() and word.isdecimal() and 0 < len(word) < 8 else None
