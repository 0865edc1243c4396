"""Most bytes that DeepSpeed's optimizer step adds to those alive before it, with each of PyTorch's kernels of AdamW.

``cd tests && python -m oracles.deep_speed.deepspeed_steps`` prints the rows of ``tests/data/deepspeed_steps.csv``; it
needs DeepSpeed.
"""

from __future__ import annotations

import csv
import sys
from itertools import product
from multiprocessing import get_context
from random import Random
from typing import Any

import torch
from oracles.deep_speed.deepspeed_optimizers import BUCKET, LETTERS
from oracles.deep_speed.deepspeed_ranks import started
from oracles.hugging_face.huggingface import Shape, causal_lm, token_ids
from oracles.instruments.live import Live
from oracles.instruments.processes import let_go, on_first_rank

Case = dict[str, Any]
#: Kernels by the ledger's names, and how PyTorch is asked for them.
KERNELS: dict[str, dict[str, bool]] = {
    "fused": {"fused": True}, "foreach": {"foreach": True}, "loop": {"foreach": False}}
STEPS = 3


def run(rank: int, case: Case) -> dict[str, int]:
    """Train three steps; return elements, and most bytes of the rank inside the last optimizer step beyond before."""
    deepspeed = started(rank, case["ranks"])
    shape: Shape = {letter: case[letter] for letter in LETTERS}
    narrow, added = case["precision"] == "mixed", 0
    with Live() as live:
        model: Any = causal_lm("llama", shape, "sdpa", dtype=torch.bfloat16 if narrow else torch.float32)
        optimizer = torch.optim.AdamW(list(model.parameters()), **KERNELS[case["kernel"]])
        engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config={
            "train_micro_batch_size_per_gpu": shape["b"], "bf16": {"enabled": narrow}, "gradient_clipping": 1.0,
            "zero_optimization": {"stage": case["stage"], "reduce_bucket_size": BUCKET,
                                  "stage3_param_persistence_threshold": 0, "sub_group_size": case["subgroup"]}})
        ids = token_ids(shape)
        for _ in range(STEPS):
            engine.backward(engine(input_ids=ids, labels=ids).loss)
            let_go()  # else a thread of gloo may hold the last reduced bucket, and free it in the step
            before = live.now
            live.restart()
            engine.step()
            added = live.peak - before
    return {"elements": sum(getattr(one, "ds_numel", one.numel()) for one in model.parameters()), "added": added}


def cases() -> list[Case]:
    """Draw a shape for every kernel, stage and precision, and for subgroups of stage 3."""
    draw, drawn = Random(5), list[Case]()
    kinds = (*((stage, "mixed", 10**9) for stage in range(4)), (3, "fp32", 10**9), (3, "mixed", 20_000))
    for kernel, (stage, precision, subgroup) in product(KERNELS, kinds):
        k = draw.choice((1, 2))
        a, d = 2 * k, draw.choice((4, 8, 16))
        sizes = (a * draw.choice((8, 9, 16)), a, k, d, draw.choice((64, 90, 131)), draw.choice((33, 300, 900)))
        drawn.append({
            "kernel": kernel, "stage": stage, "precision": precision, "subgroup": subgroup,
            "ranks": draw.choice((2, 3)),
            **dict(zip(LETTERS, (*sizes, draw.choice((1, 2)), draw.randrange(2), 8, 1), strict=True))})
    return drawn


def main() -> None:
    """Print one row for each case."""
    get_context("forkserver").set_forkserver_preload(["deepspeed", "transformers.models.llama.modeling_llama"])
    table = csv.writer(sys.stdout, lineterminator="\n")
    table.writerow(["kernel", "stage", "precision", "subgroup", "ranks", *LETTERS, "elements", "added"])
    for case in cases():
        first = on_first_rank(run, case)
        table.writerow([*case.values(), first["elements"], first["added"]])
        sys.stdout.flush()


if __name__ == "__main__":
    main()
