"""Answers: frozen dataclasses whose field docstrings make the documents of ``--json`` and their JSON Schemas."""

from __future__ import annotations

from fractions import Fraction
from functools import cache
from typing import Annotated, Any, TypeVar

from pydantic import ConfigDict, Field, GetPydanticSchema, PlainSerializer, TypeAdapter
from pydantic_core.core_schema import any_schema

Kept = TypeVar("Kept")


def plain(number: int | Fraction) -> int | float:
    """Return a number for JSON: an integer where it is whole."""
    return int(number) if number == int(number) else float(number)


def _exact(number: int | Fraction) -> int | str:
    return int(number) if number == int(number) else str(number)


#: Number that JSON has as an integer, or as a float where it is not whole.
Amount = Annotated[int | Fraction, PlainSerializer(plain, return_type=int | float)]
#: Exact number that JSON has as an integer, or as text such as "1/3".
Exact = Annotated[int | Fraction, PlainSerializer(_exact, return_type=int | str)]
#: Exact number that JSON has as text.
Ratio = Annotated[Fraction, PlainSerializer(str, return_type=str)]
#: Size, or name of a mode or of an option.
Label = int | str
#: Field that reports need and JSON does not have.
Hidden = Annotated[Kept, GetPydanticSchema(lambda kind, handler: any_schema()), Field(exclude=True)]


class Answer:
    """Base of an answer and of its parts.

    The text behind a field says its meaning and unit. A name with a trailing underscore loses it in JSON.
    """

    __pydantic_config__ = ConfigDict(use_attribute_docstrings=True, alias_generator=lambda name: name.rstrip("_"))

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON, in the order of the fields."""
        kind: Any = type(self)
        document: dict[str, Any] = _adapter(kind).dump_python(self, mode="json", by_alias=True)
        return document


def schema_of(kind: Any) -> dict[str, Any]:
    """Return the JSON Schema of the documents of an answer's class."""
    return _adapter(kind).json_schema(mode="serialization", by_alias=True)


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)
