"""Refuse a replay whose peak is not the ledger's, and name the moment that the ledger is known to lack."""

from __future__ import annotations

from collections.abc import Mapping

from shardmath.errors import InputError
from shardmath.generated.definitions import IMPLEMENTATIONS
from shardmath.steps.trace import Trace

#: Gradients inside of attention's backward pass, of which one is always there.
_IN_ATTENTION = frozenset({"context.gradient", "q.gradient", "k.gradient", "v.gradient", "qkv.gradient"})


def refuse_another_peak(
    trace: Trace, choices: Mapping[str, str], values: Mapping[str, int], peak_bytes: int
) -> None:
    """Raise InputError for a trace whose peak is not ``peak_bytes``, the ledger's.

    The ledger is known to lack attention's backward pass behind a narrow MLP in Megatron-Core, and forward passes of
    torchtitan's layers. Any other difference is a fault of the replay or of the ledger, but for less where the ledger
    has an upper limit.
    """
    if trace.peak == peak_bytes or (trace.peak < peak_bytes and _is_limit(choices, values)):
        return
    missing = trace.peak > peak_bytes
    if missing and choices["peak"] in IMPLEMENTATIONS["megatron"]["replayed"]["peak"] and _is_in_attention(trace):
        field = "moe_ffn_hidden_size" if trace.peak_point.startswith("expert") else "ffn_hidden_size"
        rule = "must be wider: the backward pass of attention is the peak, of which the ledger has no moment yet"
        raise InputError(field, values[field], rule)
    if missing and choices["peak"] == "torch" and trace.peak_point.endswith("forward"):
        rule = "must be larger: a forward pass of layers or of the last norm is the peak, no moment of the ledger yet"
        raise InputError("vocab_size", values["vocab_size"], rule)
    rule = f"must be that of the ledger in bytes, {peak_bytes}: they disagree, so no replay is shown"
    raise InputError("peak of the replay", trace.peak, rule)


def _is_limit(choices: Mapping[str, str], values: Mapping[str, int]) -> bool:
    """Check if the ledger's peak is an upper limit.

    With DeepSpeed it is the most of any rank, and of any place in a layer at which a bucket may get full. With
    Megatron-FSDP's whole weights and shared gradients the queue of buckets is as full as it can be.
    """
    if choices["data_parallel"] == "megatron_fsdp":
        return bool(values["sharded_gradients"] and not values["sharded_weights"] and not values["single_bucket"])
    return choices["data_parallel"] == "deepspeed"


def _is_in_attention(trace: Trace) -> bool:
    return trace.peak_point.endswith("backward") and not _IN_ATTENTION.isdisjoint(trace.rows_at_peak)
