"""Measure on one GPU what a step of Transformers takes: memory, time, and what lies outside of PyTorch's allocator.

It needs torch and transformers, and peft for adapters. ``python on_gpu.py step '{...}'`` runs one case and prints a
line of JSON: ``kind`` and ``sizes`` of a configuration of Transformers, ``sequence``, ``batch``, and what differs of
``attention``, ``recompute``, ``adapter`` (the rank), ``microbatches``, ``steps`` and ``snapshot`` (a file). ``python
on_gpu.py context '{}'`` measures the process outside of the allocator, from one library to the next. Each case is a
process of its own, so that contexts and allocators are fresh. The tables are ``tests/data/huggingface_h100.csv``,
``tests/data/snapshots`` and rows of ``tests/data/outside_allocator.csv``.
"""

import gc
import json
import os
import sys
from typing import Any

import torch
import torch.distributed as dist
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel


def outside() -> int:
    """Bytes of the GPU that are in use and not PyTorch's reserved memory; nobody else uses the GPU."""
    torch.cuda.synchronize()
    free, total = map(int, torch.cuda.mem_get_info())
    return total - free - int(torch.cuda.memory_reserved())


def step(case: dict[str, Any]) -> dict[str, Any]:
    """Train some steps; return the peaks of the last one, seconds of all, and what lies outside."""
    import transformers

    torch.manual_seed(0)
    if case.get("snapshot"):
        torch.cuda.memory._record_memory_history(stacks="python", max_entries=200_000)
    config = getattr(transformers, case["kind"] + "Config")(
        **case["sizes"], use_cache=False, attn_implementation=case.get("attention", "sdpa"))
    with torch.device("cuda"):
        torch.set_default_dtype(torch.bfloat16)
        model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).train()
        torch.set_default_dtype(torch.float32)
    if case.get("adapter"):
        import peft
        model = peft.get_peft_model(model, peft.LoraConfig(
            r=case["adapter"], target_modules="all-linear", lora_dropout=0.0), autocast_adapter_dtype=False)
    if case.get("recompute"):
        model.gradient_checkpointing_enable({"use_reentrant": False})
        if case.get("adapter"):
            model.enable_input_require_grads()
    trained = [each for each in model.parameters() if each.requires_grad]
    optimizer = torch.optim.AdamW(trained, fused=True)
    gc.collect()
    torch.cuda.empty_cache()
    tokens = torch.randint(0, config.vocab_size, (case["batch"], case["sequence"]), device="cuda")
    seconds, peaks, steps = [], [], case.get("steps", 5)
    for number in range(steps):
        if number == 1:
            torch.cuda.reset_peak_memory_stats()
        before, after = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        before.record()
        for _ in range(case.get("microbatches", 1)):
            loss = model(input_ids=tokens, labels=tokens).loss
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        after.record()
        torch.cuda.synchronize()
        seconds.append(before.elapsed_time(after) / 1000)
        peaks.append((torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved()))
    stats = torch.cuda.memory_stats()
    if case.get("snapshot"):
        torch.cuda.memory._dump_snapshot(case["snapshot"])
    return {"allocated": peaks[-1][0], "reserved": peaks[-1][1], "seconds": seconds,
            "segments": stats["segment.all.current"], "retries": stats["num_alloc_retries"], "outside": outside(),
            "parameters": sum(each.numel() for each in model.parameters())}


def context(case: dict[str, Any]) -> dict[str, Any]:
    """Bytes outside of the allocator after each library has been called for the first time."""
    rows: dict[str, Any] = {}
    torch.zeros(1, device="cuda")
    rows["context"] = outside()
    matrix = torch.randn(512, 512, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    (matrix @ matrix).sum().backward()
    rows["products of both passes"] = outside()
    heads = torch.randn(1, 8, 1024, 128, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    for backend in (SDPBackend.FLASH_ATTENTION, SDPBackend.CUDNN_ATTENTION):
        with sdpa_kernel(backend):
            functional.scaled_dot_product_attention(heads, heads, heads, is_causal=True).sum().backward()
        rows[str(backend)] = outside()
    torch.optim.AdamW([matrix], fused=True).step()
    torch.compile(lambda value: functional.silu(value) * value)(heads).sum().backward()
    rows["optimizer and compiled kernels"] = outside()
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29511")
    dist.init_process_group("nccl", rank=0, world_size=1, device_id=torch.device("cuda:0"))
    values = torch.ones(1 << 22, device="cuda")
    dist.all_reduce(values)
    rows["NCCL, one group"] = outside()
    dist.all_reduce(values, group=dist.new_group([0]))
    rows["NCCL, two groups"] = outside()
    return rows


if __name__ == "__main__":
    case = json.loads(sys.argv[2])
    print(json.dumps({"case": case, "result": {"step": step, "context": context}[sys.argv[1]](case)}), flush=True)
