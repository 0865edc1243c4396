"""Ask a configuration backwards: for every symbol, by closed form or, for degrees of parallelism, one by one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from functools import cached_property
from itertools import product
from os import PathLike
from typing import Any

from shardmath.account.configured import Configuration, configured
from shardmath.account.host import fullest_host, hosts_hold
from shardmath.commands.fit.answers import Bound, FitAnswer, Fits, bound_of
from shardmath.commands.fit.formula import Solution, solution
from shardmath.commands.fit.symbols import (
    DEGREES,
    KEPT,
    MEMORY,
    MODEL_PARALLEL,
    USUAL,
    Solved,
    known_symbol,
    solved_for,
    unit_of,
)
from shardmath.compiler.evaluators import terms_at
from shardmath.compiler.inverses.laurent import NoClosedFormError
from shardmath.compiler.inverses.posed import Question
from shardmath.configuration.job import Job
from shardmath.configuration.risk import risk_of
from shardmath.configuration.settings import OFFLOADED
from shardmath.divisors import divisors
from shardmath.errors import InputError, nearest_names
from shardmath.files.cached import source_of
from shardmath.generated.definitions import LIMITS
from shardmath.input.arguments import typed_like
from shardmath.input.parameters import limits
from shardmath.machines import Cluster
from shardmath.machines.gpu import Gpu
from shardmath.models.model import Model

_WHOLE = 10**6
PEAK = "peak"
CLOSED = "closed form"
TRIED = "one by one"


@typed_like(configured)
def fit(
    model: Model | str | PathLike[str],
    gpu: Gpu | Cluster | str | PathLike[str],
    solve: str | Sequence[str] | None = None,
    *,
    share: Fraction | int | str | None = None,
    keep: str = "head_dim",
    formulas: bool | None = None,
    **arguments: Any,
) -> Fits:
    """Solve a configuration for one symbol, or for several: the last value that fits.

    ``solve`` names them: the largest ``micro_batch_size``, ``seq_length``, ``num_layers`` or ``hidden_size``, the
    fewest ``num_gpus`` (by data parallelism), the smallest ``model_parallel`` (TP * PP) or degree of one kind, the
    ``gpu_memory`` that is needed (bytes), or other sizes of the model. Without it, all usual ones are answered.
    A peak fits as far as the verdict says so, or up to ``share`` of the memory (0.8 is the 80 % rule). ``keep`` says
    what stays while ``hidden_size`` grows: ``head_dim`` (there are more heads), ``heads`` (they are wider) or ``all``
    (nothing else changes); inner widths of the MLP grow with it unless all is kept. ``formulas`` are derived where a
    symbol is named, unless it says otherwise. The other arguments are those of ``explain``.

    Raises InputError for every value that is not legal, and for a symbol that cannot be asked for.

    Example:
        >>> fits = shardmath.fit("llama-3.1-8b", "h100-80gb", solve="seq_length", tensor_parallel=4, num_gpus=16)
        >>> fits["seq_length"].at.value
        21912
    """
    if arguments.get("pipeline_layout") is not None:
        rule = "must not be given: its walk through a schedule has no formula to solve"
        raise InputError("pipeline_layout", arguments["pipeline_layout"], rule)
    configuration = configured(model, gpu, **arguments)
    job = configuration.job
    if keep not in KEPT:
        raise InputError("keep", keep, f"must be one of {', '.join(KEPT)}", nearest_names(keep, KEPT))
    part = share_of(share)
    written = solve is not None if formulas is None else formulas
    asked = _Asked(model, gpu, arguments, configuration, part, keep, written)
    symbols = USUAL if solve is None else (solve,) if isinstance(solve, str) else tuple(solve)
    answers = tuple(_answers(asked, map(known_symbol, symbols), skip=solve is None))
    return Fits(job.model.name, job.gpu.name, job.evaluator.implementation, job.values[MEMORY], part,
                job.values, keep, answers, asked.limit(job.values), asked.here.peak,
                risk_of(job.values))


class _Asked:
    """One configuration and what it may take: ``share`` of the memory, or as much as the verdict says if it is None."""

    def __init__(self, model: Any, gpu: Any, arguments: Mapping[str, Any], configuration: Configuration,
                 share: Fraction | None, keep: str, formulas: bool) -> None:
        self.model, self.gpu, self.arguments, self.job, self.keep = model, gpu, arguments, configuration.job, keep
        self.share, self.formulas = share, formulas
        self.source = source_of(configuration.job.evaluator.terms)
        #: Bytes of a server's host; 0 where they are not known, and where nothing lies there.
        self.hosts = self.job.values["host_memory"] if OFFLOADED in self.job.evaluator.terms.TERMS else 0

    @cached_property
    def here(self) -> Bound:
        """The peak as it was asked."""
        return bound_of(self.job.evaluator, self.job.values, 0, {})

    def limit(self, values: Mapping[str, int]) -> Fraction:
        """Return bytes that the peak of a configuration must not exceed."""
        if self.share is not None:
            return self.share * values[MEMORY]
        return Fraction(terms_at(self.job.evaluator.terms, {**values, "pipeline_rank": 0})[LIMITS[0]])

    def solution(self, name: str, at: Bound | None, multiples: Mapping[str, Fraction], *, largest: bool,
                 ) -> Solution | None:
        """Return the inverted formula at an answer, if it is asked for."""
        if at is None or not self.formulas:
            return None
        values = {**self.job.values, "pipeline_rank": 0, **at.values}
        return solution(self.job.evaluator, self.source, name, values, multiples, self.limit(values), self.share,
                        at.peak, largest=largest)

    def with_degrees(self, **degrees: int) -> Job | None:
        """Return the job with other degrees of parallelism; None if it is not legal."""
        try:
            job: Job = configured(self.model, self.gpu, **{**self.arguments, **degrees}).job
        except InputError:
            return None
        return job


def _answers(asked: _Asked, symbols: Iterable[str], skip: bool) -> Iterator[FitAnswer]:
    for symbol in symbols:
        try:
            yield _answer(asked, symbol)
        except InputError:
            if not skip:
                raise


def _answer(asked: _Asked, symbol: str) -> FitAnswer:
    if symbol == MEMORY:
        return _memory(asked)
    if symbol == MODEL_PARALLEL:
        return _degrees(asked, symbol, ("tensor_parallel", "pipeline_parallel"))
    if symbol in DEGREES:
        return _degrees(asked, symbol, (symbol,))
    return _closed(asked, solved_for(symbol, asked.job, asked.arguments, asked.keep))


def share_of(share: Fraction | int | str | None) -> Fraction | None:
    """Get the part of the memory that a peak may take; None for what the verdict says.

    Raises InputError for one that is not above 0 and at most 1.
    """
    if share is None:
        return None
    try:
        part = Fraction(share)
    except (ValueError, ZeroDivisionError):
        part = Fraction(0)
    if not 0 < part <= 1 or part.denominator > _WHOLE:
        said = share if isinstance(share, int) and share.bit_length() > 64 else str(share)
        raise InputError("share", said, "must be above 0 and at most 1, with at most 6 decimals", "0.8 or 1.0")
    return part


def _memory(asked: _Asked) -> FitAnswer:
    """Return the memory that the configuration needs: the least with which the peak is within its limit.

    Raises InputError where no memory is enough, because a host cannot hold what is offloaded.
    """
    values, stages = asked.job.values, range(asked.job.values["pipeline_parallel"])
    fullest_host(asked.job, [terms_at(asked.job.evaluator.terms, asked.job.on_rank(rank)) for rank in stages])
    at = asked.here
    needed = _least(lambda memory: at.peak <= asked.limit({**values, MEMORY: memory}), limits(MEMORY)[1])
    here = Bound(needed, at.peak, at.rank, at.moment, {})
    return FitAnswer(MEMORY, "bytes", False, here, None, CLOSED, {0: Fraction(at.peak)}, others_fit=True,
                  formula=asked.solution(MEMORY, at, {}, largest=False))


def _least(enough: Callable[[int], bool], largest: int) -> int:
    """Return the least number from 1 that is enough: all that are larger are so too."""
    low, high = 0, largest
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def _closed(asked: _Asked, solved: Solved) -> FitAnswer:
    evaluator, values = asked.job.evaluator, asked.job.values
    at_first = {**values, "pipeline_rank": 0}

    def question_of(term: str, less: str | None = None) -> Question:
        return Question(asked.source, term, at_first, solved.name, solved.first, solved.last, solved.multiples, less)

    of_peak = question_of(PEAK)
    question, limit = (question_of(PEAK, LIMITS[0]), 0) if asked.share is None else (of_peak, asked.limit(values))
    of_host = question_of(OFFLOADED) if asked.hosts else None
    try:
        closed = question.answer(limit, largest=solved.largest)
        held = None if of_host is None else of_host.answer(asked.hosts, largest=solved.largest)
        piece = None if closed is None else of_peak.piece(closed.value)
    except NoClosedFormError as error:
        raise InputError("solve", solved.symbol, f"must have a closed form in this configuration: {error}") from None

    def bound(value: int | None) -> Bound | None:
        if value is None:
            return None
        along = {name: int(times * value) for name, times in solved.multiples.items()}
        return bound_of(evaluator, {**values, solved.name: value, **along}, value * solved.counted,
                        {solved.name: value, **along})

    unit = unit_of(solved.symbol)
    if closed is None:
        start = question.first if solved.largest else values[solved.name]  # more GPUs than there are say nothing
        nearest = question.legal.next(start, question.last)
        outside = bound(nearest)
        return FitAnswer(solved.symbol, unit, solved.largest, None, outside, CLOSED, formula=asked.solution(
            solved.name, outside, solved.multiples, largest=solved.largest))
    assert piece is not None
    beyond = question.neighbour(closed.value, above=solved.largest)
    if of_host is not None:
        if held is None:
            return FitAnswer(solved.symbol, unit, solved.largest, None, None, CLOSED, by_host=True)
        binding = (min if solved.largest else max)(closed, held, key=lambda item: item.value)
        if question.exact(binding.value) > limit or of_host.exact(binding.value) > asked.hosts:
            rule = "must have a peak and bytes on hosts that rise with it: what fits both is not counted yet elsewhere"
            raise InputError("solve", solved.symbol, rule)
        if binding is not closed:
            beyond = of_host.neighbour(binding.value, above=solved.largest)
            return FitAnswer(solved.symbol, unit, solved.largest, bound(binding.value), bound(beyond), CLOSED,
                             others_fit=closed.others_fit, by_host=True)
    at = bound(closed.value)
    return FitAnswer(
        solved.symbol, unit, solved.largest, at, bound(beyond), CLOSED,
        {exponent: Fraction(count) for exponent, count in piece.low.items()}, piece.first, piece.last, closed.tried,
        closed.others_fit, asked.solution(solved.name, at, solved.multiples, largest=solved.largest),
    )


def _degrees(asked: _Asked, symbol: str, names: tuple[str, ...]) -> FitAnswer:
    """Return the smallest product of degrees that fits, and of equal products the one with the lowest peak."""
    before: Bound | None = None
    tried = 0
    for size, group in _by_product(asked.job, names):
        fitting: list[Bound] = []
        failing: list[Bound] = []
        for degrees in group:
            job = asked.with_degrees(**degrees)
            if job is None:
                continue
            tried += 1
            candidate = bound_of(job.evaluator, job.values, size, degrees)
            fits = candidate.peak <= asked.limit(job.values) and (
                not job.values.get("host_memory") or hosts_hold(job.values, [
                    terms_at(job.evaluator.terms, job.on_rank(rank)) for rank in range(job.values["pipeline_parallel"])
                ]))
            (fitting if fits else failing).append(candidate)
        if fitting:
            at = min(fitting, key=lambda bound: bound.peak)
            return FitAnswer(symbol, unit_of(symbol), False, at, before, TRIED, tried=tried)
        before = min(failing, key=lambda bound: bound.peak, default=before)
    return FitAnswer(symbol, unit_of(symbol), False, None, before, TRIED, tried=tried)


def _by_product(job: Job, names: tuple[str, ...]) -> Iterator[tuple[int, list[dict[str, int]]]]:
    """Yield degrees that may be legal, in the order of their product."""
    groups: dict[int, list[dict[str, int]]] = {}
    for values in product(*(_candidates(job, name) for name in names)):
        size = 1
        for value in values:
            size *= value
        groups.setdefault(size, []).append(dict(zip(names, values, strict=True)))
    yield from sorted(groups.items())


def _candidates(job: Job, name: str) -> Sequence[int]:
    values = job.values
    if name == "tensor_parallel":
        return [t for t in divisors(values["num_attention_heads"]) if t <= values["node_size"]]
    if name == "pipeline_parallel":
        even = job.evaluator.choices["stages"] == "even"
        return divisors(values["num_layers"]) if even else range(1, values["num_layers"] + 1)
    if name == "context_parallel":
        return divisors(values["seq_length"])
    return divisors(values["num_experts"]) if values["num_experts"] else (1,)
