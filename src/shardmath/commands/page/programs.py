"""Read settings of other programs on the page: their tables as data, and the readers of the commands in JavaScript."""

from __future__ import annotations

import os.path
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any

from shardmath.commands.page.translating import Translation
from shardmath.formats import described, readers
from shardmath.formats.bridge import reading as bridge
from shardmath.formats.bridge.wheel import wheel
from shardmath.formats.flattened import flattened
from shardmath.formats.megatron import reading as megatron
from shardmath.formats.nemo import reading as nemo
from shardmath.formats.options import Options
from shardmath.formats.scripts import launch, launchers
from shardmath.formats.scripts.expansion import behind_unknown, mark, marked, unmarked
from shardmath.formats.table import Table, table
from shardmath.formats.trainers.reading import model_of
from shardmath.models.naming import begun_by, model_called, plain_name

#: Parts of a table, for the page: sets are lists there.
_PARTS = tuple(part.name for part in fields(Table) if part.name not in ("release", "program"))


def table_data() -> dict[str, Any]:
    """Return the tables of all formats, and the programs whose files nobody reads."""
    return {"formats": [_plain(format) for format in described.tables()], "unread": described.unread(),
            "precisions": wheel()["precisions"]}


def _plain(format: Table) -> dict[str, Any]:
    parts = {name: getattr(format, name) for name in _PARTS}
    return {name: sorted(part) if isinstance(part, frozenset) else part for name, part in parts.items()}


def settings_lines(translation: Translation) -> list[str]:
    """Return JavaScript that reads settings by key; ``translation`` gets all that it uses."""
    names: dict[str, Callable[..., Any]] = {
        "flattened": flattened, "formatOf": described.format_of, "readSettings": described.read_settings,
        "ofName": described.of_file_name, "ofSections": nemo.read, "ofTest": readers.of_test,
        "ofScript": launchers.run_of_script, "launchOf": launch.launch_of, "ofFlags": megatron.run_of,
        "modelCalled": model_called, "begunBy": begun_by, "plainName": plain_name}
    kinds = {"OPTIONS": Options, "TABLE": Table}
    functions = {name: translation.of(function) for name, function in names.items()}
    methods = {name: translation.methods(kind) for name, kind in kinds.items()}
    return [f"const {name}_METHODS = {named(own)};" for name, own in methods.items()] + [
        f"Object.assign(settingsReader, {named(functions)});",
        "for (const [name, act] of Object.entries(OPTIONS_METHODS))",
        "  Options.prototype[name] = function of(...values) { return act(this, ...values); };"]


def named(functions: Mapping[str, str]) -> str:
    """Return an object of JavaScript with functions by name."""
    return f"{{ {', '.join(f'{name}: {function}' for name, function in functions.items())} }}"


#: Functions of files, which the page has in its own way.
REPLACED: Mapping[Any, str] = {
    described.tables: "tablesOf", described.unread: "unreadOf", described.of_file: "ofFile", model_of: "modelNamed",
    described.name_of: "nameOf", table: "tableOf", wheel: "wheelOf", mark: "mark",
    marked: "marked", unmarked: "unmarked", behind_unknown: "behindUnknown",
    described.beside: "nothingBeside", described.words_of: "unread",
    bridge.of_recipe: "unread", os.path.splitext: "unread",
}
