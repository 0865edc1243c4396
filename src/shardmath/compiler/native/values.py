"""Types of compiled loops: 64-bit integers and floats, booleans, and arrays, 8-bit ones too."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from llvmlite import ir

INTEGER, FLOAT, TRUTH, SMALL = ir.IntType(64), ir.DoubleType(), ir.IntType(1), ir.IntType(8)
#: Elements of arrays, by NumPy's names.
ELEMENTS = {"int64": INTEGER, "float64": FLOAT, "int8": SMALL}
ADDRESS = ir.PointerType()


@dataclass(frozen=True)
class Array:
    """Numbers one after the other, the last index running fastest; a tuple is one as well."""

    start: ir.Value
    shape: tuple[ir.Value, ...]
    element: ir.Type

    @property
    def flat(self) -> tuple[ir.Value, ...]:
        """How it is handed to a function."""
        return self.start, *self.shape


Value: TypeAlias = ir.Value | Array
#: The type of a number, or of the numbers of an array, and how many indices it has: 0 for a number.
Kind: TypeAlias = tuple[ir.Type, int]


def kind_of(value: Value) -> Kind:
    """Return the kind of a value."""
    return (value.element, len(value.shape)) if isinstance(value, Array) else (value.type, 0)


def types_of(kind: Kind) -> list[ir.Type]:
    """Return the types that a value is handed to a function as."""
    element, dimensions = kind
    return [ADDRESS, *[INTEGER] * dimensions] if dimensions else [element]


def unflattened(kind: Kind, values: list[ir.Value]) -> Value:
    """Return the value of a kind that begins a list of what was handed over, taken off it."""
    element, dimensions = kind
    first = values.pop(0)
    return Array(first, tuple(values.pop(0) for _ in range(dimensions)), element) if dimensions else first


def constant(value: object) -> ir.Constant:
    """Return a number or truth that is known. Raises TypeError for anything else."""
    if isinstance(value, bool):
        return ir.Constant(TRUTH, value)
    if isinstance(value, int | np.integer):
        return ir.Constant(INTEGER, int(value))
    if isinstance(value, float):
        return ir.Constant(FLOAT, value)
    raise TypeError(f"{value!r} is no number")
