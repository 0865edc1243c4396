"""The mesh of ranks inside a pipeline stage, as the parallel dimensions place them."""

from __future__ import annotations

from collections.abc import Iterable

from sympy import Expr, Mul, Symbol

from ..dimensions import VOCAB
from ..parameters import BY_LETTER, Kind
from .dimensions import SHAPE_RULES
from .dimensions.context import RULE as CONTEXT
from .dimensions.tensor import RULE as TENSOR
from .rules import ParallelRule


def ranks(rules: Iterable[ParallelRule]) -> Expr:
    """Return the product of the degrees of dimensions."""
    return Mul(*(rule.degree for rule in rules))


def before(rule: ParallelRule) -> Expr:
    """Return the ranks of the dimensions that are placed before one: the distance of its neighbours."""
    return ranks(other for other in PLACED if other.place < rule.place)


#: Dimensions that multiply the GPUs of a model, in the order in which people name them.
PLACED: tuple[ParallelRule, ...] = tuple(rule for rule in SHAPE_RULES if rule.place)
#: Those that extend tensor parallelism.
FURTHER: tuple[ParallelRule, ...] = tuple(rule for rule in PLACED if rule not in (TENSOR, CONTEXT))
#: Degrees that a layout has, of every dimension.
DEGREES: tuple[Symbol, ...] = tuple(
    rule.degree for rule in SHAPE_RULES if BY_LETTER[rule.degree.name].kind is Kind.LAYOUT
)
#: Ranks that hold one replica of a pipeline stage together.
STAGE_RANKS = ranks(PLACED)
#: Ranks that work on the same part of a sequence, or gather weights from each other.
TENSOR_RANKS = before(CONTEXT)
#: Ranks that share out the vocabulary.
VOCABULARY_RANKS = ranks(rule for rule in SHAPE_RULES if VOCAB in rule.splits)
#: Ranks of a stage that work on sequences of their own.
OWN_SEQUENCES = ranks(rule for rule in SHAPE_RULES if rule.own_sequences)
#: Data-parallel ranks that work on the same sequences.
SAME_SEQUENCES = ranks(rule for rule in SHAPE_RULES if rule.shares_sequences)
