"""Megatron-Core's sharded checkpoint: tensors made after a file was read in place, and what each rank writes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from megatron.core import parallel_state
from megatron.core.dist_checkpointing import exchange_utils
from megatron.core.dist_checkpointing.dict_utils import dict_list_map_inplace, nested_values
from megatron.core.dist_checkpointing.mapping import ShardedBase, ShardedTensor, apply_factory_merges
from megatron.core.dist_checkpointing.state_dict_utils import load_preprocess, save_preprocess
from oracles.instruments.live import Live


def describes(optimizer: Any) -> bool:
    """Return True where the rank has elements of every bucket: Megatron-Core describes no shard without any."""
    return all(
        bucket["param_map"]
        for own in getattr(optimizer, "chained_optimizers", [optimizer])
        for buffer in getattr(own, "gbuf_ranges", ()) for buckets in buffer.values() for bucket in buckets
    )


def _described(models: Sequence[Any], optimizer: Any, is_loading: bool) -> dict[str, Any]:
    metadata = {
        "distrib_optim_sharding_type": "dp_reshardable",
        "dp_cp_group": parallel_state.get_data_parallel_group(with_context_parallel=True),
    }
    weights = [model.module.sharded_state_dict(metadata=metadata) for model in models]
    described: dict[str, Any] = {f"model{chunk}": part for chunk, part in enumerate(weights)}
    described["optimizer"] = optimizer.sharded_state_dict(
        described if len(models) > 1 else weights[0], is_loading=is_loading, metadata=metadata)
    return described


def load(models: Sequence[Any], optimizer: Any, live: Live) -> int:
    """Load weights and states from tensors of the rank's own, as if a file had been read into them.

    Returns the bytes that are made meanwhile and alive at the same time.
    """
    asked = _described(models, optimizer, True)
    before = live.now
    live.restart()
    tensors, _, factories = load_preprocess(asked)
    dict_list_map_inplace(lambda part: part.data if isinstance(part, ShardedBase) else part, tensors)
    loaded = apply_factory_merges(tensors, factories)
    for chunk, model in enumerate(models):
        model.module.load_state_dict(loaded[f"model{chunk}"])
    return live.peak - before


def shards(models: Sequence[Any], optimizer: Any) -> list[ShardedTensor]:
    """Return the tensors that the rank would save, without their data."""
    saved, _ = save_preprocess(_described(models, optimizer, False), validate_access_integrity=False)
    return [one.without_data() for one in nested_values(saved) if isinstance(one, ShardedTensor)]


def written(of_ranks: Sequence[list[ShardedTensor]]) -> list[int]:
    """Return the bytes that each rank of the present group writes, as Megatron-Core shares them out."""
    group = parallel_state.get_data_parallel_group(with_context_parallel=True)
    if len(of_ranks) == 1:
        return [sum(map(exchange_utils._shard_size, of_ranks[0]))]

    def gathered(result: list[Any], _own: Any, group: Any) -> None:
        result[:] = of_ranks

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(exchange_utils.torch.distributed, "all_gather_object", gathered)
        dealt = exchange_utils.determine_main_replica_uniform_distribution({"one": of_ranks[0]}, group)
    sizes = [0] * len(of_ranks)
    for name, rank in dealt.main_rank_for_shard.items():
        sizes[rank] += exchange_utils._shard_size(dealt.shard_to_metadata[name])
    return sizes
