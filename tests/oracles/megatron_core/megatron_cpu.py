"""Megatron-Core on a machine without GPUs: fake process groups, and models of one rank of any layout.

The ranks of a fake group do not exist: collectives return at once and leave their buffers as they are. Sizes are
those of the real thing, values are not, so nothing here looks at a value.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from random import Random
from typing import Any

import torch
import torch.distributed as dist
from megatron.core import parallel_state
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
from megatron.core.models.gpt.gpt_model import GPTModel
from megatron.core.tensor_parallel import random as megatron_random
from megatron.core.tensor_parallel.layers import ColumnParallelLinear, RowParallelLinear
from megatron.core.transformer.attention import SelfAttention
from megatron.core.transformer.identity_op import IdentityOp
from megatron.core.transformer.spec_utils import ModuleSpec
from megatron.core.transformer.transformer_block import TransformerBlockSubmodules, get_num_layers_to_build
from megatron.core.transformer.transformer_config import TransformerConfig
from oracles.megatron_core import fused
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.testing._internal.distributed.fake_pg import FakeStore

Shape = dict[str, int]
BF16 = torch.bfloat16


def dropout(hidden: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Keep a mask of one byte for each element; the CPU's own dropout keeps one of the input's type."""
    return torch.native_dropout(hidden, p, training)[0] if training and p else hidden


def layer_norm(hidden: Tensor, shape: Any, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
    """Keep mean and inverse deviation in fp32; the CPU's own LayerNorm keeps them in the input's type."""
    return fused.LayerNorm.apply(hidden, weight, bias)


#: Functions of PyTorch that save other tensors on a CPU than on a GPU, and what saves the same as on a GPU.
OF_A_GPU: dict[Any, Any] = {nn.functional.dropout: dropout, nn.functional.layer_norm: layer_norm}


class CpuForCuda(TorchFunctionMode):
    """Make on the CPU what Megatron-Core asks to make on a GPU, and let it call CPU tensors by their GPU name."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Replace the device of the arguments and the device in the name of a type."""
        kwargs = {name: value for name, value in (kwargs or {}).items() if name != "pin_memory"}
        if str(kwargs.get("device", "")).startswith("cuda"):
            kwargs["device"] = "cpu"
        if func is Tensor.cuda:
            return args[0]
        result = OF_A_GPU.get(func, func)(*args, **kwargs)
        if func is Tensor.type and isinstance(result, str):
            return result.replace("torch.", "torch.cuda.", 1)
        return result


@contextmanager
def one_rank(shape: Shape, draw: Random) -> Iterator[int]:
    """Be one rank of a job of t c D p fake ranks on the CPU: of pipeline rank r, with the others drawn.

    Yields the rank among the D c ranks that share the optimizer states. Random states of GPUs do not exist
    here: they are tensors without elements.
    """
    t, c, p, D = (shape.get(letter, 1) for letter in "tcpD")
    replica = draw.randrange(c * D)
    rank = (shape.get("r", 0) * c * D + replica) * t + draw.randrange(t)
    patched = (
        (torch.cuda, "current_device", lambda: torch.device("cpu")),
        (megatron_random, "_get_cuda_rng_state", lambda *_, **__: torch.empty(0)),
        (megatron_random, "_set_cuda_rng_state", lambda *_, **__: None),
    )
    originals = [(module, name, getattr(module, name)) for module, name, _ in patched]
    dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=t * c * D * p)
    try:
        for module, name, stand_in in patched:
            setattr(module, name, stand_in)
        megatron_random.initialize_rng_tracker(inference_rng_tracker=True, force_reset=True)
        parallel_state.initialize_model_parallel(
            tensor_model_parallel_size=t, context_parallel_size=c, pipeline_model_parallel_size=p,
            virtual_pipeline_model_parallel_size=_chunks(shape), create_gloo_process_groups=False,
            expert_model_parallel_size=shape.get("e", 1), expert_tensor_parallel_size=shape.get("et"),
        )
        with CpuForCuda():
            yield replica
    finally:
        parallel_state.destroy_model_parallel()
        parallel_state.destroy_global_memory_buffer()
        dist.destroy_process_group()
        for module, name, original in originals:
            setattr(module, name, original)


def _chunks(shape: Shape) -> int | None:
    """Megatron-Core calls one chunk per rank no virtual pipeline."""
    return shape["V"] if shape.get("V", 1) > 1 else None


@dataclass(frozen=True)
class Kernels:
    """Which modules a layer is made of; ``None`` is Megatron-Core's own. Norms may stand ``behind`` its blocks.

    Others may be ``before`` them or not, as in Megatron-Bridge's layers of EXAONE 4.
    Norms of queries and keys may be over ``whole`` ones, as in Megatron-Bridge's layers of OLMoE.
    A fused norm before a dense MLP is inside of its first linear layer, as in layers of Transformer Engine.
    """

    norm: type[nn.Module] | None = fused.FusedRMSNorm
    attention: type[nn.Module] | None = fused.FlashAttention
    behind: bool = False
    before: bool = True
    whole: bool = False


FUSED = Kernels()
GPT = Kernels(norm=fused.FusedLayerNorm, attention=fused.FlashAttentionOfView)
BEHIND = Kernels(attention=fused.FlashAttentionOfView, behind=True)
AFTER = Kernels(attention=fused.FlashAttentionOfView, behind=True, before=False)
WHOLE = Kernels(whole=True)
FUSED_VIEW = Kernels(attention=fused.FlashAttentionOfView)
LOCAL = Kernels(norm=None, attention=None)


class NormedLinear(ColumnParallelLinear):
    """A column-parallel linear layer that normalises its input, as Transformer Engine's ``LayerNormLinear`` does."""

    def __init__(self, *sizes: int, config: Any, norm: type[nn.Module], **others: Any) -> None:
        super().__init__(*sizes, config=config, **others)
        self.layer_norm = norm(config, self.input_size)

    def forward(self, hidden: Tensor, *others: Any, **named: Any) -> tuple[Tensor, Tensor | None]:
        """Normalise the input and project it."""
        return self.projected(self.layer_norm(hidden), *others, **named)

    def projected(self, normed: Tensor, *others: Any, **named: Any) -> tuple[Tensor, Tensor | None]:
        """Project what is normalised already."""
        return super().forward(normed, *others, **named)


class LinearWithNorm(RowParallelLinear):
    """A norm behind the row-parallel linear layer, as in Megatron-Bridge's layers of Gemma 2 and 3."""

    def __init__(self, *sizes: int, config: Any, **others: Any) -> None:
        super().__init__(*sizes, config=config, **others)
        self.post_layernorm = fused.FusedRMSNorm(config, self.output_size)

    def forward(self, hidden: Tensor) -> tuple[Tensor, Tensor | None]:
        """Normalise the output; a bias is returned as it is."""
        output, bias = super().forward(hidden)
        return self.post_layernorm(output), bias


class WholeNorms(SelfAttention):
    """Attention with a norm over all heads of a query, and one over as many of a key, as OLMoE's in Megatron-Bridge."""

    def __init__(self, config: Any, *others: Any, norm: type[nn.Module], **named: Any) -> None:
        super().__init__(config, *others, **named)
        self.norms = nn.ModuleList(norm(config, config.num_attention_heads * config.kv_channels) for _ in range(2))

    def get_query_key_value_tensors(self, *others: Any, **named: Any) -> Any:
        """Normalise queries and keys as if they had one head."""
        query, key, value = super().get_query_key_value_tensors(*others, **named)
        normed = (norm(each.flatten(2)).view(each.shape) for norm, each in zip(self.norms, (query, key), strict=True))
        return *normed, value


def put_norm_inside(parts: Any, norm: type[nn.Module]) -> None:
    """Put the norm of a dense layer's MLP into its first linear layer."""
    parts.pre_mlp_layernorm = IdentityOp
    parts.mlp.submodules.linear_fc1 = ModuleSpec(NormedLinear, params={"norm": norm})


def layer_spec(kernels: Kernels, *, normalization: str, qk_norm: bool) -> Any:
    """Megatron-Core's own specification of a dense layer with some modules replaced."""
    spec = get_gpt_layer_local_spec(normalization=normalization, qk_layernorm=qk_norm and not kernels.whole)
    parts, attention = spec.submodules, spec.submodules.self_attention.submodules
    if kernels.whole and qk_norm:
        parts.self_attention.module = WholeNorms
        parts.self_attention.params = {**parts.self_attention.params, "norm": kernels.norm}
    if not kernels.before:
        parts.input_layernorm = parts.pre_mlp_layernorm = IdentityOp
    elif kernels.norm is not None:
        parts.input_layernorm = kernels.norm
        put_norm_inside(parts, kernels.norm)
    if kernels.norm is not None and qk_norm and not kernels.whole:
        attention.q_layernorm = attention.k_layernorm = kernels.norm
    if kernels.behind:
        attention.linear_proj = parts.mlp.submodules.linear_fc2 = LinearWithNorm
    if kernels.attention is not None:
        attention.core_attention = kernels.attention
    return spec


def recompute_settings(shape: Shape, method: str) -> dict[str, Any]:
    """Megatron-Core's settings for the ledger's recompute switches and its choice ``recompute_method``."""
    modules = [name for letter, name in (("rcore", "core_attn"), ("rmlp", "mlp")) if shape.get(letter)]
    if modules:
        return {"recompute_granularity": "selective", "recompute_modules": modules}
    if not shape.get("rfull"):
        return {}
    return {
        "recompute_granularity": "full", "recompute_method": "block" if method == "block" else "uniform",
        "recompute_num_layers": 1 if method == "each" else shape["rn"],
    }


def stage_settings(shape: Shape) -> dict[str, Any]:
    """Megatron-Core's settings for stages with other numbers of layers."""
    return {
        "num_layers_in_first_pipeline_stage": shape.get("Lf") or None,
        "num_layers_in_last_pipeline_stage": shape.get("Ll") or None,
        "account_for_embedding_in_pipeline_split": bool(shape.get("eemb")),
        "account_for_loss_in_pipeline_split": bool(shape.get("eloss")),
    }


def config(shape: Shape, method: str = "each", **others: Any) -> Any:
    """Configure a Llama-like model in bf16 for sizes by letter."""
    return TransformerConfig(**{
        "num_layers": shape["L"], "hidden_size": shape["h"], "num_attention_heads": shape["a"],
        "num_query_groups": shape["k"], "kv_channels": shape["d"], "ffn_hidden_size": shape["f"],
        "tensor_model_parallel_size": shape.get("t", 1), "pipeline_model_parallel_size": shape.get("p", 1),
        "context_parallel_size": shape.get("c", 1), "sequence_parallel": bool(shape.get("sp", 0)),
        "pipeline_dtype": BF16, "params_dtype": BF16, "bf16": True,
        "normalization": "RMSNorm", "gated_linear_unit": True, "activation_func": torch.nn.functional.silu,
        "bias_activation_fusion": True, "add_bias_linear": False, "add_qkv_bias": bool(shape.get("bias", 0)),
        "hidden_dropout": 0.0, "attention_dropout": 0.0, "masked_softmax_fusion": False,
        "gradient_accumulation_fusion": False, "use_cpu_initialization": True, "perform_initialization": False,
        "qk_layernorm": bool(shape.get("qkn", 0)), **recompute_settings(shape, method),
        **stage_settings(shape), "virtual_pipeline_model_parallel_size": _chunks(shape), **others,
    })


def gpt_model(
    shape: Shape, settings: Any, kernels: Kernels = FUSED, chunk: int | None = None, positions: str = "rope",
    rotary_share: float = 1.0,
) -> Any:
    """Make the part of the model that the rank holds, or one of its chunks; ``u`` is the padded vocabulary."""
    spec = layer_spec(kernels, normalization=settings.normalization, qk_norm=settings.qk_layernorm)
    first = parallel_state.is_pipeline_first_stage(ignore_virtual=chunk is None, vp_stage=chunk)
    last = parallel_state.is_pipeline_last_stage(ignore_virtual=chunk is None, vp_stage=chunk)
    if kernels.norm is not None:
        layers = get_num_layers_to_build(settings, chunk, parallel_state.get_pipeline_model_parallel_rank())
        spec = TransformerBlockSubmodules(layer_specs=[spec] * layers, layer_norm=kernels.norm)
    before = torch.get_default_dtype()
    torch.set_default_dtype(BF16)  # torch.nn.RMSNorm asks for no type
    try:
        return GPTModel(
            settings, spec, shape["u"], shape["s"], pre_process=first, post_process=last, vp_stage=chunk,
            position_embedding_type=positions, rotary_percent=rotary_share,
            share_embeddings_and_output_weights=bool(shape.get("tied", 0)),
        )
    finally:
        torch.set_default_dtype(before)


@dataclass(frozen=True)
class Batch:
    """The inputs of one micro-batch on one rank."""

    ids: Tensor
    positions: Tensor
    mask: Tensor | None
    labels: Tensor

    @classmethod
    def of(cls, shape: Shape) -> Batch:
        """Make inputs; the mask hides what comes later, and is shared by all sequences."""
        s = shape["s"] // shape.get("c", 1)
        tokens = shape["b"], s
        return cls(
            torch.zeros(tokens, dtype=torch.long), torch.arange(s)[None].expand(tokens),
            torch.ones(1, 1, s, s, dtype=torch.bool).triu(1), torch.zeros(tokens, dtype=torch.long),
        )

    def with_mask(self, mask: Tensor | None) -> Batch:
        """The same inputs with another mask."""
        return replace(self, mask=mask)


def receive(model: Any, shape: Shape) -> None:
    """Give the rank's part its input, if it has no embedding."""
    if not model.pre_process:
        local = shape["s"] // (shape.get("c", 1) * (shape["t"] if shape["sp"] else 1))
        model.set_input_tensor(torch.zeros(local, shape["b"], shape["h"], dtype=BF16, requires_grad=True))


def forward(model: Any, shape: Shape, batch: Batch, **others: Any) -> Tensor:
    """Run one micro-batch through the rank's part: the loss of every token on the last stage, else the output."""
    receive(model, shape)
    labels: Sequence[Tensor] | Tensor | None = batch.labels if model.post_process else None
    return model(batch.ids, batch.positions, batch.mask, labels=labels, **others)
