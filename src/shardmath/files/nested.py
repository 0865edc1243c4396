"""Plain data in TOML and YAML text: what would take time or memory without bound is refused, and nothing is run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from shardmath.errors import InputError
from shardmath.files.reading import json_object, toml_table

#: Bytes of a file, and tables and lists inside each other: far more than any question needs. Readers of TOML and YAML
#: need time and memory that grow with the square of some of them.
LARGEST, DEEPEST = 2**16, 8


def parsed(field: str, path: str, kind: str, content: str) -> object:
    """Return the plain data of the text ``content``, which is ``.toml``, ``.yaml`` or ``.yml`` as ``kind`` says.

    Raises InputError, which blames ``field`` and names the file ``path``, for text that is not complete, that nests
    more than ``DEEPEST`` tables and lists, and for aliases and keys that are there twice.
    """
    try:
        content_read = _READERS[kind](field, path, content)
    except RecursionError:
        raise _deep(field, path) from None
    except ValueError as error:
        if isinstance(error, InputError):
            raise
        rule = f"must be complete {kind[1:].upper()}: {' '.join(str(error).split())[:200]}"
        raise InputError(field, path, rule) from None
    _refuse_deep(field, path, content_read)
    return content_read


def json(field: str, path: str, content: str) -> dict[str, Any]:
    """Return the object of a JSON text, which nests no deeper than what is read else. Raises InputError."""
    data = json_object(field, path, content, "a JSON object")
    _refuse_deep(field, path, data)
    return data


def _yaml(field: str, path: str, content: str) -> object:
    try:
        import yaml
    except ImportError:
        rule = "must be TOML, or PyYAML must be there: pip install 'shardmath[yaml]'"
        raise InputError(field, path, rule) from None
    try:
        depth = 0
        for event in yaml.parse(content, Loader=yaml.SafeLoader):
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if depth > DEEPEST:
                raise _deep(field, path)
            if isinstance(event, yaml.AliasEvent):
                raise InputError(field, path, f"must not have aliases, such as *{event.anchor:.40}")
        return yaml.load(content, Loader=_once_each(yaml.SafeLoader))
    except (yaml.YAMLError, ArithmeticError, AttributeError, LookupError, TypeError) as error:
        # PyYAML's constructors raise many kinds of errors for a wrongly tagged date, truth value or number.
        raise ValueError(str(error)) from None


def _once_each(loader: Any) -> Any:
    """YAML's safe loader, but a key that is there twice is refused: the last one would win in silence."""

    class Once(loader):  # type: ignore[misc]
        def construct_mapping(self, node: Any, deep: bool = False) -> Any:
            mapping = super().construct_mapping(node, deep)
            keys = [self.construct_object(key) for key, _ in node.value]
            if len(mapping) < len(keys):
                twice = next(key for place, key in enumerate(keys) if key in keys[:place])
                raise InputError(str(twice), twice, "must not be there twice")
            return mapping

    return Once


def _refuse_deep(field: str, path: str, declared: object) -> None:
    """Refuse tables and lists inside each other beyond ``DEEPEST``."""
    level = [declared]
    for _ in range(DEEPEST):
        level = [inner for outer in level if isinstance(outer, Mapping | list)
                 for inner in (outer.values() if isinstance(outer, Mapping) else outer)]
    if any(isinstance(inner, Mapping | list) for inner in level):
        raise _deep(field, path)


def _deep(field: str, path: str) -> InputError:
    return InputError(field, path, f"must not have more than {DEEPEST} tables and lists inside each other")


_READERS = {".toml": toml_table, ".yaml": _yaml, ".yml": _yaml}
KINDS = tuple(_READERS)
"""Ends of the names of files that can be read."""
