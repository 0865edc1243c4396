"""What would change the answer: the same question asked again with one thing different."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shardmath.advice.timed import AXES, FOLLOWING, Timed

#: Switches of Megatron-LM that hide traffic, with what they ask for.
OVERLAPS = {
    "overlap_grad_reduce": "gradients reduced beside the backward pass",
    "overlap_param_gather": "weights gathered beside the forward pass",
    "tp_comm_overlap": "tensor-parallel collectives beside products",
}


@dataclass(frozen=True)
class Change:
    """The best layout after one thing has changed.

    ``what`` has changed. ``layout`` has the sizes of the best layout that fits then, by name; None if nothing fits.
    ``speed`` is its tokens per second over that of the first choice before. ``same`` says whether it is the layout of
    the first choice.
    """

    what: str
    layout: Mapping[str, int | str] | None
    seconds: float | None
    peak_bytes: int | None
    speed: float | None
    same: bool


def layout_at(found: Timed, row: int) -> dict[str, int | str]:
    """What tells a layout apart, by name."""
    return {name: found.columns[name][row].item() for name in (*AXES, *FOLLOWING)}


def changes(found: Timed, first: int, more: Callable[[int], Timed]) -> Iterator[Change]:
    """What becomes of the first choice when memory, network, program, recompute or batch change.

    ``more`` looks at all layouts again for so many times the batch.
    """
    yield from _of_memory(found, first)
    # What needs too much memory does so on any network: its time is not asked for again.
    fitting = found.those(found.are("fits"))
    yield from (_changed(words, found, first, fitting.with_values(**values)) for words, values in _of_machine(found))
    yield from _of_layout(found, first)
    yield _changed("twice the batch", found, first, more(2), tokens=2)


def _of_memory(found: Timed, first: int) -> Iterator[Change]:
    memory = found.value("gpu_memory")
    for percent in (10, -10):
        words = f"{abs(percent)} % {'more' if percent > 0 else 'less'} memory"
        yield _changed(words, found, first, found.with_values(gpu_memory=memory * (100 + percent) // 100))


def _of_machine(found: Timed) -> Iterator[tuple[str, Mapping[str, int]]]:
    """Other values of the machine's parameters, with words for them."""
    if found.value("num_gpus") > found.value("nvlink_domain"):
        bandwidth = found.value("network_bandwidth")
        yield "half the network bandwidth", {"network_bandwidth": max(1, bandwidth // 2)}
        yield "twice the network bandwidth", {"network_bandwidth": 2 * bandwidth}
    switches = OVERLAPS if found.legal[0].part.evaluator.implementation == "megatron" else {}
    for name, words in switches.items():
        if found.value(name) == 0:
            yield f"{name}: {words}", {name: 1}


def _of_layout(found: Timed, first: int) -> Iterator[Change]:
    """The best with another value of one axis."""
    columns = found.columns
    for name, words in (("recompute", "recompute {}"), ("micro_batch_size", "micro-batch {}"),
                        ("virtual_pipeline", "chunks of layers on a rank: {}")):
        own = columns[name][first]
        for value in _near(columns[name], own):
            yield _changed(words.format(value), found, first, found, columns[name] == value)


def _near(column: NDArray[Any], own: Any) -> list[Any]:
    """Other values of a column: all modes, or the numbers next to its own and 1."""
    values = np.unique(column)
    if values.dtype.kind not in "iu":
        return [value for value in values.tolist() if value != own]
    place = int(np.searchsorted(values, own))
    near = {int(values[other]) for other in (0, place - 1, place + 1) if 0 <= other < len(values)}
    return sorted(near - {int(own)})


def _changed(
    what: str, before: Timed, first: int, after: Timed, among: NDArray[np.bool_] | None = None, tokens: int = 1,
) -> Change:
    fits = after.are("fits")
    row = after.best(fits if among is None else fits & among)
    if row is None:
        return Change(what, None, None, None, None, False)
    seconds, layout = float(after.columns["seconds"][row]), layout_at(after, row)
    speed = tokens * float(before.columns["seconds"][first]) / seconds
    return Change(what, layout, seconds, int(after.columns["peak"][row]), speed, layout == layout_at(before, first))
