"""Units and buckets of Megatron-FSDP: their elements with the padding that shares of whole rows need.

As ``_get_parameter_groups`` and ``build_data_parallel_buffer_index`` of megatron-core 0.16.1 lay them out: the end of a
bucket is padded to a multiple of the ranks times the least common multiple of the lengths of its rows. Gaps inside of a
bucket, which are less than two such multiples of one rank, are taken to fit into the padding. FP8 weights of a layer
have a bucket of their own, before that of its norms.
"""

from __future__ import annotations

from typing import NamedTuple

from sympy import Expr, Ge, Integer

from ..functions import Iverson, LeastCommonMultiple, Max, pad_to
from ..implementations import Implementation
from ..ledger import IN_LAYER, Place, Role
from ..parallel.data import sharing_ranks
from ..parallel.groups import FP8, GROUPS, Group, group_of
from ..parallel.legality import fixed_values
from ..parallel.megatron_fsdp import bucket_size, queue_size
from ..parallel.pipeline import instances
from ..parameters import symbols
from ..terms import TermSet, product, total
from .pytorch.gathered import outside
from .rows import kept_rows, local_shape

sbk, Lr, zero3, tied = symbols("sbk Lr zero3 tied")
#: Bytes of a weight that is not in FP8.
WIDE = Integer(2)


class Units(NamedTuple):
    """Padded elements: of a layer, of the first and the last bucket outside of the layers, and of one of all there.

    ``wide`` are the 16-bit ones among those of a layer, beside ``narrow`` ones in FP8. ``apart`` is 1 where first and
    last parameters lie in buckets of their own.
    """

    wide: Expr
    narrow: Expr
    first: Expr
    last: Expr
    together: Expr
    apart: Expr

    @property
    def layer(self) -> Expr:
        """Elements of all buckets of a layer."""
        return self.wide + self.narrow

    @property
    def gathered(self) -> Expr:
        """Bytes of the weights of a layer."""
        return WIDE * self.wide + self.narrow

    @property
    def outside(self) -> Expr:
        """Elements of all buckets outside of the layers."""
        return self.apart * (self.first + self.last) + (1 - self.apart) * self.together


def units(terms: TermSet, implementation: Implementation) -> Units:
    """Return the units of rank r; a matrix that first and last stage share has a bucket of its own."""
    beside = _multiple(implementation, False)
    first = outside(terms, implementation, "parameters", Place.FIRST)
    last = outside(terms, implementation, "parameters", Place.LAST)
    norm = product(has(Place.LAST, implementation), terms["final_norm.parameters"].symbol)
    alone = pad_to(norm, _ranks(implementation)) + pad_to(last - norm, beside)
    return Units(
        _of_layer(terms, implementation, GROUPS[0]), _of_layer(terms, implementation, FP8), pad_to(first, beside),
        tied * alone + (1 - tied) * pad_to(last, beside), pad_to(first + last, beside),
        1 - has_both(implementation) * (1 - (1 - sbk) * Iverson(Ge(first, bucket_size()))),
    )


def _of_layer(terms: TermSet, implementation: Implementation, group: Group) -> Expr:
    """Return the padded elements of a layer's bucket of a group."""
    name = f"layer.{group.prefix}parameters"
    return pad_to(terms[name].symbol, _multiple(implementation, True, group.prefix)) if name in terms else Integer(0)


def buffer_elements(terms: TermSet, implementation: Implementation, group: Group) -> Expr:
    """Return the elements of a group on rank r with their padding: those of all units, or of one bucket of everything.

    Without units the parameters lie in several buckets where gradients are reduced beside the backward pass; the
    padding of all but the last is left out.
    """
    parts = units(terms, implementation)
    if group.fp8:
        return product(Lr, parts.narrow)
    multiple = LeastCommonMultiple(*(_rows(implementation, place) for place in (True, False)))
    whole = pad_to(terms["stage.parameters"].symbol, _ranks(implementation) * multiple)
    return total(product(zero3, total(product(Lr, parts.wide), parts.outside)), product(1 - zero3, whole))


def queue(terms: TermSet) -> Expr:
    """Return the elements of gradients that may wait for their reduction, where layers are units."""
    return queue_size(2 * (terms["layer.parameters"].symbol + in_fp8(terms)))


def in_fp8(terms: TermSet) -> Expr:
    """Return the FP8 elements of a layer."""
    name = f"layer.{FP8.prefix}parameters"
    return terms[name].symbol if name in terms else Integer(0)


def sizes(terms: TermSet, implementation: Implementation) -> dict[str, tuple[Expr, str]]:
    """Return the elements of buckets and of the queue, with what they are, for a replay of a step."""
    parts = units(terms, implementation)
    return {
        "layer": (parts.layer, "buckets of a layer"), "first": (parts.first, "first bucket outside of the layers"),
        "last": (parts.last, "last bucket outside of the layers"), "together": (parts.together, "one bucket of both"),
        "apart": (parts.apart, "1 where first and last parameters lie in buckets of their own"),
        "queue": (zero3 * queue(terms) + (1 - zero3) * queue_size((1 - sbk) * bucket_size()),
                  "gradients that may wait for their reduction"),
        "closing": (bucket_size(), "parameters after which a bucket is closed"),
    }


def has(place: Place, implementation: Implementation) -> Expr:
    """Return 1 on ranks whose stage holds the first or the last parameters of the model."""
    return instances(place, implementation.choices)


def has_both(implementation: Implementation) -> Expr:
    """Return 1 on a rank with the whole model, where the layers' buckets lie behind the head's."""
    return has(Place.FIRST, implementation) * has(Place.LAST, implementation)


def largest_matrix(implementation: Implementation) -> Expr:
    """Return the elements of the largest matrix of a layer: the fused gate and up projection, or a bound of it."""
    return Max(*{product(*shape) for shape in _shapes(implementation, True) if len(shape) > 1})


def _ranks(implementation: Implementation) -> Expr:
    return sharing_ranks(Role.OPTIMIZER, fixed_values(implementation), False)


def _multiple(implementation: Implementation, inside: bool, prefix: str = "") -> Expr:
    return _ranks(implementation) * _rows(implementation, inside, prefix)


def _rows(implementation: Implementation, inside: bool, prefix: str = "") -> Expr:
    """Return the least common multiple of the lengths of rows of a group's weights in layers, or outside of them."""
    lengths = dict.fromkeys(product(*shape[1:]) for shape in _shapes(implementation, inside, prefix))
    multiple: Expr = Integer(1)
    for length in lengths:
        multiple = length if multiple == 1 else multiple if length == 1 else LeastCommonMultiple(multiple, length)
    return multiple


def _shapes(implementation: Implementation, inside: bool, *prefixes: str) -> list[tuple[Expr, ...]]:
    choices = implementation.choices
    return [
        local_shape(row.tensor.shape, choices) for row in kept_rows(implementation)
        if row.tensor.role is Role.WEIGHT and (row.component.place in IN_LAYER) is inside
        and (not prefixes or group_of(row.component, row.tensor, False, choices).prefix in prefixes)
    ]
