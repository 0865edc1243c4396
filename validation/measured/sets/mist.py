"""Peaks of pipeline stages that Mist's artifact expects on L4 GPUs, with its tuned layouts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from shardmath.machines.gpu import Gpu
from shardmath.models.model import Model
from validation.measured.case import BY_FORMULA, PEAK, RESERVED, Case, Measured, varied
from validation.measured.reading import rows, whole

TABLE = "mist.csv"
COMMIT = "d69e530acb623009fcbb69b84ce7d0284ada8719"
SOURCE = f"https://github.com/Dazz993/Mist/blob/{COMMIT}"
GPU = Gpu.named("l4-24gb")
MIB = 2**20
FIRST, LAST, MIDDLE, ALONE = "first stage", "last stage", "middle stage", "one stage"
#: Columns with the share of a stage that waits on the host.
_ON_HOST = ("host_weights", "host_gradients", "host_states", "host_activations")
#: Another reading of a row, with the moments of a step of Megatron-LM's own layers.
MOMENTS = "the moments of a step of Megatron-LM"
#: Mist's source: mist/modules/losses.py, and mist/model/gpt.py with fp16_lm_cross_entropy, which all layouts have.
HALF_LOSS = "its loss keeps a softmax in 16 bits, which is fp32 here"


def read(table: str = TABLE) -> tuple[Case, ...]:
    """Return one case for every stage of a run: stages recompute different numbers of layers."""
    return tuple(_case(row) for row in rows(table))


def _case(row: dict[str, str]) -> Case:
    layers, stage = [whole(cell) for cell in row["stage_layers"].split()], whole(row["stage"])
    recomputed, attention = whole(row["recomputed_layers"]), "flash" if row["flash"] == "1" else "fused_softmax"
    kernels = {"precision": "fp16", "attention": attention, "peak": "saved"}
    arguments: dict[str, Any] = {
        "implementation": "megatron", "seq_length": whole(row["seq_length"]), "gradients": "bf16", "vocab_multiple": 1,
        "micro_batch_size": whole(row["micro_batch_size"]), "global_batch_size": whole(row["global_batch_size"]),
        "data_parallel": whole(row["data_parallel"]), "pipeline_parallel": len(layers),
        "recompute": "full" if recomputed else "none", "kernels": kernels,
    }
    if recomputed:
        arguments["recompute_num_layers"], kernels["recompute_method"] = recomputed, "block"
    if len(layers) > 1:
        arguments |= _with_recompute(layers, stage) if recomputed else {"pipeline_layout": tuple(layers)}
    last = stage == len(layers) - 1
    group = ALONE if len(layers) == 1 else FIRST if not stage else LAST if last else MIDDLE
    measured = [Measured(PEAK, round(float(row["allocated_mib"]) * MIB), stage)]
    if stage == 0 and "first_stage_layers" not in arguments:  # the formula is that of the fullest rank of a whole run
        measured.append(Measured(RESERVED, round(float(row["reserved_mib"]) * MIB), stage))
    return Case(
        id=f"{row['model']}, {attention}, stage {stage + 1} of {len(layers)}", group=group,
        source=f"{SOURCE}/{row['path']}", model=_model(row), gpu=GPU, arguments=arguments, refusal=_refusal(row),
        measured=tuple(measured), traits=frozenset([BY_FORMULA]),
        others={MOMENTS: {**arguments, "kernels": {**kernels, "peak": "megatron_local"}}},
        causes=(HALF_LOSS,) if last else (),
    )


def _with_recompute(layers: Sequence[int], stage: int) -> dict[str, int]:
    """Return first and last stages of a pipeline in which ``stage`` has its layers.

    Recompute of a part of a stage is counted without a list of layers alone, and what a stage holds does not depend on
    the layers of the others. Raises ValueError for the last stage, none of which recomputes.
    """
    count, own, between = sum(layers), layers[stage], len(layers) - 2
    if stage == len(layers) - 1:
        raise ValueError("a last stage that recomputes needs words of its own")
    first = own if stage == 0 else (count - between * own) // 2
    middle = own if stage else layers[1]
    return {"first_stage_layers": first, "last_stage_layers": count - first - between * middle}


def _model(row: dict[str, str]) -> Model:
    """Return the model of a row: GPT-2's or Llama's, without biases and with a head of its own."""
    heads, hidden = whole(row["heads"]), whole(row["hidden"])
    sizes = {"num_layers": whole(row["layers"]), "hidden_size": hidden, "ffn_hidden_size": whole(row["ffn"]),
             "num_attention_heads": heads, "num_kv_heads": heads, "head_dim": hidden // heads,
             "vocab_size": whole(row["vocab"]), "tied_embeddings": False}
    if row["model"].startswith("gpt2"):
        return varied("gpt2", **sizes, linear_bias=False, learned_positions=whole(row["seq_length"]))
    return varied("llama-2-7b", **sizes)


def _refusal(row: dict[str, str]) -> str:
    return ("a part of the optimizer's states on the host, which Mist moves layer by layer, is not counted"
            if any(float(row[column]) for column in _ON_HOST) else "")
