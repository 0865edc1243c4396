"""Bytes per element that eager kernels read and write, operation by operation, against the ledger's streams.

Rows of one number for every token, tables that all heads share, and parameters add less than half a byte per element.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest
import torch
from megatron.core.fusions.fused_softmax import FusedScaleMaskSoftmax
from megatron.core.models.common.embeddings.rope_utils import _apply_rotary_pos_emb_bshd
from megatron.core.tensor_parallel.cross_entropy import vocab_parallel_cross_entropy
from megatron.core.transformer.enums import AttnMaskType
from megatron.core.transformer.utils import attention_mask_func
from oracles.instruments.streamed import Streamed
from oracles.megatron_core.megatron_cpu import one_rank
from torch import Tensor, nn
from torch.nn import functional
from transformers.activations import ACT2FN
from transformers.loss.loss_utils import ForCausalLMLoss
from transformers.models.llama.modeling_llama import LlamaRMSNorm, apply_rotary_pos_emb

from shardmath.symbolic.accounts.rows import components_of
from shardmath.symbolic.implementations import HUGGINGFACE, MEGATRON, TORCHTITAN, Implementation
from shardmath.symbolic.timing.rows import _chosen
from shardmath.symbolic.work import Stream

BF16 = torch.bfloat16


def per_element(run: Callable[..., Tensor], *inputs: Tensor) -> tuple[int, int]:
    """Bytes of both passes for each element of the first input, rounded to whole ones."""
    with Streamed() as forward:
        output = run(*inputs)
    gradient = torch.ones_like(output)
    with Streamed() as backward:
        output.backward(gradient)
    return round(forward.bytes / inputs[0].numel()), round(backward.bytes / inputs[0].numel())


def row(implementation: Implementation, component: str, name: str) -> tuple[int, int]:
    """The ledger's bytes of a stream that the implementation has."""
    part = next(part for part in components_of(implementation) if part.name == component)
    item = next(item for item in _chosen(part, implementation) if isinstance(item, Stream) and item.name == name)
    return item.forward, item.backward


def leaf(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=BF16, requires_grad=True)


def gated(both: Tensor) -> Tensor:
    """Megatron-Core's MLP without fusion."""
    gate, up = torch.chunk(both, 2, dim=-1)
    return functional.silu(gate) * (up + 0.0)


def turned(query: Tensor) -> Tensor:
    """Hugging Face's rotary embedding of queries, whose keys are not looked at."""
    table = torch.ones(1, query.shape[2], query.shape[3], dtype=BF16)
    return apply_rotary_pos_emb(query, query.detach()[:, :1], table, table)[0]


def complex_turned(query: Tensor) -> Tensor:
    """A rotary embedding as one product of complex numbers in fp32."""
    pairs = torch.view_as_complex(query.float().reshape(*query.shape[:-1], -1, 2))
    table = torch.ones(1, query.shape[1], 1, query.shape[-1] // 2, dtype=torch.complex64)
    return torch.view_as_real(pairs * table).flatten(3).type_as(query)


def softmax(scores: Tensor) -> Tensor:
    """Scores of Hugging Face's eager attention."""
    mask = torch.zeros(1, 1, *scores.shape[2:], dtype=BF16)
    return functional.softmax(scores * 0.5 + mask, dim=-1, dtype=torch.float32).to(BF16)


def softmax_16(scores: Tensor) -> Tensor:
    """Scores of GPT-2's eager attention."""
    mask = torch.zeros(1, 1, *scores.shape[2:], dtype=BF16)
    return functional.softmax(scores * 0.5 + mask, dim=-1)


def megatron_softmax(scores: Tensor) -> Tensor:
    mask = torch.ones(1, 1, *scores.shape[2:], dtype=torch.bool).triu(1)
    run = FusedScaleMaskSoftmax(False, True, AttnMaskType.padding, False, attention_mask_func, True, None)
    return run(scores, mask)


def labels(logits: Tensor) -> Tensor:
    return torch.zeros(logits.shape[:-1], dtype=torch.long)


UNFUSED = MEGATRON.with_choices(norm="torch", attention="unfused", rope="unfused", swiglu="unfused")
EAGER = HUGGINGFACE.with_choices(attention="eager")
GPT2 = EAGER.with_choices(normalisation="layer", mlp="gelu", positions="learned", biases="linear", softmax="low")
#: Operation, the ledger's row of it, and elements of the input for each of the row's shape.
CASES: dict[str, tuple[Callable[..., Tensor], tuple[int, ...], tuple[Implementation, str, str], int]] = {
    "eager RMSNorm": (LlamaRMSNorm(2048).to(BF16), (64, 2048), (EAGER, "attention_norm", "norm.eager"), 1),
    "torch RMSNorm": (nn.RMSNorm(2048, dtype=BF16), (64, 2048), (UNFUSED, "attention_norm", "norm.torch"), 1),
    "unfused SwiGLU": (gated, (64, 1, 2048), (UNFUSED, "swiglu", "activation.unfused"), 2),
    "rotary": (turned, (1, 64, 16, 32), (EAGER, "attention", "rope.q_shared"), 1),
    "complex rotary": (complex_turned, (1, 64, 64, 32), (TORCHTITAN, "attention", "rope.q_complex"), 1),
    **{name: (ACT2FN[name], (64, 2048), (GPT2.with_choices(gelu=option), "gelu", f"activation.{option}"), 1)
       for name, option in (("gelu_new", "new"), ("gelu_fast", "fast"), ("gelu_python", "python"))},
    "16-bit softmax": (softmax_16, (1, 16, 64, 64), (GPT2, "attention", "softmax.steps_16"), 1),
    "softmax": (softmax, (1, 16, 64, 64), (EAGER, "attention", "softmax.steps"), 1),
    "unfused softmax": (megatron_softmax, (1, 16, 64, 64), (UNFUSED, "attention", "softmax.unfused"), 1),
    "fp32 loss": (lambda one: functional.cross_entropy(one.float(), labels(one)), (64, 4096),
                  (HUGGINGFACE.with_choices(loss="float"), "loss", "float.steps"), 1),
    "bf16 loss": (lambda one: functional.cross_entropy(one, labels(one)), (64, 4096),
                  (HUGGINGFACE.with_choices(loss="bf16"), "loss", "bf16.steps"), 1),
    "Hugging Face loss": (lambda one: ForCausalLMLoss(one, labels(one), 4096), (2, 64, 4096),
                          (HUGGINGFACE, "loss", "float.steps"), 1),
}


@pytest.mark.parametrize("case", list(CASES))
def test_eager_kernels(case: str) -> None:
    run, shape, ledger, inputs = CASES[case]
    found = per_element(run, leaf(*shape))
    assert tuple(one * inputs for one in found) == row(*ledger)


def test_eager_swiglu() -> None:
    found = per_element(lambda gate, up: functional.silu(gate) * up, leaf(64, 512), leaf(64, 512))
    assert found == row(EAGER, "swiglu", "activation.eager")


def test_layer_norm_of_one_kernel_in_each_pass() -> None:
    """As one operation: that a GPU's backward pass reads input and gradient a second time is not seen here."""
    run = nn.LayerNorm(2048, dtype=BF16)
    forward, backward = per_element(run, leaf(64, 2048))
    assert (forward, backward) == row(MEGATRON, "attention_norm", "norm.fused")
    layer = MEGATRON.with_choices(normalisation="layer", norm="torch")
    assert row(layer, "attention_norm", "norm.layer_norm") == (forward, backward + 4)


def test_megatron_rotary_with_its_tables() -> None:
    s, heads, d = 64, 32, 32
    angles = torch.ones(s, 1, 1, d)
    query = leaf(s, 1, heads, d)
    with Streamed() as forward:
        output = _apply_rotary_pos_emb_bshd(query, angles)
    gradient = torch.ones_like(output)
    with Streamed() as backward:
        output.backward(gradient)
    found = {"forward": forward.bytes, "backward": backward.bytes}
    of_query, tables = row(UNFUSED, "attention", "rope.q_unfused"), row(UNFUSED, "attention", "rope.tables")
    # The row of tables is of queries and keys; every product reads its table once more for all heads.
    assert found == {
        "forward": of_query[0] * query.numel() + (tables[0] // 2 + 4) * s * d,
        "backward": of_query[1] * query.numel() + 4 * s * d,
    }


def test_vocab_parallel_loss() -> None:
    with one_rank({"t": 1}, Random(0)):
        found = per_element(lambda one: vocab_parallel_cross_entropy(one.float(), labels(one)), leaf(64, 2, 4096))
    assert found == row(MEGATRON, "loss", "vocab_parallel.steps")
