"""A space as somebody declares it: axes, fixed values, derived symbols, constraints and questions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from os import PathLike
from typing import TYPE_CHECKING, Any

from shardmath.configuration.risk import PARTS, RISK, with_parts
from shardmath.errors import ABSENT, InputError, nearest_names
from shardmath.input.parameters import long_name, long_names
from shardmath.machines import Cluster
from shardmath.machines.gpu import Gpu
from shardmath.models.model import Model
from shardmath.search.spaces import candidates
from shardmath.search.spaces.candidates import Candidates, DivisorsOf
from shardmath.search.spaces.questions import Best, Question
from shardmath.search.spaces.symbols import AXES, SETTERS, SYMBOLS, closest, refuse_unknown, set_by, value_of

if TYPE_CHECKING:
    from shardmath.search.spaces.parts import Part

#: The axis of implementations, which chooses formulas.
IMPLEMENTATION = "implementation"
#: The largest number of configurations: their numbers are 64-bit integers.
LARGEST = 2**62
#: Names that can be fixed and set several symbols; model, GPU and implementation have fields of their own.
_FIXED = ("gpu_memory_gib", "recompute", *SYMBOLS)

_NAMED = (str, Model, Gpu, PathLike)


@dataclass(frozen=True)
class Constraint:
    """A condition over symbols and terms that a configuration must meet, such as ``seq_length <= 2 * hidden_size``.

    ``automatic`` ones follow from axes and derived symbols and are named after the symbol. ``said`` are the parameter
    to blame and the rule in words, where these are not name and text.
    """

    name: str
    text: str
    automatic: bool = False
    said: tuple[str, str] | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not isinstance(self.text, str):
            raise InputError(f"constraints.{self.name}", self.text, "must be a condition, such as a <= b")
        object.__setattr__(self, "text", long_names(self.text))


@dataclass(frozen=True)
class Space:
    """All configurations that some axes span.

    ``axes`` has the candidates of symbols, or of ``model``, ``gpu``, ``gpu_memory_gib``, ``implementation`` and
    ``recompute`` (modes), by name. The last axis runs fastest. A list, ``Range``, ``PowersOfTwo``, ``Multiples`` and
    ``DivisorsOf`` are candidates. ``fixed`` has the values of further symbols, ``derived`` formulas of others. A
    model's shape is that of ``model`` where it is not declared otherwise; every symbol of it is independent, so that
    ``head_dim`` stays what it is when ``hidden_size`` is an axis, unless it is derived. Symbols that are not declared
    have the values that ``explain`` gives them; ``data_parallel`` is derived from ``num_gpus``.
    ``kernels`` may have several options for an axis of formulas, all of which are searched: see ``programs``.
    ``kernels``, ``schedule``, ``zero_stage``, ``gradients``, ``risk`` are as in ``explain``. Formulas of step time
    need the figures of a machine: of ``cluster`` (its file), or of usual servers with the GPU and ``network``.

    Raises InputError for what can be seen to be wrong without the formulas of an implementation: unknown names,
    symbols declared twice, values out of range. ``parts`` checks the rest.
    """

    axes: Mapping[str, Candidates | Sequence[int] | Sequence[str]]
    model: Model | str | PathLike[str] | None = None
    gpu: Gpu | str | None = None
    implementation: str = "megatron"
    fixed: Mapping[str, int | str] = field(default_factory=dict)
    derived: Mapping[str, str] = field(default_factory=dict)
    constraints: tuple[Constraint, ...] = ()
    questions: tuple[Question, ...] = ()
    kernels: Mapping[str, str | Sequence[str]] = field(default_factory=dict)
    schedule: str | None = None
    zero_stage: int | None = None
    gradients: str | None = None
    network: str | None = None
    cluster: Cluster | str | PathLike[str] | None = None
    risk: float | str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "axes", {
            long_name(name): candidates.read(f"axes.{name}", declared) for name, declared in self.axes.items()
        })
        object.__setattr__(self, "fixed", {long_name(name): value for name, value in self.fixed.items()})
        object.__setattr__(self, "derived", {
            long_name(name): long_names(text) if isinstance(text, str) else text for name, text in self.derived.items()
        })
        object.__setattr__(self, "kernels", {
            axis: option if isinstance(option, str) else options_from(f"kernels.{axis}", option)
            for axis, option in self.kernels.items()
        })
        if not self.axes.keys() - {IMPLEMENTATION}:
            raise InputError("axes", ABSENT, "must be given: at least one symbol with its candidates")
        _refuse_unknown_names(self)
        _refuse_twice(self)
        _refuse_values(self)
        with_parts({**self.fixed, RISK: self.risk})
        _refuse_repeated("constraints", self.constraints)
        _refuse_repeated("questions", self.questions)
        for question in self.questions:
            for name in question.per if isinstance(question, Best) else ():
                if name not in (known := {*self.axes, *self.programs}):
                    where = f"questions.{question.name}.per"
                    raise InputError(where, name, "must be an axis", nearest_names(name, sorted(known)))

    @property
    def programs(self) -> dict[str, tuple[str, ...]]:
        """The axes that choose formulas, with their options: the implementation, and kernels with several options."""
        named = {IMPLEMENTATION: self.axes[IMPLEMENTATION]} if IMPLEMENTATION in self.axes else {}
        several = {name: option for name, option in self.kernels.items() if not isinstance(option, str)}
        return {name: tuple(map(str, options)) for name, options in {**named, **several}.items()}  # type: ignore[arg-type]

    @property
    def asked(self) -> dict[str, Any]:
        """Declarations by name: fixed symbols, axes, and the arguments that set several symbols."""
        return {**self.fixed, **self.axes, "gradients": self.gradients, "zero_stage": self.zero_stage}

    def shown(self, name: str) -> object:
        """Return the declaration of a name, for messages; None if there is none."""
        declared = next((names[name] for names in (self.derived, self.fixed, self.axes) if name in names), None)
        return list(declared) if isinstance(declared, tuple) else declared

    def parts(self) -> tuple[Part, ...]:
        """Return the parts of the space, one per compiled evaluator, with all inputs filled in.

        Raises InputError for what no evaluator has, formulas that cannot be read, symbols that are derived in a
        circle, constraints that no candidate can meet, and a space that is too large.
        """
        from shardmath.search.spaces.parts import resolved

        return resolved(self)


@dataclass(frozen=True)
class Axis:
    """One axis with all its candidates.

    ``labels`` is what people see of each candidate, ``values`` the value of each for every symbol that the axis sets.
    """

    name: str
    labels: tuple[int | str, ...]
    values: Mapping[str, tuple[int, ...]]

    @property
    def size(self) -> int:
        """The number of candidates."""
        return len(self.labels)


def size_of(axes: Sequence[Axis]) -> int:
    """Return the number of configurations. Raises InputError if there are more than ``LARGEST``."""
    size = prod(axis.size for axis in axes)
    if size > LARGEST:
        longest = max(axes, key=lambda axis: axis.size)
        rule = f"must leave at most 2^62 configurations in all, not 2^{size.bit_length() - 1} or more"
        raise InputError(f"axes.{longest.name}", f"{longest.size} candidates", rule)
    return size


def options_from(field: str, options: object) -> tuple[str, ...]:
    """Return the options that a field lists. Raises InputError for anything but a list of different texts."""
    if not isinstance(options, Sequence) or not options or not all(isinstance(option, str) for option in options):
        raise InputError(field, options, "must be an option, or a list of options")
    for place, option in enumerate(options):
        if option in options[:place]:
            raise InputError(field, option, "must not be there twice")
    return tuple(options)


def _refuse_unknown_names(space: Space) -> None:
    for section, names, known in (
        ("axes", space.axes, AXES), ("fixed", space.fixed, _FIXED), ("derived", space.derived, SYMBOLS),
    ):
        for name in names:
            refuse_unknown(section, name, known)
    for name, formula in space.derived.items():
        if not isinstance(formula, str):
            raise InputError(f"derived.{name}", formula, "must be a formula, such as num_gpus / tensor_parallel")
    for name, declared in space.axes.items():
        if isinstance(declared, DivisorsOf):
            if declared.symbol not in SYMBOLS:
                raise InputError(f"axes.{name}.divisors_of", declared.symbol, "must be a known symbol",
                                 closest(declared.symbol, SYMBOLS))
            if name in SETTERS:
                raise InputError(f"axes.{name}", "divisors_of", "must be a list")


def _refuse_twice(space: Space) -> None:
    """Refuse a symbol that two axes set, or that is fixed or derived as well."""
    if space.risk is not None and PARTS in {**space.axes, **space.derived}:
        raise InputError(RISK, space.risk, f"must not be given: {PARTS} is declared")
    setters: dict[str, str] = {}
    for section, names in (("axes", space.axes), ("fixed", space.fixed), ("derived", space.derived)):
        for name in names:
            path = f"{section}.{name}"
            for symbol in set_by(name):
                other = setters.setdefault(symbol, path)
                if other != path:
                    rule = f"must not be declared: {other} sets {'it' if symbol == name else symbol}"
                    raise InputError(path, space.shown(name), rule)
    if space.cluster is not None:
        for name in ("gpu", "network"):
            if getattr(space, name) is not None or name in space.axes:
                raise InputError(name, getattr(space, name), "must not be given: cluster sets it")
    for name in space.programs.keys() & space.axes.keys() - {IMPLEMENTATION}:
        rule = f"must be one option: axes.{name} would have the same name"
        raise InputError(f"kernels.{name}", list(space.kernels[name]), rule)
    for name in ("model", "gpu"):
        if name in space.axes and getattr(space, name) is not None:
            raise InputError(name, getattr(space, name), f"must not be given: axes.{name} sets it")


def _refuse_values(space: Space) -> None:
    """Refuse values that their symbol cannot have, and candidates that are there twice."""
    for name, value in space.fixed.items():
        if name not in SETTERS:
            value_of(f"fixed.{name}", name, value)
    for name, declared in space.axes.items():
        if isinstance(declared, DivisorsOf):
            continue
        path = f"axes.{name}"
        values = candidates.listed(path, declared)
        if name in SYMBOLS:
            values = tuple(value_of(path, name, value) for value in values)
        seen: set[object] = set()
        for value in values:
            if name in SETTERS and not isinstance(value, int if name == "gpu_memory_gib" else _NAMED):
                rule = "must be integers of GiB" if name == "gpu_memory_gib" else "must be a list of names"
                raise InputError(path, value, rule)
            if value in seen:
                raise InputError(path, value, "must not be there twice")
            seen.add(value)


def _refuse_repeated(section: str, items: Sequence[Constraint] | Sequence[Question]) -> None:
    names = set()
    for item in items:
        if not isinstance(item.name, str) or not item.name.replace("-", "_").isidentifier():
            raise InputError(section, item.name, "must have names of letters, digits, - and _")
        name = item.name.replace("-", "_")
        if name in names:
            raise InputError(f"{section}.{item.name}", item.name, "must not be there twice")
        names.add(name)
