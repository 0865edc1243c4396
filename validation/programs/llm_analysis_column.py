"""Write the column of llm-analysis for the leaderboard: ``python llm_analysis_column.py ROWS.csv COLUMN.csv``.

It needs llm-analysis 0.2.2 (``pip install llm-analysis==0.2.2``) and nothing of shardmath. Rows that llm-analysis has
no inputs for are left out: context parallelism, latent attention, experts and adapters, and ranks behind the first one.
"""

from __future__ import annotations

import csv
import logging
import sys
from collections.abc import Mapping
from typing import Any

#: GB of a GPU on which everything fits: the answer does not depend on it, and less memory is refused.
ENDLESS = 10**9
#: Matrices of a gated MLP over those of another.
GATED = 1.5
#: The pipeline rank that llm-analysis is about; where the fullest was measured, there is one rank.
FIRST = ("0", "fullest")
GATES = ("swiglu", "geglu")


def predicted(run: Mapping[str, str]) -> int | None:
    """Return the bytes of one GPU that llm-analysis says, None where it has no inputs for a run."""
    from llm_analysis.analysis import ActivationRecomputation, DSZeRO, LLMAnalysis
    from llm_analysis.config import DtypeConfig, GPUConfig, ModelConfig, ParallelismConfig

    modes = {"none": ActivationRecomputation.NONE, "full": ActivationRecomputation.FULL,
             "core_attention": ActivationRecomputation.SELECTIVE, "selective": ActivationRecomputation.SELECTIVE}
    if (run["num_experts"] != "0" or run["kv_lora_rank"] != "0" or run["context_parallel"] != "1"
            or run["pipeline_rank"] not in FIRST or run["adapters"] != "none" or run["recompute"] not in modes):
        return None
    size = {name: int(run[name]) for name in (
        "num_layers", "hidden_size", "ffn_hidden_size", "num_attention_heads", "num_kv_heads", "vocab_size",
        "seq_length", "micro_batch_size", "tensor_parallel", "sequence_parallel", "pipeline_parallel", "data_parallel",
        "num_microbatches", "distributed_optimizer", "sharded_gradients", "sharded_weights")}
    wide = round(size["ffn_hidden_size"] * (GATED if run["mlp"] in GATES else 1))
    model = ModelConfig(
        name=run["row"], num_layers=size["num_layers"], n_head=size["num_attention_heads"],
        hidden_dim=size["hidden_size"], vocab_size=size["vocab_size"], max_seq_len=size["seq_length"],
        num_key_value_heads=size["num_kv_heads"], ffn_embed_dim=wide, expansion_ratio=wide / size["hidden_size"],
    )
    tensor = size["tensor_parallel"]
    parallel = ParallelismConfig(tp_size=tensor, pp_size=size["pipeline_parallel"], dp_size=size["data_parallel"],
                                 sp_size=tensor if size["sequence_parallel"] else 1)
    gpu = GPUConfig("endless", ENDLESS, 1000, 1000, 0, 1000)
    stage = size["distributed_optimizer"] + size["sharded_gradients"] + size["sharded_weights"]
    answer: dict[str, Any] = LLMAnalysis(model, gpu, DtypeConfig(), parallel).training(
        batch_size_per_gpu=size["micro_batch_size"], gradient_accumulation_steps=size["num_microbatches"],
        global_batch_size=size["micro_batch_size"] * size["num_microbatches"] * size["data_parallel"],
        seq_len=size["seq_length"], total_num_tokens=10**9, activation_recomputation=modes[run["recompute"]],
        ds_zero=DSZeRO(stage),
    )
    return round(float(answer["(weight+op_state+grad+act)_memory_per_gpu"]))


def main() -> None:
    """Read the file of rows and write the column."""
    logging.disable(logging.CRITICAL)
    with open(sys.argv[1], newline="", encoding="utf-8") as file:
        answers = [(run["row"], predicted(run)) for run in csv.DictReader(file)]
    with open(sys.argv[2], "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("row", "bytes"))
        writer.writerows((row, size) for row, size in answers if size is not None)


if __name__ == "__main__":
    main()
