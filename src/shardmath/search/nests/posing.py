"""A part of a space as the nests know it."""

from __future__ import annotations

import inspect
from collections.abc import Sequence

from shardmath.account.judged import LIMIT_TERMS
from shardmath.compiler.nests.posing import Asked, Posing
from shardmath.compiler.nests.problem import NestAxis
from shardmath.files.cached import source_of, sources_digest
from shardmath.generated import definitions
from shardmath.generated.definitions import DEFAULTS, PARAMETERS
from shardmath.search.spaces import Axis, Best, Part, Question
from shardmath.search.spaces.questions import AMONG
from shardmath.search.spaces.usual import USUAL

#: From so many configurations on, a nest is made for the sizes of the axes and the switches of a model alone, and it
#: passes over tables that nothing in fits. Below, that takes longer than it saves: see the table of proofs in
#: docs/benchmarks.md.
_LARGE = 10**8


def is_large(part: Part) -> bool:
    """Tell whether a nest for just these sizes saves more time than it takes to compile."""
    return part.size >= _LARGE


def posing_of(part: Part, questions: Sequence[Question], *, literal: bool) -> Posing:
    """Return the dependencies of the nest of ``part``; see ``Posing``. ``literal`` puts switches into the formulas."""
    inputs = {*part.inputs, "gpu_memory"}
    return Posing(
        symbols={name: (item[2], item[3]) for name, item in PARAMETERS.items()},
        axes=tuple(NestAxis(axis.name, tuple(axis.values), _size(axis, literal)) for axis in part.axes),
        folded={
            name: value for name, value in part.fixed.items() if literal and name in inputs and _folds(name, value)
        },
        derived=part.derived,
        automatic=tuple((item.name, item.text) for item in part.constraints if item.automatic),
        declared=tuple((item.name, item.text) for item in part.constraints if not item.automatic),
        questions=tuple(map(_asked, questions)),
        literal=literal,
        skipping=literal and is_large(part),
        limits=LIMIT_TERMS,
    )


def _size(axis: Axis, literal: bool) -> int:
    """Return the number of candidates that a nest is made for; a usual or round one if it can sweep any."""
    return axis.size if literal else USUAL.get(axis.name, 1 << (axis.size - 1).bit_length())


def evaluator_source(part: Part) -> str:
    """Return the formulas of a part, as source."""
    return "\n".join(map(source_of, part.modules))


def key_in_cache(part: Part, posing: Posing) -> str:
    """Return the name of what is made of the formulas of a part for a posing, by this version of the compiler."""
    return f"{posing.key(evaluator_source(part))}_{sources_digest()[:16]}"


def verdict_source() -> str:
    """Return the function that chooses a verdict, as source."""
    return inspect.getsource(definitions.verdict)


def _folds(name: str, value: int) -> bool:
    """Tell whether a fixed value is put into the formulas: switches, and rarely set parameters."""
    _, _, minimum, maximum, _, _ = PARAMETERS[name]
    return (minimum, maximum) == (0, 1) or DEFAULTS.get(name) == value


def _asked(question: Question) -> Asked:
    among = None if question.among == AMONG[-1] else AMONG.index(question.among) + 1
    per = question.per if isinstance(question, Best) else ()
    return Asked(question.key, question.name, question.formulas, among, per)
