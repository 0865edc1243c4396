"""Stand-ins for the fused kernels that Megatron-Core gets from Transformer Engine and that no CPU has.

The norms and FlashAttention are stand-ins. Each computes nothing, returns a tensor of the right shape and gives
autograd the tensors that the real kernel gives it, as read in their sources: a norm its input and the fp32 inverse root
mean square (LayerNorm: mean and inverse deviation), FlashAttention q, k, v, its output, the fp32 log-sum-exp, and with
dropout the 16 bytes of random state. Other tensors of Transformer Engine (workspaces, dummy weight gradients) are not
counted with them. The SwiGLU kernel, linear layers, embedding, cross entropy, rotary embedding (unfused) and all
recompute are Megatron-Core's own code.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn


class _Norm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, hidden: Tensor, weight: Tensor) -> Tensor:
        hidden = hidden.contiguous()  # as Transformer Engine does; else k, a view, would keep the fused projection
        ctx.save_for_backward(hidden, weight, hidden.new_zeros(hidden.shape[:-1], dtype=torch.float32))
        return torch.zeros_like(hidden)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor]:
        hidden, weight, _ = ctx.saved_tensors
        return torch.zeros_like(hidden), torch.zeros_like(weight)


class FusedRMSNorm(nn.Module):
    """Saved tensors of the fused RMSNorm."""

    def __init__(self, config: Any, hidden_size: int, eps: float = 1e-5) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(hidden_size, dtype=config.params_dtype))
        self.weight.sequence_parallel = config.sequence_parallel

    def forward(self, hidden: Tensor) -> Tensor:
        """Keep the input and one fp32 number for each token."""
        return _Norm.apply(hidden, self.weight)


class LayerNorm(torch.autograd.Function):
    """LayerNorm of a GPU, in PyTorch or fused."""

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        hidden = hidden.contiguous()
        mean, deviation = (hidden.new_zeros(hidden.shape[:-1], dtype=torch.float32) for _ in range(2))
        ctx.save_for_backward(hidden, weight, mean, deviation)
        return torch.zeros_like(hidden)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        hidden, weight, _, _ = ctx.saved_tensors
        return torch.zeros_like(hidden), torch.zeros_like(weight), torch.zeros_like(weight)


class FusedLayerNorm(FusedRMSNorm):
    """Saved tensors of the fused LayerNorm."""

    def __init__(self, config: Any, hidden_size: int, eps: float = 1e-5) -> None:
        super().__init__(config, hidden_size, eps)
        self.bias = nn.Parameter(torch.empty(hidden_size, dtype=config.params_dtype))

    def forward(self, hidden: Tensor) -> Tensor:
        """Keep the input and two fp32 numbers for each token."""
        return LayerNorm.apply(hidden, self.weight, self.bias)


class KeptOutput(torch.autograd.Function):
    """Apex' norms that save memory: the output and the inverse deviation, of which the input is made again."""

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, *weights: Tensor) -> Tensor:
        """Keep the output and one fp32 number for each token."""
        output = torch.zeros_like(hidden)
        ctx.save_for_backward(output, *weights, hidden.new_zeros(hidden.shape[:-1], dtype=torch.float32))
        return output


class SquaredRelu(torch.autograd.Function):
    """The compiled square of ReLU, which keeps its input."""

    @staticmethod
    def forward(ctx: Any, inner: Tensor) -> Tensor:
        """Keep the input."""
        ctx.save_for_backward(inner)
        return torch.zeros_like(inner)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        """Make the gradient of the input."""
        return torch.zeros_like(ctx.saved_tensors[0])


class _Flash(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor, dropout: float) -> Tensor:
        sequence, batch, heads, _ = query.shape
        output = query.new_zeros(sequence, batch, heads, value.shape[-1])
        logsumexp = query.new_zeros(batch, heads, sequence, dtype=torch.float32)
        state = query.new_zeros(2 if dropout else 0, dtype=torch.int64)
        ctx.save_for_backward(query, key, value, output, logsumexp, state)
        return output

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        query, key, value, *_ = ctx.saved_tensors
        return torch.zeros_like(query), torch.zeros_like(key), torch.zeros_like(value), None


class FlashAttention(nn.Module):
    """Saved tensors of FlashAttention, with v as a tensor of its own."""

    def __init__(self, config: Any, layer_number: int, **_: Any) -> None:
        super().__init__()
        self._dropout = config.attention_dropout

    def forward(self, query: Tensor, key: Tensor, value: Tensor, *_: Any, **__: Any) -> Tensor:
        """Keep the arguments, the output and one fp32 number for each query."""
        output = _Flash.apply(query, key, self._kept(value), self._dropout)
        return output.flatten(2)

    def _kept(self, value: Tensor) -> Tensor:
        return value.clone()


class FlashAttentionOfView(FlashAttention):
    """The same with v as the view of the fused projection that Megatron-Core hands over."""

    def _kept(self, value: Tensor) -> Tensor:
        return value
