"""Buffers of Megatron-Core's distributed optimizer: one for every chunk of layers, each padded at its end.

As ``_ParamAndGradBuffer`` of megatron-core 0.16.1 lays them out. The embedding that first and last stage share is a
bucket of its own (``_does_param_require_new_bucket``), padded and cut into shards like the others. Optimizer states
exist for elements of parameters only, never for padding (``_build_model_gbuf_param_range_map``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from sympy import Eq, Expr, Integer

from ..functions import Iverson, LeastCommonMultiple, Min, pad_to
from ..implementations import Implementation
from ..ledger import Component, Place
from ..parallel.data import END_ALIGNMENT
from ..parallel.groups import GROUPS, Group
from ..parallel.pipeline import chunks, ends, further_layers, instances, layers_by_chunk
from ..parameters import symbols
from ..terms import TermSet, product, total
from .rows import components_of

e, p, r, tied, mtp, zero1 = symbols("e p r tied mtp zero1")

#: Buckets of a rank, by the ends of their terms' names.
_BUCKETS = {
    "first_bucket": "bucket of the first chunk",
    "middle_bucket": "bucket of a chunk between first and last",
    "last_bucket": "bucket of the last of several chunks",
    "shared_bucket": "bucket of the embedding that first and last stage share",
}


class Bucket(NamedTuple):
    """Parameters that lie in one piece: how often there is such a bucket, its elements, and those with alignment."""

    copies: Expr
    parameters: Expr
    aligned: Expr


def buffer_and_shard(terms: TermSet, implementation: Implementation, group: Group, ranks: Expr) -> tuple[Expr, Expr]:
    """Return elements of a group's buffers with their padding, and those of them whose states the first rank keeps.

    Without the distributed optimizer both are the parameters: there is no padding. Without expert parallelism
    experts lie among all other parameters, so theirs are what they add to these.
    """
    own = terms[f"stage.{group.prefix}parameters"].symbol
    if group.frozen:  # no gradients, so there is no buffer for them
        return own, own
    buckets = _buckets(terms, implementation, group)
    sums = _padded_and_shard(terms, f"stage.{group.prefix}", buckets, ranks)
    if group.expert:
        others = next(item for item in GROUPS if item.prefix == group.prefix.removeprefix("expert_"))
        together = _together(_buckets(terms, implementation, others), buckets)
        kept = (terms[f"stage.{others.prefix}{kind}_elements"].symbol for kind in ("buffer", "shard"))
        added = (
            size - without for size, without in
            zip(_padded_and_shard(terms, f"stage.with_{group.prefix}", together, ranks), kept, strict=True)
        )
        sums = tuple(
            Iverson(e > 1) * alone + Iverson(Eq(e, 1)) * more for alone, more in zip(sums, added, strict=True)
        )
    padded, shard = (own + zero1 * (size - own) for size in sums)
    return padded, shard


def _padded_and_shard(
    terms: TermSet, prefix: str, buckets: Mapping[str, Bucket], ranks: Expr,
) -> tuple[Expr, ...]:
    """Return elements of buckets with the padding at their ends, and of the first rank's shards.

    All of a shard belong to parameters, or there are too few to fill it.
    """
    sizes, shards = [], []
    for name, bucket in buckets.items():
        end = pad_to(bucket.aligned, LeastCommonMultiple(ranks, END_ALIGNMENT))
        padded = terms.add(f"{prefix}{name}_padded", end, "elements",
                           f"rank r: {_BUCKETS[name]}, with the padding that data parallelism needs")
        sizes.append(product(bucket.copies, padded))
        shards.append(product(bucket.copies, Min(padded / ranks, bucket.parameters)))
    return total(*sizes), total(*shards)


def _together(dense: Mapping[str, Bucket], experts: Mapping[str, Bucket]) -> dict[str, Bucket]:
    """Join the buckets of two groups whose parameters lie among each other; only the first may have some more."""
    return {
        name: Bucket(bucket.copies, total(bucket.parameters, experts[name].parameters),
                     total(bucket.aligned, experts[name].aligned)) if name in experts else bucket
        for name, bucket in dense.items()
    }


def _buckets(terms: TermSet, implementation: Implementation, group: Group) -> dict[str, Bucket]:
    """Return the buckets of rank r that hold parameters of a group, by name; their sizes are terms."""
    choices, prefix = implementation.choices, group.prefix
    count = chunks(choices)
    several = Integer(0) if count == 1 else Iverson(count > 1)

    def bucket(name: str, copies: Expr, size: Callable[[str], Expr]) -> Bucket:
        sizes = []
        for kind, words in (("parameters", ""), ("aligned", ", padded one by one")):
            term = f"stage.{prefix}{name}_{kind}"
            sizes.append(terms[term].symbol if term in terms else terms.add(
                term, size(kind), "elements", f"rank r: {group.words} in the {_BUCKETS[name]}{words}"))
        return Bucket(copies, *sizes)

    def of_layers(kind: str, counts: tuple[Expr, Expr]) -> Expr:
        return total(*(
            product(often, terms[f"{layer}.{prefix}{kind}"].symbol)
            for layer, often in zip(("layer", "expert_layer"), counts, strict=True)
            if f"{layer}.{prefix}{kind}" in terms
        ))

    def chunk(kind: str, place: int) -> Expr:
        return of_layers(kind, layers_by_chunk(choices)[place])

    def outside(kind: str, *places: Place) -> Expr:
        return total(*(
            product(instances(part.place, choices), 1 - _is_shared(part, implementation),
                    terms[f"{part.name}.{prefix}{kind}"].symbol)
            for part in components_of(implementation)
            if part.place in places and f"{part.name}.{prefix}{kind}" in terms
        ))

    def at_end(kind: str) -> Expr:
        return total(outside(kind, Place.LAST, Place.MTP), of_layers(kind, further_layers(choices)))

    buckets = {"first_bucket": bucket("first_bucket", Integer(1), lambda kind: total(
        chunk(kind, 0), outside(kind, Place.FIRST, Place.STAGE), product(1 - several, at_end(kind))
    ))}
    if several != 0:
        buckets |= {
            "middle_bucket": bucket("middle_bucket", product(several, count - 2), lambda kind: chunk(kind, 1)),
            "last_bucket": bucket("last_bucket", several, lambda kind: total(chunk(kind, 2), at_end(kind))),
        }
    if not prefix and "embedding.parameters" in terms:  # a frozen one is in no buffer
        first, last = (Iverson(Eq(r, rank)) for rank in ends(choices))
        shared = total(*(product(often, _shared(implementation)) for often in (first, last)))
        buckets["shared_bucket"] = Bucket(
            shared, *(terms[f"embedding.{kind}"].symbol for kind in ("parameters", "aligned")))
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
