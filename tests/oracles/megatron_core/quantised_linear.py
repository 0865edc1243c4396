"""Stand-ins for Transformer Engine's FP8 linear layers of an MLP, which keep and make what those of release 2.11 do.

They compute nothing. Read in ``_LayerNormLinear``, ``_Linear``, ``gather_along_first_dim`` and
``grad_output_preprocess``: an input is quantised both ways and kept by columns, or, where ranks gather it again and
have one scale for a tensor, by rows. A gradient is quantised both ways, by the rank for its part before it is gathered.
Where a layer has the norm before it, the gradient of its output lives until that of the norm's input is made.
``oracles.libraries`` runs the library's own layers with scales of blocks.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from megatron.core.transformer import mlp
from oracles.megatron_core.megatron_cpu import BF16, Shape, config
from oracles.megatron_core.megatron_expert_steps import Record
from torch import Tensor, nn

BLOCKS = ("block", "mx")


def one_way(tokens: int, width: int, recipe: str) -> list[Tensor]:
    """Return a copy of one byte with its scales of blocks; one scale for a tensor is another's."""
    scales = [torch.zeros(tokens * width // 32, dtype=torch.uint8)] if recipe in BLOCKS else []
    return [torch.zeros(tokens, width, dtype=torch.uint8), *scales]


def both_ways(tokens: int, width: int, recipe: str) -> list[Tensor]:
    """Return both copies, with an fp32 scale of their own where a tensor has one."""
    scale = [] if recipe in BLOCKS else [torch.zeros(())]
    return [*one_way(tokens, width, recipe), *one_way(tokens, width, recipe), *scale]


def in_order(copy: list[Tensor], recipe: str) -> list[Tensor]:
    """Return what a gathered copy by columns needs: transposed blocks, which take its place."""
    return [copy[0].clone(), *copy[1:]] if recipe == "block" else copy


class _Column(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, hidden: Tensor, weight: Tensor, recipe: str, ranks: int) -> Tensor:
        tokens, width = hidden.shape
        ctx.recipe, ctx.ranks = recipe, ranks
        kept = one_way(tokens, width, recipe)
        scale = [] if recipe in BLOCKS else [torch.zeros(())]
        ctx.save_for_backward(hidden, torch.zeros(tokens), *kept, *scale)
        return hidden.new_zeros(tokens * ranks, len(weight))

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        hidden, _, *kept = ctx.saved_tensors
        (tokens, outputs), width, recipe = gradient.shape, hidden.shape[1], ctx.recipe
        quantised = both_ways(tokens, outputs, recipe)
        gathered = one_way(tokens, width, recipe) if ctx.ranks > 1 else kept
        result = gradient.new_zeros(tokens, width)
        share = torch.zeros_like(hidden) if ctx.ranks > 1 else result
        if ctx.ranks > 1:
            transposed = one_way(tokens, width, recipe) if recipe not in BLOCKS else in_order(gathered, recipe)
            del transposed
        del gathered
        for copy in kept:
            copy.data = torch.empty(0, dtype=copy.dtype)
        of_input, of_scale = torch.zeros_like(share), torch.zeros(width, dtype=BF16)
        assert all(one is not None for one in (quantised, result, of_scale))  # alive until the norm is through
        return of_input, None, None, None


class _Row(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, inner: Tensor, weight: Tensor, recipe: str, ranks: int) -> Tensor:
        tokens, width = inner.shape
        ctx.recipe, ctx.ranks = recipe, ranks
        scale = [] if recipe in BLOCKS else [torch.zeros(())]
        by_rows, kept = one_way(tokens, width, recipe), one_way(tokens, width, recipe)
        whole = inner.new_zeros(tokens, len(weight))
        output = whole if ranks == 1 else inner.new_zeros(tokens // ranks, len(weight))
        assert by_rows  # alive until the ranks have shared the output out
        ctx.save_for_backward(*kept, *scale)
        return output

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        kept, (tokens, width) = ctx.saved_tensors[0], gradient.shape
        quantised = _gathered(tokens, width, ctx.recipe, ctx.ranks)
        result = gradient.new_zeros(kept.shape)
        assert quantised
        return result, None, None, None


def _gathered(tokens: int, width: int, recipe: str, ranks: int) -> list[Tensor]:
    """Return the gradient of the output of all ranks; the rank's own part is freed with the function that gathers."""
    if ranks == 1:
        return both_ways(tokens, width, recipe)
    own = one_way(tokens, width, recipe) if recipe not in BLOCKS else both_ways(tokens, width, recipe)
    whole = both_ways(tokens * ranks, width, recipe)
    by_columns = 2 if recipe in BLOCKS else 1
    whole[by_columns] = in_order([whole[by_columns]], recipe)[0]
    assert own
    return whole


class Linear(nn.Module):
    """A projection of an MLP, as wide as its part on one rank; that of gate and up has the norm before it."""

    def __init__(self, inputs: int, outputs: int, *, config: Any, tp_comm_buffer_name: str, **_: Any) -> None:
        super().__init__()
        row, self._ranks = tp_comm_buffer_name == "fc2", config.tensor_model_parallel_size
        inputs, outputs = (inputs // self._ranks, outputs) if row else (inputs, outputs // self._ranks)
        self.weight = nn.Parameter(torch.zeros(outputs, inputs, dtype=BF16))
        self._recipe, self._product = config.fp8_recipe, _Row if row else _Column

    def forward(self, hidden: Tensor) -> tuple[Tensor, None]:
        """Return the output and no bias."""
        return self._product.apply(hidden, self.weight, self._recipe, self._ranks), None


class Swiglu(torch.autograd.Function):
    """The fused kernel, which keeps its input."""

    @staticmethod
    def forward(ctx: Any, inner: Tensor, *_: Any) -> Tensor:
        """Keep the input."""
        ctx.save_for_backward(inner)
        return inner.new_zeros(*inner.shape[:-1], inner.shape[-1] // 2)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        """Make the gradient of the input."""
        return torch.zeros_like(ctx.saved_tensors[0]), None, None, None


def bytes_of_mlp(
    shape: Shape, linear: Any, hidden: Tensor, checkpoint: Callable[..., Any] | None = None, **settings: Any
) -> tuple[int, int]:
    """Return what the forward pass of Megatron-Core's MLP leaves, and the most that its backward pass has beside it.

    Its layers are of the kind ``linear``. It runs forward twice, as the first time may make copies of weights. What is
    left has the output, and the inverse root mean squares of a norm. A ``checkpoint`` of a function and its input keeps
    the input alone.
    """
    made = config(shape)
    usual = {"gated_linear_unit": True, "bias_activation_fusion": True, "activation_func": nn.functional.silu}
    for name, value in (usual | settings).items():
        setattr(made, name, value)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(mlp, "bias_swiglu_impl", Swiglu.apply)
        layer = mlp.MLP(made, mlp.MLPSubmodules(linear_fc1=linear, linear_fc2=linear))
        run = layer if checkpoint is None else partial(checkpoint, layer)
        layer(hidden)
        with Record(hidden, *layer.parameters()) as record:
            output, _ = run(hidden)
            left = record.now
            gradient = torch.zeros_like(output)
            record.restart()
            before = record.now
            output.backward(gradient)
    return int(left), int(record.peak - before)
