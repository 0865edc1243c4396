"""Megatron-Core while it loads a sharded checkpoint: tensors that are made after the file was read in place."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from megatron.core import parallel_state
from megatron.core.dist_checkpointing.dict_utils import dict_list_map_inplace
from megatron.core.dist_checkpointing.mapping import ShardedBase, apply_factory_merges
from megatron.core.dist_checkpointing.state_dict_utils import load_preprocess
from oracles.instruments.live import Live


def describes(optimizer: Any) -> bool:
    """Return True where the rank has elements of every bucket: Megatron-Core describes no shard without any."""
    return all(
        bucket["param_map"]
        for own in getattr(optimizer, "chained_optimizers", [optimizer])
        for buffer in getattr(own, "gbuf_ranges", ()) for buckets in buffer.values() for bucket in buckets
    )


def load(models: Sequence[Any], optimizer: Any, live: Live) -> int:
    """Load weights and states from tensors of the rank's own, as if a file had been read into them.

    Returns the bytes that are made meanwhile and alive at the same time.
    """
    metadata = {
        "distrib_optim_sharding_type": "dp_reshardable",
        "dp_cp_group": parallel_state.get_data_parallel_group(with_context_parallel=True),
    }
    weights = [model.module.sharded_state_dict(metadata=metadata) for model in models]
    asked: dict[str, Any] = {f"model{chunk}": part for chunk, part in enumerate(weights)}
    asked["optimizer"] = optimizer.sharded_state_dict(
        asked if len(models) > 1 else weights[0], is_loading=True, metadata=metadata)
    before = live.now
    live.restart()
    tensors, _, factories = load_preprocess(asked)
    dict_list_map_inplace(lambda part: part.data if isinstance(part, ShardedBase) else part, tensors)
    loaded = apply_factory_merges(tensors, factories)
    for chunk, model in enumerate(models):
        model.module.load_state_dict(loaded[f"model{chunk}"])
    return live.peak - before
