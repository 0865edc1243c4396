"""Data parallelism in time: gradients that are reduced, weights that are gathered, and the optimizer step."""

from __future__ import annotations

from sympy import Expr, Integer

from ..functions import CeilDiv, Max
from ..implementations import Implementation
from ..ledger import Place
from ..parallel.legality import fixed_values
from ..parallel.pipeline import instances
from ..parameters import symbol, symbols
from ..terms import TermSet, product, total
from .components import stream_time
from .groups import GROUP_BY_NAME, ring_time
from .stage import PARAMETERS

w, zero1, og, ow, shards, Lr, slowed = symbols("w zero1 og ow shards Lr slowed")
#: Parameters whose gradients are reduced at a time beside a pass (Megatron-Core): so many, and so many for each rank.
BUCKET, BUCKET_OF_RANK = Integer(40_000_000), Integer(1_000_000)
#: Bytes of a weight that is gathered: 16 bits.
_WEIGHT = Integer(2)


def add_data(terms: TermSet, implementation: Implementation) -> None:
    """What data-parallel ranks exchange, how long a rank waits for it, and its optimizer step.

    Weights that are shared out (ZeRO-3, FSDP) are gathered for every pass of a micro-batch, and gradients that are
    (ZeRO-2) reduced after each; both go on beside the pass. Otherwise it is once for every step, at its end or, where
    that is chosen, beside a pass of one micro-batch.
    """
    fixed = fixed_values(implementation)
    whole = implementation.choices["data_parallel"] == "torch_ddp"  # nanotron sums all of them with ZeRO-1 too
    zero2, zero3 = (Integer(fixed[name]) if name in fixed else symbol(name) for name in ("zero2", "zero3"))
    names = [name for name in PARAMETERS if name in terms]
    gathered = terms.add("stage.gathering",
                         total(*(_gathered(terms, name, _collectives(terms, name, implementation, ow))
                                 for name in names)),
                         "s", "rank r: its weights gathered once by the ranks that share them out")
    reduced = terms.add("stage.reducing",
                        total(*(_reduced(terms, name, whole, _collectives(terms, name, implementation, og))
                                for name in names)), "s",
                        "rank r: its gradients summed once over the ranks that hold its parameters")
    forward, backward = (terms[f"stage.{way}_computing"].symbol for way in ("forward", "backward"))
    if zero2 != 0:
        sharding = total(
            _hidden(product(zero3, gathered), forward),
            _hidden(total(product(zero3, gathered), product(zero2, reduced)), backward),
        )
        terms.add("stage.sharding_waiting", sharding, "s",
                  "rank r: waiting for shared-out weights and gradients, of one micro-batch")
    ends = [
        _beside(og, product(1 - zero2, reduced), backward),
        _beside(ow, product(zero1, 1 - zero3, gathered), forward),
    ]
    terms.add("stage.data_waiting", total(*ends), "s",
              "rank r: waiting for gradients and weights of data-parallel ranks, once for every step")
    gradients, weights = terms["stage.gradient"].symbol, terms["stage.weight"].symbol
    moved = total(product(Integer(2), terms["stage.optimizer"].symbol), total(gradients, weights) / shards,
                  product(Integer(2), gradients))
    terms.add("stage.optimizer_time", stream_time(moved), "s",
              "rank r: its states read and written, its share of gradients read and of weights written; all gradients"
              " read for their norm and set to zero")


def _beside(overlapped: Expr, seconds: Expr, computing: Expr) -> Expr:
    return total(product(1 - overlapped, seconds), product(overlapped, _hidden(seconds, computing)))


def _hidden(seconds: Expr, computing: Expr) -> Expr:
    """What ``seconds`` of collectives cost that run beside ``computing``.

    They take a share of the GPU while they run, so that computing takes longer; what is left after it is waited for.
    """
    return Max(product(seconds, slowed) / 1000, seconds - computing)


def _gathered(terms: TermSet, name: str, collectives: Expr) -> Expr:
    """Weights, gathered over one ring piece by piece."""
    return ring_time(_group(name, "data"), collectives, product(_WEIGHT, terms[name].symbol))


def _reduced(terms: TermSet, name: str, whole: bool, collectives: Expr) -> Expr:
    """Gradients: a reduce-scatter where states are shared out, else an all-reduce; then their shares over replicas."""
    size, data, replica = product(w, terms[name].symbol), _group(name, "data"), _group(name, "replica")
    passes = Integer(2) if whole else 2 - zero1
    share = size / GROUP_BY_NAME[data].size
    return total(
        ring_time(data, product(passes, collectives), product(passes, size)),
        ring_time(replica, Integer(2), product(Integer(2), share)),
    )


def _collectives(terms: TermSet, name: str, implementation: Implementation, overlapped: Expr) -> Expr:
    """How many pieces parameters are gathered, or their gradients reduced, in: each waits for the latency of a ring.

    FSDP has its units: every layer, and what lies outside of the layers. Megatron-Core has buckets that grow with the
    number of ranks, and a single piece where nothing runs beside it.
    """
    choices = implementation.choices
    if choices["data_parallel"] == "fsdp":
        ends = [instances(place, choices) for place in (Place.FIRST, Place.LAST)]
        return total(Lr, *(ends if choices["units"] == "ends" else (Max(*ends),)))
    elements = terms[name].symbol
    if choices["data_parallel"] != "ddp":
        return CeilDiv(elements, BUCKET)
    bucket = Max(BUCKET, product(BUCKET_OF_RANK, GROUP_BY_NAME[_group(name, "data")].size))
    return total(1 - overlapped, product(overlapped, CeilDiv(elements, bucket)))


def _group(name: str, kind: str) -> str:
    return f"expert_{kind}" if "expert" in name else kind
