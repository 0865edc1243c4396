"""Changes that make something fit where nothing does, the smallest first: single ones, or else a few together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from shardmath.account.judged import NAMES
from shardmath.account.time import as_cluster
from shardmath.answers import Answer, Label
from shardmath.configuration.choosing import options_of
from shardmath.configuration.run import Search
from shardmath.configuration.zero import SWITCHES
from shardmath.errors import InputError
from shardmath.generated.definitions import IMPLEMENTATIONS
from shardmath.machines.files import any_cluster
from shardmath.search.nests.configurations import Configuration
from shardmath.search.offered import spaces_of
from shardmath.search.sizes import sizes_of
from shardmath.search.spaces.declared import IMPLEMENTATION
from shardmath.search.spaces.rows import legal_rows
from shardmath.search.spaces.standard import implementations_of

#: Words for a change, and the fields of a search that it sets; kernels and further parameters are set one by one.
_Change = tuple[str, Mapping[str, Any]]

#: Sizes that keep least memory, where they are not asked for.
_LEAST: Mapping[str, Any] = {"micro_batch_size": (1,), "virtual_pipeline": (1,), "recompute": ("full",)}
#: Data parallelism that shares out all weights.
_SHARED = {"data_parallel": "fsdp"}
#: Changes by kind, the weaker ones of a kind first, that leave program, number of GPUs and trained weights as they are:
#: those of one GPU, those that need several, and the rest.
_SMALL: tuple[tuple[_Change, ...], ...] = (
    (("a loss without the logits of all tokens", {"kernels": {"loss": "liger"}}),),
    (("gradients in 16 bits", {"gradients": "bf16"}),),
)
_SHARING: tuple[tuple[_Change, ...], ...] = (
    (("weights and states shared out", {"kernels": _SHARED}),),
    tuple((f"ZeRO stage {stage}", {"zero_stage": stage}) for stage in range(1, len(SWITCHES) + 1)),
)
_LARGER: tuple[tuple[_Change, ...], ...] = (
    (("all states on the host", {"others": {"optimizer_offload_percent": 100}}),),
    (("gradients and states on the host", {"kernels": {"zero_offload": "optimizer"}}),
     ("gradients, states and weights on the host", {"kernels": {"zero_offload": "parameters"}})),
    (("moments in 8 bits", {"kernels": {"optimizer": "adamw_8bit"}}),),
)
#: Rank of adapters that are tried, and frozen weights of fewer bits.
_RANK, _CODES = 16, {"base_weights": "nf4"}
#: How often the GPUs are doubled at most; between two doublings three more numbers are tried.
_DOUBLINGS = 7
#: Changes that are tried together at most, where fewer make nothing fit.
_TOGETHER = 3


@dataclass(frozen=True)
class Switch(Answer):
    """A change of the job, and the layout of least memory that it leads to."""

    what: str
    """The change, in words."""
    options: str
    """Options that make it: to add to the command, or in place of those of the same name."""
    layout: Mapping[str, Label]
    """Sizes of the layout by name."""
    num_gpus: int
    """GPUs of the job."""
    peak_bytes: int
    """Bytes of the rank that keeps most."""
    verdict: str
    """fits or uncertain."""
    rule_80: str
    """The same by the 80 % rule."""


def switches(search: Search, verdict: str) -> tuple[Switch, ...] | None:
    """Return changes after which a layout has a better ``verdict`` than any has without them.

    Of the changes of one kind that is the weakest that fits, or else the weakest that may. Where no single change
    makes anything fit, each is tried beside that change of the program which leaves the least memory, and then beside
    two such changes. Only layouts of little memory are tried: full recompute, one sequence in a micro-batch and one
    chunk of layers on a rank, where no others are asked for. A change that the implementation refuses is passed over.
    Several implementations are changed one after the other. None on a cluster whose changes are not counted yet.
    """
    try:
        as_cluster(search.gpu, search.network)
    except InputError:
        return None
    better, names = NAMES[:NAMES.index(verdict)], implementations_of(search)
    alone = [replace(search, implementation=name) for name in names] if len(names) > 1 else [search]
    bases: list[_Change | None] = [("", {IMPLEMENTATION: item.implementation} if len(names) > 1 else {})
                                   for item in alone]
    for _ in range(_TOGETHER):
        based = [(item, base) for item, base in zip(alone, bases, strict=True) if base is not None]
        tried = (_weakest(item, (_joined(base, change) for change in kind), better)
                 for item, base in based for kind in _kinds(_changed(item, base[1]), names))
        if enough := tuple(item for item in tried if item is not None):
            return enough
        bases = [None if base is None else _least(item, base) for item, base in zip(alone, bases, strict=True)]
    return ()


def _joined(first: _Change, second: _Change) -> _Change:
    """Return two changes as one."""
    (before, fields), (words, others) = first, second
    both = {name: {**fields[name], **value} if isinstance(value, Mapping) and name in fields else value
            for name, value in others.items()}
    return (f"{before}, {words}" if before else words), {**fields, **both}


def _changed(search: Search, fields: Mapping[str, Any]) -> Search:
    """Return a search with the fields of a change."""
    whole: dict[str, Any] = {
        name: {**(getattr(search, name) or {}), **value} if isinstance(value, Mapping) else value
        for name, value in fields.items()
    }
    return replace(search, **whole)


def _least(search: Search, base: _Change) -> _Change | None:
    """Return a change with that one change of the program beside it that leaves the least memory; None without one."""
    joined = [_joined(base, change) for kind in _of_the_program(search) for change in kind]
    tried = [(item.peak_bytes, place) for place, change in enumerate(joined)
             if (item := _tried(search, *change)) is not None]
    return joined[min(tried)[1]] if tried else None


def _weakest(search: Search, kind: Iterable[_Change], better: tuple[str, ...]) -> Switch | None:
    """Return the weakest change of a kind."""
    best = None
    for words, fields in kind:
        item = _tried(search, words, fields)
        if item is not None and item.verdict in better and (best is None or item.verdict != best.verdict):
            best = item
        if best is not None and best.verdict == better[0]:
            break
    return best


def _tried(search: Search, words: str, fields: Mapping[str, Any]) -> Switch | None:
    """Return the layout of least memory after a change; None where it changes nothing, and where none is legal."""
    changed = _changed(search, fields)
    if changed == search:
        return None
    sizes: dict[str, Any] = {name: size for name, size in _LEAST.items() if getattr(search, name) is None}
    try:
        spaces = spaces_of(replace(changed, **sizes), "memory")
        rows = [legal_rows(part) for space in spaces for part in space.parts()]
    except InputError:  # the implementation has no such switch, or not beside what was asked for
        return None
    least: tuple[int, Configuration] | None = None
    for item in filter(len, rows):
        peaks = item.term("peak")
        place = int(np.argmin(peaks))
        if least is None or peaks[place] < least[0]:
            least = int(peaks[place]), Configuration(item.part, int(item.numbers[place]), {})
    if least is None:
        return None
    peak, layout = least
    return Switch(words, " ".join(_options(search, fields)), sizes_of(layout), changed.num_gpus, peak,
                  layout.verdict, layout.rule_80)


def _options(search: Search, fields: Mapping[str, Any]) -> Iterator[str]:
    """Yield the options that make a change, without those that were asked for."""
    for name, value in fields.items():
        if name == "kernels":
            asked = search.kernels or {}
            yield from (f"--kernel {axis}={option}" for axis, option in value.items() if asked.get(axis) != option)
        elif name == "others":
            yield from (f"--{other.replace('_', '-')} {number}" for other, number in value.items()
                        if search.others.get(other) != number)
        else:
            yield f"--{name.replace('_', '-')} {value}"


def _kinds(search: Search, asked_for: Sequence[str]) -> Iterator[Iterable[_Change]]:
    """Yield changes by kind, the smallest first: what a program does, the program, the GPUs, what is trained.

    Implementations that are ``asked_for`` are no change of the program.
    """
    yield from _of_the_program(search)
    (axis, option), = _SHARED.items()
    for name in IMPLEMENTATIONS if search.num_gpus > 1 else ():
        if name not in asked_for and option in options_of(name, axis):
            asked = {} if options_of(name, axis) == (option,) else {"kernels": _SHARED}
            words = f"weights and states shared out by {name}{_other_precision(search, asked_for, name)}"
            yield [(words, {"implementation": name, **asked})]
    yield ((f"{number} GPUs", {"num_gpus": number}) for number in _numbers(search))
    adapted = {"lora_rank": search.others.get("lora_rank", _RANK)}
    yield [("adapters alone are trained", {"others": adapted}),
           ("adapters alone, on weights in 4 bits", {"others": adapted, "kernels": _CODES})]


def _of_the_program(search: Search) -> Iterator[tuple[_Change, ...]]:
    """Yield changes that leave program, number of GPUs and trained weights as they are; one GPU shares with none."""
    yield from (*_SMALL, *(_SHARING if search.num_gpus > 1 else ()), *_LARGER)


def _other_precision(search: Search, asked_for: Sequence[str], name: str) -> str:
    """Return the words for the precision of an implementation; none where it is asked for or stays as it is."""
    own, other = ({IMPLEMENTATIONS[each]["choices"]["precision"] for each in names} for names in (asked_for, (name,)))
    return "" if "precision" in (search.kernels or {}) or other <= own else f", with precision={other.pop()}"


def _numbers(search: Search) -> Iterator[int]:
    """Yield larger numbers of GPUs: doublings and quarters between them, of whole nodes beyond one node."""
    node, own = search.node_size or any_cluster(search.gpu, search.network).node_size, search.num_gpus
    for power in range(_DOUBLINGS):
        for quarters in range(5, 9):
            number, rest = divmod((own << power) * quarters, 4)
            if not rest and (number <= node or number % node == 0):
                yield number
