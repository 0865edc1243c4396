"""The answer of ``phases``: phases of one training, changes between them, and layouts that could serve them all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from shardmath.answers import Answer, Drawn, Label
from shardmath.machines import Cluster
from shardmath.models.model import Model


@dataclass(frozen=True)
class Phase(Answer):
    """One phase with its layout."""

    name: str
    """Name of the phase."""
    tokens: int
    """Tokens of the phase."""
    seq_length: int
    """Tokens of a sequence."""
    global_batch_size: int
    """Sequences of a step."""
    is_best: bool
    """True if the layout is the fastest that fits, false if it was given."""
    layout: Mapping[str, Label]
    """Degrees and further options of the layout."""
    data_parallel: int
    """Data-parallel size."""
    peak_bytes: int
    """Bytes of the rank that keeps most."""
    share: float
    """The peak over the memory of the GPU."""
    verdict: str
    """fits, uncertain or out of memory, as the probability of running out says."""
    rule_80: str
    """The same by the published 80 % rule."""
    run_out_probability: float
    """Probability that the process on the fullest rank runs out of memory."""
    tokens_per_second: float
    """Tokens per second of all GPUs."""
    mfu: float
    """Model FLOPs utilisation."""
    error: float | None
    """Error of nine of ten predicted steps, as a share; null where nothing was measured on such GPUs."""
    seconds: float
    """Seconds of the phase."""
    gpu_hours: float
    """GPU-hours of the phase."""


@dataclass(frozen=True)
class LayoutChange(Answer):
    """The change of layout before a phase."""

    before: str
    """Name of the phase that it comes before."""
    most_bytes: int
    """Bytes of weights and optimizer states that the rank which receives most must receive."""
    weight_bytes: int
    """Bytes of weights that all ranks together must receive."""
    state_bytes: int
    """Bytes of optimizer states that all ranks together must receive."""
    network_seconds: float
    """Seconds over the network."""
    written_bytes: int
    """Bytes of a checkpoint: each weight and state once."""
    read_bytes: int
    """Bytes that all ranks read from it: what each keeps in the new layout."""
    checkpoint_seconds: float | None
    """Seconds by way of a checkpoint; null where the storage is not known."""
    seconds: float
    """Seconds that the total counts: none if nobody receives anything, else by way of a checkpoint where the storage is
    known, else over the network."""


@dataclass(frozen=True)
class KeptLayout(Answer):
    """The layout of one phase in all phases."""

    of: str
    """Name of the phase whose layout it is."""
    seconds: float | None
    """Seconds of all phases; null where the layout cannot serve them all."""
    reason: str
    """Why it cannot; empty where it can."""
    verdict: str
    """Verdict on the phase that needs most memory; empty where the layout cannot serve them all."""


@dataclass(frozen=True)
class Phases(Drawn, room="phases", table="phases"):
    """One training in phases.

    Sizes are in bytes, times in seconds.

    Raises FrozenInstanceError where a field is set, and InputError where ``plot`` cannot draw or write.

    Example:
        >>> short = {"tokens": 10**12, "global_batch_size": 512, "seq_length": 8192, "layout": {"tensor_parallel": 4}}
        >>> long = {**short, "tokens": 10**10, "layout": {"tensor_parallel": 8}}
        >>> job = {"model": "llama-3.1-8b", "gpu": "h100-80gb", "num_gpus": 64}
        >>> answer = shardmath.phases({**job, "phases": [{"name": "short", **short}, {"name": "long", **long}]})
        >>> [phase.peak_bytes for phase in answer.phases]
        [24849141760, 13272534016]
    """

    model: Model
    """Dimensions of the model."""
    cluster: Cluster
    """GPUs, servers and network."""
    num_gpus: int
    """GPUs of the job."""
    risk: float
    """Probability of running out of memory below which a layout is said to fit."""
    phases: tuple[Phase, ...]
    """The phases in their order."""
    changes: tuple[LayoutChange, ...]
    """Changes of layout, none where two phases have the same one."""
    kept: tuple[KeptLayout, ...]
    """Each layout in all phases, if there are several."""
    seconds: float
    """Seconds of all phases and changes."""
    gpu_hours: float
    """GPU-hours of the same."""

    @property
    def faster(self) -> KeptLayout | None:
        """The fastest layout that serves all phases in less time than the plan, as surely as it; None without one."""
        verdicts = {"fits", *(phase.verdict for phase in self.phases)}
        able = [kept for kept in self.kept
                if kept.seconds is not None and kept.seconds < self.seconds and kept.verdict in verdicts]
        return min(able, key=lambda kept: kept.seconds or 0.0, default=None)
