"""Recommend the few layouts worth trying for a model, a cluster and a batch, and say why."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from os import PathLike
from typing import Any

from shardmath.account.accounting import Explanation, explain
from shardmath.account.time import StepTime, as_cluster
from shardmath.commands.recommend.asking import Asked
from shardmath.commands.recommend.changes import Change, changes
from shardmath.commands.recommend.neighbours import Neighbour, neighbours
from shardmath.configuration.defaults import default_implementation, default_seq_length
from shardmath.configuration.settings import as_model
from shardmath.errors import InputError
from shardmath.formats import written
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
class Choice:
    """One layout that is worth trying.

    ``role`` says why it is here, ``layout`` has its sizes by name, ``explanation`` its whole account. ``binds`` are
    the parts of a step other than computing, with their share of it. ``neighbours`` is what is one step away.
    """

    role: str
    layout: Mapping[str, int | str]
    explanation: Explanation
    neighbours: tuple[Neighbour, ...]

    @property
    def time(self) -> StepTime:
        """The time of its step."""
        assert self.explanation.time is not None
        return self.explanation.time

    @property
    def binds(self) -> Mapping[str, float]:
        """Parts of a step other than computing, the longest first, as shares of it."""
        shares = {part: seconds / self.time.seconds for part, seconds in self.time.spent.items() if part != "computing"}
        return dict(sorted(((part, share) for part, share in shares.items() if share > 0), key=lambda item: -item[1]))

    @property
    def margin_bytes(self) -> int:
        """Memory that is left at the peak."""
        return self.explanation.gpu.memory_bytes - self.explanation.peak.total

    @property
    def num_microbatches(self) -> int:
        """Micro-batches of a step."""
        value = self.explanation.inputs
        return value["global_batch_size"] // (value["data_parallel"] * value["micro_batch_size"])

    def script(self, format: str | None = None) -> str:
        """A file to launch it with, by default of the implementation's own format.

        Raises InputError where no format has what the run does.
        """
        return written(format or self.explanation.implementation.partition("_")[0], self.explanation)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON; ``script`` is None where no format has what the run does."""
        try:
            script = self.script()
        except InputError:
            script = None
        peak = self.explanation.peak
        return {
            "role": self.role, "layout": dict(self.layout), "data_parallel": self.explanation.inputs["data_parallel"],
            "num_microbatches": self.num_microbatches, "time": self.time.to_dict(),
            "peak_bytes": peak.total, "margin_bytes": self.margin_bytes, "share": peak.share, "verdict": peak.verdict,
            "binds": dict(self.binds), "neighbours": [asdict(item) for item in self.neighbours],
            "script": script,
        }


@dataclass(frozen=True)
class Excluded:
    """The next better layout that memory excludes: of all that are faster than the first choice that of least memory.

    Where there is no first choice it is the legal layout of least memory.
    """

    layout: Mapping[str, int | str]
    seconds: float
    peak_bytes: int


@dataclass(frozen=True)
class Advice:
    """The answer: ``choices``, the first one first; none if nothing fits.

    ``legal`` layouts were looked at. ``excluded`` is the next better one. ``changes`` are about the first choice.
    ``untried`` says what was left out.
    """

    model: Model
    cluster: Cluster
    implementation: str
    num_gpus: int
    global_batch_size: int
    seq_length: int
    legal: int
    choices: tuple[Choice, ...]
    excluded: Excluded | None
    changes: tuple[Change, ...]
    untried: tuple[Untried, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {
            "model": self.model.model_dump(), "cluster": self.cluster.model_dump(),
            "implementation": self.implementation, "num_gpus": self.num_gpus,
            "global_batch_size": self.global_batch_size, "seq_length": self.seq_length, "legal": self.legal,
            "choices": [item.to_dict() for item in self.choices],
            "excluded": None if self.excluded is None else asdict(self.excluded),
            "changes": [asdict(item) for item in self.changes],
            "untried": [asdict(item) for item in self.untried],
        }


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
        Choice(item.role, sizes_of(item.found), _explained(item.found, chosen, cluster, training),
               tuple(neighbours(item.found)))
        for item in choose(answers)
    )
    first = answers.first()
    return Advice(
        chosen, cluster, implementation, num_gpus, global_batch_size, seq_length, answers.legal, choices,
        _excluded(answers, first), () if first is None else tuple(changes(asked, first)), untried(answers.parts),
    )


def _explained(found: Configuration, model: Model, cluster: Cluster, training: Mapping[str, Any]) -> Explanation:
    """The account of one layout."""
    sizes, values = as_arguments_of_explain(sizes_of(found)), found.values
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
