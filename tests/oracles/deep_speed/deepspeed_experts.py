"""Models with experts in DeepSpeed's ZeRO, on ranks with Gloo: what a rank keeps, and gathered weights that stay.

``cd tests && python -m oracles.deep_speed.deepspeed_experts`` prints the rows of ``tests/data/deepspeed_experts.csv``;
it needs DeepSpeed.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator
from itertools import product
from multiprocessing import get_context
from random import Random
from typing import Any

import torch
from oracles.deep_speed.deepspeed_ranks import started
from oracles.hugging_face.huggingface import token_ids
from oracles.hugging_face.huggingface_experts import mixtral, qwen
from oracles.instruments.processes import on_first_rank
from oracles.instruments.storages import Storages, storage_of
from torch import Tensor

Case = dict[str, Any]
FAMILIES = {"mixtral": mixtral, "qwen": qwen}
LETTERS = ("h", "a", "k", "d", "f", "fe", "E", "q", "u", "L", "s", "b")
#: Letters that a family may set.
OWN = ("qkn", "bias", "fs", "sgate")
#: Where stages keep their fp32 weights, other than in one part.
MASTERS = {0: "fp32_groups", 3: "fp32_partitioned_groups_flat"}
COUNTED = ("elements", "weights", "states", "gradients", "viewed")


def run(rank: int, case: Case) -> dict[str, int]:
    """Train two steps; return elements, bytes of weights, states and gradients of the rank, and gathered that stay.

    Gradients are those after the last backward pass. Gathered weights stay where a saved tensor is a view of them.
    """
    deepspeed = started(rank, case["ranks"])
    model, shape = FAMILIES[case["family"]](Random(case["seed"]), {letter: case[letter] for letter in LETTERS})
    model.set_experts_implementation(case["experts"])
    if case["rfull"]:
        model.gradient_checkpointing_enable()
    stage = case["stage"]
    optimizer = torch.optim.AdamW(model.train().parameters())
    engine, zero, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config={
        "train_micro_batch_size_per_gpu": shape["b"], "bf16": {"enabled": True},
        "zero_optimization": {
            "stage": stage, "reduce_bucket_size": 10**6, "stage3_param_persistence_threshold": case["threshold"],
            **dict.fromkeys(("stage3_prefetch_bucket_size", "stage3_max_reuse_distance",
                             "stage3_max_live_parameters"), 0)},
        "zero_allow_untested_optimizer": True, "zero_force_ds_cpu_optimizer": False})
    ids, parameters, gradients = token_ids(shape), [*model.parameters()], 0
    for _ in range(2):
        views = Storages()

        def seen(tensor: Tensor, views: Storages = views) -> Tensor:
            if storage_of(tensor) in Storages(one.data for one in parameters):
                views.add(tensor)
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(seen, lambda tensor: tensor):
            loss = engine(input_ids=ids, labels=ids).loss
        viewed = views.bytes(Storages(one.data for one in parameters))
        engine.backward(loss)
        gradients = sum(gradients_of(zero, parameters, stage))
        del loss
        engine.step()
    return {**kept(zero, optimizer, parameters, stage), "gradients": gradients, "viewed": viewed}


def kept(zero: Any, optimizer: torch.optim.Optimizer, parameters: list[Any], stage: int) -> dict[str, int]:
    """Return elements of a model, and bytes of weights and states of the rank, after a step of its optimizer."""
    moments = [state for states in optimizer.state.values() for name, state in states.items() if name != "step"]
    masters = getattr(zero, MASTERS.get(stage, "single_partition_of_fp32_groups"))
    masters = [one for group in masters for one in group] if stage == 0 else masters
    return {"elements": sum(getattr(one, "ds_numel", one.numel()) for one in parameters),
            "weights": sum(map(_bytes, weights_of(zero, parameters, stage))),
            "states": sum(map(_bytes, (*moments, *masters)))}


def weights_of(zero: Any, parameters: list[Any], stage: int) -> Iterator[Tensor]:
    """Yield what a rank keeps of 16-bit weights: parts in stage 3, with those that stay gathered; else all."""
    if stage < 3:
        storages = {storage_of(one)._cdata: storage_of(one) for one in parameters}
        yield from (torch.empty(0, dtype=torch.uint8).set_(one) for one in storages.values())
        return
    for one in parameters:
        yield one.ds_tensor
        if one.data.numel():
            yield torch.empty(0, dtype=torch.uint8).set_(storage_of(one))


def gradients_of(zero: Any, parameters: list[Any], stage: int) -> Iterator[int]:
    """Yield bytes of what is left of gradients after a backward pass, before the step."""
    if stage == 3:
        yield sum(_bytes(one) for one in zero.grad_partitions_flat_buffer.unsqueeze(0))
    elif stage == 0:
        yield sum(_bytes(one.grad) for one in parameters if one.grad is not None)
    else:
        yield sum(_bytes(one) for group in zero.averaged_gradients.values() for one in group)


def _bytes(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()


def cases() -> list[Case]:
    """Draw shapes for both families, every stage, experts one by one and in groups, with and without recompute."""
    draw, drawn = Random(5), list[Case]()
    for family, stage, experts, rfull in product(FAMILIES, (0, 1, 2, 3), ("eager", "grouped_mm"), (0, 1)):
        if stage < 3 and rfull:
            continue
        k, grouped = draw.choice((1, 2)), experts == "grouped_mm"
        unit = 8 if grouped else 1
        E = draw.choice((3, 4, 6))
        sizes = (unit * draw.randrange(5, 12) * (1 if grouped else 2), 2 * k, k, draw.choice((4, 8)),
                 draw.choice((33, 64)), unit * draw.choice((3, 5, 9)), E, draw.choice((1, 2)),
                 draw.choice((33, 300)), draw.choice((1, 2, 3)), 8, 1)
        drawn.append({"family": family, "stage": stage, "experts": experts, "rfull": rfull,
                      "ranks": draw.choice((2, 3)), "threshold": draw.choice((0, 700)), "seed": draw.randrange(100),
                      **dict(zip(LETTERS, sizes, strict=True))})
    return drawn


def main() -> None:
    """Print one row for each case."""
    get_context("forkserver").set_forkserver_preload(["deepspeed", "transformers.models.qwen3_moe.modeling_qwen3_moe"])
    table = csv.writer(sys.stdout, lineterminator="\n")
    names = [name for name in cases()[0] if name != "seed"]
    table.writerow([*names, *OWN, *COUNTED])
    for case in cases():
        _, shape = FAMILIES[case["family"]](Random(case["seed"]), {letter: case[letter] for letter in LETTERS})
        first = on_first_rank(run, case)
        table.writerow([*(case[name] for name in names), *(shape.get(letter, 0) for letter in OWN),
                        *(first[name] for name in COUNTED)])
        sys.stdout.flush()


if __name__ == "__main__":
    main()
