"""Flags of Megatron-FSDP: what of the states is shared out, and sizes of its buckets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from shardmath.formats.options import Options
from shardmath.models.model import Model

#: Strategies by the ZeRO stage that they are; the first is what Megatron-Core has without sharding.
STRATEGIES = ("no_shard", "optim", "optim_grads", "optim_grads_params")
SIZES = {"ddp_bucket_size": "ddp-bucket-size", "communication_unit_size": "suggested-communication-unit-size"}
#: Flags that have an effect here alone.
_FLAGS = ("data-parallel-sharding-strategy", "outer-dp-sharding-strategy", "fsdp-double-buffer", *SIZES.values())


def sharding_of(options: Options, model: Model) -> dict[str, Any]:
    """Return the arguments of ``explain`` that share out states; none without Megatron-FSDP.

    Raises InputError for what is not counted.
    """
    if not options.is_on("use-megatron-fsdp"):
        options.asked.update(_FLAGS)
        return {}
    stage = STRATEGIES.index(options.word("data-parallel-sharding-strategy", "no_shard", STRATEGIES))
    if model.num_experts or model.kv_lora_rank:
        rule = "must not be given with experts or latent attention: Megatron-FSDP with them is not counted yet"
        raise options.error("use-megatron-fsdp", rule)
    if options.word("outer-dp-sharding-strategy", "no_shard", ("no_shard", "optim")) == "optim":
        rule = "must be no_shard: optimizer states shared out over replicas are not counted yet"
        raise options.error("outer-dp-sharding-strategy", rule, "no_shard")
    if options.is_on("fsdp-double-buffer"):
        shown = options.shown("fsdp-double-buffer")
        options.warnings.append(f"{shown} is not counted yet: buffers of two layers that stay")
    if not stage:
        return {"distributed_optimizer": False}
    sizes = {name: options.needed(flag) for name, flag in SIZES.items() if options.number(flag) is not None}
    single = {} if options.is_on("overlap-grad-reduce") else {"single_bucket": 1}
    return {"zero_stage": stage, "distributed_optimizer": True, **sizes, **single,
            "kernels": {"data_parallel": "megatron_fsdp"}}


def flags_of(values: Mapping[str, int], choices: Mapping[str, str]) -> Iterator[tuple[str, ...]]:
    """Yield the flags of a run with Megatron-FSDP; its single bucket is what the lack of an overlap says."""
    if choices["data_parallel"] == "megatron_fsdp":
        yield ("use-megatron-fsdp",)
        yield "data-parallel-sharding-strategy", STRATEGIES[1 + values["sharded_gradients"] + values["sharded_weights"]]
        yield "ckpt-format", "fsdp_dtensor"
        yield from ((flag, str(values[name])) for name, flag in SIZES.items() if values[name])
