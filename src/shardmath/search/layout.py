"""One layout that a sweep found, as people see it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from shardmath.input.parameters import UNEVEN
from shardmath.search.nests.configurations import Configuration
from shardmath.symbolic.nests.standard import BY_MEMORY, BY_TIME

#: The formulas that rank layouts by time, and by memory.
RANKINGS = {"time": BY_TIME, "memory": BY_MEMORY}

#: How layouts are ranked, in words. Where no time is known, fewer ranks stand for less communication.
RULES = {
    "time": "least step time, then the largest margin",
    "memory": "least tensor * context * pipeline ranks, then the largest margin",
}


#: Orders of passes that follow from the number of chunks.
USUAL_SCHEDULES = ("1f1b", "interleaved")


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
    expert_tensor_parallel: int = 1
    first_stage_layers: int = 0
    last_stage_layers: int = 0
    account_for_embedding: int = 0
    account_for_loss: int = 0
    schedule: str = "1f1b"


def layout_of(found: Configuration) -> Layout:
    """A configuration of the standard space as a layout; its memory is computed anew, by the plain evaluator."""
    value, terms = found.values, found.terms
    timed: dict[str, Any] = {field: float(terms[name]) for field, name in _TIMES.items()} if found.part.timed else {}
    sizes = {name: value[name] for name in (*_SIZES, *UNEVEN)}
    return Layout(
        **sizes, recompute=str(found.labels["recompute"]), schedule=schedule_of(found),
        num_microbatches=value["global_batch_size"] // (value["data_parallel"] * value["micro_batch_size"]),
        first_stage_bytes=int(terms["first.total"]), last_stage_bytes=int(terms["last.total"]),
        peak_bytes=found.peak_bytes, share=found.share, verdict=found.verdict, **timed,
    )


def schedule_of(found: Configuration) -> str:
    """The order of passes: interleaved with one chunk on a rank is 1F1B."""
    name = found.part.evaluator.choices["schedule"]
    return "1f1b" if name == "interleaved" and found.values["virtual_pipeline"] == 1 else name


_SIZES = ("tensor_parallel", "context_parallel", "pipeline_parallel", "data_parallel", "micro_batch_size",
          "sequence_parallel", "virtual_pipeline", "expert_parallel", "expert_tensor_parallel")
_TIMES = {"step_seconds": "step.time", "tokens_per_second_per_gpu": "step.tokens_per_second_per_gpu", "mfu": "step.mfu"}
