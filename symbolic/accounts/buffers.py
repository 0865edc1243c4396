"""Buffers of Megatron-Core's distributed optimizer: one for every chunk of layers, each padded at its end.

As ``_ParamAndGradBuffer`` of megatron-core 0.16.1 lays them out. The embedding that first and last stage share is a
bucket of its own (``_does_param_require_new_bucket``), padded and cut into shards like the others. Optimizer states
exist for elements of parameters only, never for padding (``_build_model_gbuf_param_range_map``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from sympy import Eq, Expr, Integer

from ..functions import Iverson, LeastCommonMultiple, Min, pad_to
from ..implementations import Implementation
from ..ledger import Component, Place
from ..parallel.data import END_ALIGNMENT
from ..parallel.groups import Group
from ..parallel.pipeline import chunks, ends, instances, layers_by_chunk
from ..parameters import symbols
from ..terms import TermSet, product, total
from .rows import components_of

e, p, r, tied, mtp, zero1 = symbols("e p r tied mtp zero1")


class Bucket(NamedTuple):
    """Parameters that lie in one piece: how often there is such a bucket, its elements, and those with alignment."""

    copies: Expr
    parameters: Expr
    aligned: Expr


def buffer_and_shard(terms: TermSet, implementation: Implementation, group: Group, ranks: Expr) -> tuple[Expr, Expr]:
    """Elements of a group's buffers with their padding, and those of them whose states the first rank keeps.

    Without the distributed optimizer both are the parameters: there is no padding. Without expert parallelism
    experts lie among all other parameters, so theirs are what they add to these.
    """
    own = terms[f"stage.{group.prefix}parameters"].symbol
    if group.frozen:  # no gradients, so there is no buffer for them
        return own, own
    buckets = _buckets(terms, implementation, (group.prefix,))
    sums = [_padded(buckets, ranks), _shard(buckets, ranks)]
    if group.expert:
        others = group.prefix.removeprefix("expert_")
        together = _buckets(terms, implementation, (others, group.prefix))
        added = (
            _padded(together, ranks) - terms[f"stage.{others}buffer_elements"].symbol,
            _shard(together, ranks) - terms[f"stage.{others}shard_elements"].symbol,
        )
        sums = [Iverson(e > 1) * alone + Iverson(Eq(e, 1)) * more for alone, more in zip(sums, added, strict=True)]
    padded, shard = (own + zero1 * (size - own) for size in sums)
    return padded, shard


def _padded(buckets: list[Bucket], ranks: Expr) -> Expr:
    return total(*(product(bucket.copies, _end(bucket, ranks)) for bucket in buckets))


def _shard(buckets: list[Bucket], ranks: Expr) -> Expr:
    """Elements of the first rank's shards: all of them belong to parameters, or there are too few to fill a shard."""
    return total(*(product(bucket.copies, Min(_end(bucket, ranks) / ranks, bucket.parameters)) for bucket in buckets))


def _end(bucket: Bucket, ranks: Expr) -> Expr:
    return pad_to(bucket.aligned, LeastCommonMultiple(ranks, END_ALIGNMENT))


def _buckets(terms: TermSet, implementation: Implementation, prefixes: tuple[str, ...]) -> list[Bucket]:
    """The buckets of rank r that hold parameters of these groups."""
    choices = implementation.choices
    count = chunks(choices)
    several = Integer(0) if count == 1 else Iverson(count > 1)

    def bucket(copies: Expr, size: Callable[[str], Expr]) -> Bucket:
        return Bucket(copies, size("parameters"), size("aligned"))

    def chunk(kind: str, place: int) -> Expr:
        layers = zip(("layer", "expert_layer"), layers_by_chunk(choices)[place], strict=True)
        return total(*(
            product(often, terms[f"{layer}.{prefix}{kind}"].symbol)
            for layer, often in layers for prefix in prefixes if f"{layer}.{prefix}{kind}" in terms
        ))

    def outside(kind: str, *places: Place) -> Expr:
        return total(*(
            product(instances(part.place, choices), 1 - _is_shared(part, implementation),
                    terms[f"{part.name}.{prefix}{kind}"].symbol)
            for part in components_of(implementation) if part.place in places
            for prefix in prefixes if f"{part.name}.{prefix}{kind}" in terms
        ))

    def at_end(kind: str) -> Expr:
        further = Integer(0)
        if choices["layers"] == "experts":  # layers of multi-token prediction, counted among those with experts
            often = instances(Place.MTP, choices)
            further = total(*(product(often, terms[f"expert_layer.{prefix}{kind}"].symbol)
                              for prefix in prefixes if f"expert_layer.{prefix}{kind}" in terms))
        return total(outside(kind, Place.LAST, Place.MTP), further)

    buckets = [bucket(Integer(1), lambda kind: total(
        chunk(kind, 0), outside(kind, Place.FIRST, Place.STAGE), product(1 - several, at_end(kind))
    ))]
    if several != 0:
        buckets += [
            bucket(product(several, count - 2), lambda kind: chunk(kind, 1)),
            bucket(several, lambda kind: total(chunk(kind, 2), at_end(kind))),
        ]
    if "" in prefixes and "embedding.parameters" in terms:  # a frozen one is in no buffer
        first, last = (Iverson(Eq(r, rank)) for rank in ends(choices))
        shared = total(*(product(often, _shared(implementation)) for often in (first, last)))
        buckets.append(bucket(shared, lambda kind: terms[f"embedding.{kind}"].symbol))
    return buckets


def _shared(implementation: Implementation) -> Expr:
    """1 if first and last stage both hold the embedding."""
    further = Iverson(mtp > 0) if implementation.choices["layers"] == "experts" else Integer(0)
    return Iverson(p > 1) * (tied + (1 - tied) * further)


def _is_shared(part: Component, implementation: Implementation) -> Expr:
    """1 for the component that holds the shared embedding of its stage."""
    further = Iverson(Eq(mtp, 0)) if implementation.choices["layers"] == "experts" else Integer(1)
    return {
        "embedding": _shared(implementation),
        "head": tied * Iverson(p > 1) * further,  # with further predictions the embedding is there beside the head
        "mtp_embedding": Integer(1),
    }.get(part.name, Integer(0))
