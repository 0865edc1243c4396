"""Find the fastest layout of a model at each number of GPUs, with a fixed batch or with as many tokens on each GPU."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from os import PathLike
from typing import TYPE_CHECKING, Any

from shardmath.account.time import StepTime, as_cluster, step_time
from shardmath.answers import Answer, Drawn, Label
from shardmath.configuration.defaults import default_implementation, default_seq_length
from shardmath.configuration.risk import risk_of, with_parts
from shardmath.configuration.run import search_of
from shardmath.configuration.settings import as_model
from shardmath.errors import ABSENT, InputError
from shardmath.input.arguments import typed_like
from shardmath.input.parameters import checked
from shardmath.machines import Cluster
from shardmath.machines.gpu import Gpu
from shardmath.machines.prices import CENTS, priced, refuse_both
from shardmath.models.model import Model
from shardmath.search.answered import answered
from shardmath.search.further import simplest
from shardmath.search.nests.clusters import Address, client_of
from shardmath.search.nests.running import Progress
from shardmath.search.offered import as_arguments, spaces_of
from shardmath.search.refusals import refusal
from shardmath.search.sizes import sizes_of
from shardmath.search.spaces import Best
from shardmath.search.spaces.standard import layouts
from shardmath.search.spaces.usual import BY_TIME
from shardmath.search.untried import Untried, switches_left, untried

if TYPE_CHECKING:
    from distributed import Client

#: Called with layouts done, all, and words for them.
ProgressOf = Callable[[int, int, str], None]
#: Parts of a step in which a rank works.
_OWN = ("computing", "recomputing", "optimizer")


@dataclass(frozen=True)
class Point(Answer):
    """The fastest layout that fits on one number of GPUs."""

    num_gpus: int
    """GPUs of the job."""
    global_batch_size: int
    """Sequences of a step."""
    legal: int | None
    """Legal layouts that were looked at; null where bounds answered, which count none, or the search was stopped."""
    layout: Mapping[str, Label] | None = None
    """Sizes of the layout; null if nothing fits."""
    data_parallel: int = 0
    """Data-parallel size; 0 if nothing fits."""
    peak_bytes: int = 0
    """Bytes of the rank that keeps most; 0 if nothing fits."""
    time: StepTime | None = None
    """Time of a step; null if nothing fits."""
    watts_per_gpu: float = 0.0
    """Mean power of one GPU in watts; 0 if unknown."""
    tokens_per_joule: float = 0.0
    """Tokens for each joule; 0 where the power of the GPU is not known."""
    waiting: float = 0.0
    """Share of a step in which the slowest rank does nothing of its own."""
    relative: float = 0.0
    """Tokens per second and GPU over those of the smallest size that has a layout; 0 without a layout."""

    refusal: str = ""
    """Rules broken by the layout that breaks fewest, where none is legal; empty elsewhere."""
    complete: bool = True
    """False where the search was stopped: then the layout is the best so far."""
    gap: float | None = 0.0
    """Share of its step time that another layout that fits may save at most: 0 where the search is complete; null where
    it was stopped before anything was found that fits, or before all programs had bounds."""

    @property
    def any_legal(self) -> bool:
        """True if a layout is legal."""
        return not self.refusal if self.legal is None else bool(self.legal)

    @property
    def missing(self) -> str:
        """Why no layout is there."""
        if not self.complete:
            return "the search was stopped before anything was found that fits"
        return "nothing fits" if self.any_legal else "; ".join(["no layout is legal", *filter(None, [self.refusal])])

    @property
    def tokens_per_second_per_gpu(self) -> float:
        """Tokens per second and GPU; 0 where nothing fits."""
        return 0.0 if self.time is None else self.time.tokens_per_second_per_gpu


@dataclass(frozen=True)
class Scaling(Drawn, room="scale", table="points"):
    """One model over many numbers of GPUs.

    Sizes are in bytes, times in seconds.

    Raises FrozenInstanceError where a field is set, and InputError where ``plot`` cannot draw or write.

    Example:
        >>> answer = shardmath.scale("llama-3.1-8b", "h100-80gb", [8, 16], global_batch_size=128)
        >>> [(point.num_gpus, point.layout["tensor_parallel"]) for point in answer.points]
        [(8, 2), (16, 2)]
    """

    model: Model
    """Dimensions of the model."""
    cluster: Cluster
    """GPUs, servers and network."""
    implementation: str
    """Framework."""
    seq_length: int
    """Tokens of a sequence."""
    risk: float
    """Probability of running out of memory below which a layout is said to fit."""
    points: tuple[Point, ...]
    """One for each number of GPUs, ascending."""
    untried: tuple[Untried, ...]
    """Layouts that were left out, with the option that tries them."""
    complete: bool = True
    """False where the search of some number of GPUs was stopped."""


@typed_like(layouts)
def scale(
    model: Model | str | PathLike[str],
    gpu: Gpu | Cluster | str | PathLike[str],
    num_gpus: Sequence[int],
    *,
    global_batch_size: int | None = None,
    tokens_per_gpu: int | None = None,
    seq_length: int | None = None,
    network: str | None = None,
    implementation: str | Sequence[str] | None = None,
    price: Mapping[str, float | str] | float | str | None = None,
    progress: ProgressOf | None = None,
    stopped: Callable[[], bool] = lambda: False,
    dask: Address = None,
    **arguments: Any,
) -> Scaling:
    """Return the fastest layout that fits at each number of GPUs.

    Either the batch is the same everywhere (``global_batch_size`` sequences: strong scaling) or it grows with the GPUs
    (``tokens_per_gpu`` of a step: weak scaling). ``price``: of a GPU-hour, a number or one by kind of GPU.
    ``progress`` is called with layouts that are known to be no better, all, and words for them, which name the GPUs.
    Once ``stopped`` says so, the search ends with the best so far, and says by how much it may get better; numbers of
    GPUs that were not begun have no layout. ``dask``: the address of a Dask scheduler that runs the loops of large
    searches, a client of one, or ``local`` for processes of this machine. ``arguments`` are those of ``sweep``.

    Raises InputError for values that are not legal, and where a figure of the machine is not known that the time of a
    step needs.

    Example:
        >>> answer = shardmath.scale("llama-3.1-8b", "h100-80gb", [8, 16], tokens_per_gpu=65536)
        >>> [point.global_batch_size for point in answer.points]
        [64, 128]
    """
    chosen, cluster = as_model(model), priced(as_cluster(gpu, network), price)
    refuse_both(price, arguments.get(CENTS))
    implementation = default_implementation(chosen) if implementation is None else implementation
    seq_length = default_seq_length(chosen) if seq_length is None else seq_length
    if not num_gpus:
        raise InputError("num_gpus", (), "must have at least one number of GPUs")
    sizes = sorted({checked("num_gpus", size) for size in num_gpus})
    batches = {size: _batch(size, global_batch_size, tokens_per_gpu, seq_length) for size in sizes}
    points, left_out = list[Point](), dict[Untried, None]()
    with client_of(dask) as client:
        for size, batch in batches.items():
            if points and stopped():
                points.append(Point(size, batch, None, complete=False, gap=None))
                continue
            words = f"layouts on {size:,} {cluster.gpu.name}"
            report = None if progress is None else partial(_of_size, progress, words)
            with as_arguments(size):
                training = {"seq_length": seq_length, **arguments}
                point, without = _point(chosen, cluster, size, batch, implementation, training, report, stopped, client)
            points.append(point)
            left_out |= dict.fromkeys(without)
    base = next((point.tokens_per_second_per_gpu for point in points if point.layout is not None), 0.0)
    compared = (replace(point, relative=point.tokens_per_second_per_gpu / base if base else 0.0) for point in points)
    shown = implementation if isinstance(implementation, str) else ", ".join(implementation)
    return Scaling(chosen, cluster, shown, seq_length, risk_of(with_parts(arguments)), tuple(compared),
                   tuple(left_out), all(point.complete for point in points))


def _of_size(progress: ProgressOf, words: str, done: int, size: int) -> None:
    progress(done, size, words)


def _batch(size: int, global_batch_size: int | None, tokens_per_gpu: int | None, seq_length: int) -> int:
    """Return sequences of a step on so many GPUs."""
    if tokens_per_gpu is None:
        if global_batch_size is None:
            raise InputError("global_batch_size", ABSENT, "must be given, or tokens_per_gpu")
        return checked("global_batch_size", global_batch_size)
    if global_batch_size is not None:
        raise InputError("tokens_per_gpu", tokens_per_gpu, "must not be given together with global_batch_size")
    sequences, rest = divmod(tokens_per_gpu * size, checked("seq_length", seq_length))
    if rest or sequences < 1:
        rule = f"must be whole sequences of {seq_length} tokens on {size} GPUs"
        raise InputError("tokens_per_gpu", tokens_per_gpu, rule, str(max(1, tokens_per_gpu // seq_length) * seq_length))
    return sequences


def _point(
    model: Model, cluster: Cluster, size: int, batch: int, implementation: str | Sequence[str],
    arguments: Mapping[str, Any], progress: Progress | None, stopped: Callable[[], bool], client: Client | None,
) -> tuple[Point, tuple[Untried, ...]]:
    search = search_of(model, cluster, size, global_batch_size=batch, implementation=implementation, **arguments)
    spaces = spaces_of(search, "time")
    questions = [Best("best", BY_TIME, 1)]
    if search.every_switch:  # whether any is legal, where nothing fits and nothing is counted
        questions.append(Best("legal", BY_TIME, 1, among="legal"))
    answers = answered(spaces, lambda _: questions, progress, stopped=stopped, client=client)
    best, without = answers.first(), (*untried(answers.parts), *switches_left(search, answers.parts))
    if best is None:
        return Point(size, batch, answers.legal, refusal=str(refusal(answers) or ""), complete=answers.complete,
                     gap=answers.gap()), without
    best = simplest(best)
    time = step_time(best.part.evaluator, best.values, error=cluster.error(bool(model.num_experts)))
    joules, waiting = time.joules_per_token, (seconds for part, seconds in time.spent.items() if part not in _OWN)
    point = Point(
        size, batch, answers.legal, sizes_of(best), best.values["data_parallel"], best.peak_bytes, time,
        joules * time.tokens_per_second_per_gpu, 1 / joules if joules else 0.0, sum(waiting) / time.seconds,
        complete=answers.complete, gap=answers.gap(),
    )
    return point, without
