"""Parts of a space: one per compiled evaluator, with all inputs filled in."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from types import ModuleType

from shardmath.account.pipelines import Pipeline
from shardmath.compiler.evaluators import Evaluator, find, terms_at, times_at
from shardmath.compiler.exactness import refuse_inexact
from shardmath.configuration.choosing import following
from shardmath.configuration.defaults import (
    GRADIENTS_AHEAD,
    WEIGHTS_AHEAD,
    default_seq_length,
    impossible_overlaps,
)
from shardmath.configuration.fields import LAYOUT
from shardmath.configuration.job import refuse_what_changes_nothing
from shardmath.configuration.nearest import as_it_was_asked
from shardmath.configuration.settings import settings
from shardmath.errors import ABSENT, InputError
from shardmath.models.model import Model
from shardmath.search.spaces.asking import Asked, families
from shardmath.search.spaces.axes import axes_of
from shardmath.search.spaces.conditions import HOST, constraints_of, of_host
from shardmath.search.spaces.declared import IMPLEMENTATION, Axis, Constraint, Space, size_of
from shardmath.search.spaces.deriving import derived_of
from shardmath.search.spaces.machine import with_machine, with_servers
from shardmath.search.spaces.programs import LeftOut, combined
from shardmath.search.spaces.sharing import Sharing, sharing_of
from shardmath.search.spaces.symbols import SYMBOLS, set_by
from shardmath.search.spaces.texts import Texts, names_written
from shardmath.search.spaces.usual import model_parallel

#: Defaults of the layout's symbols, as in ``explain``.
_SINGLE = {**LAYOUT, "sequence_parallel": 0, "pipeline_rank": 0}


@dataclass(frozen=True)
class Part:
    """The configurations of a space that one evaluator knows.

    ``labels`` has what chooses formulas, the implementation and kernels, by the name of the axis, where there are
    several. ``axes`` are the others, with those
    models whose formulas are the same. ``fixed`` has the value of every symbol that no axis sets and that is not
    derived. ``derived`` has formulas, each of symbols that are known before it. ``constraints`` are those that follow
    from axes and derived symbols, then the declared ones; the rules of the evaluator come on top.
    ``timed`` parts have formulas of step time. ``sharing`` finds the layers of stages whose machines differ: what these
    decide is any legal value in ``fixed``.
    """

    evaluator: Evaluator
    number: int
    labels: Mapping[str, str]
    axes: tuple[Axis, ...]
    fixed: Mapping[str, int]
    derived: Mapping[str, str]
    constraints: tuple[Constraint, ...]
    size: int
    timed: bool = False
    sharing: Sharing | None = None

    def pipeline(self, values: Mapping[str, int]) -> Pipeline | None:
        """Return the pipeline with the best layers, where stages have machines of their own; None where all are alike.

        Raises InputError as ``Sharing.pipeline`` does.
        """
        return None if self.sharing is None else self.sharing.pipeline(self.evaluator, values)

    @property
    def untried(self) -> tuple[tuple[str, str], ...]:
        """Stages that its list of layers leaves out, each with the option that tries them; none without a list."""
        return () if self.sharing is None else self.sharing.untried(self.evaluator, self.axes)

    @property
    def modules(self) -> tuple[ModuleType, ...]:
        """The plain evaluators with the formulas that the part needs: of memory, and of time if it asks for that."""
        return (self.evaluator.terms, self.evaluator.times) if self.timed else (self.evaluator.terms,)

    def unit(self, formula: str) -> str:
        """Return the unit of a formula that is the name of a term; nothing for others."""
        return next((str(module.TERMS[formula][0]) for module in self.modules if formula in module.TERMS), "")

    def terms_at(self, values: Mapping[str, int]) -> dict[str, int | float | Fraction]:
        """Return every term by name, from the plain evaluators: memory exact, time in floats as in an account."""
        memory = terms_at(self.evaluator.terms, values)
        return {**memory, **(times_at(self.evaluator.times, values) if self.timed else {})}

    @property
    def inputs(self) -> tuple[str, ...]:
        """The symbols that these formulas have."""
        return tuple(dict.fromkeys(name for module in self.modules for name in module.INPUTS))

    def places(self, index: int) -> tuple[int, ...]:
        """Return which candidate of every axis configuration ``index`` has. Raises IndexError outside of the part."""
        if not 0 <= index < self.size:
            raise IndexError(index)
        numbers = []
        for axis in reversed(self.axes):
            index, place = divmod(index, axis.size)
            numbers.append(place)
        return tuple(reversed(numbers))

    def labels_at(self, index: int) -> dict[str, int | str]:
        """Return the candidate of every axis of configuration ``index``, by name."""
        pairs = zip(self.axes, self.places(index), strict=True)
        return {**self.labels, **{axis.name: axis.labels[place] for axis, place in pairs}}


def resolved(space: Space) -> tuple[Part, ...]:
    """Return the parts of ``space``. Raises InputError as ``Space.parts`` says."""
    try:
        parts = tuple(_parts(space))
        _refuse_idle(space, parts)
        return parts
    except InputError as error:
        raise located(space, error) from None


def located(space: Space, error: InputError) -> InputError:
    """Return an error of a symbol on what the space declares, under its path there."""
    error = as_it_was_asked(error, space.asked)
    for section in ("axes", "fixed", "derived", "kernels"):
        if error.field in getattr(space, section):
            return InputError(f"{section}.{error.field}", error.value, error.rule, error.nearest)
    return error


@dataclass(frozen=True)
class _Family:
    """Models of a space that share an evaluator of one implementation, with the values that no formula gives."""

    labels: Mapping[str, str]
    asked: Asked
    evaluator: Evaluator
    models: Sequence[Model]
    values: Mapping[str, int]
    axes: tuple[Axis, ...]


def _parts(space: Space) -> Iterator[Part]:
    counted, _ = _combined(space)
    for number, (family, without) in enumerate(zip(counted, _lacking(counted), strict=True)):
        yield _part(space, family, number, family.labels, without)


def left_out(space: Space) -> tuple[LeftOut, ...]:
    """Return the combinations of options of a space that cannot be, each with the reason."""
    return _combined(space)[1] if len(space.programs) > 1 else ()


def _combined(space: Space) -> tuple[list[_Family], tuple[LeftOut, ...]]:
    """Return what is counted of every combination of options, and the combinations that cannot be.

    Raises InputError for an option that no combination can have.
    """
    if IMPLEMENTATION in space.axes:
        _refuse_no_names(space)

    def make(labels: dict[str, str]) -> list[_Family]:
        kernels = {name: option for name, option in labels.items() if name in space.kernels}
        return _families(space, labels, Asked.of(space, labels.get(IMPLEMENTATION, space.implementation), kernels))

    return combined(space.programs, make)


def _families(space: Space, labels: Mapping[str, str], asked: Asked) -> list[_Family]:
    """Return the families of one combination of options. Raises InputError for one that cannot be."""
    result = []
    for evaluator, models in families(asked):
        values = _values(asked, evaluator, models)
        refuse_what_changes_nothing(evaluator, models[0], values)
        _refuse_untimed(space, evaluator)
        result.append(_Family(labels, asked, evaluator, models, values, axes_of(space, models, values)))
    return result


def _refuse_idle(space: Space, parts: Sequence[Part]) -> None:
    """Refuse an axis that neither an evaluator nor a formula of the space asks for."""
    used = {"gpu_memory", *(name for part in parts for name in part.inputs)}
    texts = [text for part in parts for text in part.derived.values()]
    texts += [constraint.text for part in parts for constraint in part.constraints]
    texts += [text for question in space.questions for text in question.formulas]
    used |= {name for text in texts for name in names_written(text)}
    for name in space.axes:
        if name not in space.programs and not used & set(set_by(name)):
            rule = "must not be an axis: no formula of this model and implementation has it"
            raise InputError(name, space.shown(name), rule)


def _refuse_no_names(space: Space) -> None:
    names = space.axes[IMPLEMENTATION]
    if not isinstance(names, tuple) or not all(isinstance(name, str) for name in names):
        raise InputError(IMPLEMENTATION, names, "must be a list of names")


def _part(
    space: Space, family: _Family, number: int, labels: Mapping[str, str], without: Sequence[Constraint]
) -> Part:
    evaluator, axes = family.evaluator, family.axes
    formulas = {**_usual_formulas(family.asked, evaluator), **space.derived}
    sharing = sharing_of(family.asked.cluster, family.asked.declared)
    times = _times(evaluator, sharing is not None)
    texts = Texts([*SYMBOLS, *evaluator.terms.TERMS, *times])
    timed = sharing is not None or any(
        texts.uses(text) & times.keys() - evaluator.terms.TERMS.keys() for text in _formulas_of(space))
    servers, axes = with_servers(family.asked, evaluator, axes)
    values = {**family.values, **servers}
    if timed:
        figures, axes = with_machine(family.asked, evaluator, axes)
        values = {**figures, **values}
        if WEIGHTS_AHEAD in figures:
            chosen = {*family.asked.declared, *family.asked.cluster.parameters}
            values |= impossible_overlaps(evaluator, {GRADIENTS_AHEAD: 1, **values}, chosen, values)
    if sharing is not None:
        values = {**sharing.any_stage(evaluator), **values}
    varied = {*formulas, *(symbol for axis in axes for symbol in axis.values)}
    for name in ("num_gpus", "global_batch_size", *evaluator.terms.INPUTS, *(evaluator.times.INPUTS if timed else ())):
        if name not in SYMBOLS and name not in values:
            raise InputError("kernels", dict(space.kernels), f"must not need {name}, which only `explain` finds")
        if name not in values and name not in varied:
            raise InputError(name, ABSENT, "must be declared: fixed, derived or an axis")
    fixed = {name: value for name, value in values.items() if name not in varied}
    derived = derived_of(texts, formulas, axes, fixed, space.derived)
    rules = [HOST, *(name for name, _, _ in evaluator.terms.RULES)]
    if sharing is not None:
        without = [*without, *sharing.constraints({**space.fixed, **derived.fixed})]
    constraints = constraints_of(space, texts, axes, derived, without, rules)
    constraints += of_host(texts, axes, derived)
    for question in space.questions:
        for text in question.formulas:
            field = f"questions.{question.name}.{question.key}"
            texts.refuse_unsafe(field, text, texts.quantity(field, text), derived.bounds)
    refuse_inexact(family.models[0].name, {name: int(high) for name, (_, high) in derived.bounds.items()})
    return Part(evaluator, number, labels, axes, derived.fixed, derived.formulas, constraints, size_of(axes), timed,
                sharing)


def _formulas_of(space: Space) -> Iterator[str]:
    """Yield the formulas of a space that may have terms."""
    yield from (constraint.text for constraint in space.constraints)
    yield from (text for question in space.questions for text in question.formulas)


def _refuse_untimed(space: Space, evaluator: Evaluator) -> None:
    """Raise InputError where a formula asks for a time that is not counted yet."""
    if evaluator.is_timed:
        return
    of_time = find(evaluator.implementation).times.TERMS.keys() - evaluator.terms.TERMS.keys()
    texts = Texts([*SYMBOLS, *evaluator.terms.TERMS, *of_time])
    if any(texts.uses(text) & of_time for text in _formulas_of(space)):
        evaluator.refuse_untimed()


def _times(evaluator: Evaluator, shared_out: bool) -> Mapping[str, tuple[str, str]]:
    """Return the terms of step time; none with an explicit list of layers, and where some work is not counted yet."""
    if (evaluator.choices["stages"] == "listed" and not shared_out) or not evaluator.is_timed:
        return {}
    times: Mapping[str, tuple[str, str]] = evaluator.times.TERMS
    return times


def _values(asked: Asked, evaluator: Evaluator, models: Sequence[Model]) -> dict[str, int]:
    """Return the value of every symbol that has one without axes and formulas: as fixed, else as usual."""
    values = settings(
        evaluator, models[0], asked.gpu, seq_length=asked.fixed.get("seq_length", min(map(default_seq_length, models))),
        node_size=asked.fixed.get("node_size", asked.cluster.node_size), gradients=asked.gradients,
        distributed_optimizer=asked.distributed_optimizer, vocab_multiple=asked.fixed.get("vocab_multiple"),
        others={**asked.cluster.memory_parameters, **asked.others},
    )
    own = {"virtual_pipeline": asked.virtual_pipeline}
    return {**_SINGLE, **values, **own, **asked.switches, **asked.fixed}


def _usual_formulas(asked: Asked, evaluator: Evaluator) -> dict[str, str]:
    """Return the default derivations."""
    declared = asked.declared
    usual, ranks = {}, model_parallel(evaluator.terms.INPUTS)
    if "data_parallel" not in declared:
        usual["data_parallel"] = f"num_gpus / ({ranks})"
    elif "num_gpus" not in declared:
        usual["num_gpus"] = f"{ranks} * data_parallel"
    if "sequence_parallel" not in declared and evaluator.defaults["sequence_parallel"]:
        usual["sequence_parallel"] = "1 if tensor_parallel > 1 else 0"
    usual |= following(evaluator, dict.fromkeys(declared, 1))
    return usual


def _lacking(resolved_families: Sequence[_Family]) -> list[list[Constraint]]:
    """For every part, constraints for the axes that its formulas do not have, such as experts of a dense model.

    Raises InputError for an axis that no part has.
    """
    constraints: list[list[Constraint]] = [[] for _ in resolved_families]
    refused: dict[str, dict[int, InputError]] = {}
    for number, family in enumerate(resolved_families):
        for axis in family.axes:
            for symbol, candidates in axis.values.items():
                error = _refused(family, symbol, candidates)
                if error is not None:
                    refused.setdefault(axis.name, {})[number] = error
                    constraints[number].append(Constraint(symbol, f"{symbol} == {error.nearest}", automatic=True))
    for errors in refused.values():
        if len(errors) == len(resolved_families):
            raise errors[0]
    return constraints


def _refused(family: _Family, symbol: str, candidates: Sequence[int]) -> InputError | None:
    for value in sorted(set(candidates)):
        try:
            refuse_what_changes_nothing(family.evaluator, family.models[0], {**family.values, symbol: value})
        except InputError as error:
            return error
    return None
