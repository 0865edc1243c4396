"""Which format a file has, and the run that it describes."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from shardmath.errors import InputError, nearest_names
from shardmath.files import nested
from shardmath.files.reading import read_text
from shardmath.formats.bridge import reading as bridge
from shardmath.formats.described import format_of, read_settings, said_twice, tables, words_of
from shardmath.formats.flattened import flattened
from shardmath.formats.megatron.reading import run_of
from shardmath.formats.nemo import reading as nemo
from shardmath.formats.options import Options
from shardmath.formats.run import Run
from shardmath.formats.scripts.expansion import mark
from shardmath.formats.scripts.launch import launch_of
from shardmath.formats.scripts.launchers import allocation, run_of_script
from shardmath.formats.scripts.shell import read_script
from shardmath.formats.table import table
from shardmath.formats.torchtitan import python as torchtitan_python
from shardmath.input.arguments import typed

#: Ends of the names of files that describe a run.
SUFFIXES = (".sh", ".bash", ".slurm", ".sbatch", ".txt", ".args", ".json", ".py", *nested.KINDS)
#: Imports of a Python file that makes a configuration of torchtitan.
_TORCHTITAN = re.compile(r"^(?:from|import) torchtitan\b", re.MULTILINE)
#: Bytes of a Python file: recipes of a family stand in one.
_LARGEST_PYTHON = 2**18
#: Keys of the files of Megatron-LM's functional tests.
_FLAGS_OF_TEST, _ENVIRONMENT_OF_TEST, _MODE = "MODEL_ARGS", "ENV_VARS", "MODE"
#: Characters of a name that is compared with others.
_COMPARED = 100
_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


def describes_a_run(path: str | os.PathLike[str]) -> bool:
    """Tell whether a file is a launch script or configuration, not a model; of JSON the keys say it."""
    kind = Path(path).suffix.lower()
    if kind != ".json":
        return kind in SUFFIXES
    try:
        words = words_of(os.fspath(path), kind, [])
        return not {"model_type", "architectures"} & {*words} and format_of(words) is not None
    except InputError:
        return False


@typed
def read(path: str | os.PathLike[str], values: Mapping[str, str] | None = None) -> Run:
    """Return the run that the file at ``path`` describes; nothing in it is executed.

    Scripts (``.sh``, ``.bash``, ``.slurm``, ``.sbatch``) and bare flags (``.txt``, ``.args``) have the format of the
    program that they start, configurations (``.toml``, ``.yaml``, ``.yml``, ``.json``) the one whose keys they have.

    ``values`` are settings that win over the file: flags or dotted keys by name, and variables of a script. Raises
    InputError for a file that cannot be read, for settings that are wrong or missing, and for those that change
    memory in a way that is not counted yet; its field is the flag or key.
    """
    text, settings = os.fspath(path), dict(values or {})
    kind = Path(text).suffix.lower()
    if kind not in SUFFIXES:
        raise InputError("model", text, f"must end in one of {', '.join(SUFFIXES)}", nearest_names(kind, SUFFIXES))
    name = Path(text).stem.encode(errors="replace").decode()
    if kind == ".json":
        return _configuration(text, name, kind, words_of(text, kind, []), settings)
    largest = _LARGEST_PYTHON if kind == ".py" else nested.LARGEST
    content = read_text("model", text, "a launch script or a configuration", largest)
    if kind == ".py":
        made = torchtitan_python if _TORCHTITAN.search(content) else bridge
        return _refuse_idle(made.read(text, content, name, settings), settings)
    if kind not in nested.KINDS:
        return _script(text, name, content, settings)
    repeated: list[str] = []
    data = nested.parsed("model", text, kind, content, repeated)
    if not isinstance(data, Mapping):
        raise InputError("model", text, "must hold a table")
    if _FLAGS_OF_TEST in data:
        run = _test(text, name, content, data, settings)
    else:
        run = _configuration(text, name, kind, flattened(data), settings)
    return replace(run, warnings=(*map(said_twice, repeated), *run.warnings))


def _refuse_idle(run: Run, settings: Mapping[str, str], shown: Callable[[str], str] = str) -> Run:
    """Refuse settings that were given and that nothing follows from: they are misspelt, or change no memory."""
    for key, value in settings.items():
        if shown(key) not in run.understood:
            rule = "must be a flag or key that the account follows from, or a variable of the file"
            close = get_close_matches(shown(key)[:_COMPARED], run.understood)
            raise InputError(f"set {key}", value, rule, " or ".join(close) or None)
    return run


def _configuration(
    path: str, name: str, kind: str, stated: Mapping[str, tuple[str, ...]], settings: Mapping[str, str],
) -> Run:
    words = {**stated, **{key: (value,) for key, value in settings.items()}}
    format = format_of(stated) or format_of(words)
    if format is None and kind == ".toml":
        format = table("torchtitan")
    if format is not None:
        run = read_settings(format, path, words)
        if not run.understood:
            raise _of_none(path, words)
        return _refuse_idle(run, settings)
    options = Options(words, shown=str, source=path)
    if not any(key.startswith("model.") for key in words):
        raise _of_none(path, words)
    return _refuse_idle(nemo.read(path, name, options), settings)


def _of_none(path: str, words: Iterable[str]) -> InputError:
    """Return the error of a file without a key that is known; a space is for another command."""
    known = ", ".join(sorted((*(format.title for format in tables()), "NeMo", "Megatron-Bridge")))
    rule = f"must be a file of {known}, or of Megatron-LM's tests: it has the keys of none"
    is_space = any(key.startswith("axes.") for key in words)
    return InputError("model", path, rule, f"shardmath explore {path}" if is_space else None)


def _parted(content: str, settings: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Return settings that are variables of a script, and those that are flags, as they were given."""
    used = {key for key in settings if re.search(rf"\$\{{?{re.escape(key)}(?!\w)", content)}
    return ({key: settings[key] for key in settings if key in used},
            {key: settings[key] for key in settings if key not in used})


def _flags(settings: Mapping[str, str]) -> dict[str, str]:
    return {key.removeprefix("--").replace("_", "-"): value for key, value in settings.items()}


def _script(path: str, name: str, content: str, settings: Mapping[str, str]) -> Run:
    variables, asked = _parted(content, settings)
    script = read_script(path, content, {**allocation(content), **variables})
    run = run_of_script(path, script, asked)
    if run is not None:
        return _refuse_idle(run, asked)
    flags, launch = _flags(asked), launch_of(path, script)
    return _refuse_idle(run_of(
        Options({**launch.flags, **_words(flags)}, source=path, choices=script.choices), name, program=launch.program,
        num_gpus=launch.num_gpus, environment=script.variables, notes=(*script.notes, *launch.notes),
    ), flags, "--{}".format)


def _test(
    path: str, name: str, content: str, data: Mapping[object, object], settings: Mapping[str, str],
) -> Run:
    variables, asked = _parted(content, settings)
    flags = _flags(asked)
    return _refuse_idle(of_test(path, name, data, variables, flags), flags, "--{}".format)


def of_test(
    path: str, name: str, data: Mapping[Any, object], variables: Mapping[str, str], flags: Mapping[str, str],
) -> Run:
    """Return a functional test of Megatron-LM: flags under one key, variables of the environment under another.

    Raises InputError that blames a key or a flag.
    """
    if (mode := data.get(_MODE, "pretraining")) != "pretraining":
        raise InputError(_MODE, mode, "must be pretraining: what inference and reinforcement learning keep is not"
                                      " counted yet", "pretraining")
    listed, environment = data[_FLAGS_OF_TEST], data.get(_ENVIRONMENT_OF_TEST)
    if not isinstance(listed, Mapping):
        raise InputError(_FLAGS_OF_TEST, listed, "must be a table of flags")
    words = {key.removeprefix("--"): tuple(part for word in value for part in _VARIABLE.sub(
        lambda match: variables.get(match[1], mark(match[1])), word.strip("[]")).split())
        for key, value in flattened(listed).items()}
    known = flattened(environment) if isinstance(environment, Mapping) else {}
    return run_of(Options({**words, **_words(flags)}, source=path), name,
                  environment={key: " ".join(value) for key, value in known.items()})


def _words(flags: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    return {flag: tuple(value.split()) for flag, value in flags.items()}
