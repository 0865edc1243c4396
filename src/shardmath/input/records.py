"""Records that a person may write: pydantic's, with errors of ours and every kind of integer."""

from __future__ import annotations

import operator
from collections.abc import Mapping
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
