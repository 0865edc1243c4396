"""From arguments as ``explain`` takes them, and from what is different in others, to a comparison."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from typing import Any

from shardmath.account.configured import Configuration, configured
from shardmath.commands.compare.comparison import LETTERS, Comparison, compared
from shardmath.errors import ABSENT, InputError, inside
from shardmath.input.arguments import typed_like
from shardmath.machines import Cluster
from shardmath.machines.gpu import Gpu
from shardmath.models.model import Model

#: Word for published formulas in place of another configuration.
PUBLISHED = "published"


@typed_like(configured)
def compare(
    model: Model | str | PathLike[str],
    gpu: Gpu | Cluster | str | PathLike[str],
    *,
    against: Sequence[Mapping[str, Any] | str],
    rank: int | None = None,
    **options: Any,
) -> Comparison:
    """Compare a configuration with others, term by term and tensor by tensor.

    ``options`` describe the first configuration and are those of ``explain``. Each of ``against`` has what another
    one has different, ``model`` and ``gpu`` too, or is ``"published"`` for published formulas of the first. Compared
    are the pipeline ranks that keep most, or ``rank`` of each.

    Raises InputError for every value that is not legal; its field starts with the letter of the configuration.

    Example:
        >>> both = shardmath.compare("llama-3.1-8b", "h100-80gb", against=[{"tensor_parallel": 2}], num_gpus=16)
        >>> [side.account.total for side in both.sides]
        [98777632768, 52521008128]
    """
    first = {"model": model, "gpu": gpu, **options}

    def others(item: Mapping[str, Any]) -> Callable[[], Configuration]:
        return lambda: configured(**{**first, **item})

    asked: list[tuple[str, Callable[[], Configuration]] | str] = []
    for item in against:
        if isinstance(item, Mapping):
            asked.append((", ".join(f"{name} = {value}" for name, value in item.items()), others(item)))
        else:
            asked.append(item)
    return posed(lambda: configured(**first), asked, rank)


def posed(
    first: Callable[[], Configuration], against: Sequence[tuple[str, Callable[[], Configuration]] | str],
    rank: int | None = None,
) -> Comparison:
    """Return the comparison of a configuration with others, each with what was asked for in words, and how it is made.

    Raises InputError without others, for a text that is not ``PUBLISHED``, and for every value that is not legal.
    """
    if not against:
        raise InputError("against", ABSENT, "must be given: what to compare with")
    configurations = [("", first())]
    for item in against:
        if isinstance(item, str):
            if item != PUBLISHED:
                raise InputError("against", item, "must be what is different, or published", PUBLISHED)
            continue
        words, configuration = item
        with inside(LETTERS[len(configurations) % len(LETTERS)]):
            configurations.append((words, configuration()))
    return compared(configurations, rank, PUBLISHED in against)
