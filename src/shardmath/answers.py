"""Answers: frozen dataclasses whose field docstrings make the documents of ``--json`` and their JSON Schemas."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from fractions import Fraction
from functools import cache
from importlib import import_module
from typing import Annotated, Any, ClassVar, TypeVar

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
        """Return plain data for JSON, in the order of the fields.

        Example:
            >>> account = shardmath.explain("llama-3.1-8b", "h100-80gb", tensor_parallel=4, num_gpus=16)
            >>> account.to_dict()["peak_bytes"]
            29367792640
        """
        kind: Any = type(self)
        document: dict[str, Any] = _adapter(kind).dump_python(self, mode="json", by_alias=True)
        return document


class Reported(Answer):
    """An answer to a whole question: ``print`` and notebooks show it as its command does, data frames take its records.

    A subclass names the ``room`` of its command, whose module ``report`` shows it, and the field ``table`` with its
    records: with a dot, those of a field of every item, beside the first field of the item. Without a table the answer
    is one record. The rooms are above this module, and looked up when they are needed.
    """

    _room: ClassVar[str]
    _table: ClassVar[str]

    def __init_subclass__(cls, room: str = "", table: str = "") -> None:
        """Keep the names, and the short text, which a dataclass would replace."""
        cls._room, cls._table = f"shardmath.commands.{room}", table
        cls.__repr__ = Reported.__repr__  # type: ignore[method-assign]

    def __str__(self) -> str:
        """Return the report as plain text of 130 columns."""
        return self._reported("text")

    def __repr__(self) -> str:
        """Return the name of the class and the first line of the report."""
        lines = (line.strip() for line in str(self).splitlines())
        return f"<{type(self).__name__}: {next(filter(None, lines), '')}>"

    def _repr_html_(self) -> str:
        """Return the report for a notebook, in its colours."""
        return self._reported("html")

    def records(self) -> list[dict[str, Any]]:
        """Return the answer's table as plain data, one mapping for a row; a field of a part is ``part.field``.

        Sizes are in bytes and times in seconds, as in ``to_dict``. All rows have the same names; None stands for what
        a row lacks.

        Example:
            >>> account = shardmath.explain("llama-3.1-8b", "h100-80gb", tensor_parallel=4, num_gpus=16)
            >>> account.records()[0]
            {'rank': 0, 'term': 'stage.embedding.weight', 'component': 'embedding', 'role': 'weight',
             'bytes': 263192576}
        """
        outer, _, inner = self._table.partition(".")
        items = self.to_dict()[outer] if outer else [self.to_dict()]
        if inner:
            items = [{**dict(list(item.items())[:1]), **row} for item in items for row in item[inner]]
        return alike([dict(_flat(item)) for item in items])

    def to_pandas(self) -> Any:
        """Return ``records`` as a ``pandas.DataFrame``. Raises ImportError where pandas is not installed.

        Example:
            >>> account = shardmath.explain("llama-3.1-8b", "h100-80gb", tensor_parallel=4, num_gpus=16)
            >>> int(account.to_pandas().groupby("role")["bytes"].sum()["weight"])
            4016578560
        """
        return _library("pandas").DataFrame(self.records())

    def to_polars(self) -> Any:
        """Return ``records`` as a ``polars.DataFrame``. Raises ImportError where Polars is not installed.

        Example:
            >>> account = shardmath.explain("llama-3.1-8b", "h100-80gb", tensor_parallel=4, num_gpus=16)
            >>> account.to_polars().shape
            (37, 5)
        """
        return _library("polars").DataFrame(self.records(), infer_schema_length=None)

    def to_arrow(self) -> Any:
        """Return ``records`` as a ``pyarrow.Table``. Raises ImportError where pyarrow is not installed.

        Example:
            >>> account = shardmath.explain("llama-3.1-8b", "h100-80gb", tensor_parallel=4, num_gpus=16)
            >>> account.to_arrow().column_names
            ['rank', 'term', 'component', 'role', 'bytes']
        """
        return _library("pyarrow").Table.from_pylist(self.records())

    def _reported(self, form: str) -> str:
        show = import_module(f"{self._room}.report").show
        text: str = getattr(import_module("shardmath.reports.captured"), form)(show, self)
        return text


class Drawn(Reported):
    """A reported answer that ``plot.picture`` of its room draws as well."""

    def plot(self, file: str | None = None) -> Any:
        """Return the picture of the answer, which a notebook shows; write it to ``file`` (.svg, .png, .html) if given.

        Raises InputError without matplotlib, for another end of ``file``, and where it cannot be written.

        Example:
            >>> account = shardmath.explain("llama-3.1-8b", "h100-80gb", tensor_parallel=4, num_gpus=16)
            >>> picture = account.plot("account.svg")
        """
        plots = import_module("shardmath.plots")
        plots.refuse_unplottable("picture.svg" if file is None else file)
        picture = import_module(f"{self._room}.plot").picture(self)
        if file is not None:
            plots.write_picture(picture, file)
        return picture


def alike(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return rows that all have the same names, in the order in which they come; None stands for what one lacks."""
    names = dict.fromkeys(name for row in rows for name in row)
    return [{name: row.get(name) for name in names} for row in rows]


def _flat(item: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Open mappings inside a mapping; lists stay as they are."""
    for name, value in item.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _library(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError:
        raise ImportError(f"this needs {name}, which is not installed: pip install {name}") from None


def schema_of(kind: Any) -> dict[str, Any]:
    """Return the JSON Schema of the documents of an answer's class, with docstrings up to their errors and examples."""
    made = _adapter(kind).json_schema(mode="serialization", by_alias=True)
    for part in (made, *made.get("$defs", {}).values()):
        if "description" in part:
            part["description"] = re.split(r"\n\n(?:Raises |Example:)", part["description"])[0]
    return made


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)
