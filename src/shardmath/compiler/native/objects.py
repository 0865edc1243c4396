"""Compiled functions: optimised by LLVM once, kept as object files in the user's cache, and called.

An object file is found again by a digest of all that it was made from: the source, the translator, the version of LLVM,
its options, the processor and what it can do. The cache gives back what was put there or nothing.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import cache
from types import ModuleType
from typing import Any

from shardmath.files.cached import keep, kept, key_of, making, source_of

from .code import NumpyKind, compiled, flat, kind_of, loaded, made_by
from .options import Options, usual

_LOCK = threading.Lock()


@cache
def native(module: ModuleType, name: str, options: Callable[[], Options] = usual) -> Native:
    """Return a function of a generated module, compiled when it is called for the first time; see ``Native``."""
    return Native(module, name, options)


class Native:
    """A function of a generated module as machine code, which runs without the lock of the interpreter.

    Its arguments are integers and arrays in C order that do not overlap (see ``ELEMENTS`` of ``values``); what it
    returns is an integer, or nothing. The ``options`` of the compiler are asked for at the first call.
    """

    def __init__(self, module: ModuleType, name: str, options: Callable[[], Options] = usual) -> None:
        self._module, self._name, self._options = module, name, options
        self._functions: dict[tuple[NumpyKind, ...], Callable[..., int | None]] = {}
        #: Engines that hold the machine code.
        self._engines: list[Any] = []

    def __call__(self, *arguments: Any) -> int | None:
        """Call it."""
        kinds = tuple(map(kind_of, arguments))
        with _LOCK:
            if kinds not in self._functions:
                self._functions[kinds] = self._made(kinds)
        return self._functions[kinds](*(part for item in arguments for part in flat(item)))

    def _made(self, kinds: tuple[NumpyKind, ...]) -> Callable[..., int | None]:
        text, options = source_of(self._module), self._options()
        key = key_of(text, self._name, kinds, options, made_by())
        code = kept("objects", f"{key}.o")
        if code is None:
            with making("objects"):
                code = compiled(self._module, text, self._name, kinds, options)
            keep("objects", f"{key}.o", code)
        function, engine = loaded(code, self._module, self._name, kinds)
        self._engines.append(engine)
        return function

