"""Entropies of verl's actor beside its log-probabilities: compiled or in single operations, of all tokens or in chunks.

Compiled, the softmax is made again in the backward pass, from logits that the log-probabilities keep: gradients of both
live together. In chunks PyTorch's compiler puts the gradients of chunks together in tensors of all tokens, how many its
heuristics say: rows have the most that was seen. In single operations the softmax is kept, in chunks also fp32 logits.
"""

from __future__ import annotations

from typing import Any

from ...dimensions import BATCH, ENTROPY_GRADIENTS, ENTROPY_PRODUCTS, SEQUENCE, VOCAB
from ...functions import Iverson
from ...ledger import Lifetime, Tensor, saved, transient
from ...parameters import symbols
from ...work import Stream

COMPONENTS = ()

s, b = symbols("s b")

_LOGITS, _TOKENS = (SEQUENCE, BATCH, VOCAB), (SEQUENCE, BATCH)
_FORWARD, _BACKWARD = ("loss_forward",), ("loss_backward",)
_SRC = "verl"


def entropy_rows() -> tuple[Tensor, ...]:
    """Return what each way to the entropy keeps and writes."""
    return (*_compiled(), *_single_operations())


def _compiled() -> tuple[Tensor, ...]:
    whole: Any = {"loss": ("verl_entropy",)}
    chunks: Any = {"loss": ("verl_entropy_chunks",)}
    return (
        saved("entropy_statistics", "loss", _TOKENS, 10, _SRC,
              "fp32 maxima and sums of exponentials, and the bf16 logarithm of these", lifetime=Lifetime.ONCE, **whole),
        saved("chunk_statistics", "loss", _TOKENS, 12, _SRC,
              "fp32 maxima and sums of exponentials, and the logarithm of these", lifetime=Lifetime.ONCE, **chunks),
        transient("policy_gradient", "loss", _LOGITS, 4, _SRC, "bf16 gradients of log-probabilities and of the entropy",
                  _BACKWARD, loss=("verl_entropy", "verl_entropy_chunks")),
        transient("joined_gradients", "loss", _LOGITS, 4, _SRC,
                  "bf16 gradients of chunks, put together in as many as two tensors of all tokens", _BACKWARD,
                  when=Iverson(s * b > 2048), **chunks),
    )


def _single_operations() -> tuple[Tensor, ...]:
    whole: Any = {"loss": ("verl_entropy_eager",)}
    chunks: Any = {"loss": ("verl_entropy_eager_chunks",)}
    once: Any = {"lifetime": Lifetime.ONCE}
    return (
        saved("entropy_softmax", "loss", _LOGITS, 2, _SRC, "bf16 softmax", **once, **whole),
        saved("entropy_log_sums", "loss", _TOKENS, 2, _SRC, "bf16 logarithms of sums of exponentials", **once, **whole),
        transient("entropy_product", "loss", _LOGITS, 2, _SRC, "bf16 softmax times logits", _FORWARD, **whole),
        transient("entropy_gradients", "loss", _LOGITS, 10, _SRC,
                  "bf16 gradient so far, and exponentials and gradients on the way to the next part of it", _BACKWARD,
                  **whole),
        saved("chunk_logits_and_softmax", "loss", _LOGITS, 8, _SRC, "fp32 copy of the logits, and their softmax",
              **once, **chunks),
        saved("chunk_log_sums", "loss", _TOKENS, 4, _SRC, "fp32 logarithms of sums of exponentials", **once, **chunks),
        transient("chunk_products", "loss", (ENTROPY_PRODUCTS, VOCAB), 4, _SRC, "fp32 softmax of a chunk times logits",
                  _FORWARD, **chunks),
        transient("gradient_of_policy", "loss", _LOGITS, 2, _SRC, "bf16 gradient of the logits", _BACKWARD, **chunks),
        transient("chunk_gradients", "loss", (ENTROPY_GRADIENTS, VOCAB), 2, _SRC,
                  "fp32 gradients of a chunk, and bf16 ones of all tokens where that is more", _BACKWARD, **chunks),
    )


def entropy_work() -> tuple[Stream, ...]:
    """Return the traffic of logits: each kernel reads its inputs and writes its output."""
    return tuple(
        Stream(f"{loss}.steps", "loss", _LOGITS, forward, backward, _SRC, meaning, kernels, options={"loss": (loss,)})
        for loss, forward, backward, kernels, meaning in (
            ("verl_entropy", 4, 14, 5, "statistics twice; two gradients and their sum"),
            ("verl_entropy_chunks", 4, 20, 5, "statistics twice; two gradients, put together and summed up"),
            ("verl_entropy_eager", 22, 50, 18, "softmax, exponentials and products in 16 bits; gradients and sums"),
            ("verl_entropy_eager_chunks", 46, 88, 22, "fp32 copy, softmax, exponentials and products; their gradients"),
        )
    )
