"""Names that a shell completes: of models, GPUs, networks and choices, read without anything heavy.

Models, GPUs and networks are looked up while the command line is parsed, so that no work begins for an unknown one.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable

import click
from click.shell_completion import CompletionItem

from shardmath.generated.definitions import CHOICES, IMPLEMENTATIONS, RECOMPUTE_MODES

Complete = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


def names_of(names: Callable[[], Iterable[str]], files: bool = False) -> Complete:
    """Completes one of some names; where ``files`` may be meant too and no name is, the paths of files."""

    def complete(context: click.Context, parameter: click.Parameter, begun: str) -> list[CompletionItem]:
        completions = [CompletionItem(name) for name in names() if name.startswith(begun)]
        return completions or ([CompletionItem(begun, type="file")] if files else [])

    return complete


def last_of(complete: Complete, separator: str = ",") -> Complete:
    """Completes the last of several names in one word."""

    def last(context: click.Context, parameter: click.Parameter, begun: str) -> list[CompletionItem]:
        before, between, rest = begun.rpartition(separator)
        return [CompletionItem(before + between + item.value) for item in complete(context, parameter, rest)]

    return last


def _catalogue(table: str) -> Callable[[], Iterable[str]]:
    def names() -> Iterable[str]:
        from shardmath.catalogue import read

        return read(table)

    return names


def _kernels() -> Iterable[str]:
    return (f"{axis}={option}" for axis, (_, options) in CHOICES.items() for option in options)


class Named(click.ParamType):  # type: ignore[type-arg]
    """A word that names something: completed in a shell, and refused at once where nothing has that name."""

    name = "text"

    def __init__(self, complete: Complete, look_up: Callable[[str], object]) -> None:
        """Keep what completes a word, and what raises InputError for one that names nothing."""
        self._complete, self._look_up = complete, look_up

    def convert(self, value: str, parameter: click.Parameter | None, context: click.Context | None) -> str:
        """Return the word. Raises InputError where it names nothing."""
        self._look_up(value)
        return value

    def shell_complete(
        self, context: click.Context, parameter: click.Parameter, incomplete: str,
    ) -> list[CompletionItem]:
        """Return the names that begin with a word."""
        return self._complete(context, parameter, incomplete)


def is_launch_file(word: str) -> bool:
    """Tell whether a word is the path of a launch file; nothing is imported for one without an ending."""
    if not os.path.splitext(word)[1]:
        return False
    from shardmath.formats import describes_a_run

    return describes_a_run(word)


def _look_up_model(word: str) -> None:
    """Raise InputError for a word that is neither a file nor a model; what a file holds is read later."""
    if os.path.isfile(word):
        return
    from shardmath.models.model import load_model

    if is_launch_file(word):
        from shardmath.formats import read

        read(word)
    else:
        load_model(word)


def _look_up_gpu(word: str) -> None:
    from shardmath.machines.files import is_cluster_file, read_cluster
    from shardmath.machines.gpu import Gpu

    if is_cluster_file(word):
        read_cluster(word)
    else:
        Gpu.named(word)


def _look_up_network(word: str) -> None:
    from shardmath.machines.network import Network

    Network.named(word)


MODEL = Named(names_of(_catalogue("models"), files=True), _look_up_model)
GPU = Named(names_of(_catalogue("gpus"), files=True), _look_up_gpu)
NETWORK = Named(names_of(_catalogue("networks")), _look_up_network)
implementation_names = names_of(lambda: IMPLEMENTATIONS)
schedule_names = names_of(lambda: CHOICES["schedule"][1])
recompute_names = names_of(lambda: RECOMPUTE_MODES)
kernel_names = names_of(_kernels)
