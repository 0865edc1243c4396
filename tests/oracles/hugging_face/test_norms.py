"""Weights of a norm and tensors that it saves, wherever it stands: kernels of each framework, on tokens that reach it.

RMSNorm in single operations is PyTorch's own, which Megatron-Core and torchtitan call, or Transformers'. Kernels of
Transformer Engine, Liger and Apex are stand-ins, which keep what those give autograd, and so is LayerNorm, whose
statistics a GPU has in fp32.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from types import SimpleNamespace

import pytest
import torch
from counted import values
from oracles.instruments.saved import Saved
from oracles.instruments.traced import summed
from oracles.megatron_core import fused
from torch import Tensor, nn
from transformers.models.deepseek_v3.modeling_deepseek_v3 import DeepseekV3RMSNorm
from transformers.models.mixtral.modeling_mixtral import MixtralRMSNorm
from transformers.models.nemotron.modeling_nemotron import NemotronLayerNorm1P

from shardmath.symbolic.accounts import kept_rows
from shardmath.symbolic.implementations import HUGGINGFACE, MEGATRON, TORCHTITAN, Implementation
from shardmath.symbolic.ledger import Role
from shardmath.symbolic.parallel.uncounted import uncounted_in
from shardmath.symbolic.terms import Contribution

pytestmark = pytest.mark.slow

BF16 = torch.bfloat16
EXPERTS, LATENT = {"layers": "experts"}, {"heads": "latent"}
BOTH, WHOLE = {"norms": "both"}, {"qk_norms": "width"}
#: How names of rows of a norm begin, by place: letters of the tensor that it normalises, and choices with which it is.
PLACES: dict[str, tuple[str, dict[str, str]]] = {
    "embedding_norm.": ("s b h", {"embedding_norm": "norm"}), "attention_norm.": ("s b h", {}),
    "latent_norm.": ("s b h", LATENT), "ffn_norm.": ("s b h", {}), "expert_norm.": ("s b h", EXPERTS),
    "attention_post_norm.": ("s b h", BOTH), "ffn_post_norm.": ("s b h", BOTH), "final_norm.": ("s b h", {}),
    "mtp.embedding_norm.": ("s b h", EXPERTS), "mtp.hidden_norm.": ("s b h", EXPERTS),
    "mtp.final_norm.": ("s b h", EXPERTS),
    "latent_attention.q_norm.": ("s b lq", LATENT), "latent_attention.kv_norm.": ("s b lk", LATENT),
    "attention.q_norm.": ("s b a d", {}), "attention.k_norm.": ("s b k d", {}),
    "attention.q_norm.all_": ("s b A", WHOLE), "attention.k_norm.all_": ("s b K", WHOLE),
}
#: Norms inside of latent attention, of experts and of further predictions, and those behind blocks.
INSIDE = ("latent_norm.", "expert_norm.", "attention_post_norm.", "ffn_post_norm.", "mtp.embedding_norm.",
          "mtp.hidden_norm.", "mtp.final_norm.", "latent_attention.q_norm.", "latent_attention.kv_norm.")
OUTER, OF_HEADS = ("attention_norm.", "ffn_norm.", "final_norm."), ("attention.q_norm.", "attention.k_norm.")
OF_ALL = tuple(f"{place}all_" for place in OF_HEADS)
Kernel = Callable[[int, torch.dtype], nn.Module]


class Scaled(NemotronLayerNorm1P):
    """Nemotron's norm with the statistics of a GPU."""

    def forward(self, hidden: Tensor) -> Tensor:
        """Keep one plus the scale too."""
        return fused.LayerNorm.apply(hidden, self.weight + 1, self.bias)


class Apex(fused.FusedLayerNorm):
    """LayerNorm that keeps its output."""

    def forward(self, hidden: Tensor) -> Tensor:
        """Keep the output and one fp32 number for each token."""
        return fused.KeptOutput.apply(hidden, self.weight, self.bias)


def _stand_in(made: type[fused.FusedRMSNorm]) -> Kernel:
    return lambda width, dtype: made(SimpleNamespace(params_dtype=dtype, sequence_parallel=False), width)


RMS, LAYER = {"normalisation": "rms"}, {"normalisation": "layer"}
#: Kernels by framework: the choices that say so, the kernel, and the places where programs have it.
KERNELS: dict[str, tuple[Implementation, dict[str, str], Kernel, tuple[str, ...]]] = {
    "torch": (MEGATRON, {"norm": "torch", **RMS}, lambda width, dtype: nn.RMSNorm(width, dtype=dtype),
              (*OF_ALL, *INSIDE)),
    "torch's LayerNorm": (MEGATRON, {"norm": "torch", **LAYER}, _stand_in(fused.FusedLayerNorm), (*OF_ALL, *INSIDE)),
    "fused": (MEGATRON, {"norm": "fused", **RMS}, _stand_in(fused.FusedRMSNorm), ("latent_norm.",)),
    "Apex'": (MEGATRON, {"norm": "keeps_output", **LAYER}, _stand_in(Apex), (*OUTER, *OF_HEADS, *OF_ALL, *INSIDE)),
    "torchtitan's": (TORCHTITAN, {"norm": "torch", **RMS}, lambda width, dtype: nn.RMSNorm(width, dtype=dtype),
                     (*OUTER, *OF_HEADS)),
    "Liger's": (HUGGINGFACE, {"norm": "fused", **RMS}, _stand_in(fused.FusedRMSNorm),
                (*OUTER, *OF_HEADS, *OF_ALL, *(place for place in INSIDE if not place.startswith("mtp.")))),
    "Liger's LayerNorm": (HUGGINGFACE, {"norm": "fused", **LAYER}, _stand_in(fused.FusedLayerNorm),
                          ("embedding_norm.",)),
    "Nemotron's": (HUGGINGFACE, {"norm": "eager_scale", **LAYER}, lambda width, dtype: Scaled(width, dtype=dtype),
                   OUTER[:2]),
    "Mixtral's": (HUGGINGFACE, {"norm": "eager", "precision": "autocast", **RMS},
                  lambda width, dtype: MixtralRMSNorm(width), ("expert_norm.",)),
    "torch's LayerNorm under autocast": (HUGGINGFACE, {"norm": "eager", "precision": "autocast", **LAYER},
                                         _stand_in(fused.FusedLayerNorm), ("expert_norm.",)),
    "DeepSeek's": (HUGGINGFACE, {"norm": "eager", "precision": "autocast", **RMS},
                   lambda width, dtype: DeepseekV3RMSNorm(width), ("latent_norm.",)),
}
CASES = [(kernel, place) for kernel, (*_, places) in KERNELS.items() for place in places]


@pytest.mark.parametrize(("kernel", "place"), CASES)
def test_a_norm(kernel: str, place: str) -> None:
    framework, own, make, _ = KERNELS[kernel]
    letters, choices = PLACES[place]
    implementation = framework.with_choices(**{**own, **choices, "peak": "saved"})
    draw = Random(f"{kernel} {place}")
    shape = {letter: draw.randint(2, 40) for letter in ("s", "b", "h", "a", "k", "d", "lq", "lk")} | {"qkn": 1}
    shape |= {"A": shape["a"] * shape["d"], "K": shape["k"] * shape["d"]}
    dtype = torch.float32 if implementation.choices["precision"] == "autocast" else BF16
    sizes = [shape[letter] for letter in letters.split()]
    made = make(sizes[-1], dtype)
    hidden = torch.zeros(sizes, dtype=dtype, requires_grad=True)
    with Saved() as saved:
        output = made(hidden)
    rows = [row for row in kept_rows(implementation) if "." not in _rest(row, place)]
    parts = [[row for row in rows if (row.tensor.role is Role.WEIGHT) == is_weight] for is_weight in (True, False)]
    weights, kept = (summed(implementation, part, values({}, "", **shape) | shape) for part in parts)
    assert uncounted_in(implementation.choices) == []
    assert output.shape == hidden.shape
    assert weights == sum(one.numel() for one in made.parameters())
    assert kept == saved.bytes(*made.parameters())


def _rest(row: Contribution, place: str) -> str:
    """Return what a row is called at a place; a dot for rows elsewhere."""
    name = f"{row.component.name}.{row.tensor.name}"
    return name.removeprefix(place) if name.startswith(place) else "."
