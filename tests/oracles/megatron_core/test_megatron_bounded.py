"""Bounded scores and logits in Megatron-Core's layers, as Megatron-Bridge makes those of Gemma 2.

FlexAttention is PyTorch's own operation with its own masks by blocks. A graph that AOTAutograd cuts in two as for
Inductor keeps what Inductor's would; without a GPU there is no such kernel, so the parts run as they are.
"""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
import torch
from counted import MEGATRON_CPU, values
from megatron.core.fusions.fused_cross_entropy import fused_vocab_parallel_cross_entropy
from megatron.core.parallel_state import get_tensor_model_parallel_group
from megatron.core.tensor_parallel.layers import ColumnParallelLinear
from oracles.instruments.ledger import ledger
from oracles.instruments.live import Live
from oracles.instruments.saved import Saved
from oracles.megatron_core.megatron_cpu import BF16, Batch, Kernels, config, forward, gpt_model, one_rank
from oracles.megatron_core.megatron_layouts import random_layout, random_stages, tables
from torch import Tensor, nn
from torch._functorch.aot_autograd import aot_function, make_boxed_func
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch._higher_order_ops.flex_attention import flex_attention
from torch.nn.attention.flex_attention import create_block_mask

from shardmath.symbolic.recompute import MODES

BOUNDED = MEGATRON_CPU.with_choices(attention="flex", value="view", norms="both", capping="tanh", window="sliding")
#: Options of the kernel, as PyTorch's function sets them for a training step.
OPTIONS = {"PRESCALE_QK": False, "ROWS_GUARANTEED_SAFE": False, "BLOCKS_ARE_CONTIGUOUS": False, "WRITE_DQ": True,
           "OUTPUT_LOGSUMEXP": True, "OUTPUT_MAX": False}


def bounded(scores: Tensor, *_: Tensor) -> Tensor:
    """Bound scores as Gemma 2 does."""
    return 50.0 * torch.tanh(scores / 50.0)


class FlexAttention(nn.Module):
    """Core attention in one operation, whose mask by blocks is made once for a length; odd layers have a window."""

    def __init__(self, config: Any, layer_number: int, **_: Any) -> None:
        super().__init__()
        self.window = config.window_size[0] if layer_number % 2 else None
        self.masks: dict[int, Any] = {}

    def forward(self, query: Tensor, key: Tensor, value: Tensor, *_: Any, **__: Any) -> Tensor:
        """Return the outputs of all heads; batch and heads come first only for the operation."""
        with torch._C.DisableTorchFunction():
            parts = self._mask(len(query)).as_tuple()
            compiled = aot_function(
                lambda *tensors: self._attention(parts, *tensors), fw_compiler=_as_it_is, bw_compiler=_as_it_is,
                partition_fn=min_cut_rematerialization_partition)
            output = compiled(*(each.permute(1, 2, 0, 3) for each in (query, key, value)), *_tensors(parts))
            return output.permute(2, 0, 1, 3).contiguous().flatten(2)

    def _attention(self, parts: Any, query: Tensor, key: Tensor, value: Tensor, *given: Tensor) -> Tensor:
        traced = iter(given)
        mask = tuple(next(traced) if isinstance(part, Tensor) else part for part in parts)
        output, *_ = flex_attention(query, key, value, bounded, mask, 0.1, OPTIONS, (), ())
        return output

    def _mask(self, length: int) -> Any:
        if length not in self.masks:
            window = length if self.window is None else self.window
            self.masks[length] = create_block_mask(
                lambda b, h, query, key: (query >= key) & (query - key <= window), None, None, length, length, "cpu")
        return self.masks[length]


def _as_it_is(graph: Any, _: Any) -> Any:
    return make_boxed_func(graph)


def _tensors(parts: Any) -> list[Tensor]:
    return [part for part in parts if isinstance(part, Tensor)]


class BoundedLinear(ColumnParallelLinear):
    """The output layer of Gemma 2 in Megatron-Bridge."""

    def forward(self, *others: Any, **named: Any) -> tuple[Tensor, Tensor | None]:
        """Project and bound the logits."""
        output, bias = super().forward(*others, **named)
        return 30.0 * torch.tanh(output / 30.0), bias


@pytest.mark.cases(2, 40)
def test_stage(draw: Random) -> None:
    """Parameters, saved bytes, and the masks that layers keep from their first pass on."""
    switches = dict.fromkeys(draw.choice(list(MODES.values())), 1)
    layout = random_layout(draw, "behind")
    t = layout["t"]
    k = t * draw.randint(1, 2)
    shape = layout | switches | {"c": 1, "k": k, "a": k * draw.randint(1, 3), "s": 2 * t * draw.randint(1, 90), "rn": 1}
    stages, layers = random_stages(draw, shape["p"])
    shape |= layers
    window = draw.randint(1, shape["s"])
    with one_rank(shape, draw):
        settings = config(shape, window_size=(window - 1, 0))
        model = gpt_model(shape, settings, Kernels(attention=FlexAttention, behind=True))
        if model.post_process:
            model.output_layer.__class__ = BoundedLinear
        batch = Batch.of(shape).with_mask(None)
        with Saved() as saved:
            output = forward(model, shape, batch)
        masks = [part for module in model.modules() if isinstance(module, FlexAttention)
                 for mask in module.masks.values() for part in _tensors(mask.as_tuple())]
        kept = saved.bytes(model, batch.ids, batch.labels, *masks)
    shape |= {"win": window, "wstep": 2, "acap": 1, "lcap": 1}
    known = values({}, "", **shape) | {"B": shape["b"] * shape["D"]}
    chosen = BOUNDED.with_choices(stages=stages)
    parameters, activation, buffers = ledger(chosen, "stage.parameters", "stage.activation",
                                             "stage.attention.buffer", **known)
    assert output.requires_grad
    assert sum(one.numel() for one in model.parameters()) == parameters
    assert kept == activation + tables(chosen, switches, known)
    assert sum(mask.nbytes for mask in masks) == buffers > 0


@pytest.mark.cases(3, 30)
def test_moments_of_bounded_logits(draw: Random) -> None:
    """The tanh adds to both moments of the loss, and to none behind them."""
    t = draw.choice((1, 2, 4))
    shape = {"t": t, "sp": 0, "s": draw.randint(1, 9), "b": draw.randint(1, 3), "h": 4 * draw.randint(1, 9),
             "u": t * draw.randint(9, 99), "L": 1, "a": t, "k": t, "d": 2, "f": t, "tied": 0}
    peaks = [_moments(shape, kind, draw) for kind in (BoundedLinear, ColumnParallelLinear)]
    added = [bound - without for bound, without in zip(*peaks, strict=True)]
    sites = [f"stage.{site}.all" for site in ("loss_forward", "loss_backward", "head_backward")]
    plain = BOUNDED.with_choices(loss="native_fused")
    bound, without = (ledger(plain, *sites, **shape, B=shape["b"], win=1, wstep=2, acap=1, lcap=lcap)
                      for lcap in (1, 0))
    assert added == [one - other for one, other in zip(bound, without, strict=True)]
    assert added == [2 * shape["s"] * shape["b"] * shape["u"] // t] * 2 + [0]


def _moments(shape: dict[str, int], kind: type[ColumnParallelLinear], draw: Random) -> tuple[int, int, int]:
    """Return peaks of both passes of the loss, and bytes that are alive when the gradient of the raw logits is made."""
    with one_rank(shape, draw):
        layer = kind(shape["h"], shape["u"], config=config(shape), init_method=nn.init.zeros_, bias=False)
        hidden = torch.zeros(shape["s"], shape["b"], shape["h"], dtype=BF16, requires_grad=True)
        labels = torch.zeros(shape["s"], shape["b"], dtype=torch.long)
        with Live(layer, hidden, labels) as live:
            logits = layer(hidden)[0]
            live.restart()
            loss = fused_vocab_parallel_cross_entropy(logits, labels, get_tensor_model_parallel_group()).sum()
            first, node = live.peak, logits.grad_fn
            del logits
            while "Linear" not in type(node).__name__:
                (node, _), = (pair for pair in node.next_functions if pair[0] is not None)
            behind: list[int] = []
            node.register_prehook(lambda _: behind.extend((live.peak, live.now)))
            live.restart()
            loss.backward()
    return first, behind[0], behind[1]
