"""Rows of the ledgers of the frameworks as they come, and the table of docs/coverage.md that counts their lines."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cache
from itertools import chain

from reachable import is_reachable, only_values

from shardmath.catalogue.code import code_of, oracle_of, shared_with
from shardmath.symbolic.accounts.rows import kept_rows
from shardmath.symbolic.components import all_components
from shardmath.symbolic.documents.formulas import counted_by, made_by
from shardmath.symbolic.implementations import IMPLEMENTATIONS, Implementation
from shardmath.symbolic.ledger import Component, Tensor
from shardmath.symbolic.parallel.pipeline import instances

Links = Callable[[Component, Tensor], Iterable[str]]


def ledgers() -> Iterator[tuple[str, Implementation]]:
    """Yield each framework with its own kernels, for models with dense layers and with experts."""
    for item in IMPLEMENTATIONS.values():
        for layers in item.options("layers"):
            yield f"{item.name}, {layers}", item.with_choices(layers=layers)


def rows(implementation: Implementation) -> list[str]:
    """Return the names of the rows that the framework has in some legal layout."""
    only, choices = only_values(implementation), implementation.choices
    return [f"{row.component.name}.{row.tensor.name}" for row in kept_rows(implementation)
            if row.expression.xreplace(only).doit() != 0
            and instances(row.component.place, choices).xreplace(only) != 0]


def without_line(implementation: Implementation) -> list[str]:
    """Return the rows of which no line is recorded."""
    return [row for row in rows(implementation)
            if code_of(implementation.framework, implementation.choices, row) is None]


def uncounted(implementation: Implementation) -> list[str]:
    """Return the rows that no test counts."""
    return [row for row in rows(implementation) if not oracle_of(implementation.framework, row)]


def table() -> str:
    """Return the table: rows of each ledger, how many have a line and a test, and those that have neither or one."""
    lines = ["| ledger | rows | with a line | with a test | by another's memory | without a line | without a test |",
             "|---|---:|---:|---:|---:|---|---|"]
    for title, implementation in ledgers():
        every, no_line, no_test = rows(implementation), without_line(implementation), uncounted(implementation)
        in_others = [row for row in every if shared_with(implementation.framework, row)]
        lines.append(f"| {title} | {len(every)} | {len(every) - len(no_line)} | {len(every) - len(no_test)} |"
                     f" {len(in_others)} | {_shortened(no_line)} | {_shortened(no_test)} |")
    of_all = {name: of_all_kernels(name) for name in IMPLEMENTATIONS}
    lines += [_of_all(f"{name}, all kernels", every, name) for name, every in of_all.items()]
    lines.append(_of_all("all frameworks, all kernels", tuple(dict.fromkeys(chain(*of_all.values())))))
    return "\n".join(lines)


@cache
def of_all_kernels(name: str) -> tuple[tuple[Component, Tensor], ...]:
    """Return the rows that some program of a framework keeps."""
    return tuple((component, tensor) for component in all_components() for tensor in component.tensors
                 if is_reachable(IMPLEMENTATIONS[name], component, tensor))


def linked(every: Iterable[tuple[Component, Tensor]], links: Links, name: str) -> list[str]:
    """Return the rows that ``made_by`` or ``counted_by`` links for a framework, or for any without a name."""
    return [f"{component.name}.{tensor.name}" for component, tensor in every
            if any(link.startswith(f"[{name}") for link in links(component, tensor))]


def _of_all(title: str, every: tuple[tuple[Component, Tensor], ...], name: str = "") -> str:
    """Return the line for rows of all kernels: how many have a line and a test of the framework, or of any."""
    known = [len(linked(every, links, name)) for links in (made_by, counted_by)]
    frameworks = [name] if name else list(IMPLEMENTATIONS)
    in_others = sum(_is_in_another(f"{component.name}.{tensor.name}", frameworks) for component, tensor in every)
    return (f"| {title} | {len(every)} | {known[0]} | {known[1]} | {in_others} | {len(every) - known[0]} |"
            f" {len(every) - known[1]} |")


def _is_in_another(row: str, frameworks: list[str]) -> bool:
    """Return True for a row that no test of these frameworks counts itself, but the one in whose memory it lies."""
    counting = [framework for framework in frameworks if oracle_of(framework, row)]
    return bool(counting) and all(shared_with(framework, row) for framework in counting)


def _shortened(names: list[str]) -> str:
    """Return the names; those of multi-token prediction as one."""
    others = [f"`{name}`" for name in names if not name.startswith("mtp")]
    predicted = len(names) - len(others)
    return ", ".join([*others, *([f"{predicted} of `mtp`"] if predicted else [])]) or "-"
