"""Compiled functions: optimised by LLVM once, kept as object files in the user's cache, and called.

An object file is found again by a digest of all that it was made from: the source, the translator, the version of LLVM,
the processor and what it can do.
"""

from __future__ import annotations

import ctypes
import hashlib
import threading
import warnings
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import llvmlite
import llvmlite.binding as llvm
import numpy as np

from shardmath.cached import cache_folder, write_bytes

_LOCK = threading.Lock()
_DIGEST = hashlib.sha256
_DIGEST_SIZE = 32


@cache
def native(module: ModuleType, name: str) -> Native:
    """A function of a generated module, compiled when it is called for the first time."""
    return Native(module, name)


class Native:
    """A function of a generated module as machine code, made for the kinds of its first arguments.

    Arguments are integers and arrays in C order (see ``ELEMENTS``). It holds no lock of the interpreter.
    """

    def __init__(self, module: ModuleType, name: str) -> None:
        self._module, self._name = module, name
        self._code: Any = None
        self._kept: Any = None

    def __call__(self, *arguments: Any) -> int | None:
        """Call it; the result is an integer, if it has one."""
        if self._code is None:
            with _LOCK:
                if self._code is None:
                    self._code = self._loaded(arguments)
        return self._code(*(part for item in arguments for part in _flat(item)))  # type: ignore[no-any-return]

    def _loaded(self, arguments: Sequence[Any]) -> Any:
        text = Path(str(self._module.__file__)).read_text(encoding="utf-8")
        kinds = [(item.dtype.name, item.ndim) if isinstance(item, np.ndarray) else ("int64", 0) for item in arguments]
        machine = _machine()
        key = _DIGEST("\n".join((text, self._name, repr(kinds), *machine)).encode()).hexdigest()[:32]
        path = cache_folder() / "objects" / f"{key}.o"
        code = _read(path)
        if code is None:
            code = _compiled(self._module, text, self._name, kinds)
            write_bytes(path, _DIGEST(code).digest() + code)
        self._kept = engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), _target_machine())
        engine.add_object_file(llvm.ObjectFileRef.from_data(code))
        engine.finalize_object()
        types = [
            inner for _, dimensions in kinds
            for inner in ([ctypes.c_void_p, *[ctypes.c_int64] * dimensions] if dimensions else [ctypes.c_int64])
        ]
        returned = getattr(self._module, self._name).__annotations__["return"]
        return ctypes.CFUNCTYPE(ctypes.c_int64 if returned is int else None, *types)(engine.get_function_address(self._name))


def _flat(item: Any) -> tuple[int, ...]:
    if not isinstance(item, np.ndarray):
        return (item,)
    assert item.flags.c_contiguous
    return item.ctypes.data, *item.shape


def _read(path: Path) -> bytes | None:
    """The object file, if it is there and whole."""
    if not path.is_file():
        return None
    data = path.read_bytes()
    if _DIGEST(data[_DIGEST_SIZE:]).digest() != data[:_DIGEST_SIZE]:
        warnings.warn(f"{path} is damaged, and is made anew", stacklevel=2)
        return None
    return data[_DIGEST_SIZE:]


def _compiled(module: ModuleType, text: str, name: str, kinds: Sequence[tuple[str, int]]) -> bytes:
    from .functions import translated
    from .values import ELEMENTS

    machine = _target_machine()
    made = translated(module, text, name, [(ELEMENTS[element], dimensions) for element, dimensions in kinds])
    parsed = llvm.parse_assembly(str(made))
    parsed.triple, parsed.data_layout = llvm.get_process_triple(), str(machine.target_data)
    parsed.verify()
    options = llvm.create_pipeline_tuning_options(speed_level=3)
    options.loop_vectorization = True
    options.loop_unrolling = False
    options.loop_interleaving = False
    builder = llvm.create_pass_builder(machine, options)
    builder.getModulePassManager().run(parsed, builder)
    return bytes(machine.emit_object(parsed))


@cache
def _machine() -> tuple[str, ...]:
    """What compiled code depends on besides its source."""
    own = "".join(path.read_text(encoding="utf-8") for path in sorted(Path(__file__).parent.glob("*.py")))
    return (
        own, llvmlite.__version__, repr(llvm.llvm_version_info), llvm.get_process_triple(), llvm.get_host_cpu_name(),
        llvm.get_host_cpu_features().flatten(),
    )


@cache
def _target_machine() -> llvm.TargetMachine:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    return llvm.Target.from_default_triple().create_target_machine(
        cpu=llvm.get_host_cpu_name(), features=llvm.get_host_cpu_features().flatten(), opt=3, reloc="default",
        codemodel="jitdefault", jit=True,
    )
