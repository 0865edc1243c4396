"""Kernels that Numba compiles, kept in the user's cache under a seal: Numba's own cache trusts whatever it finds."""

from __future__ import annotations

import pickle
from types import ModuleType
from typing import Any

import llvmlite
import numba
from numba.core.caching import NullCache
from numba.core.compiler import CompileResult
from numba.core.serialize import dumps

from shardmath.files.cached import keep, kept, key_of, source_of

_KIND = "numba"


def remembered(module: ModuleType) -> ModuleType:
    """Return the module of a kernel, whose function ``evaluate`` finds what an earlier process has compiled."""
    if type(module.evaluate._cache) is NullCache:
        module.evaluate._cache = _Kept(module)
    return module


class _Kept(NullCache):  # type: ignore[misc]
    """Compiled code for Numba: one file per argument types, by a digest of its dependencies."""

    def __init__(self, module: ModuleType) -> None:
        self._module = module.__name__, source_of(module)  # what is kept asks for its module by name

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Return the compiled function for some arguments, or None."""
        target_context.refresh()
        content = kept(_KIND, self._name(sig, target_context))
        # The seal says that it is whole and that keep() wrote it.
        return None if content is None else CompileResult._rebuild(target_context, *pickle.loads(content))

    def save_overload(self, sig: Any, cres: Any) -> None:
        """Keep a compiled function."""
        keep(_KIND, self._name(sig, cres.target_context), dumps(cres._reduce()))

    def _name(self, sig: Any, target_context: Any) -> str:
        made_from = (*self._module, str(sig), target_context.codegen().magic_tuple(), numba.__version__,
                     llvmlite.__version__)
        return f"{key_of(*made_from)}.pickle"
