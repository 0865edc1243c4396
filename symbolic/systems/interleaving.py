"""Optimizer states on the host, of which every k-th subgroup is updated on the GPU: Deep Optimizer States.

As the authors' program does it (their fork of DeepSpeed, branch deep-optimizer-states): all states rest on the host.
The host updates k - 1 subgroups, while weights and moments of the k-th come to the GPU, into buffers that are there
once. So those of the subgroup before leave first, when the GPU has updated them. The host makes 16-bit weights of
what it has updated and sends them. Gradients of its subgroups leave beside the backward pass; those of the GPU's stay.

Subgroups are counted as equal. Both directions of the link work at a time, but what they carry is read from and written
to the host's memory, which the host's updates use too: an update takes no less than all of it.
"""

from __future__ import annotations

from sympy import Eq, Expr, Integer

from ..functions import CeilDiv, FloorDiv, Iverson, Max, Min
from ..parameters import symbols
from ..rates import host_link_time, host_stream_time, stream_time
from ..terms import TermSet, product, total

gk, sg, w = symbols("gk sg w")
#: Bytes of an element that come to the GPU and leave it: fp32 weight and moments; and with its fp32 gradient.
STATES, RESIDENT = Integer(12), Integer(16)
#: Bytes of an element of host memory: AdamW, then a 16-bit copy of the weight, and that copy into pinned memory.
STREAMED = Integer(4 * 4 + 3 * 4 + 4 + 2 + 2 + 2)
#: Bytes of an element of GPU memory: weight, gradient and moments read, all but the gradient written, 16-bit weight.
ON_GPU = Integer(4 * 4 + 3 * 4 + 2)
HALF, FP32 = Integer(2), Integer(4)
#: Bytes of host memory that copies of an element move: 16-bit weights read; or weights and moments read, and written.
HALF_READ, STATES_MOVED = HALF, 2 * STATES


def resident(elements: Expr) -> Expr:
    """Return bytes on the GPU for the subgroup that it updates; the program keeps them from its first step on."""
    return product(RESIDENT, Min(sg, elements))


def pinned(elements: Expr) -> Expr:
    """Return bytes on the host in which 16-bit weights wait for the link."""
    return product(HALF, total(gk, Integer(-1)), Min(sg, elements))


def add_times(terms: TermSet, elements: Expr) -> None:
    """Add ``stage.host_waiting``: gradients that the backward pass does not hide, and the update by subgroups."""
    groups = terms.add("stage.subgroups", CeilDiv(elements, sg), "subgroups", "rank r: subgroups of its parameters")
    size = terms.add("stage.subgroup_elements", elements / groups, "elements", "rank r: parameters of a subgroup")
    rounds = terms.add("stage.gpu_subgroups", FloorDiv(groups, gk), "subgroups", "rank r: those that the GPU updates")
    rest = total(groups, product(Integer(-1), gk, rounds))
    update, moved, sent, own = (
        terms.add(f"stage.{name}", seconds, "s", f"rank r: {meaning} of a subgroup") for name, seconds, meaning in (
            ("host_update_time", host_stream_time(product(STREAMED, size)), "the host's update"),
            ("host_copy_time", host_link_time(product(STATES, size)), "weights and moments on the link, one way,"),
            ("half_copy_time", host_link_time(product(HALF, size)), "16-bit weights on the link"),
            ("gpu_update_time", stream_time(product(ON_GPU, size)), "the GPU's update"),
        )
    )
    several = total(gk, Integer(-1))
    busy, halves = product(several, update), product(several, sent)
    swapped = total(Max(total(own, moved), halves), moved)
    terms.add("stage.balanced_stride", total(CeilDiv(total(own, moved, moved), update), Integer(1)), "subgroups",
              "rank r: the least k with which the host never waits for copies, if those of 16-bit weights are hidden")
    last = Max(total(Max(product(rest, update), halves), product(rest, sent)), total(own, moved))
    some = Iverson(Eq(rounds, 0))
    by_rounds = total(Max(busy, moved), product(total(rounds, Integer(-1)), Max(busy, swapped)), last)
    updating = terms.add("stage.interleaved_update", total(
        product(1 - some, by_rounds), product(some, groups, total(update, sent))), "s",
        "rank r: all subgroups updated, on the host and on the GPU")
    on_host = product(total(groups, product(Integer(-1), rounds)), size)
    through = terms.add("stage.host_streamed_time", host_stream_time(total(
        product(STREAMED + HALF_READ, on_host), product(STATES_MOVED, rounds, size))), "s",
        "rank r: all that updates and copies move through the host's memory")
    gradients = host_link_time(product(FP32, on_host))
    hidden = terms["stage.backward_computing"].symbol
    terms.add("stage.host_waiting", total(Max(Integer(0), gradients - hidden), Max(updating, through)), "s",
              "rank r: waiting for gradients on their way to the host, and for updates by subgroups")
