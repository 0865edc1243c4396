"""Measure on one GPU what a step of Megatron-Core, or of Transformers under FSDP2, takes: memory and time.

It needs torch and megatron-core, or transformers. ``python megatron_on_gpu.py megatron '{...}'`` runs one case and
prints a line of JSON: the ``sizes`` of the model as Megatron-Core names them, ``sequence``, ``vocabulary``, and what
differs of ``flash``, ``recompute``, ``microbatches``, ``distributed``, ``steps`` and ``snapshot`` (a file).
Transformer Engine and Apex are not needed: the layers are those of the local specification, the optimizer is PyTorch's
AdamW, which works on lists of tensors, and flash attention is PyTorch's. ``fsdp`` takes the cases of ``on_gpu.py``. The
table is ``tests/data/one_h100.csv``.
"""
# mypy: ignore-errors

import gc
import json
import os
import sys
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

BF16 = torch.bfloat16


class Flash(nn.Module):
    """Attention of Megatron-Core's arguments by PyTorch's FlashAttention."""

    def __init__(self, config: Any, *_: Any, **__: Any) -> None:
        super().__init__()

    def forward(self, query: Tensor, key: Tensor, value: Tensor, *_: Any, **__: Any) -> Tensor:
        """Return (sequence, batch, heads x size); the inputs are (sequence, batch, heads, size)."""
        with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
            heads = functional.scaled_dot_product_attention(
                *(each.permute(1, 2, 0, 3) for each in (query, key, value)), is_causal=True, enable_gqa=True)
        return heads.permute(2, 0, 1, 3).flatten(2)


def megatron(case: dict[str, Any]) -> tuple[Callable[[], None], Callable[[], None], int]:
    """Return a micro-batch's passes, the end of a step, and the number of parameters."""
    import megatron.core.optimizer as optimizers
    from megatron.core import parallel_state, tensor_parallel
    from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
    from megatron.core.models.gpt.gpt_model import GPTModel
    from megatron.core.transformer.moe import moe_utils
    from megatron.core.transformer.transformer_config import TransformerConfig

    moe_utils.te_general_gemm = None  # left undefined without Transformer Engine
    parallel_state.initialize_model_parallel(create_gloo_process_groups=False)
    tensor_parallel.model_parallel_cuda_manual_seed(1)
    recompute = {
        "none": {}, "selective": {"recompute_granularity": "selective", "recompute_modules": ["core_attn"]},
        "full": {"recompute_granularity": "full", "recompute_method": "uniform", "recompute_num_layers": 1},
    }[case.get("recompute", "none")]
    sizes = dict(case["sizes"])
    tied = sizes.pop("tied", False)
    config = TransformerConfig(
        pipeline_dtype=BF16, params_dtype=BF16, bf16=True, normalization="RMSNorm", gated_linear_unit=True,
        activation_func=functional.silu, bias_activation_fusion=True, add_bias_linear=False, hidden_dropout=0.0,
        attention_dropout=0.0, masked_softmax_fusion=False, gradient_accumulation_fusion=False, **recompute, **sizes)
    spec = get_gpt_layer_local_spec(
        config.num_moe_experts, False, config.qk_layernorm, normalization="RMSNorm")
    if case["flash"]:
        spec.submodules.self_attention.submodules.core_attention = Flash
    torch.set_default_dtype(BF16)
    model = GPTModel(config, spec, case["vocabulary"], case["sequence"], position_embedding_type="rope",
                     share_embeddings_and_output_weights=tied).cuda().train()
    torch.set_default_dtype(torch.float32)
    distributed = case.get("distributed", False)
    chunk = DistributedDataParallel(config, DistributedDataParallelConfig(
        grad_reduce_in_fp32=True, overlap_grad_reduce=False, use_distributed_optimizer=distributed,
        check_for_nan_in_grad=False), model)
    optimizer = optimizers.get_megatron_optimizer(optimizers.OptimizerConfig(
        optimizer="adam", lr=1e-4, min_lr=1e-5, weight_decay=0.1, clip_grad=1.0, bf16=True, params_dtype=BF16,
        use_distributed_optimizer=distributed), [chunk], use_gloo_process_groups=False)
    s = case["sequence"]
    tokens = torch.randint(0, case["vocabulary"], (case.get("batch", 1), s), device="cuda")
    positions = torch.arange(s, device="cuda")[None].expand(tokens.shape)
    mask = None if case["flash"] else torch.ones(1, 1, s, s, dtype=torch.bool, device="cuda").triu(1)

    def passes() -> None:
        chunk(tokens, positions, mask, labels=tokens).mean().backward()

    def end() -> None:
        chunk.finish_grad_sync()
        optimizer.step()
        chunk.zero_grad_buffer()
        optimizer.zero_grad()

    return passes, end, sum(each.numel() for each in model.parameters())


def fsdp(case: dict[str, Any]) -> tuple[Callable[[], None], Callable[[], None], int]:
    """Return the same of a model of Transformers under FSDP2: fp32 shards, bf16 weights, gradients reduced in fp32."""
    import transformers
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    config = getattr(transformers, case["kind"] + "Config")(
        **case["sizes"], use_cache=False, attn_implementation="sdpa")
    with torch.device("cuda"):
        model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32).train()
    if case.get("recompute", "none") == "full":
        model.gradient_checkpointing_enable({"use_reentrant": False})
    policy = MixedPrecisionPolicy(param_dtype=BF16, reduce_dtype=torch.float32)
    for layer in model.model.layers:
        fully_shard(layer, mp_policy=policy)
    fully_shard(model, mp_policy=policy)
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    tokens = torch.randint(0, config.vocab_size, (case["batch"], case["sequence"]), device="cuda")

    def passes() -> None:
        loss = model(input_ids=tokens, labels=tokens).loss
        loss.backward()

    def end() -> None:
        optimizer.step()
        optimizer.zero_grad()

    return passes, end, sum(each.numel() for each in model.parameters())


def run(kind: str, case: dict[str, Any]) -> dict[str, Any]:
    """Train some steps; return the peaks after the first, seconds of all, and what lies outside of PyTorch."""
    torch.manual_seed(0)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(case.get("port", 29512)))
    dist.init_process_group("nccl", rank=0, world_size=1, device_id=torch.device("cuda:0"))
    if case.get("snapshot"):
        torch.cuda.memory._record_memory_history(stacks="python", max_entries=200_000)
    passes, end, parameters = {"megatron": megatron, "fsdp": fsdp}[kind](case)
    gc.collect()
    torch.cuda.empty_cache()
    torch.cuda.synchronize()
    held, seconds, first = torch.cuda.memory_allocated(), [], {}
    for number in range(case.get("steps", 4)):
        if number == 1:
            first = {"first_allocated": torch.cuda.max_memory_allocated(),
                     "first_reserved": torch.cuda.max_memory_reserved(), "steady": torch.cuda.memory_allocated()}
            torch.cuda.reset_peak_memory_stats()
        before, after = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        before.record()
        for _ in range(case.get("microbatches", 1)):
            passes()
        end()
        after.record()
        torch.cuda.synchronize()
        seconds.append(before.elapsed_time(after) / 1000)
    stats = torch.cuda.memory_stats()
    free, total = torch.cuda.mem_get_info()
    answer = {
        "allocated": torch.cuda.max_memory_allocated(), "reserved": torch.cuda.max_memory_reserved(), "held": held,
        **first, "seconds": seconds, "segments": stats["segment.all.current"], "retries": stats["num_alloc_retries"],
        "outside": total - free - torch.cuda.memory_reserved(), "parameters": parameters}
    if case.get("snapshot"):
        torch.cuda.memory._dump_snapshot(case["snapshot"])
    return answer


if __name__ == "__main__":
    case = json.loads(sys.argv[2])
    print(json.dumps({"kind": sys.argv[1], "case": case, "result": run(sys.argv[1], case)}), flush=True)
