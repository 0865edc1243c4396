"""Megatron-Core with experts, latent attention and further predictions in real processes: one rank's work and traffic.

Tokens are sent to experts by numbers, the same for all ranks, so that every expert gets as many. Experts run one after
another, each with Megatron-Core's own linear layers; Transformer Engine's linear layer that every rank has whole, of
which latent attention has two, is a stand-in.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from megatron.core import parallel_state
from megatron.core.models.gpt.gpt_layer_specs import (
    get_gpt_decoder_block_spec,
    get_gpt_layer_local_spec,
    get_gpt_mtp_block_spec,
)
from megatron.core.models.gpt.gpt_model import GPTModel
from megatron.core.tensor_parallel import random as megatron_random
from megatron.core.transformer import multi_latent_attention as latent
from megatron.core.transformer.moe import moe_utils, token_dispatcher
from megatron.core.transformer.moe.router import TopKRouter
from megatron.core.transformer.transformer_config import MLATransformerConfig, TransformerConfig
from oracles.instruments.sent import Sent, Traffic
from oracles.megatron_core import fused
from oracles.megatron_core.megatron_cpu import BF16, Batch, CpuForCuda, Shape, config, forward
from oracles.megatron_core.megatron_lora import adapt, with_gradient
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

# The router asks for Transformer Engine's product by a name that does not exist without it.
moe_utils.te_general_gemm = None


class WholeLinear(nn.Module):
    """A linear layer that every tensor-parallel rank has whole."""

    def __init__(self, inputs: int, outputs: int, *, config: Any, **_: Any) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(outputs, inputs, dtype=config.params_dtype))

    def forward(self, hidden: Tensor) -> tuple[Tensor, None]:
        """Multiply; there is no bias."""
        return nn.functional.linear(hidden, self.weight), None


class Nothing:
    """A stream or an event of a GPU, which orders what is in order already."""

    def __getattr__(self, name: str) -> Any:
        """Do nothing when called, and return another one."""
        return lambda *_, **__: Nothing()

    def __enter__(self) -> None:
        """Order what follows."""

    def __exit__(self, *_: Any) -> None:
        """Order what comes after."""


def on_host(tensor: Any, as_numpy: bool = False, record_stream: bool = False) -> Any:
    """Numbers of tokens as the host gets them from a GPU."""
    return tensor.numpy() if as_numpy and isinstance(tensor, Tensor) else tensor


@contextmanager
def real_rank(shape: Shape) -> Iterator[None]:
    """Be one rank of a job of t c D e real processes on the CPU, in one pipeline stage."""
    def evenly(router: Any, hidden: Tensor) -> Tensor:
        logits = original(router, hidden)
        tokens, q, E = logits.numel() // shape["E"], shape["q"], shape["E"]
        chosen = (torch.arange(tokens)[:, None] * q + torch.arange(q)) % E
        return logits.nan_to_num() * 0 + torch.zeros(tokens, E).scatter(1, chosen, 100.0).view_as(logits)

    original = TopKRouter.gating
    patched = (
        (torch.cuda, "current_device", lambda: torch.device("cpu")), (torch.cuda, "Stream", Nothing),
        (torch.cuda, "current_stream", Nothing), (torch.cuda, "stream", lambda _: Nothing()),
        (megatron_random, "_get_cuda_rng_state", lambda *_, **__: torch.empty(0)),
        (megatron_random, "_set_cuda_rng_state", lambda *_, **__: None),
        (token_dispatcher, "maybe_move_tensor_to_cpu", on_host),
        (TopKRouter, "gating", evenly),
    )
    originals = [(module, name, getattr(module, name)) for module, name, _ in patched]
    for module, name, stand_in in patched:
        setattr(module, name, stand_in)
    try:
        megatron_random.initialize_rng_tracker(inference_rng_tracker=True, force_reset=True)
        megatron_random.model_parallel_cuda_manual_seed(1, tp_rank=0, ep_rank=0, etp_rank=0)
        parallel_state.initialize_model_parallel(
            tensor_model_parallel_size=shape["t"], context_parallel_size=shape["c"],
            expert_model_parallel_size=shape["e"], expert_tensor_parallel_size=shape["et"],
            create_gloo_process_groups=False,
        )
        with CpuForCuda(), whole_linears():
            yield
    finally:
        parallel_state.destroy_model_parallel()
        parallel_state.destroy_global_memory_buffer()
        for module, name, before in originals:
            setattr(module, name, before)


@contextmanager
def whole_linears() -> Iterator[None]:
    """Put the stand-in in the place of Transformer Engine's linear layer that every rank has whole."""
    original = latent.TELinear
    latent.TELinear = WholeLinear
    try:
        yield
    finally:
        latent.TELinear = original


def settings_of(shape: Shape, dispatcher: str) -> Any:
    """Configure a model with experts, in every ``step``-th layer after ``ld``; with ``lk`` its attention is latent."""
    moe: dict[str, Any] = {
        "num_moe_experts": shape["E"], "moe_router_topk": shape["q"], "moe_ffn_hidden_size": shape["fe"],
        "moe_token_dispatcher_type": dispatcher, "moe_router_load_balancing_type": "none",
        "moe_shared_expert_intermediate_size": shape["fs"] or None, "moe_router_dtype": "fp32",
        "moe_shared_expert_gate": bool(shape["sgate"] and shape["fs"]),
        "moe_layer_freq": [int(i >= shape["ld"] and (i + 1) % shape.get("step", 1) == 0) for i in range(shape["L"])],
        "expert_model_parallel_size": shape["e"], "expert_tensor_parallel_size": shape["et"],
        "mtp_num_layers": shape["mtp"] or None, "add_bias_linear": bool(shape.get("lbias", 0)),
    }
    if not shape["lk"]:
        return config(shape, **moe)
    own = vars(config(shape)).keys() & TransformerConfig.__dataclass_fields__.keys()
    plain = {name: value for name, value in vars(config(shape)).items() if name in own}
    for derived in ("kv_channels", "num_query_groups"):
        plain[derived] = None
    return MLATransformerConfig(**{
        **plain, **moe, "multi_latent_attention": True, "q_lora_rank": shape["lq"] or None, "kv_lora_rank": shape["lk"],
        "qk_head_dim": shape["d"] - shape["dr"], "qk_pos_emb_head_dim": shape["dr"], "v_head_dim": shape["dv"],
        "rope_type": "rope", "apply_rope_fusion": False,
    })


def model_of(shape: Shape, settings: Any, chunk: int | None = None, predictions: str = "experts") -> Any:
    """Make the rank's part of the model, or one of its chunks, with stand-ins for fused kernels.

    Layers of further ``predictions`` have experts, or a dense MLP, as Megatron-Bridge makes them for K-EXAONE.
    """
    block = get_gpt_decoder_block_spec(settings, use_transformer_engine=False, normalization="RMSNorm", vp_stage=chunk)
    block.layer_norm = fused.FusedRMSNorm
    dense = get_gpt_layer_local_spec(multi_latent_attention=bool(shape["lk"]), normalization="RMSNorm")
    for layer in (*block.layer_specs, dense):
        parts, attention = layer.submodules, layer.submodules.self_attention.submodules
        parts.input_layernorm = parts.pre_mlp_layernorm = fused.FusedRMSNorm
        attention.core_attention = fused.FlashAttention
        if shape["lk"]:
            attention.linear_q_down_proj = attention.linear_kv_down_proj = WholeLinear
            attention.q_layernorm = attention.kv_layernorm = OfWidth
    further = None
    if shape["mtp"]:
        last = {"experts": block, "dense": dense}[predictions]
        further = get_gpt_mtp_block_spec(settings, last, use_transformer_engine=False, vp_stage=chunk)
    for prediction in further.layer_specs if further else ():
        norms = prediction.submodules
        norms.enorm = norms.hnorm = norms.layer_norm = fused.FusedRMSNorm
    before = torch.get_default_dtype()
    torch.set_default_dtype(BF16)
    try:
        return GPTModel(
            settings, block, shape["u"], shape["s"], position_embedding_type="rope", mtp_block_spec=further,
            share_embeddings_and_output_weights=bool(shape["tied"]), vp_stage=chunk,
            pre_process=parallel_state.is_pipeline_first_stage(ignore_virtual=chunk is None, vp_stage=chunk),
            post_process=parallel_state.is_pipeline_last_stage(ignore_virtual=chunk is None, vp_stage=chunk),
        )
    finally:
        torch.set_default_dtype(before)


class OfWidth(fused.FusedRMSNorm):
    """The norm of compressed tokens, which is asked for by other names."""

    def __init__(self, hidden_size: int, config: Any, eps: float = 1e-5) -> None:
        super().__init__(config, hidden_size, eps)


def run(rank: int, shape: Shape, dispatcher: str, predictions: str = "experts") -> dict[str, list[int]]:
    """Run one micro-batch forward and backward: FLOPs, passes over rings of all groups, and bytes made whole.

    Also parameters by whether they are trained and whether they are experts', whose gradients have other ranks.
    """
    with real_rank(shape):
        settings = settings_of(shape, dispatcher)
        model = model_of(shape, settings, predictions=predictions)
        if shape.get("rl"):
            adapt(model, shape["rl"], "all_linear", apart=False)
            model.decoder.register_forward_pre_hook(with_gradient, with_kwargs=True)
        batch = Batch.of(shape).with_mask(None)
        found: dict[str, list[int]] = {}
        output = None
        for way in ("forward", "backward"):
            flops, sent = FlopCounterMode(display=False), Sent()
            with flops, sent:
                if output is None:
                    output = forward(model, shape, batch)
                else:
                    output.sum().backward()
            found[way] = [flops.get_total_flops(), *Traffic.of(sent.calls)]
        found["parameters"] = [
            sum(each.numel() for each in model.parameters()
                if (each.requires_grad, getattr(each, "allreduce", True)) == (trained, not expert))
            for trained in (True, False) for expert in (False, True)
        ]
        return found


def run_all(rank: int, cases: list[list[Any]]) -> list[dict[str, list[int]]]:
    """Run one case after another on this rank."""
    return [run(rank, *case) for case in cases]
