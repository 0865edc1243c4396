"""Recommend the few layouts worth trying for a model, a cluster and a batch, and say why."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from os import PathLike
from typing import Any

from shardmath.account.accounting import Explanation, explain
from shardmath.account.time import StepTime, as_cluster
from shardmath.answers import Answer, Hidden, Label, Reported
from shardmath.commands.recommend.asking import Asked
from shardmath.commands.recommend.changes import Change, changes
from shardmath.commands.recommend.neighbours import Neighbour, neighbours
from shardmath.configuration.defaults import default_implementation, default_seq_length
from shardmath.configuration.settings import as_model
from shardmath.errors import InputError
from shardmath.formats import written
from shardmath.generated.definitions import num_microbatches
from shardmath.input.arguments import typed_like
from shardmath.machines import Cluster
from shardmath.machines.gpu import Gpu
from shardmath.models.model import Model
from shardmath.search.answered import Answered
from shardmath.search.choosing import choose, seconds_of
from shardmath.search.nests.configurations import Configuration
from shardmath.search.offered import as_arguments, offered
from shardmath.search.sizes import AXES, FOLLOWING, as_arguments_of_explain, sizes_of
from shardmath.search.spaces.standard import layouts
from shardmath.search.untried import Untried, untried


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
    """fits, uncertain or out of memory."""
    binds: Mapping[str, float]
    """Parts of a step other than computing, the longest first, as shares of it."""
    neighbours: tuple[Neighbour, ...]
    """Layouts that are one doubling or halving away."""
    script_: str | None
    """Launch script or configuration; null where no format has what the run does."""
    explanation: Hidden[Explanation]
    """Account of the layout."""

    def script(self, format: str | None = None) -> str:
        """A file to launch it with, by default of the implementation's own format.

        Raises InputError where no format has what the run does.
        """
        return _script(self.explanation, format)


@dataclass(frozen=True)
class Excluded(Answer):
    """The next better layout that memory excludes: of all that are faster than the first choice that of least memory.

    Where there is no first choice it is the legal layout of least memory.
    """

    layout: Mapping[str, Label]
    """Its sizes by name."""
    seconds: float
    """Seconds of a step."""
    peak_bytes: int
    """Bytes of the peak."""


@dataclass(frozen=True)
class Advice(Reported, room="recommend", table="choices"):
    """The few layouts worth trying, and why."""

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
    legal: int
    """Legal layouts that were looked at."""
    choices: tuple[Choice, ...]
    """The choices, the first one first; none if nothing fits."""
    excluded: Excluded | None
    """The next better layout that memory excludes."""
    changes: tuple[Change, ...]
    """Changes of the inputs, each with the best layout then."""
    untried: tuple[Untried, ...]
    """Layouts that were left out, with the option that tries them."""


@typed_like(layouts)
def recommend(
    model: Model | str | PathLike[str],
    gpu: Gpu | Cluster | str | PathLike[str],
    num_gpus: int,
    *,
    global_batch_size: int,
    seq_length: int | None = None,
    network: str | None = None,
    implementation: str | None = None,
    **arguments: Any,
) -> Advice:
    """The few layouts worth trying, why, and what would change the answer.

    ``arguments`` are those of ``sweep``: sizes to try for an axis, and what training and kernels are like. The same
    layouts are searched.

    Raises InputError for every value that is not legal, where no layout is, and where a figure of the machine is not
    known that the time of a step needs.
    """
    chosen, cluster = as_model(model), as_cluster(gpu, network)
    implementation = default_implementation(chosen) if implementation is None else implementation
    seq_length = default_seq_length(chosen) if seq_length is None else seq_length
    training = {"seq_length": seq_length, "implementation": implementation, **arguments}
    asked = Asked(lambda times: offered(chosen, cluster, num_gpus, rank_by="time",
                                        global_batch_size=times * global_batch_size, **training))
    with as_arguments(num_gpus):
        answers = asked.answers
    if not answers.legal:
        raise InputError("num_gpus", num_gpus, "must leave at least one legal layout")
    choices = tuple(
        _choice(item.role, item.configuration, _explained(item.configuration, chosen, cluster, training))
        for item in choose(answers)
    )
    first = answers.first()
    return Advice(
        chosen, cluster, implementation, num_gpus, global_batch_size, seq_length, answers.legal, choices,
        _excluded(answers, first), () if first is None else tuple(changes(asked, first)), untried(answers.parts),
    )


def _choice(role: str, configuration: Configuration, account: Explanation) -> Choice:
    """Return one layout with its account as a choice."""
    peak, values, time = account.peak, account.inputs, account.time
    assert time is not None
    shares = {part: seconds / time.seconds for part, seconds in time.spent.items() if part != "computing"}
    try:
        script = _script(account)
    except InputError:
        script = None
    return Choice(
        role, sizes_of(configuration), values["data_parallel"],
        num_microbatches(**values), time, peak.total,
        account.gpu.memory_bytes - peak.total, peak.share, peak.verdict,
        dict(sorted(((part, share) for part, share in shares.items() if share > 0), key=lambda item: -item[1])),
        tuple(neighbours(configuration)), script, account,
    )


def _script(account: Explanation, format: str | None = None) -> str:
    return written(format or account.framework, account)


def _explained(
    configuration: Configuration, model: Model, cluster: Cluster, training: Mapping[str, Any],
) -> Explanation:
    """The account of one layout."""
    sizes, values = as_arguments_of_explain(sizes_of(configuration)), configuration.values
    others = {name: value for name, value in training.items() if name not in (*AXES, *FOLLOWING)}
    return explain(model, cluster, num_gpus=values["num_gpus"], global_batch_size=values["global_batch_size"],
                   **{**others, **sizes})


def _excluded(answers: Answered, first: Configuration | None) -> Excluded | None:
    """Of the layouts that are faster than the first choice, none of which fits, the one of least memory."""
    faster = [item for item in answers.front("legal") if first is None or seconds_of(item) < seconds_of(first)]
    if not faster:
        return None
    least = faster[-1]  # sorted by time: the more time, the less memory
    return Excluded(sizes_of(least), seconds_of(least), int(least.keys["peak"]))
