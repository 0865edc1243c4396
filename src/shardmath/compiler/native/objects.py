"""Compiled functions: optimised by LLVM once, kept as object files in the user's cache, and called.

An object file is found again by a digest of all that it was made from: the source, the translator, the version of LLVM,
the processor and what it can do. The cache gives back what was put there or nothing.
"""

from __future__ import annotations

import ctypes
import hashlib
import threading
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, TypeAlias

import llvmlite
import llvmlite.binding as llvm
import numpy as np

from shardmath.files.cached import keep, kept, source_of

#: The name of a type of NumPy and how many indices an array has: 0 for an integer.
NumpyKind: TypeAlias = tuple[str, int]
_LOCK = threading.Lock()


@cache
def native(module: ModuleType, name: str) -> Native:
    """A function of a generated module, compiled when it is called for the first time."""
    return Native(module, name)


class Native:
    """A function of a generated module as machine code, which runs without the lock of the interpreter.

    Its arguments are integers and arrays in C order that do not overlap (see ``ELEMENTS`` of ``values``); what it
    returns is an integer, or nothing.
    """

    def __init__(self, module: ModuleType, name: str) -> None:
        self._module, self._name = module, name
        self._compiled: dict[tuple[NumpyKind, ...], Callable[..., int | None]] = {}
        #: What holds the machine code.
        self._engines: list[Any] = []

    def __call__(self, *arguments: Any) -> int | None:
        """Call it."""
        kinds = tuple(map(_kind_of, arguments))
        with _LOCK:
            if kinds not in self._compiled:
                self._compiled[kinds] = self._made(kinds)
        return self._compiled[kinds](*(part for item in arguments for part in _flat(item)))

    def _made(self, kinds: tuple[NumpyKind, ...]) -> Callable[..., int | None]:
        text = source_of(self._module)
        key = hashlib.sha256(repr((text, self._name, kinds, _origin())).encode()).hexdigest()[:32]
        code = kept("objects", f"{key}.o")
        if code is None:
            code = _compiled(self._module, text, self._name, kinds)
            keep("objects", f"{key}.o", code)
        engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), _machine())
        engine.add_object_file(llvm.ObjectFileRef.from_data(code))
        engine.finalize_object()
        self._engines.append(engine)
        parameters = [part for _, dimensions in kinds for part in (
            (ctypes.c_void_p, *[ctypes.c_int64] * dimensions) if dimensions else (ctypes.c_int64,))]
        returned = getattr(self._module, self._name).__annotations__["return"]
        prototype = ctypes.CFUNCTYPE(ctypes.c_int64 if returned is int else None, *parameters)
        return prototype(engine.get_function_address(self._name))


def _kind_of(item: Any) -> NumpyKind:
    return (item.dtype.name, item.ndim) if isinstance(item, np.ndarray) else ("int64", 0)


def _flat(item: Any) -> tuple[int, ...]:
    if not isinstance(item, np.ndarray):
        return (item,)
    assert item.flags.c_contiguous
    return item.ctypes.data, *item.shape


def _compiled(module: ModuleType, text: str, name: str, kinds: tuple[NumpyKind, ...]) -> bytes:
    from .functions import translated
    from .values import ELEMENTS

    machine = _machine()
    elements = [(ELEMENTS[element], dimensions) for element, dimensions in kinds]
    made = translated(vars(module), text, name, elements, masks=llvm.get_host_cpu_features().get("avx512f", False))
    parsed = llvm.parse_assembly(str(made))
    parsed.triple, parsed.data_layout = llvm.get_process_triple(), str(machine.target_data)
    parsed.verify()
    options = llvm.create_pipeline_tuning_options(speed_level=3)
    options.loop_vectorization = True
    # Short loops unrolled early are not vectorised, and vectors side by side need more registers than there are.
    options.loop_unrolling = options.loop_interleaving = False
    builder = llvm.create_pass_builder(machine, options)
    builder.getModulePassManager().run(parsed, builder)
    return bytes(machine.emit_object(parsed))


@cache
def _origin() -> tuple[str, ...]:
    """Return the dependencies of compiled code besides its source."""
    own = [path.read_text(encoding="utf-8") for path in sorted(Path(__file__).parent.glob("*.py"))]
    return (
        *own, llvmlite.__version__, str(llvm.llvm_version_info), llvm.get_process_triple(), llvm.get_host_cpu_name(),
        _features(),
    )


def _features() -> str:
    """Return the processor's features, without AMD's gather instructions, which are slower than eight loads."""
    features = llvm.get_host_cpu_features().flatten()
    return f"{features},+prefer-no-gather" if llvm.get_host_cpu_name().startswith("znver") else features


def _machine() -> llvm.TargetMachine:
    """The processor that this runs on; an engine needs one of its own, which it frees."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    return llvm.Target.from_default_triple().create_target_machine(
        cpu=llvm.get_host_cpu_name(), features=_features(), opt=3, reloc="default",
        codemodel="jitdefault", jit=True,
    )
