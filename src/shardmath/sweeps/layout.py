"""One layout that a sweep found, as people see it."""

from __future__ import annotations

from dataclasses import dataclass

from shardmath.sweeps.configurations import Configuration

#: How layouts are ranked, in words. Until there is a model of time, fewer ranks stand for less communication.
RULE = "least tensor * context * pipeline ranks, then the largest margin"


@dataclass(frozen=True)
class Layout:
    """One evaluated layout. Sizes in bytes; ``share`` is peak over GPU memory."""

    tensor_parallel: int
    context_parallel: int
    pipeline_parallel: int
    data_parallel: int
    micro_batch_size: int
    sequence_parallel: int
    recompute: str
    num_microbatches: int
    first_stage_bytes: int
    last_stage_bytes: int
    peak_bytes: int
    share: float
    verdict: str
    virtual_pipeline: int = 1
    expert_parallel: int = 1


def layout_of(found: Configuration) -> Layout:
    """A configuration of the standard space as a layout; its memory is computed anew, by the plain evaluator."""
    value, terms = found.values, found.terms
    return Layout(
        value["tensor_parallel"], value["context_parallel"], value["pipeline_parallel"], value["data_parallel"],
        value["micro_batch_size"], value["sequence_parallel"], str(found.labels["recompute"]),
        value["global_batch_size"] // (value["data_parallel"] * value["micro_batch_size"]),
        int(terms["first.total"]), int(terms["last.total"]), found.peak_bytes, found.share, found.verdict,
        value["virtual_pipeline"], value["expert_parallel"],
    )
