"""Transformer Engine's own layers on a CPU: its Python runs, its kernels are stand-ins that only make their results.

    pip install --no-deps --target FOLDER transformer_engine==2.11.0

The variable TRANSFORMER_ENGINE has that folder, which must not be where Python looks: Megatron-Core would take the
library for complete. The wheel of that name has the Python alone. Sizes of quantised tensors are those of its
quantisers (``make_empty``). Read in its C++ are the sizes of what a norm and a product return, and the single buffer
for the tensors of experts.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import IntEnum
from importlib import import_module
from math import prod
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, ClassVar
from unittest.mock import MagicMock

import torch
from torch import Tensor, nn

#: Elements of the types of the extension, in its order.
_TYPES = ("Byte", "Int16", "Int32", "Int64", "Float32", "Float16", "BFloat16", "Float8E4M3", "Float8E5M2", "Float8E8M0",
          "Float4E2M1")
#: Functions of PyTorch that make tensors, whose GPU is the CPU here.
_MAKERS = ("empty", "zeros", "ones", "tensor", "eye", "full", "empty_like", "zeros_like")
_CAPABILITY = (10, 0)
RECIPES = {"mx": "MXFP8BlockScaling", "nvfp4": "NVFP4BlockScaling"}


class _Anything(ModuleType):
    """A module that has any name."""

    __path__: ClassVar[list[str]] = []

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        setattr(self, name, MagicMock(name=name))
        return self.__dict__[name]


def engine() -> SimpleNamespace:
    """Return the layers of the library, its context of a recipe, and its recipes."""
    if "transformer_engine_torch" not in sys.modules:
        _load()
    module = "transformer_engine.pytorch"
    return SimpleNamespace(
        Linear=import_module(f"{module}.module.linear").Linear,
        LayerNormLinear=import_module(f"{module}.module.layernorm_linear").LayerNormLinear,
        GroupedLinear=import_module(f"{module}.module.grouped_linear").GroupedLinear,
        Quantised=import_module(f"{module}.quantized_tensor").QuantizedTensor,
        autocast=import_module(f"{module}.quantization").autocast,
        recipes=import_module("transformer_engine.common.recipe"),
    )


@contextmanager
def quantising(recipe: str) -> Iterator[SimpleNamespace]:
    """Run layers with a recipe of ours inside of the block."""
    library = engine()
    with library.autocast(enabled=True, recipe=getattr(library.recipes, RECIPES[recipe])()):
        yield library


def copies(layer: nn.Module) -> int:
    """Return the bytes of the quantised copies of weights that a layer keeps."""
    return sum(tensor.untyped_storage().nbytes() for copy in layer._fp8_workspaces.values()
               for tensor in vars(copy).values() if isinstance(tensor, Tensor))


def _load() -> None:
    """Import the library with stand-ins for its extension. Changes PyTorch for the rest of the process."""
    import_module("oracles.megatron_core.megatron_cpu")  # Megatron-Core, before the library can be found
    root = Path(os.environ["TRANSFORMER_ENGINE"], "transformer_engine")
    extension = _Anything("transformer_engine_torch")
    extension.DType = IntEnum("DType", [f"k{name}" for name in _TYPES], start=0)
    for name in ("CommOverlapCore", "CommOverlapBase", "CommOverlapP2PBase"):
        setattr(extension, name, type(name, (), {}))
    others = [f"transformer_engine.pytorch.{name}" for name in ("triton.pad", "onnx_extensions")]
    sys.modules |= {"transformer_engine_torch": extension, **{name: _Anything(name) for name in others}}
    for name in ("", ".common", ".pytorch"):
        package = ModuleType(f"transformer_engine{name}")
        package.__path__ = [f"{root}{name.replace('.', '/')}"]
        sys.modules[package.__name__] = package
    sys.modules["transformer_engine.common"].load_framework_extension = lambda *_: None  # type: ignore[attr-defined]
    _be_a_gpu()
    _give_kernels(extension)


def _on_cpu(function: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any, **options: Any) -> Any:
        if isinstance(options.get("device"), int) or "cuda" in str(options.get("device")):
            options["device"] = "cpu"
        return function(*args, **options)
    return call


def _be_a_gpu() -> None:
    cuda, wrapper = torch.cuda, torch.Tensor._make_wrapper_subclass
    for name in _MAKERS:
        setattr(torch, name, _on_cpu(getattr(torch, name)))
    torch.Tensor._make_wrapper_subclass = staticmethod(  # type: ignore[method-assign]
        lambda kind, shape, *rest, **options: wrapper(kind, shape, *rest, **{**options, "device": torch.device("cpu")}))
    torch.Tensor.is_cuda = True  # type: ignore[misc]
    torch.Tensor.cuda = lambda tensor, *_, **__: tensor  # type: ignore[method-assign,assignment]
    torch.Tensor.record_stream = lambda *_: None  # type: ignore[method-assign,assignment]
    properties = SimpleNamespace(major=_CAPABILITY[0], minor=_CAPABILITY[1], multi_processor_count=1)
    for name, value in (("is_available", True), ("current_device", 0), ("get_device_capability", _CAPABILITY),
                        ("get_device_properties", properties), ("is_current_stream_capturing", False)):
        setattr(cuda, name, lambda *_, _value=value: _value)
    cuda.nvtx.range_push = cuda.nvtx.range_pop = lambda *_: None


def _give_kernels(extension: Any) -> None:
    """Give the extension kernels that make their results and compute nothing."""
    storages = {name: import_module(f"transformer_engine.pytorch.tensor.storage.{name.lower()}_tensor_storage")
                for name in ("NVFP4", "MXFP8")}
    plain = {name: getattr(module, f"{name}TensorStorage") for name, module in storages.items()}

    def quantize(tensor: Tensor, quantizer: Any, output: Any = None, *_: Any, several: bool = False) -> Any:
        if output is not None:
            return output
        made = quantizer.make_empty(tuple(tensor.shape), dtype=tensor.dtype, device=torch.device("cpu"))
        if not (quantizer.internal or several):
            return made
        kind = "NVFP4" if isinstance(made, plain["NVFP4"]) else "MXFP8"
        last = (made._amax_rowwise, made._amax_columnwise, made._fp4_dtype) if kind == "NVFP4" else (made._fp8_dtype,)
        return plain[kind](made._rowwise_data, made._rowwise_scale_inv, made._columnwise_data,
                           made._columnwise_scale_inv, *last, quantizer)

    def norm(tensor: Tensor, _: Any, __: Any, ___: Any, quantizer: Any, *____: Any) -> Any:
        result = torch.zeros_like(tensor) if quantizer is None else quantize(tensor, quantizer)
        return result, None, torch.zeros(tensor.shape[0])

    def norm_backward(gradient: Tensor, tensor: Tensor, *_: Any) -> Any:
        return torch.zeros_like(tensor), torch.zeros(tensor.shape[-1], dtype=tensor.dtype)

    def product(left: Any, left_turned: bool, right: Any, right_turned: bool, out: Any, *_: Any, **__: Any) -> Any:
        (rows, inner), (others, width) = _sides(left), _sides(right)
        shape = (width if right_turned else others, rows if left_turned else inner)
        return torch.zeros(shape, dtype=torch.bfloat16) if out is None else out, None, None, None

    extension.quantize, extension.split_quantize = quantize, lambda *given: _split(quantize, *given)
    extension.swap_first_dims = lambda tensor, **_: tensor.transpose(0, 1).clone(
        memory_format=torch.contiguous_format)
    import_module("transformer_engine.pytorch.distributed").pad_columnwise_scale_inv = Tensor.clone
    functions = import_module("transformer_engine.pytorch.cpp_extensions")
    functions.rmsnorm_fwd = norm
    functions.rmsnorm_bwd = extension.rmsnorm_bwd = norm_backward
    functions.layernorm_fwd = functions.layernorm_bwd = None
    extension.generic_gemm, extension.te_general_grouped_gemm = product, lambda *_: None
    products, workspace = import_module("transformer_engine.pytorch.cpp_extensions.gemm"), torch.zeros(1)
    products.get_cublas_workspace = lambda _, __, grouped: [workspace] if grouped else workspace
    products.get_sm_count, products._empty_tensor = lambda: 1, lambda: None


def _sides(tensor: Any) -> tuple[int, int]:
    shape = tuple(tensor.shape if isinstance(tensor, Tensor) else tensor.size())
    return prod(shape[:-1]), shape[-1]


def _split(quantize: Callable[..., Any], tensor: Tensor, counts: list[int], quantizers: list[Any]) -> list[Any]:
    """Return the quantised tokens of each expert: all by rows in one buffer, and all by columns in another."""
    parts = [quantize(tokens, quantizer, several=True)
             for tokens, quantizer in zip(tensor.split(counts), quantizers, strict=True)]
    for way in ("rowwise", "columnwise"):
        kinds = [(f"_{way}_data", 256), (f"_{way}_scale_inv", 16), (f"_amax_{way}", 16)]
        places: list[tuple[Any, str, int]] = []
        end = 0
        for name, step in kinds:
            for part in parts:
                if getattr(part, name, None) is not None:
                    start = -(-end // step) * step
                    places.append((part, name, start))
                    end = start + getattr(part, name).nbytes
        buffer = torch.empty(end, dtype=torch.uint8)
        for part, name, start in places:
            old = getattr(part, name)
            setattr(part, name, buffer[start:start + old.nbytes].view(old.dtype).view(old.shape))
    return parts
