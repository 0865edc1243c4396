"""One layout that a sweep found, as people see it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import ceil
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import Field

from shardmath.answers import Answer
from shardmath.configuration.fields import shown, with_degrees
from shardmath.configuration.settings import OFFLOADED
from shardmath.generated.definitions import ABSENT_DEGREES, num_microbatches
from shardmath.input.parameters import UNEVEN
from shardmath.search.further import switched
from shardmath.search.nests.configurations import Configuration
from shardmath.search.spaces.declared import IMPLEMENTATION
from shardmath.search.spaces.usual import BY_MEMORY, BY_TIME

#: The formulas that rank layouts by time, and by memory.
RANKINGS = {"time": BY_TIME, "memory": BY_MEMORY}

#: How layouts are ranked, in words. Where no time is known, fewer ranks stand for less communication.
RULES = {
    "time": "least step time, then the largest margin",
    "memory": "least tensor * context * pipeline ranks, then the largest margin",
}


#: Orders of passes that follow from the number of chunks.
USUAL_SCHEDULES = ("1f1b", "interleaved")


def _described(name: str) -> Any:
    """Return the type of a system's degree, with its meaning as the text behind a field gives it."""
    return Annotated[int, Field(description=f"{shown(name).meaning[:1].upper()}{shown(name).meaning[1:]}.")]


@dataclass(frozen=True)
@with_degrees("cost_per_token", _described, lambda name: 1)
class Layout(Answer):
    """One evaluated layout."""

    tensor_parallel: int
    """Tensor-parallel size."""
    context_parallel: int
    """Context-parallel size."""
    pipeline_parallel: int
    """Pipeline-parallel size."""
    data_parallel: int
    """Data-parallel size."""
    micro_batch_size: int
    """Sequences of a micro-batch."""
    sequence_parallel: int
    """1 if norms and residuals are sharded over TP."""
    recompute: str
    """Recompute mode."""
    num_microbatches: int
    """Micro-batches of a step on each rank."""
    first_stage_bytes: int
    """Bytes of the first pipeline rank at its peak."""
    last_stage_bytes: int
    """Bytes of the last pipeline rank at its peak."""
    peak_bytes: int
    """Bytes of the rank that keeps most."""
    share: float
    """The peak over the memory of the GPU."""
    verdict: str
    """fits (it runs out with a probability below the accepted risk), uncertain, or out of memory (certain)."""
    rule_80: str
    """fits, uncertain or out of memory by the published 80 % rule."""
    run_out_probability: float
    """Probability that the process on the fullest rank runs out of memory."""
    virtual_pipeline: int = 1
    """Chunks of layers per pipeline rank."""
    expert_parallel: int = 1
    """Expert-parallel size."""
    step_seconds: float | None = None
    """Seconds of a step; null where a figure of the machine is not known."""
    tokens_per_second_per_gpu: float | None = None
    """Tokens per second of one GPU; null with ``step_seconds``."""
    mfu: float | None = None
    """Model FLOPs utilisation; null with ``step_seconds``."""
    cost_per_token: float | None = None
    """Price of one token in your currency; 0 where no price is known, null with ``step_seconds``."""
    expert_tensor_parallel: int = 1
    """Tensor-parallel size of routed experts."""
    first_stage_layers: int = 0
    """Layers of the first stage; 0 for an even share."""
    last_stage_layers: int = 0
    """Layers of the last stage; 0 for an even share."""
    account_for_embedding: int = 0
    """1 if the embedding counts as a layer of the first stage."""
    account_for_loss: int = 0
    """1 if head and loss count as a layer of the last stage."""
    schedule: str = "1f1b"
    """Order of forward and backward passes."""
    pipeline_layout: str = ""
    """Layers of every stage where GPUs of stages differ; empty elsewhere."""
    host_bytes: int = 0
    """Bytes on the host of a server, of the server whose GPUs offload most; 0 where nothing is offloaded."""
    kernels: Mapping[str, str] = field(default_factory=dict)
    """Kernels by axis, of which several options were tried."""
    implementation: str | None = None
    """Framework where several were tried; null elsewhere."""
    switches: Mapping[str, int] = field(default_factory=dict)
    """Other parameters that are not as usual, where every switch was tried."""
    placed_seconds: float | None = None
    """Seconds of a step with the nodes placed by measured links; null without them. ``step_seconds`` then has each link
    as fast as the fastest."""

    if TYPE_CHECKING:
        def __getattr__(self, name: str) -> int:
            """Let type checkers take the degrees of systems, which are declared from their list."""
            raise AttributeError(name)


def layout_of(configuration: Configuration) -> Layout:
    """Return a configuration of the standard space as a layout; its memory is computed anew, by the plain evaluator."""
    value, terms, labels = configuration.values, configuration.terms, configuration.part.labels
    times = _TIMES if configuration.part.timed else {}
    timed: dict[str, Any] = {field: float(terms[name]) for field, name in times.items()}
    known = [name for name in (*_SIZES, *UNEVEN) if name not in ABSENT_DEGREES or name in value]
    sizes: dict[str, Any] = {name: value[name] for name in known}
    return Layout(
        run_out_probability=configuration.run_out_probability, rule_80=configuration.rule_80,
        **sizes, recompute=str(configuration.labels["recompute"]), schedule=schedule_of(configuration),
        num_microbatches=num_microbatches(**value),
        first_stage_bytes=int(terms["first.total"]), last_stage_bytes=int(terms["last.total"]),
        kernels={name: option for name, option in labels.items() if name != IMPLEMENTATION},
        implementation=labels.get(IMPLEMENTATION), switches=switched(configuration),
        peak_bytes=configuration.peak_bytes, share=configuration.share, verdict=configuration.verdict,
        pipeline_layout=",".join(map(str, configuration.layers)), host_bytes=ceil(terms.get(OFFLOADED, 0)), **timed,
    )


def schedule_of(configuration: Configuration) -> str:
    """Return the order of passes."""
    return str(schedules(configuration.part.evaluator.choices["schedule"], configuration.values["virtual_pipeline"]))


def schedules(own: str, chunks: ArrayLike) -> NDArray[np.str_]:
    """Return the order of passes by formulas of a schedule, for ``chunks`` on a rank: interleaved, one is 1F1B."""
    single, several = USUAL_SCHEDULES
    return np.where(np.equal(chunks, 1), single if own == several else own, own)


_SIZES = ("tensor_parallel", "context_parallel", "pipeline_parallel", "data_parallel", "micro_batch_size",
          "sequence_parallel", "virtual_pipeline", *ABSENT_DEGREES, "expert_parallel", "expert_tensor_parallel")
_TIMES = {"step_seconds": "step.time", "tokens_per_second_per_gpu": "step.tokens_per_second_per_gpu", "mfu": "step.mfu",
          "cost_per_token": "step.cost_per_token"}
