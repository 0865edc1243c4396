"""Names that a shell completes: of models, GPUs, networks and choices, read without anything heavy."""

from __future__ import annotations

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


model_names = names_of(_catalogue("models"), files=True)
gpu_names = names_of(_catalogue("gpus"), files=True)
network_names = names_of(_catalogue("networks"))
implementation_names = names_of(lambda: IMPLEMENTATIONS)
schedule_names = names_of(lambda: CHOICES["schedule"][1])
recompute_names = names_of(lambda: RECOMPUTE_MODES)
kernel_names = names_of(_kernels)
