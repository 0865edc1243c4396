"""Plain data in TOML and YAML text: what would take time or memory without bound is refused, and nothing is run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from shardmath.errors import InputError
from shardmath.files.reading import json_object, toml_table

#: Bytes of a file, and tables and lists inside each other: far more than any question needs. Readers of TOML and YAML
#: need time and memory that grow with the square of some of them.
LARGEST, DEEPEST = 2**16, 8


def parsed(field: str, path: str, kind: str, content: str, repeated: list[str] | None = None) -> object:
    """Return the plain data of the text ``content``, which is ``.toml``, ``.yaml`` or ``.yml`` as ``kind`` says.

    Keys of YAML that are there twice with other values are added to ``repeated``, and the last one is taken as the
    programs of others do; without such a list they are refused. Raises InputError, which blames ``field`` and names the
    file ``path``, for text that is not complete, that nests more than ``DEEPEST`` tables and lists, and for aliases.
    """
    try:
        content_read = toml_table(field, path, content) if kind == ".toml" else _yaml(field, path, content, repeated)
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


def _yaml(field: str, path: str, content: str, repeated: list[str] | None) -> object:
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
        return yaml.load(content, Loader=_once_each(yaml.SafeLoader, repeated))
    except (yaml.YAMLError, ArithmeticError, AttributeError, LookupError, TypeError) as error:
        # PyYAML's constructors raise many kinds of errors for a wrongly tagged date, truth value or number.
        raise ValueError(str(error)) from None


def _once_each(loader: Any, repeated: list[str] | None) -> Any:
    """YAML's safe loader, but a key that is there twice is refused, or said: the last one would win in silence."""

    class Once(loader):  # type: ignore[misc]
        def construct_mapping(self, node: Any, deep: bool = False) -> Any:
            mapping = super().construct_mapping(node, deep)
            keys = [self.construct_object(key) for key, _ in node.value]
            twice = [key for place, key in enumerate(keys) if key in keys[:place]]
            if twice and repeated is None:
                raise InputError(str(twice[0]), twice[0], "must not be there twice")
            if repeated is not None:
                repeated.extend(str(key) for key in dict.fromkeys(twice) if len({
                    inner.value if isinstance(inner.value, str) else id(inner)
                    for name, (_, inner) in zip(keys, node.value, strict=True) if name == key}) > 1)
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


KINDS = (".toml", ".yaml", ".yml")
"""Ends of the names of files that can be read."""
