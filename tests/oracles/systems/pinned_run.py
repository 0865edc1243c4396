"""Pinned blocks of a host by DeepSpeed's own code, on two ranks with Gloo: all that PyTorch's allocator makes.

``python pinned_run.py`` prints the rows of ``tests/data/pinned_counted.csv``; it needs DeepSpeed and Transformers. No
memory is pinned on a CPU, so each request is copied instead and given to an allocator that does as
``CachingHostAllocator`` of PyTorch 2.13: a block is a power of two of bytes, and comes back for later ones as large.
What stays gathered is pinned there, where the CPU is its GPU; so with ``pin_memory`` of parameters nothing does.
The columns ``requested`` and ``blocks`` are bytes of what is pinned and alive after a step, and of all blocks.
"""

from __future__ import annotations

import sys
from collections import Counter
from typing import Any

from gloo_ranks import print_rows

STEPS = 2
COLUMNS = ("offload", "pinned", "h", "a", "k", "d", "f", "u", "L", "tied", "pt", "sg")
#: Cases by column: sizes below ``pt`` stay gathered, ``sg`` are elements of a subgroup.
CASES = (
    ("optimizer", "all", 48, 4, 2, 12, 84, 124, 2, 0, 0, 10**9),
    ("optimizer", "none", 48, 4, 2, 12, 84, 124, 2, 0, 0, 10**9),
    ("optimizer", "all", 40, 5, 1, 8, 72, 219, 3, 1, 100, 10**9),
    ("optimizer", "all", 64, 4, 4, 16, 100, 130, 3, 0, 0, 30_000),
    ("parameters", "all", 48, 4, 2, 12, 84, 124, 2, 0, 0, 10**9),
    ("parameters", "none", 48, 4, 2, 12, 84, 124, 2, 0, 0, 10**9),
    ("parameters", "optimizer", 56, 7, 7, 8, 90, 333, 1, 0, 100, 10**9),
    ("parameters", "parameters", 56, 7, 7, 8, 90, 333, 1, 0, 0, 10**9),
    ("parameters", "all", 36, 3, 1, 12, 71, 249, 3, 1, 0, 9_000),
)


class Pinned:
    """An allocator of pinned blocks: by power of two those alive, by what they hold, and those that are free."""

    def __init__(self) -> None:
        self.alive: list[tuple[Any, int, int]] = []
        self.free: Counter[int] = Counter()

    def pin(self, tensor: Any) -> Any:
        """Return a copy of a tensor in a block of its own."""
        from torch.multiprocessing.reductions import StorageWeakRef

        self.settle()
        block = 1 << (tensor.nbytes - 1).bit_length() if tensor.nbytes else 0
        if self.free[block]:
            self.free[block] -= 1
        copied = tensor.clone()
        self.alive.append((StorageWeakRef(copied.untyped_storage()), tensor.nbytes, block))
        return copied

    def settle(self) -> None:
        """Take back the blocks of tensors that are gone."""
        self.free.update(block for storage, _, block in self.alive if storage.expired())
        self.alive = [entry for entry in self.alive if not entry[0].expired()]

    def sizes(self) -> tuple[int, int]:
        """Return bytes of what is alive, and of all blocks."""
        self.settle()
        return (sum(size for _, size, _ in self.alive),
                sum(block for *_, block in self.alive) + sum(block * count for block, count in self.free.items()))


def rank_of(case: dict[str, Any]) -> tuple[int, int]:
    """Train one rank and return the sizes of its pinned memory."""
    import deepspeed
    import torch
    from deepspeed.accelerator import get_accelerator
    from transformers import LlamaConfig, LlamaForCausalLM, Trainer

    pinned = Pinned()
    type(get_accelerator()).pin_memory = lambda self, tensor, *others, **named: pinned.pin(tensor)
    deepspeed.init_distributed("gloo")
    model = LlamaForCausalLM(LlamaConfig(
        hidden_size=case["h"], num_attention_heads=case["a"], num_key_value_heads=case["k"], head_dim=case["d"],
        intermediate_size=case["f"], vocab_size=case["u"], num_hidden_layers=case["L"],
        tie_word_embeddings=bool(case["tied"]))).bfloat16()
    decayed = Trainer.get_decay_parameter_names(None, model)
    named = list(model.named_parameters())
    groups = [{"params": [one for name, one in named if (name in decayed) is has]} for has in (True, False)]
    asked = {part: {"device": "cpu", "pin_memory": case["pinned"] in ("all", part)}
             for part in ("optimizer", "parameters")}
    stage: dict[str, Any] = {
        "stage": 3, "stage3_param_persistence_threshold": case["pt"], "sub_group_size": case["sg"],
        "reduce_bucket_size": 10**6, "offload_optimizer": asked["optimizer"]}
    if case["offload"] == "parameters":
        stage["offload_param"] = asked["parameters"]
    engine, *_ = deepspeed.initialize(
        model=model, optimizer=torch.optim.AdamW(groups), config={
            "train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": True}, "zero_optimization": stage,
            "zero_force_ds_cpu_optimizer": False, "zero_allow_untested_optimizer": True})
    tokens = torch.ones(1, 8, dtype=torch.long)
    for _ in range(STEPS):
        engine.backward(engine(input_ids=tokens, labels=tokens).loss)
        engine.step()
    return pinned.sizes()


if __name__ == "__main__":
    if sys.argv[1:]:
        words = dict(zip(COLUMNS, sys.argv[1:], strict=True))
        print(*rank_of({name: int(word) if word.isdigit() else word for name, word in words.items()}))
    else:
        print_rows(__file__, (*COLUMNS, "requested", "blocks"), CASES)
