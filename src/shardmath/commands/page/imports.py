"""Read launch scripts on the page: flags of Megatron-LM by parameter."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from shardmath.formats.megatron import flags as megatron_flags
from shardmath.formats.megatron.layout import MODULES, SIZES, SWITCHES
from shardmath.formats.megatron.model import FLAGS_OF
from shardmath.formats.megatron.reading import OTHER_PROGRAMS, run_of
from shardmath.formats.options import Options
from shardmath.formats.scripts.launch import NODES, OF_LAUNCHER, PROCESSES

#: Flags of sizes that stand outside of the tables of layout and model.
_SIZES = {"seq_length": "seq-length", "micro_batch_size": "micro-batch-size", "global_batch_size": "global-batch-size",
          "virtual_pipeline": "num-virtual-stages-per-pipeline-rank",
          "expert_tensor_parallel": "expert-tensor-parallel-size"}
#: Flags of small runs, each of which asks for other flags: a dense model, one with experts, one with latent attention.
_RUN = {"num-layers": "8", "hidden-size": "1024", "num-attention-heads": "8", "seq-length": "4096",
        "vocab-size": "32000", "max-position-embeddings": "4096",
        "micro-batch-size": "1", "bf16": "true", "position-embedding-type": "rope"}
_RUNS: tuple[Mapping[str, str], ...] = (
    _RUN, {**_RUN, "num-experts": "8", "moe-router-num-groups": "2", "moe-router-group-topk": "1",
           "moe-router-load-balancing-type": "aux_loss", "moe-grouped-gemm": "true"},
    {**_RUN, "multi-latent-attention": "true", "qk-layernorm": "true", "rope-type": "yarn"},
    {**_RUN, "fp8-format": "hybrid", "transformer-impl": "transformer_engine", "optimizer-cpu-offload": "true",
     "use-precision-aware-optimizer": "true", "use-distributed-optimizer": "true"},
    {"encoder-num-layers": "8", "encoder-seq-length": "4096", "use-rope-scaling": "true",
     **{flag: word for flag, word in _RUN.items() if flag not in ("num-layers", "seq-length")}},
    {**_RUN, "use-megatron-fsdp": "true", "data-parallel-sharding-strategy": "optim_grads_params",
     "use-distributed-optimizer": "true", "ckpt-format": "fsdp_dtensor"},
)


def flag_data() -> dict[str, Any]:
    """Return flags of Megatron-LM by the name of the parameter, and how the commands take all others."""
    switches = {**SWITCHES, "sequence_parallel": "sequence-parallel"}
    return {
        "sizes": {**FLAGS_OF, **SIZES, **_SIZES}, "switches": switches, "modules": MODULES,
        "elsewhere": sorted(_asked()), "idle": sorted(megatron_flags.WITHOUT_EFFECT),
        "launcher": {"sizes": (NODES, PROCESSES), "flags": OF_LAUNCHER},
        "uncounted": megatron_flags.UNCOUNTED, "refused": megatron_flags.REFUSED, "off": megatron_flags.OFF,
        "programs": OTHER_PROGRAMS,
    }


def _asked() -> set[str]:
    """Return all flags that the commands look at in small runs."""
    asked: set[str] = set()
    for run in _RUNS:
        options = Options({flag: (word,) for flag, word in run.items()})
        run_of(options, "run")
        asked |= options.asked
    return asked
