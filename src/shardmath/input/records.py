"""Records that a person may write: pydantic's, with errors of ours and every kind of integer."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping
from html import escape
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from shardmath.errors import InputError


class Record(BaseModel):
    """Fields of strict types, which never change. Raises InputError for anything that breaks a rule."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")

    def __init__(self, *unnamed: object, **fields: Any) -> None:
        if unnamed:
            raise InputError("arguments", len(unnamed), "must be given by name", "0")
        try:
            super().__init__(**{name: native(value) for name, value in fields.items()})
        except ValidationError as error:
            raise InputError.from_validation(error.errors(include_url=False)) from None

    def __repr_args__(self) -> Iterator[tuple[str, Any]]:
        """Yield the fields that differ from their defaults, for a short text."""
        for name, field in type(self).model_fields.items():
            if (value := getattr(self, name)) != field.get_default(call_default_factory=True):
                yield name, value

    def _repr_html_(self) -> str:
        """Return the same fields as a table, for a notebook."""
        rows = (f"<tr><th>{escape(name)}</th><td>{escape(str(value))}</td></tr>"
                for name, value in self.__repr_args__())
        return f"<table>{''.join(rows)}</table>"


def native(value: object) -> object:
    """Return what has ``__index__``, such as ``numpy.int64``, as an integer of Python, in a mapping too."""
    if isinstance(value, Mapping):
        return {str(key): native(inner) for key, inner in value.items()}
    if isinstance(value, int) or not hasattr(type(value), "__index__"):
        return value
    try:
        return operator.index(value)  # type: ignore[arg-type]
    except TypeError:  # an array of NumPy that is no single number
        return value
