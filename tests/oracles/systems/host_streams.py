"""Streams of a GPU and its host, played event by event: copies, kernels and waits in the order in which programs ask.

A stream runs what it is given one after the other; an event is a time. Nothing here shares code with the formulas.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise

Seconds = Fraction


class Stream:
    """One queue of a GPU, or the thread of the host: the time at which it is idle."""

    def __init__(self, start: Seconds = Fraction(0)) -> None:
        self.idle = start

    def run(self, seconds: Seconds, *after: Seconds) -> Seconds:
        """Run something that waits for events, and return the event of its end."""
        self.idle = max(self.idle, *after, Fraction(0)) + seconds
        return self.idle

    def wait(self, *events: Seconds) -> None:
        """Run nothing more before these events."""
        self.idle = max(self.idle, *events)


def hybrid_step(
    pieces: Sequence[Seconds], copied: Seconds, updated: Seconds, own: Seconds, overlapped: bool,
) -> Seconds:
    """One step of Megatron-Core's HybridDeviceOptimizer, by parameter: shares of the work of the host, times in all.

    Without overlap all copies are on the stream of the GPU's own update, and one optimizer has all parameters. With it
    each parameter has one; a copy back comes from memory that is not pinned, so the host waits for its end.
    """
    current, host = Stream(), Stream()
    down, up = (Stream(), Stream()) if overlapped else (current, current)
    arrived = [down.run(share * copied) for share in pieces]
    current.run(own)
    groups = [[share] for share in pieces] if overlapped else [list(pieces)]
    events = arrived if overlapped else arrived[-1:]
    for group, event in zip(groups, events, strict=True):
        host.wait(event)
        for share in group:
            host.run(share * updated)
        up.wait(current.idle)
        for share in group:
            host.wait(up.run(share * copied, host.idle))
        current.wait(up.idle)
    return max(current.idle, host.idle)


def offloaded_pass(layers: int, moved: int, forward: Seconds, backward: Seconds, copy: Seconds) -> tuple[Seconds, ...]:
    """Ends of a forward and of a backward pass with Transformer Engine's default offload of the first layers."""
    lag = layers - moved
    current, link = Stream(), Stream()
    left: dict[int, Seconds] = {}
    ends: list[Seconds] = []
    for layer in range(layers):
        if 0 < layer <= moved:  # what the layer before saved leaves
            left[layer - 1] = link.run(copy, ends[-1])
        if layer - lag in left:  # its memory is released
            current.wait(left[layer - lag])
        ends.append(current.run(forward))
    middle = current.idle
    link.wait(middle)
    back: dict[int, Seconds] = {}
    for layer in reversed(range(layers)):
        coming = layer - (lag - 1)
        if 0 <= coming < moved:
            back[coming] = link.run(copy, current.idle)
        current.wait(*(back[layer],) if layer in back else (current.idle,))
        current.run(backward)
    assert all(first <= second for first, second in pairwise(ends))
    return middle, current.idle - middle


def layers_on_gpu(layers: int, moved: int) -> tuple[list[set[int]], dict[int, set[int]]]:
    """Layers whose saved tensors are on the GPU in the forward pass of each layer, and by layer in its backward pass.

    Layer i of the first ``moved`` leaves and comes back as Transformer Engine's default offload plans it.
    """
    here: set[int] = set()
    forward, backward = [], {}
    for layer in range(layers):  # a layer has left when another one starts
        here = here - {one for one in range(moved) if layers - moved + one == layer} | {layer}
        forward.append(here)
    for layer in reversed(range(layers)):  # the layer before is freed, then one comes back
        here = here - {layer + 1} | {one for one in range(moved) if layers - 1 - moved + one == layer}
        backward[layer] = here
    return forward, backward


def interleaved_step(
    groups: int, stride: int, update: Seconds, moved: Seconds, sent: Seconds, own: Seconds,
) -> Seconds:
    """One update by subgroups as the authors of Deep Optimizer States program it, from the first to the last copy.

    The host updates all subgroups but every ``stride``-th. When it comes to the first after such a one, the buffers on
    the GPU are emptied and filled for the next. Weights of 16 bits go up when a row of host subgroups is done.
    """
    host, gpu, down, up = Stream(), Stream(), Stream(), Stream()
    emptied, filled, waiting = Fraction(0), Fraction(0), 0
    pending = False
    for place in range(groups):
        if place % stride == 0:
            if pending:
                emptied, pending = down.run(moved, gpu.idle), False
            if place + stride - 1 < groups:
                filled = up.run(moved, emptied, host.idle)
        if place % stride == stride - 1:
            host.wait(filled)
            gpu.run(own, host.idle)
            pending = True
        else:
            host.run(update)
            waiting += 1
        if waiting and (place + 1 == groups or (place + 1) % stride == stride - 1):
            # 16-bit weights are ready when the host has passed the GPU's subgroup, and go up before what fills it.
            ready = max(host.idle, filled) if place + 1 < groups else host.idle
            up.run(waiting * sent, ready)
            waiting = 0
    if pending:
        down.run(moved, gpu.idle)
    return max(host.idle, gpu.idle, down.idle, up.idle)


def karma_pass(
    swapped: int, again: int, kept: int, forward: Seconds, backward: Seconds, copy: Seconds,
) -> tuple[Seconds, ...]:
    """Ends of a forward and of a backward pass where layers are swapped, recomputed or kept, in this order.

    The GPU has as many places for what a layer saves as layers are kept. A swapped layer has one until it has left, and
    again from the start of its copy back until it is done. A layer that is recomputed has one while it is.
    """
    current, out = Stream(), Stream()
    free: list[Seconds] = [Fraction(0)] * kept  # times at which places become free
    for place in range(swapped + again + kept):
        if swapped <= place < swapped + again:
            current.run(forward)
            continue
        current.wait(free.pop(0))
        end = current.run(forward)
        if place < swapped:
            free.append(out.run(copy, end))
    middle = current.idle
    back = Stream(middle)
    coming, arrived, free = swapped, {}, []

    def fetch(reserved: int) -> None:
        """Start copies of the next layers as long as places are free beside those that are reserved."""
        nonlocal coming
        while coming and len(free) > reserved:
            coming -= 1
            arrived[coming] = back.run(copy, free.pop(0))

    for layer in reversed(range(swapped + again + kept)):
        if layer >= swapped + again:
            free.append(current.run(backward))
        elif layer >= swapped:
            current.wait(free[-1])  # the reserved place
            free.append(max(free.pop(), current.run(forward + backward)))
        else:
            current.wait(arrived[layer])
            free.append(current.run(backward))
        # A layer that is to be recomputed needs a place of its own.
        fetch(int(again > 0 and layer > swapped))
    return middle, current.idle - middle
