"""States of optimizers on the parts that DeepSpeed's ZeRO gives them, bucket and gathered weights, on ranks with Gloo.

``cd tests && python -m oracles.deep_speed.deepspeed_optimizers`` prints the rows of
``tests/data/deepspeed_optimizers.csv``; it needs DeepSpeed, bitsandbytes and torchao.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Callable
from importlib import import_module
from itertools import product
from multiprocessing import get_context
from random import Random
from typing import Any

import torch
from oracles.deep_speed.deepspeed_ranks import started
from oracles.hugging_face.huggingface import Shape, causal_lm, token_ids
from oracles.instruments.processes import on_first_rank
from torch import Tensor

Case = dict[str, Any]
LETTERS = ("h", "a", "k", "d", "f", "u", "L", "tied", "s", "b")
#: Optimizers by the ledger's names: module and class, and how it is made other than by default.
OPTIMIZERS: dict[str, tuple[str, str, dict[str, float]]] = {
    "adamw_8bit_alone": ("bitsandbytes.optim", "AdamW8bit", {}),
    "adamw_8bit_torchao": ("torchao.optim", "AdamW8bit", {}),
    "adafactor": ("transformers.optimization", "Adafactor", {}),
    "adafactor_torch": ("torch.optim", "Adafactor", {}),
    "sgd_momentum": ("torch.optim", "SGD", {"momentum": 0.9}),
    "sgd": ("torch.optim", "SGD", {}),
    "adamw_8bit": ("bitsandbytes.optim", "AdamW8bit", {}),
}
COUNTED = ("elements", "states", "bucket", "gathered")
#: Elements of a bucket of gradients.
BUCKET = 10**5
#: Names of states that are no moments, or that all tensors share.
LEFT_OUT = ("step", "qmap1", "qmap2")


def bytes_of(state: Tensor) -> int:
    """Count the bytes of a state; one that torchao quantised has codes, scales and a table."""
    parts = [getattr(state, name) for name in ("codes", "scale", "qmap") if hasattr(state, name)] or [state]
    return sum(part.numel() * part.element_size() for part in parts)


def optimizer_of(name: str) -> Callable[..., torch.optim.Optimizer]:
    """Return what makes an optimizer of a list of parameters."""
    module, kind, options = OPTIMIZERS[name]
    return lambda parameters: getattr(import_module(module), kind)(parameters, **options)


def widen(model: Any) -> None:
    """Ask bitsandbytes for states of embeddings in fp32, as ``transformers.Trainer.create_optimizer`` does."""
    asked = import_module("bitsandbytes.optim").GlobalOptimManager.get_instance()
    for module in model.modules():
        if isinstance(module, torch.nn.Embedding):
            asked.register_module_override(module, "weight", {"optim_bits": 32})


class Gathered:
    """The most bytes of weights that stage 3 has gathered at once, seen after every module and at every gradient."""

    def __init__(self, model: Any) -> None:
        self.most, self._parameters = 0, list(model.parameters())
        for module in model.modules():
            module.register_forward_hook(self.look)
            module.register_full_backward_pre_hook(self.look)
        for parameter in self._parameters:
            parameter.register_hook(self.look)

    def look(self, *_: Any) -> None:
        """Add up what is whole now."""
        whole = (one for one in self._parameters if one.ds_status.name == "AVAILABLE")
        self.most = max(self.most, sum(one.data.numel() * one.data.element_size() for one in whole))


def run(rank: int, case: Case) -> dict[str, int]:
    """Train two steps; return elements, and bytes of the rank: states, stage 3's bucket, the most gathered weights."""
    deepspeed = started(rank, case["ranks"])
    shape: Shape = {letter: case[letter] for letter in LETTERS}
    narrow, ahead = case["precision"] == "mixed", case["ahead"]
    model: Any = causal_lm("llama", shape, "sdpa", dtype=torch.bfloat16 if narrow else torch.float32)
    optimizer = optimizer_of(case["optimizer"])(list(model.parameters()))
    if case["optimizer"] == "adamw_8bit":
        widen(model)
    engine, zero, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config={
        "train_micro_batch_size_per_gpu": shape["b"], "bf16": {"enabled": narrow},
        "zero_optimization": {
            "stage": case["stage"], "reduce_bucket_size": BUCKET, "stage3_param_persistence_threshold": 0,
            "stage3_prefetch_bucket_size": ahead, "stage3_max_reuse_distance": ahead},
        "zero_allow_untested_optimizer": True, "zero_force_ds_cpu_optimizer": False})
    gathered = Gathered(model) if case["stage"] == 3 else None
    ids = token_ids(shape)
    for _ in range(2):
        engine.backward(engine(input_ids=ids, labels=ids).loss)
        engine.step()
    states = [state for states in optimizer.state.values() for name, state in states.items()
              if isinstance(state, Tensor) and name not in LEFT_OUT]
    elements = sum(getattr(one, "ds_numel", one.numel()) for one in model.parameters())
    buckets = [bucket.buffer for bucket in zero.ipg_buckets.values()] if gathered else []
    return {"elements": elements, "states": sum(map(bytes_of, states)), "bucket": sum(map(bytes_of, buckets)),
            "gathered": gathered.most if gathered else 0}


def cases() -> list[Case]:
    """Draw shapes for every optimizer and stage: small ones, and those whose parts are whole blocks."""
    draw, drawn = Random(3), list[Case]()
    for optimizer, stage, blocks in product(OPTIMIZERS, (0, 1, 2, 3), (False, True)):
        k = draw.choice((1, 2))
        a, d = 2 * k, draw.choice((4, 8, 16))
        sizes = (512, a, k, d, 64, 128) if blocks else (
            a * draw.choice((8, 9, 16)), a, k, d, draw.choice((64, 90, 131)), draw.choice((33, 300, 900)))
        drawn.append({
            "optimizer": optimizer, "stage": stage,
            "precision": draw.choice(("mixed", "fp32")) if stage == 3 else "mixed",
            "ranks": 2 if blocks else draw.choice((2, 3)), "ahead": draw.choice((0, 10**9)),
            **dict(zip(LETTERS, (*sizes, draw.choice((1, 2)), draw.randrange(2), 8, 1), strict=True))})
    return drawn


def main() -> None:
    """Print one row for each case."""
    get_context("forkserver").set_forkserver_preload(["deepspeed", "transformers.models.llama.modeling_llama"])
    table = csv.writer(sys.stdout, lineterminator="\n")
    table.writerow(["optimizer", "stage", "precision", "ranks", "ahead", *LETTERS, *COUNTED])
    for case in cases():
        first = on_first_rank(run, case)
        table.writerow([*case.values(), *(first[name] for name in COUNTED)])
        sys.stdout.flush()


if __name__ == "__main__":
    main()
