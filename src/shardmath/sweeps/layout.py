"""One layout that a sweep found, as people see it."""

from __future__ import annotations

from dataclasses import dataclass

from shardmath.sweeps.configurations import Configuration

#: How layouts are ranked, in words. Where no time is known, fewer ranks stand for less communication.
RULES = {
    "time": "least step time, then the largest margin",
    "memory": "least tensor * context * pipeline ranks, then the largest margin",
}


@dataclass(frozen=True)
class Layout:
    """One evaluated layout. Sizes in bytes; ``share`` is peak over GPU memory.

    ``step_seconds``, ``tokens_per_second_per_gpu`` and ``mfu`` are None where the time of a step is not known.
    """

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
    step_seconds: float | None = None
    tokens_per_second_per_gpu: float | None = None
    mfu: float | None = None


def layout_of(found: Configuration) -> Layout:
    """A configuration of the standard space as a layout; its memory is computed anew, by the plain evaluator."""
    value, terms = found.values, found.terms
    times = [float(terms[name]) for name in _TIMES] if found.part.timed else []
    return Layout(
        value["tensor_parallel"], value["context_parallel"], value["pipeline_parallel"], value["data_parallel"],
        value["micro_batch_size"], value["sequence_parallel"], str(found.labels["recompute"]),
        value["global_batch_size"] // (value["data_parallel"] * value["micro_batch_size"]),
        int(terms["first.total"]), int(terms["last.total"]), found.peak_bytes, found.share, found.verdict,
        value["virtual_pipeline"], value["expert_parallel"], *times,
    )


_TIMES = ("step.time", "step.tokens_per_second_per_gpu", "step.mfu")
