"""Files of settings by key, whatever program reads them: which format they have, and the run that they describe."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

from shardmath.errors import InputError
from shardmath.files import nested
from shardmath.files.reading import read_text
from shardmath.formats import nanotron
from shardmath.formats.bridge.wheel import RECIPES
from shardmath.formats.flattened import flattened
from shardmath.formats.megatron import swift as swift_megatron
from shardmath.formats.options import Options
from shardmath.formats.run import Run
from shardmath.formats.table import FOLDER, Table, Words, table, translated
from shardmath.formats.torchtitan import reading as torchtitan
from shardmath.formats.trainers import reading as trainer
from shardmath.formats.trainers import torchtune
from shardmath.models.model import Model

#: Rows about programs whose files are not read, beside the tables of formats.
_UNREAD = "unread.toml"
_Described = Callable[[Options, str, int | None], tuple[Model, dict[str, Any], int]]
#: By vocabulary: model, arguments of ``explain`` and sequences of a replica, from settings.
_VOCABULARIES: Mapping[str, _Described] = {
    "transformers": trainer.described, "nanotron": nanotron.described, "torchtune": torchtune.described,
    "torchtitan": torchtitan.described, "megatron": swift_megatron.described,
}
#: Folders above a file where those that it names are looked for.
_FOLDERS = 6
#: ZeRO stage in the name of a missing DeepSpeed file.
_STAGE = re.compile(r"(?:zero|z|stage)[-_]?([0-3])")


@cache
def tables() -> tuple[Table, ...]:
    """Return all formats that have a table."""
    return tuple(table(path.stem) for path in sorted(FOLDER.glob("*.toml"))
                 if path.name not in (_UNREAD, f"{RECIPES}.toml"))


@cache
def unread() -> Mapping[str, Mapping[str, Any]]:
    """Return the rows of programs whose files nobody reads."""
    return tomllib.loads((FOLDER / _UNREAD).read_text(encoding="utf-8"))


def format_of(words: Mapping[str, Words]) -> Table | None:
    """Return the format whose signs a file has, the one with most of them; None if there is none.

    Raises InputError for a file of a program that is known and not read.
    """
    refuse_unread(words)
    marked = [(len(signs), format) for format in tables() for signs in format.signs if _has(words, signs)]
    return max(marked, key=lambda item: item[0])[1] if marked else None


def refuse_unread(words: Mapping[str, Words], command: Sequence[str] = ()) -> None:
    """Raise InputError for settings of a program that is known and not read, or a ``command`` that starts it."""
    for name, row in unread().items():
        is_known = any(_has(words, signs) for signs in row["signs"]) or any(
            word.startswith(program) or f"/{program}" in word for program in row.get("programs", ())
            for word in command)
        if is_known and not any(key in words for key in row.get("unless", ())):
            raise InputError("model", name, f"must be a file that is read: this is one of {row['title']}, not read yet;"
                                            f" {row['advice']}")


def _has(words: Mapping[str, Words], signs: tuple[str, ...] | list[str]) -> bool:
    return all(sign in words or any(key.startswith(f"{sign}.") for key in words) for sign in signs)


def read_settings(
    format: Table, path: str, words: Mapping[str, Words], num_gpus: int | None = None, notes: tuple[str, ...] = (),
    launcher: Mapping[str, Words] | None = None,
) -> Run:
    """Get the run that settings by key describe; those of its ``launcher``, in the vocabulary, hold where it is silent.

    Raises InputError that blames a key.
    """
    stated = Options(words, shown=str, source=path)
    stated.warnings += notes
    around = {**(launcher or {}), **of_files(format, stated)}
    sorted_out = translated(format, stated)
    options, said = sorted_out.options, {name for names in sorted_out.keys.values() for name in names}
    options.words |= {name: words for name, words in around.items() if name not in said}
    model, arguments, replica = _VOCABULARIES[format.vocabulary](options, name_of(path), num_gpus)
    understood = tuple(key for key, names in sorted_out.keys.items()
                       if format.is_setting(key, words[key]) and (not names or options.asked & {*names}))
    rest = tuple(key for key in sorted_out.keys if format.is_setting(key, words[key]) and key not in understood)
    total = None if options.words.get("global_batch_size") == ("auto",) else options.number("global_batch_size")
    if total is not None and total > 0:
        arguments["global_batch_size"] = total
    return Run(format.name, path, model, arguments, understood, (*sorted_out.idle, *rest), sorted_out.unknown,
               tuple(dict.fromkeys(options.warnings)), replica)


def name_of(path: str) -> str:
    """Return the name of a file without its ending, for the model that it describes."""
    return os.path.splitext(os.path.basename(path))[0].encode(errors="replace").decode() or "model"


def words_of(path: str, kind: str, notes: list[str]) -> dict[str, Words]:
    """Return the settings by dotted key of a file beside another one, with ``notes`` of those that are there twice.

    Raises InputError for a file without a table.
    """
    content = read_text("model", path, "a configuration", nested.LARGEST)
    if kind == ".json":
        return flattened(nested.json("model", path, content))
    repeated: list[str] = []
    data = nested.parsed("model", path, kind, content, repeated)
    notes += map(said_twice, repeated)
    if not isinstance(data, Mapping):
        raise InputError("model", path, "must hold a table")
    return flattened(data)


def said_twice(key: str) -> str:
    """Return the note of a key that a file has twice with other values: programs take the last one."""
    return f"{key} is there twice: the last value is read"


def beside(path: str, named: str) -> str | None:
    """Return the path of a file that another one names, from its folder, one above, or here; None if it is missing.

    Paths in files of a repository are often those from its root.
    """
    above = os.path.dirname(path)
    folders = [os.path.join(above, *[os.pardir] * up) for up in range(_FOLDERS)]
    return next(filter(os.path.isfile, (os.path.join(folder, named) for folder in (*folders, ""))), None)


def of_file_name(named: str, key: str, stated: Options) -> dict[str, Words]:
    """Return the settings that the name of a missing file says. Raises InputError for a name that says none."""
    stage = _STAGE.search(named.lower().rpartition("/")[2])
    if stage is None:
        rule = "must be the path of a file, from the folder of the other one or from here"
        raise InputError(key, named, rule)
    rests = ("offload_optimizer", "offload_param") if "offload" in named.lower() else ()
    stated.warnings.append(f"{named} is not here: ZeRO stage {stage[1]} is taken from its name, with DeepSpeed's"
                           " usual sizes")
    return {"deepspeed.zero_optimization.stage": (stage[1],), "deepspeed.bf16.enabled": ("auto",),
            **{f"deepspeed.zero_optimization.{part}.device": ("cpu",) for part in rests}}


def of_files(format: Table, stated: Options, around: str | None = None) -> dict[str, Words]:
    """Return the settings of the files that keys name, from the folder of the file or that ``around`` it."""
    settings: dict[str, Words] = {}
    for key, other in format.files.items():
        settings |= of_file(other, key, stated, around) if key in stated.words else {}
    return settings


def of_file(name: str, key: str, stated: Options, around: str | None = None) -> dict[str, Words]:
    """Return the settings of a file that a key names, in the vocabulary; without the file, those of its name."""
    named = " ".join(stated.words[key])
    if named.lower() in ("", "false", "none", "null"):
        return {}
    path = beside(stated.source, named) or (beside(around, named) if around is not None else None)
    if path is None:
        return of_file_name(named, key, stated)
    suffix = os.path.splitext(path)[1].lower()  # DeepSpeed takes JSON under any name
    kind = suffix if suffix in nested.KINDS else ".json"
    inner = Options(words_of(path, kind, stated.warnings), shown=str, source=path)
    sorted_out = translated(table(name), inner)
    stated.warnings += [*sorted_out.options.warnings,
                       *(f"{key} of {os.path.basename(path)} is not known here: its effect is not counted yet"
                         for key in sorted_out.unknown)]
    own = table(name).defaults
    return {setting: words for setting, words in sorted_out.options.words.items()
            if (setting not in own and words != ("auto",)) or setting.startswith("deepspeed.")}
