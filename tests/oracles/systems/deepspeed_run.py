"""ZeRO-3 with its optimizer on the host by DeepSpeed's own code, on two ranks with Gloo: what its collectives move.

``python deepspeed_run.py`` prints the rows of ``tests/data/deepspeed_counted.csv``; it needs no more than DeepSpeed.
"""

from __future__ import annotations

import sys
from collections import Counter
from typing import Any

from gloo_ranks import print_rows

STEPS = 2
#: Tensors on the host, matrices, their width.
CASES = (("none", 3, 48), ("optimizer", 4, 64), ("parameters", 4, 64))
_GATHER, _REDUCE = "all_gather_into_tensor", "reduce_scatter_tensor"


def rank_of(offload: str, layers: int, width: int) -> Counter[str]:
    """Train one rank and count the bytes that the collectives of its last step make or take whole."""
    import torch
    import torch.distributed as dist

    counted: Counter[str] = Counter()

    def count(name: str, whole: int) -> None:
        original = getattr(dist, name)

        def counting(*tensors: Any, **others: Any) -> Any:
            tensor = (*tensors, *(value for value in others.values() if isinstance(value, torch.Tensor)))[whole]
            counted[name] += tensor.numel() * tensor.element_size()
            return original(*tensors, **others)

        setattr(dist, name, counting)

    count(_GATHER, 0)
    count(_REDUCE, 1)
    import deepspeed

    deepspeed.init_distributed("gloo")
    model = torch.nn.Sequential(*(torch.nn.Linear(width, width, bias=False) for _ in range(layers))).bfloat16()
    stage: dict[str, Any] = {"stage": 3, "stage3_param_persistence_threshold": 0, "reduce_bucket_size": 10**6}
    if offload != "none":
        stage["offload_optimizer"] = {"device": "cpu"}
    if offload == "parameters":
        stage["offload_param"] = {"device": "cpu"}
    engine, *_ = deepspeed.initialize(
        model=model, optimizer=torch.optim.AdamW(model.parameters()), config={
            "train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": True}, "zero_optimization": stage,
            "zero_force_ds_cpu_optimizer": False, "zero_allow_untested_optimizer": True})
    for _ in range(STEPS):
        counted.clear()
        engine.backward(engine(torch.ones(1, width, dtype=torch.bfloat16)).square().mean())
        engine.step()
    return counted


if __name__ == "__main__":
    if sys.argv[1:]:
        bytes_of = rank_of(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
        print(bytes_of[_GATHER], bytes_of[_REDUCE])
    else:
        print_rows(__file__, ("offload", "layers", "width", "gathered", "reduced"), CASES)
