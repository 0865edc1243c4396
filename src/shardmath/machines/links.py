"""Measured bandwidths between the nodes of a cluster, and inside of them."""

from __future__ import annotations

import csv
import io
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pydantic import model_validator

from shardmath.errors import ABSENT, InputError, inside, nearest_names
from shardmath.files.reading import json_object, read_text
from shardmath.input.records import Record

#: Nodes of a matrix, and bytes of its file.
MOST, LARGEST = 1024, 2**24
#: The largest bandwidth of a node in 10^6 bytes/s.
_FASTEST = 10**9


class Links(Record):
    """Measured bandwidths: ``mb_per_s[i][j]`` is what node i sends to node j, all of its adapters together.

    10^6 bytes/s, each direction. The diagonal is what one GPU sends inside its node, or 0 everywhere where that was
    not measured. ``nodes``: names of the nodes. Raises InputError for anything that breaks a rule.
    """

    mb_per_s: tuple[tuple[int | float, ...], ...]
    nodes: tuple[str, ...] = ()

    def __len__(self) -> int:
        """Nodes."""
        return len(self.mb_per_s)

    @model_validator(mode="before")
    @classmethod
    def _is_square(cls, fields: Any) -> Any:
        if isinstance(fields, Links):
            return fields
        if not isinstance(fields, Mapping):
            raise InputError("links", fields, "must be measured links, or a table with mb_per_s")
        rows = fields.get("mb_per_s", ABSENT)
        if not isinstance(rows, Sequence) or isinstance(rows, str) or not all(
            isinstance(row, Sequence) and not isinstance(row, str) for row in rows
        ):
            raise InputError("mb_per_s", rows, "must be a list of lists of numbers: one row for each node")
        if not 2 <= len(rows) <= MOST:
            raise InputError("mb_per_s", f"{len(rows)} rows", f"must have 2 to {MOST} rows, one for each node",
                             str(min(max(len(rows), 2), MOST)))
        for i, row in enumerate(rows):
            if len(row) != len(rows):
                rule = f"must have {len(rows)} numbers: the matrix has {len(rows)} rows and must be square"
                raise InputError(f"mb_per_s[{i}]", f"{len(row)} numbers", rule, str(len(rows)))
            for j, value in enumerate(row):
                least = 0 if i == j else 1
                number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
                if not number or not least <= value <= _FASTEST:
                    rule = f"must be a number of 10^6 bytes/s from {least} to {_FASTEST}"
                    raise InputError(f"mb_per_s[{i}][{j}]", value, rule, str(least) if number and value < least
                                     else str(_FASTEST) if number else None)
        inner = [row[i] for i, row in enumerate(rows)]
        if any(inner) and not all(inner):
            node = next(i for i, value in enumerate(inner) if not value)
            rule = "must be given for each node, or be 0 for all: the bandwidth of one GPU inside its node"
            raise InputError(f"mb_per_s[{node}][{node}]", inner[node], rule)
        names = fields.get("nodes", ())
        if isinstance(names, Sequence) and not isinstance(names, str) and names and len(names) != len(rows):
            raise InputError("nodes", f"{len(names)} names", f"must have {len(rows)} names, one for each row",
                             str(len(rows)))
        if isinstance(names, list):
            names = tuple(names)
        return {**fields, "mb_per_s": tuple(map(tuple, rows)), "nodes": names}

    def name(self, node: int) -> str:
        """Return the name of a node, or its place in the matrix."""
        return self.nodes[node] if self.nodes else str(node)

    def best(self, gpus_per_node: int) -> int:
        """Bytes/s of one GPU of a node over the fastest link: no link of any placement is faster."""
        return max(self.of_gpu(i, j, gpus_per_node) for i in range(len(self)) for j in range(len(self)) if i != j)

    def of_gpu(self, sender: int, receiver: int, gpus_per_node: int) -> int:
        """Bytes/s of one GPU from a node to another one, where all GPUs send; cut to whole bytes, at least 1."""
        return max(1, int(self.mb_per_s[sender][receiver] * 10**6) // gpus_per_node)

    def of_gpus(self, gpus_of_node: Sequence[int]) -> list[list[int]]:
        """Return bytes/s of one GPU between all nodes, which share a link with all GPUs of the larger one; 0 inside."""
        sizes = list(enumerate(gpus_of_node))
        return [[self.of_gpu(i, j, max(size, other)) if i != j else 0 for j, other in sizes] for i, size in sizes]

    def inside(self, nodes: Iterable[int] | None = None) -> int | None:
        """Bytes/s of one GPU inside the slowest of all ``nodes``; None where that was not measured."""
        slowest = min(self.mb_per_s[node][node] for node in (range(len(self)) if nodes is None else nodes))
        return int(slowest * 10**6) or None


def links_of(declared: object, folder: str) -> Links:
    """Measured bandwidths as a cluster file has them: a table with the matrix, or with the ``file`` that has it.

    A relative path starts in ``folder``. Raises InputError for a file that cannot be read, and for what Links refuses.
    """
    if not isinstance(declared, Mapping):
        raise InputError("links", declared, "must be a table with mb_per_s, or with file")
    known = ("file", *Links.model_fields)
    for key, value in declared.items():
        if key not in known:
            raise InputError(f"links.{key}", value, "must not be given: there is no such key",
                             nearest_names(str(key), known))
    table = dict(declared)
    path = table.pop("file", None)
    with inside("links"):
        if path is None:
            return Links(**table)
        if not isinstance(path, str):
            raise InputError("file", path, "must be the path of a CSV or JSON file")
        if "mb_per_s" in table:
            raise InputError("mb_per_s", "a matrix", "must not be given beside a file that has it")
        return Links(**{**_read(os.path.join(folder, path)), **table})


def _read(path: str) -> dict[str, Any]:
    text = read_text("file", path, "a matrix of bandwidths", LARGEST)
    if path.lower().endswith(".json"):
        return json_object("file", path, text, "an object with mb_per_s")
    rows = [row for row in csv.reader(io.StringIO(text)) if any(cell.strip() for cell in row)]
    names: dict[str, Any] = {}
    if rows and any(_number(cell) is None for cell in rows[0]):
        names = {"nodes": [cell.strip() for cell in rows.pop(0)]}
    matrix = []
    for i, row in enumerate(rows):
        for j, cell in enumerate(row):
            if _number(cell) is None:
                raise InputError(f"mb_per_s[{i}][{j}]", cell, "must be a number of 10^6 bytes/s")
        matrix.append([_number(cell) for cell in row])
    return {**names, "mb_per_s": matrix}


def _number(cell: str) -> int | float | None:
    try:
        return int(cell)
    except ValueError:
        try:
            return float(cell)
        except ValueError:
            return None
