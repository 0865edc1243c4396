"""Machine code of functions of generated modules, by LLVM, for the processor that this runs on."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, TypeAlias

import llvmlite
import llvmlite.binding as llvm
import numpy as np

from .functions import translated
from .options import Options
from .values import ELEMENTS

#: The name of a type of NumPy and how many indices an array has: 0 for an integer.
NumpyKind: TypeAlias = tuple[str, int]


def kind_of(item: Any) -> NumpyKind:
    """Return the kind of an argument, an array or an integer."""
    return (_name_of(item.dtype), item.ndim) if isinstance(item, np.ndarray) else ("int64", 0)


@cache
def _name_of(kind: np.dtype[Any]) -> str:
    """Return the name of a type, which NumPy puts together anew each time."""
    return kind.name


def flat(item: Any) -> tuple[int, ...]:
    """Return an argument as machine code takes it: an integer, or the address and the sizes of an array."""
    if not isinstance(item, np.ndarray):
        return (item,)
    assert item.flags.c_contiguous
    return item.ctypes.data, *item.shape


def compiled(module: ModuleType, text: str, name: str, kinds: tuple[NumpyKind, ...], options: Options) -> bytes:
    """Return an object file with the function ``name`` of a module with this ``text``, for arguments of these kinds."""
    machine = _machine(options)
    elements = [(ELEMENTS[element], dimensions) for element, dimensions in kinds]
    made = translated(vars(module), text, name, elements, masks=options.masks)
    parsed = llvm.parse_assembly(str(made))
    parsed.triple, parsed.data_layout = llvm.get_process_triple(), str(machine.target_data)
    parsed.verify()
    tuning = llvm.create_pipeline_tuning_options(speed_level=3)
    tuning.loop_vectorization = True
    tuning.loop_unrolling, tuning.loop_interleaving = options.unrolling, options.interleaving
    builder = llvm.create_pass_builder(machine, tuning)
    builder.getModulePassManager().run(parsed, builder)
    return bytes(machine.emit_object(parsed))


def loaded(
    code: bytes, module: ModuleType, name: str, kinds: tuple[NumpyKind, ...],
) -> tuple[Callable[..., int | None], Any]:
    """Return the function in an object file, and the holder of its machine code, which must live as long."""
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), _machine(Options()))
    engine.add_object_file(llvm.ObjectFileRef.from_data(code))
    engine.finalize_object()
    parameters = [part for _, dimensions in kinds for part in (
        (ctypes.c_void_p, *[ctypes.c_int64] * dimensions) if dimensions else (ctypes.c_int64,))]
    returned = getattr(module, name).__annotations__["return"]
    prototype = ctypes.CFUNCTYPE(ctypes.c_int64 if returned is int else None, *parameters)
    return prototype(engine.get_function_address(name)), engine


@cache
def made_by() -> tuple[str, ...]:
    """Return the makers of code from its source and options: this room, LLVM, the processor and its features."""
    own = [path.read_text(encoding="utf-8") for path in sorted(Path(__file__).parent.glob("*.py"))]
    return (
        *own, llvmlite.__version__, str(llvm.llvm_version_info), llvm.get_process_triple(), llvm.get_host_cpu_name(),
        llvm.get_host_cpu_features().flatten(),
    )


def _machine(options: Options) -> llvm.TargetMachine:
    """Return the processor that this runs on; an engine needs one of its own, which it frees."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    features = ",".join((llvm.get_host_cpu_features().flatten(), *options.features))
    return llvm.Target.from_default_triple().create_target_machine(
        cpu=llvm.get_host_cpu_name(), features=features, opt=3, reloc="default", codemodel="jitdefault", jit=True,
    )
