"""Changes of the best layout when one input changes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from shardmath.account.judged import FITS, verdict_of
from shardmath.answers import Answer, Label
from shardmath.commands.recommend.asking import Asked
from shardmath.search.choosing import seconds_of
from shardmath.search.nests.configurations import Configuration
from shardmath.search.sizes import sizes_of

#: Switches of Megatron-LM that hide traffic, with words for them and the values that it asserts with each.
OVERLAPS: Mapping[str, tuple[str, Mapping[str, int]]] = {
    "overlap_grad_reduce": ("gradients reduced beside the backward pass", {}),
    "overlap_param_gather": (
        "weights gathered beside the forward pass, with overlap_grad_reduce",
        {"overlap_grad_reduce": 1, "distributed_optimizer": 1},
    ),
    "tp_comm_overlap": ("tensor-parallel collectives beside products", {"sequence_parallel": 1}),
}
#: Other recompute modes that are shown, the fastest ones.
_MODES = 5


@dataclass(frozen=True)
class Change(Answer):
    """The best layout after one thing has changed."""

    what: str
    """The change, in words."""
    layout: Mapping[str, Label] | None
    """Sizes of the best layout that fits then, by name; null if nothing fits."""
    seconds: float | None
    """Seconds of its step."""
    peak_bytes: int | None
    """Bytes of its peak."""
    speed: float | None
    """Its tokens per second over those of the first choice before."""
    same: bool
    """True if it is the layout of the first choice."""


def changes(asked: Asked, first: Configuration) -> Iterator[Change]:
    """Return the first choice after changes of memory, network, program, recompute or batch."""
    for percent in (10, -10):
        words = f"{abs(percent)} % {'more' if percent > 0 else 'less'} memory"
        memory = first.values["gpu_memory"] * (100 + percent) // 100
        fitting = (item for item in asked.answers.front("legal")
                   if verdict_of(item.peak_bytes, item.part.terms_at({**item.values, "gpu_memory": memory})) == FITS)
        best = next(fitting, None)
        if best is not None or not asked.every_switch:  # slower layouts are not there
            yield _changed(words, first, best)
    if asked.every_switch:
        return
    for words, values in _of_machine(first):
        yield _changed(words, first, asked.with_values(values, first.part.evaluator.implementation))
    yield from _of_layout(asked, first)
    yield _changed("twice the batch", first, asked.with_batch(2), tokens=2)


def _of_machine(first: Configuration) -> Iterator[tuple[str, Mapping[str, int]]]:
    """Other values of the machine's parameters, with words for them."""
    value = first.values
    if value["num_gpus"] > value["nvlink_domain"]:
        bandwidth = value["network_bandwidth"]
        yield "half the network bandwidth", {"network_bandwidth": max(1, bandwidth // 2)}
        yield "twice the network bandwidth", {"network_bandwidth": 2 * bandwidth}
    evaluator = first.part.evaluator
    switches = OVERLAPS if evaluator.implementation == "megatron" else {}
    for name, (words, needed) in switches.items():
        if evaluator.defaults.get(name) == 0:  # the program does not start with it
            continue
        others = {other: number for other, number in needed.items() if value[other] != number}
        if value[name] == 0 and others.keys() <= switches.keys():
            yield f"{name}: {words}", {name: 1, **others}


def _of_layout(asked: Asked, first: Configuration) -> Iterator[Change]:
    """Yield the best with another value of one axis."""
    for name, words in (("recompute", "recompute {}"), ("micro_batch_size", "micro-batch {}"),
                        ("virtual_pipeline", "chunks of layers on a rank: {}")):
        if name in first.labels and asked.answers.asks(f"by_{name}"):  # another implementation may have the axis alone
            best = {item.labels[name]: item for item in asked.answers.best(f"by_{name}")}
            own = first.labels[name]
            for value in _near(best, own):
                yield _changed(words.format(value), first, best[value])


def _near(configurations: Mapping[int | str, Configuration], own: int | str) -> list[int | str]:
    """Other values that something fits with: the fastest modes, or the numbers next to its own and 1."""
    others = [value for value in configurations if value != own]
    if isinstance(own, str):
        return sorted(others, key=lambda value: seconds_of(configurations[value]))[:_MODES]
    numbers = sorted(int(value) for value in others)
    below, above = [value for value in numbers if value < own], [value for value in numbers if value > own]
    return sorted({*below[:1], *below[-1:], *above[:1]})


def _changed(noun: str, before: Configuration, after: Configuration | None, tokens: int = 1) -> Change:
    if after is None:
        return Change(noun, None, None, None, None, False)
    layout = sizes_of(after)
    return Change(noun, layout, seconds_of(after), int(after.keys["peak"]),
                  tokens * seconds_of(before) / seconds_of(after), layout == sizes_of(before))
