"""Functions of generated modules through Numba, which takes ten seconds for a nest that LLVM alone has in one.

The numbers are those of ``objects``, to the last bit.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable
from functools import cache
from types import ModuleType
from typing import Any

from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

from shardmath.files.cached import source_of

from .fusing import FUSED, with_fused_sums


def jitted(module: ModuleType, name: str) -> Callable[..., Any]:
    """Return a function of a generated module, compiled by Numba when it is called for the first time."""
    function: Callable[..., Any] = _compiled(module)[name]
    return function


@cache
def _compiled(module: ModuleType) -> dict[str, Any]:
    """Return the names of a module, with functions that Numba compiles."""
    names: dict[str, Any] = {"__name__": module.__name__, FUSED: _fused}
    tree = ast.fix_missing_locations(with_fused_sums(source_of(module)))
    exec(compile(tree, str(module.__file__), "exec"), names)
    own = [name for name, value in names.items() if inspect.isfunction(value) and value.__module__ == module.__name__]
    names |= {name: njit(error_model="numpy", nogil=True)(names[name]) for name in own}
    return names


@intrinsic  # type: ignore[untyped-decorator]
def _fused(typing: Any, left: Any, right: Any, addend: Any) -> tuple[Any, Callable[..., Any]]:
    """Return a product and a sum: of floats the instruction that ``expressions`` writes for them."""
    whole = not any(isinstance(kind, types.Float) for kind in (left, right, addend))
    kind = types.int64 if whole else types.float64

    def build(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> ir.Value:
        if whole:
            return builder.add(builder.mul(*args[:2]), args[2])
        made = ir.FunctionType(args[0].type, [args[0].type] * 3)
        return builder.call(builder.module.declare_intrinsic("llvm.fmuladd", [args[0].type], made), args)

    return kind(kind, kind, kind), build
