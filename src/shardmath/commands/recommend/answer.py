"""The answer of recommend: the few layouts worth trying, and what would change the answer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from shardmath.account.accounting import Explanation
from shardmath.account.time import StepTime
from shardmath.answers import Answer, Drawn, Hidden, Label
from shardmath.commands.recommend.changes import Change
from shardmath.commands.recommend.neighbours import Neighbour
from shardmath.errors import InputError
from shardmath.formats import written
from shardmath.generated.definitions import num_microbatches
from shardmath.machines import Cluster
from shardmath.models.model import Model
from shardmath.search.switches import Switch
from shardmath.search.untried import Untried


@dataclass(frozen=True)
class Choice(Answer):
    """One layout worth trying."""

    role: str
    """Why it is here: the best of what."""
    layout: Mapping[str, Label]
    """Its sizes by name."""
    data_parallel: int
    """Data-parallel size."""
    num_microbatches: int
    """Micro-batches of a step on each rank."""
    time: StepTime
    """Time of a step."""
    peak_bytes: int
    """Bytes of the rank that keeps most."""
    margin_bytes: int
    """Memory that it leaves free at the peak."""
    share: float
    """The peak over the memory of the GPU."""
    verdict: str
    """fits (it runs out with a probability below the accepted risk) or uncertain."""
    rule_80: str
    """fits, uncertain or out of memory by the published 80 % rule."""
    run_out_probability: float
    """Probability that the process on the fullest rank runs out of memory, from how known runs went."""
    binds: Mapping[str, float]
    """Parts of a step other than computing, the longest first, as shares of it."""
    neighbours: tuple[Neighbour, ...]
    """Layouts that are one doubling or halving away."""
    script_: str | None
    """Launch script or configuration; null where no format has what the run does."""
    explanation: Hidden[Explanation]
    """Account of the layout."""
    layers: Hidden[tuple[int, ...] | None] = None
    """Layers of every stage where they are listed."""
    reserved_bytes: int = 0
    """Bytes that the allocator reserves on the fullest rank: replayed, or else by the formula."""
    replay_unknown: str = ""
    """Why its steps are not replayed; empty where they are."""
    host_bytes: int = 0
    """Bytes on the host of a server, of the server whose GPUs offload most; 0 where nothing is offloaded."""

    def script(self, format: str | None = None) -> str:
        """Return a file to launch it with, by default of the implementation's own format.

        Raises InputError where no format has what the run does.
        """
        return written(format, self.explanation, self.layers)


@dataclass(frozen=True)
class Excluded(Answer):
    """A layout that memory excludes."""

    layout: Mapping[str, Label]
    """Its sizes by name."""
    seconds: float
    """Seconds of a step."""
    peak_bytes: int
    """Bytes of the peak."""
    verdict: str
    """uncertain or out of memory."""
    rule_80: str
    """The same by the 80 % rule."""
    run_out_probability: float
    """Probability that the process on the fullest rank runs out of memory."""
    gpu_memory: Hidden[int]
    """Bytes of memory of the GPU of that rank."""


@dataclass(frozen=True)
class Advice(Drawn, room="recommend", table="choices"):
    """The few layouts worth trying, and why.

    Sizes are in bytes, times in seconds.

    Raises FrozenInstanceError where a field is set, and InputError where ``plot`` cannot draw or write.

    Example:
        >>> advice = shardmath.recommend("llama-3.1-8b", "h100-80gb", 16, global_batch_size=128)
        >>> first = advice.choices[0]
        >>> first.verdict, first.script().splitlines()[0]
        ('fits', '#!/bin/bash')
    """

    model: Model
    """Dimensions of the model."""
    cluster: Cluster
    """GPUs, servers and network."""
    implementation: str
    """Framework."""
    num_gpus: int
    """GPUs of the job."""
    global_batch_size: int
    """Sequences of a step."""
    seq_length: int
    """Tokens of a sequence."""
    legal: int | None
    """Legal layouts that were looked at; null where bounds answered, which count none, or the search was stopped."""
    risk: float
    """Probability of running out of memory below which a layout is said to fit."""
    choices: tuple[Choice, ...]
    """The choices, the first one first; none if nothing fits."""
    excluded: Excluded | None
    """The next better layout that memory excludes: of all that are faster than the first choice that of least memory.
    Where there is no first choice it is the legal layout of least memory."""
    changes: tuple[Change, ...]
    """Changes of the inputs, each with the best layout then."""
    untried: tuple[Untried, ...]
    """Layouts that were left out, with the option that tries them."""
    switches: tuple[Switch, ...] | None = None
    """Where nothing fits, changes after which something fits or may fit, one of each kind, the smallest first: single
    ones, or else up to three together; an empty list if none does it. Null where a layout fits, and on clusters of
    measured links or of unlike GPUs, where no changes are tried."""

    by_rule_80: Excluded | None = None
    """The fastest layout that fits by the published 80 % rule, where it is faster than a first choice that fits by more
    than the error of times; null elsewhere."""
    size: int = 0
    """Layouts of the space, legal or not."""
    complete: bool = True
    """False where the search was stopped: then choices are the best so far, without changes and switches."""
    gap: float | None = 0.0
    """Share of the first choice's step time that another layout that fits may save at most: 0 where the search is
    complete; null where it was stopped before anything was found that fits, or before all programs had bounds."""


def choice_of(
    role: str, layout: Mapping[str, Label], near: Iterable[Neighbour], account: Explanation,
    layers: tuple[int, ...] | None = None,
) -> Choice:
    """Return one layout with its account as a choice; ``layers`` of its stages where they are listed."""
    peak, values, time = account.peak, account.inputs, account.time
    assert time is not None
    shares = {part: seconds / time.seconds for part, seconds in time.spent.items() if part != "computing"}
    try:
        script = written(None, account, layers)
    except InputError:
        script = None
    return Choice(
        role, layout, values["data_parallel"], num_microbatches(**values), time, peak.total,
        account.memory_of(peak) - peak.total, peak.share, peak.verdict, peak.rule_80,
        account.run_out_probability,
        dict(sorted(((part, share) for part, share in shares.items() if share > 0), key=lambda item: -item[1])),
        tuple(near), script, account, layers, account.reserved_bytes,
        account.replay_unknown, account.host_bytes,
    )
