"""The documents as tables for people: ``docs/json.md`` is what this module writes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from shardmath.reports.answers import schema_name
from shardmath.schemas.documents import DOCUMENTS, schema

_HEAD = """\
# JSON documents

Written by `shardmath schema --markdown`; do not edit. `shardmath schema DOCUMENT` prints the JSON Schema of a document.

Every command that prints an answer takes `--json`. It then prints one JSON object to the standard output and nothing
else there; notes and errors go to the standard error. The first field, `schema`, names the document and its version,
as in `"shardmath/explain/1"`. The version grows when a field goes or comes to mean something else. New fields may come
at any time: ignore those that you do not know.

All fields are always there. Sizes of memory are integers of bytes, times are numbers of seconds; a number that is not
known is `null`, and neither `NaN` nor `Infinity` is ever printed. Parameters have the names of the columns of
`shardmath evaluate` and of the arguments in Python.
"""
_COLUMNS = "| field | type | meaning |\n|---|---|---|"
#: Of several parts that are called alike, pydantic writes the module before the name.
_MODULE = re.compile(r"^.*__")


def markdown() -> str:
    """Return the text of the page."""
    schemas = {name: schema(name) for name in DOCUMENTS}
    parts: dict[str, Mapping[str, Any]] = {}
    for document in schemas.values():
        for name, part in document.get("$defs", {}).items():
            assert parts.setdefault(_title(name), part) == part, f"two parts are called {_title(name)}"
    lines = [_HEAD]
    for name, document in schemas.items():
        lines += [f"## {_command(name)}", "", f"`{schema_name(name)}`. {_words(document)}", "", *_table(document), ""]
    lines += ["## Parts", "", "Objects that the documents above have, in alphabetical order.", ""]
    for name in sorted(parts):
        lines += [f"### {name}", "", _words(parts[name]), "", *_table(parts[name]), ""]
    return "\n".join(lines).rstrip("\n") + "\n"


def _command(name: str) -> str:
    return "formula --list" if name == "formulas" else name


def _title(name: str) -> str:
    return _MODULE.sub("", name)


def _words(part: Mapping[str, Any]) -> str:
    return " ".join(str(part.get("description", "")).replace("``", "`").split())


def _table(part: Mapping[str, Any]) -> Iterator[str]:
    yield _COLUMNS
    for name, field in part["properties"].items():
        yield f"| `{name}` | {_type(field)} | {_words(field).replace('|', chr(92) + '|')} |"
    if isinstance(part.get("additionalProperties"), dict):
        yield f"| any other | {_type(part['additionalProperties'])} | |"


def _type(field: Mapping[str, Any]) -> str:
    if "const" in field:
        return f"`\"{field['const']}\"`"
    if "$ref" in field:
        name = _title(field["$ref"].rpartition("/")[2])
        return f"[{name}](#{name.lower()})"
    if "anyOf" in field:
        return " or ".join(dict.fromkeys(map(_type, field["anyOf"])))
    if field.get("type") == "array":
        return f"list of {_type(field['items'])}"
    if field.get("type") == "object":
        values = field.get("additionalProperties")
        return f"object, {_type(values)} by name" if isinstance(values, dict) else "object"
    return str(field.get("type", "any"))
