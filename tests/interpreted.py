"""Nests run by Python itself: the same source, without the compiler, so that thousands of them can be tried."""

import math
from fractions import Fraction
from types import ModuleType
from typing import Any

import numpy as np
from numba.core.registry import CPUDispatcher


def interpreted(source: str) -> ModuleType:
    """The module of a nest: its functions are plain Python, with roundings and choices of Python's own."""
    module = ModuleType("interpreted_nest")
    source = source.replace("@njit(cache=True, ", "@njit(")
    exec(compile(source, "<nest>", "exec"), module.__dict__)
    for name, value in list(module.__dict__.items()):  # evaluators of columns are made for Numba
        if isinstance(value, CPUDispatcher):
            module.__dict__[name] = value.py_func
        if isinstance(value, np.uint64):  # NumPy's sum of a signed and an unsigned integer is no integer
            module.__dict__[name] = int(value)
    module.__dict__.update(
        larger=max, smaller=min, floor=_rounded(math.floor), ceil=_rounded(math.ceil), opposite=lambda met: not met,
        select=lambda condition, yes, no: yes if condition else no, divides=_divides, ceil_div=_ratio(math.ceil),
        fused=lambda left, right, addend: float(Fraction(left) * Fraction(right) + Fraction(addend)),
        reciprocal_of_power=lambda power: 1 / power, floor_div=_ratio(math.floor),
        lcm=lambda left, right: float(math.lcm(int(left), int(right))),
    )
    return module


def _rounded(function: Any) -> Any:
    return lambda number: float(function(number))


def _ratio(function: Any) -> Any:
    return lambda over, under: float(function(over / under))


def _divides(divisor: float, dividend: float) -> bool:
    return float(dividend / divisor).is_integer()
