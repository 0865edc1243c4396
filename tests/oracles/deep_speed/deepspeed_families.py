"""Dense families in DeepSpeed's ZeRO, on ranks with Gloo: what a rank keeps, and what a forward pass leaves.

``cd tests && python -m oracles.deep_speed.deepspeed_families`` prints ``tests/data/deepspeed_families.csv``; it needs
DeepSpeed.
"""

from __future__ import annotations

import csv
import json
import sys
from multiprocessing import get_context
from random import Random
from typing import Any

import torch
from oracles.deep_speed.deepspeed_experts import Case, gradients_of, kept
from oracles.deep_speed.deepspeed_ranks import started
from oracles.hugging_face.huggingface import size, token_ids
from oracles.hugging_face.public_families import FAMILIES, LONGEST, built, random_config
from oracles.instruments.live import Live
from oracles.instruments.processes import on_first_rank
from torch.nn import functional

#: Families that Transformers has no other kernel of attention for.
EAGER = ("bloom", "gemma2", "vaultgemma")
#: Falcon's linear layers multiply with views of their weights, which keep what stage 3 has gathered.
NOT_COUNTED = {"falcon"}
COUNTED = ("elements", "weights", "states", "gradients", "saved")


class _LayerNorm(torch.autograd.Function):
    """Keeps fp32 statistics beside 16-bit weights, as a GPU does."""

    @staticmethod
    def forward(ctx: Any, *given: Any) -> Any:
        value, shape, weight, bias, epsilon = given
        wide = (None if one is None else one.float() for one in (weight, bias))
        output, mean, inverse = torch.native_layer_norm(value.float(), shape, *wide, epsilon)
        ctx.save_for_backward(value, weight, bias, mean, inverse)
        return output.to(value.dtype)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        value, weight, bias, *_ = ctx.saved_tensors
        weight, bias = (None if one is None else torch.zeros_like(one) for one in (weight, bias))
        return torch.zeros_like(value), None, weight, bias, None


def _normed(value: Any, shape: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5) -> Any:
    return _LayerNorm.apply(value, shape, weight, bias, eps)


def run(rank: int, case: Case) -> dict[str, int]:
    """Train two steps; return what the rank keeps, and bytes that are alive after the second forward pass."""
    deepspeed = started(rank, case["ranks"])
    functional.layer_norm = _normed
    model: Any = built(case["config"], case["attention"])
    if case["rfull"]:
        model.gradient_checkpointing_enable({"use_reentrant": False})
    optimizer = torch.optim.AdamW(model.parameters())
    engine, zero, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config={
        "train_micro_batch_size_per_gpu": case["b"], "bf16": {"enabled": True},
        "zero_optimization": {
            "stage": case["stage"], "reduce_bucket_size": 10**6,
            "stage3_param_persistence_threshold": case["threshold"],
            **dict.fromkeys(("stage3_prefetch_bucket_size", "stage3_max_reuse_distance",
                             "stage3_max_live_parameters"), 0)},
        "zero_allow_untested_optimizer": True, "zero_force_ds_cpu_optimizer": False})
    ids, parameters = token_ids({**case, "u": case["config"]["vocab_size"]}), [*model.parameters()]
    saved = gradients = 0
    for _ in range(2):
        with Live(model, ids) as live:
            output = engine(input_ids=ids, labels=ids)
        saved = live.now
        engine.backward(output.loss)
        gradients = sum(gradients_of(zero, parameters, case["stage"]))
        del output
        engine.step()
    return {**kept(zero, optimizer, parameters, case["stage"]), "gradients": gradients, "saved": saved}


def cases() -> list[Case]:
    """Draw two models of every family: one in stage 3, one in another."""
    drawn = list[Case]()
    for family in sorted(FAMILIES.keys() - NOT_COUNTED):
        for stage in ("other", "3"):
            draw = Random(f"{family} {stage}")
            drawn.append({
                "family": family, "stage": 3 if stage == "3" else draw.randrange(3), "ranks": draw.choice((2, 3)),
                "attention": "eager" if family in EAGER else draw.choice(("sdpa", "eager")),
                "rfull": draw.randrange(2), "threshold": draw.choice((0, 700)),
                "s": size(draw, LONGEST), "b": size(draw, 3), "config": random_config(draw, family)})
    return drawn


def main() -> None:
    """Print one row for each case."""
    get_context("forkserver").set_forkserver_preload(["deepspeed", "transformers.models.llama.modeling_llama"])
    table = csv.writer(sys.stdout, lineterminator="\n")
    table.writerow([*cases()[0], *COUNTED])
    for case in cases():
        first = on_first_rank(run, case)
        table.writerow([*{**case, "config": json.dumps(case["config"])}.values(), *(first[name] for name in COUNTED)])
        sys.stdout.flush()


if __name__ == "__main__":
    main()
