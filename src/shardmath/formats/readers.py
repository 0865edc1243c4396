"""Which format a file has, and the run that it describes."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from pathlib import Path

from shardmath.errors import InputError, nearest_names
from shardmath.files import nested
from shardmath.files.reading import read_text
from shardmath.formats import nemo, torchtitan
from shardmath.formats.expansion import mark
from shardmath.formats.flattened import flattened
from shardmath.formats.launch import launch_of
from shardmath.formats.megatron import run_of
from shardmath.formats.options import Options
from shardmath.formats.run import Run
from shardmath.formats.shell import read_script
from shardmath.input.arguments import typed

#: Ends of the names of files that describe a run.
SUFFIXES = (".sh", ".bash", ".slurm", ".sbatch", ".txt", ".args", *nested.KINDS)
#: Keys of the files of Megatron-LM's functional tests.
_FLAGS_OF_TEST, _ENVIRONMENT_OF_TEST = "MODEL_ARGS", "ENV_VARS"
#: Characters of a name that is compared with others.
_COMPARED = 100
_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


def describes_a_run(path: str | os.PathLike[str]) -> bool:
    """Tell whether a file name is that of a launch script or configuration, not of a model."""
    return Path(path).suffix.lower() in SUFFIXES


@typed
def read(path: str | os.PathLike[str], values: Mapping[str, str] | None = None) -> Run:
    """The run that the file at ``path`` describes; nothing in it is executed.

    The format follows from the end of the name: a launch script of Megatron-LM or a list of its flags (``.sh``,
    ``.bash``, ``.slurm``, ``.sbatch``, ``.txt``, ``.args``), a job configuration of torchtitan (``.toml``), a
    configuration of NeMo or Megatron-Bridge, or a functional test of Megatron-LM (``.yaml``, ``.yml``).

    ``values`` are settings that win over the file: flags or dotted keys by name, and variables of a script. Raises
    InputError for a file that cannot be read, for settings that are wrong or missing, and for those that change
    memory in a way that is not counted yet; its field is the flag or key.
    """
    text, settings = os.fspath(path), dict(values or {})
    kind = Path(text).suffix.lower()
    if kind not in SUFFIXES:
        raise InputError("model", text, f"must end in one of {', '.join(SUFFIXES)}", nearest_names(kind, SUFFIXES))
    content = read_text("model", text, "a launch script or a configuration", nested.LARGEST)
    name = Path(text).stem.encode(errors="replace").decode()
    data = nested.parsed("model", text, kind, content) if kind in nested.KINDS else {_FLAGS_OF_TEST: {}}
    if not isinstance(data, Mapping):
        raise InputError("model", text, "must hold a table")
    if _FLAGS_OF_TEST not in data:
        run = _configuration(text, name, kind, data, settings)
        _refuse_idle(run, settings, str)
        return run
    variables = {key: value for key, value in settings.items() if re.search(rf"\$\{{?{re.escape(key)}(?!\w)", content)}
    flags = {key.removeprefix("--").replace("_", "-"): value for key, value in settings.items() if key not in variables}
    run = _script(text, name, content, variables, flags) if kind not in nested.KINDS else _test(
        text, name, data, variables, flags)
    _refuse_idle(run, flags, "--{}".format)
    return run


def _refuse_idle(run: Run, variables: Mapping[str, str], shown: Callable[[str], str]) -> None:
    """Refuse settings that were given and that nothing follows from: they are misspelt, or change no memory."""
    for key, value in variables.items():
        if shown(key) not in run.understood:
            rule = "must be a flag or key that the account follows from, or a variable of the file"
            close = get_close_matches(shown(key)[:_COMPARED], run.understood)
            raise InputError(f"set {key}", value, rule, " or ".join(close) or None)


def _configuration(path: str, name: str, kind: str, data: Mapping[object, object], variables: Mapping[str, str]) -> Run:
    words = {**flattened(data), **{key: (value,) for key, value in variables.items()}}
    settings = Options(words, shown=str, source=path)
    return torchtitan.read(path, settings) if kind == ".toml" else nemo.read(path, name, settings)


def _script(path: str, name: str, content: str, variables: dict[str, str], flags: Mapping[str, str]) -> Run:
    script = read_script(path, content, variables)
    launch = launch_of(path, script)
    return run_of(Options({**launch.flags, **_words(flags)}, source=path), name, program=launch.program,
                  num_gpus=launch.num_gpus, environment=script.variables, notes=(*script.notes, *launch.notes))


def _test(
    path: str, name: str, data: Mapping[object, object], variables: Mapping[str, str], flags: Mapping[str, str],
) -> Run:
    """A functional test of Megatron-LM: flags under one key, variables of the environment under another."""
    listed, environment = data[_FLAGS_OF_TEST], data.get(_ENVIRONMENT_OF_TEST)
    if not isinstance(listed, Mapping):
        raise InputError(_FLAGS_OF_TEST, listed, "must be a table of flags")

    def value_of(match: re.Match[str]) -> str:
        return variables.get(match[1], mark(match[1]))

    words = {key.removeprefix("--"): tuple(part for word in value
                                           for part in _VARIABLE.sub(value_of, word.strip("[]")).split())
             for key, value in flattened(listed).items()}
    known = flattened(environment) if isinstance(environment, Mapping) else {}
    return run_of(Options({**words, **_words(flags)}, source=path), name,
                  environment={key: " ".join(value) for key, value in known.items()})


def _words(flags: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    return {flag: tuple(value.split()) for flag, value in flags.items()}
