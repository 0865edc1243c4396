"""Adapters of PEFT on frozen layers of bitsandbytes in 8 and in 4 bits, in bf16 or in fp32 under autocast, as on a GPU.

On a CPU bitsandbytes trains 8-bit layers by another function, and PEFT asks for the autocast of GPUs alone: here it is
the function of GPUs, and the autocast of the CPU stands for theirs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any

import pytest
import torch
from oracles.hugging_face.huggingface import causal_lm, token_ids
from oracles.instruments.saved import Saved
from oracles.instruments.storages import storages_in
from oracles.libraries.lora import TARGETS, sizes
from torch import Tensor, nn

TABLE = "lora_quantised"


def has(row: Mapping[str, str]) -> bool:
    """True for every row."""
    return True


def count(row: Mapping[str, str]) -> dict[str, int]:
    """Train one step with AdamW; every matrix has tables of its own, as on a GPU."""
    peft, is_wide = import_module("peft"), row["adapter_precision"] == "fp32"
    model: Any = causal_lm(row["family"], sizes(row), "sdpa", dtype=torch.bfloat16)
    quantised = list(quantise(model, {"int8": in_8_bits, "nf4": in_4_bits}[row["base_weights"]]))
    setattr(model, {"int8": "is_loaded_in_8bit", "nf4": "is_loaded_in_4bit"}[row["base_weights"]], True)
    model.enable_input_require_grads()
    lora = peft.LoraConfig(r=int(row["rl"]), target_modules=list(TARGETS[row["adapters"]]), lora_dropout=0.0)
    model = peft.get_peft_model(model, lora, autocast_adapter_dtype=False)
    adapters = [one for one in model.parameters() if one.requires_grad]
    for one in adapters:
        one.data = one.data.to(torch.float32 if is_wide else torch.bfloat16)
    statistics, ids = [tensor for part in quantised for tensor in statistics(part)], token_ids(sizes(row))
    with pytest.MonkeyPatch.context() as patched:
        as_on_gpu(patched)
        with Saved() as saved, torch.autocast("cpu", torch.bfloat16, enabled=is_wide):
            output = model(input_ids=ids, labels=ids)
    for tensor in _kept_by_functions(output.loss.grad_fn):
        saved._pack(tensor)
    kept = saved.bytes(model, statistics, ids)
    output.loss.backward()
    optimizer = torch.optim.AdamW(adapters)
    optimizer.step()
    states = [state for states in optimizer.state.values() for state in states.values() if state.ndim]
    whole, own = storages_in(list(model.parameters())).bytes(), storages_in(adapters).bytes()
    return {"weights": whole - own + sum(tensor.nbytes for tensor in statistics), "adapter_weights": own,
            "gradients": storages_in([one.grad for one in adapters]).bytes(), "states": storages_in(states).bytes(),
            "saved": kept}


def as_on_gpu(patched: pytest.MonkeyPatch) -> None:
    """Let the autocast of the CPU stand for that of GPUs."""
    enabled = torch.is_autocast_enabled
    patched.setattr(torch, "is_autocast_enabled", lambda device="cpu": enabled(device))


def quantise(model: nn.Module, quantised: Any) -> Iterator[Any]:
    """Replace the linear layers of transformer layers, and yield what stands there."""
    for name, part in list(model.named_modules()):
        if type(part) is nn.Linear and name != "lm_head":
            above, _, own = name.rpartition(".")
            layer = quantised(part)
            setattr(model.get_submodule(above), own, layer)
            yield layer


def in_8_bits(part: nn.Linear) -> Any:
    """Return a layer of bitsandbytes in 8 bits with the weight of another one."""
    bitsandbytes = import_module("bitsandbytes")
    product = import_module("bitsandbytes.autograd._functions").MatMul8bitLt

    class Quantised(bitsandbytes.nn.Linear8bitLt):  # type: ignore[misc]
        def forward(self, value: Tensor) -> Any:
            self.state.is_training = True
            if self.weight.CB is not None:
                self.init_8bit_state()
            return product.apply(value, self.weight, None, self.bias, self.state)

    layer = Quantised(part.in_features, part.out_features, bias=part.bias is not None, has_fp16_weights=False,
                      threshold=6.0)
    return _filled(layer, part, bitsandbytes.nn.Int8Params(part.weight.data, requires_grad=False,
                                                           has_fp16_weights=False))


def in_4_bits(part: nn.Linear) -> Any:
    """Return a layer of bitsandbytes in 4 bits with the weight of another one."""
    bitsandbytes = import_module("bitsandbytes")
    layer = bitsandbytes.nn.Linear4bit(part.in_features, part.out_features, bias=part.bias is not None,
                                       compute_dtype=torch.bfloat16, quant_type="nf4")
    return _filled(layer, part, bitsandbytes.nn.Params4bit(part.weight.data, requires_grad=False, quant_type="nf4"))


def _filled(layer: Any, part: nn.Linear, weight: Any) -> Any:
    """Give a layer the weight and the bias of another one; moving it quantises the weight."""
    layer.weight = weight
    if part.bias is not None:
        layer.bias = nn.Parameter(part.bias.data, requires_grad=False)
    return layer.to("cpu")


def statistics(layer: Any) -> list[Tensor]:
    """List what a layer keeps beside its codes."""
    if hasattr(layer, "state"):
        return [layer.weight.SCB]
    state = layer.weight.quant_state
    return [state.absmax, state.code, state.offset, state.state2.absmax, state.state2.code]


def _kept_by_functions(last: Any) -> Iterator[Tensor]:
    """Yield tensors that bitsandbytes' functions keep as attributes, which autograd does not see."""
    waiting, known = [last], set()
    while waiting:
        node = waiting.pop()
        if node is None or node in known:
            continue
        known.add(node)
        waiting += (above for above, _ in node.next_functions)
        if type(node).__name__ == "MatMul8bitLtBackward":
            yield from (tensor for tensor in (*node.tensors, *node.tensor_states) if tensor is not None)
