"""Readers of launch files that have a table of settings: one for each format."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import cache

from fuzzing.files import run_reader
from fuzzing.reader import DATA, Reader

#: Ends of the files that are stored as they are; of others the settings are.
_WHOLE = {"bridge": ".py", "megatron": ".yaml", "swift": ".sh", "swift_megatron": ".sh", "torchtitan": ".py"}
_FORMATS = tuple(sorted(path.stem for path in (DATA / "launched").glob("*.json")))


def _seeds(format: str) -> Callable[[], Sequence[bytes]]:
    """Published files of a format, with the settings that were given to them as first lines."""
    def read() -> Sequence[bytes]:
        rows = json.loads((DATA / "launched" / f"{format}.json").read_text(encoding="utf-8"))
        return ["".join((*(f"#set {key}={value}\n" for key, value in row["given"].items()),
                         row["script"] if "script" in row else _yaml(row["settings"]))).encode() for row in rows
                if _is_script(format) == ("script" in row)]  # a file of YAML among scripts is none for this reader

    return read


def _yaml(settings: dict[str, object]) -> str:
    """Settings by dotted key as nested tables, in JSON, which is YAML too."""
    data: dict[str, object] = {}
    for key, value in settings.items():
        *above, last = key.split(".")
        table: dict[str, object] = data
        for name in above:
            table = table.setdefault(name, {})  # type: ignore[assignment]
        table[last] = value
    return json.dumps(data, indent=0)


def _is_script(format: str) -> bool:
    return format in _WHOLE


def _suffix(format: str) -> str:
    return _WHOLE.get(format, ".yaml")


#: Pieces of Python that recipes are made of, and some that are none.
_PYTHON = (
    b"    config.model.", b"config = ", b"def main():\n", b"return config\n", b"if True:\n", b"(", b")", b"[", b"*",
    b"9" * 20, b"None", b"lambda: 0", b"getattr(config, 'model')", b"import os\n", b"main()\n", b"ConfigContainer()",
    b"LoRA(dim=8)", b"bf16_mixed()", b"tensor_model_parallel_size = 2\n", b"#set recipe=llama3_8b_sft_config\n",
)


def _words(format: str) -> Callable[[], Sequence[bytes]]:
    @cache
    def known() -> Sequence[bytes]:
        from shardmath.formats.table import table

        if _suffix(format) == ".py":
            return _PYTHON
        if format == "megatron":  # functional tests: flags in YAML, which have no table
            return [*{line + b"\n" for seed in _seeds(format)() for line in seed.splitlines()}, b"[", b"{", b"9" * 30]
        rows = table(format)
        keys = {*rows.own, *rows.means, *rows.opposite, *rows.words, *rows.files, *rows.uncounted, *rows.refused}
        words = {word for known_words in rows.words.values() for word in known_words}
        shown = "--{} " if _is_script(format) else '"{}": '
        more = (b"#set max_length=9\n", b"9" * 30, b"null,", b"{", b"[")
        return [*(shown.format(key.rpartition(".")[2]).encode() for key in sorted(keys)),
                *(f'"{word}",'.encode() for word in sorted(words)), *more]

    return known


READERS = tuple(
    Reader(f"{format}{'-python' if format == 'torchtitan' else ''}", run_reader(_suffix(format)), _seeds(format),
           _words(format))
    for format in _FORMATS)
