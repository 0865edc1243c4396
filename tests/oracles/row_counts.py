"""Oracles by row: the programs of tests that compare a sum with the row in it with counted or measured bytes.

Each oracle has the implementations that it tries, the terms that its source names, or sums that its own functions make.
Others are not said here: a run of them has noted the rows that they compare (``traced.py``). Of those that compare a
row, the one with the shortest sum counts it; a measured run only where nothing else does.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType

import row_lines
import tomli_w
from counted import HEAD_VARIANTS, LAYER_VARIANTS, MEGATRON_CPU, MEGATRON_VARIANTS, rows_of
from ledger import (
    test_counted_coefficients,
    test_counted_values,
    test_experts_counted,
    test_latent_counted,
    test_mtp_counted,
    test_nanotron_runs,
    test_peak_simumax,
    test_torchtitan_counted,
    test_torchtitan_experts,
)
from oracles.hugging_face import (
    test_huggingface_experts,
    test_huggingface_families,
    test_huggingface_layer,
    test_huggingface_model,
)
from oracles.instruments import traced
from oracles.megatron_core import (
    megatron_layouts,
    test_megatron_expert_mlps,
    test_megatron_expert_steps,
    test_megatron_flex,
    test_megatron_gpt,
    test_megatron_stage,
)
from reachable import is_reachable

from shardmath.symbolic.accounts import build
from shardmath.symbolic.accounts.rows import kept_rows
from shardmath.symbolic.components import all_components
from shardmath.symbolic.expert_layers import FLEX
from shardmath.symbolic.implementations import (
    HUGGINGFACE,
    IMPLEMENTATIONS,
    MEGATRON,
    NANOTRON,
    TORCHTITAN,
    Implementation,
)
from shardmath.symbolic.ledger import Place, Role
from shardmath.symbolic.terms import Contribution

ROOT = Path(__file__).resolve().parents[2]
FILE = ROOT / "catalogue" / "oracles.toml"
HEADER = "# Written by `make coverage` from the tests; do not edit.\n"
EXPERTS = {"layers": "experts"}
#: Modules that compare with measured peaks, which count for rows that no exact count has.
MEASURED = (test_peak_simumax,)


@dataclass(frozen=True)
class Oracle:
    """A module of tests, the implementations that it tries, their terms that it compares, and other sums of rows."""

    module: ModuleType
    implementations: tuple[Implementation, ...]
    terms: tuple[str, ...] = ()
    sums: Callable[[Implementation], Iterable[Iterable[Contribution]]] | None = None

    @property
    def file(self) -> str:
        """The path of the module from the root of the repository."""
        return Path(str(self.module.__file__)).relative_to(ROOT).as_posix()

    def compared(self) -> Iterator[frozenset[str]]:
        """Yield the names of the rows of each sum that is compared."""
        for implementation in self.implementations:
            terms = build(implementation)
            there = set(row_lines.rows(implementation))
            for name in self.terms:
                if name in terms:
                    yield _names(row for term in terms.closure((name,)) for row in term.rows) & there
            yield from (_names(rows) & there for rows in (self.sums(implementation) if self.sums else ()))


def named(module: ModuleType) -> set[str]:
    """Return the texts in the source of a module."""
    tree = ast.parse(Path(str(module.__file__)).read_text(encoding="utf-8"))
    return {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)}


def _names(rows: Iterable[Contribution]) -> frozenset[str]:
    return frozenset(f"{row.component.name}.{row.tensor.name}" for row in rows)


def oracles() -> dict[str, tuple[Oracle, ...]]:
    """Return the oracles of each framework with all that they try."""
    experts = MEGATRON.with_choices(**EXPERTS)
    loss = ("stage.activation", "stage.after_forward", "stage.loss_forward", "stage.loss_backward")
    stage = ("stage.parameters", "stage.activation")
    return {
        "megatron": (
            Oracle(test_megatron_stage, _own(megatron_layouts.VARIANTS.values(), "megatron"), stage),
            Oracle(test_megatron_gpt, _own(test_megatron_gpt.VARIANTS.values(), "megatron"), stage),
            Oracle(test_megatron_expert_mlps, (MEGATRON_CPU.with_choices(**EXPERTS),), (
                "router.saved", "experts.saved", "shared_experts.saved", "dispatch.experts_backward",
                "dispatch.combine_backward")),
            Oracle(test_megatron_expert_steps, (experts,), sums=_tokens),
            Oracle(test_megatron_flex, tuple(
                MEGATRON_CPU.with_choices(permute=permute, dispatch=dispatch, mlp=mlp, **EXPERTS)
                for permute in ("unfused", "fused") for dispatch in FLEX for mlp in ("swiglu", "gelu")), sums=_flex),
            Oracle(test_counted_values, _own(MEGATRON_VARIANTS.values(), "megatron"), ("layer.saved",)),
            Oracle(test_counted_coefficients, _own([*MEGATRON_VARIANTS.values(), HEAD_VARIANTS.values()], "megatron"),
                   sums=_coefficients),
            Oracle(test_experts_counted,
                   _own([*test_experts_counted.VARIANTS.values(), test_experts_counted.LAYERS.values()], "megatron"),
                   sums=_blocks),
            Oracle(test_latent_counted, _own(test_latent_counted.VARIANTS.values(), "megatron"), sums=_latent),
            Oracle(test_mtp_counted, (test_mtp_counted.MTP,), sums=_predictions),
            Oracle(test_peak_simumax, (MEGATRON, experts), sums=_measured),
        ),
        "huggingface": (
            Oracle(test_huggingface_layer, (HUGGINGFACE, test_huggingface_layer.EAGER), ("layer.saved",)),
            Oracle(test_huggingface_model, (HUGGINGFACE,), (*loss, "stage.parameters", "stage.buffer")),
            Oracle(test_huggingface_experts, (HUGGINGFACE.with_choices(**EXPERTS),),
                   (*loss, "stage.parameters", "stage.expert_parameters", "stage.buffer")),
            Oracle(test_huggingface_families, (HUGGINGFACE,), (*stage, "stage.input")),
            Oracle(test_counted_coefficients, _own([*LAYER_VARIANTS.values(), HEAD_VARIANTS.values()], "huggingface"),
                   sums=_coefficients),
            Oracle(test_latent_counted, _own(test_latent_counted.VARIANTS.values(), "huggingface"), sums=_latent),
        ),
        "torchtitan": (
            Oracle(test_torchtitan_counted, (TORCHTITAN,), (
                "stage.activation", "stage.loss.after_forward", "stage.loss.loss_forward", "stage.total")),
            Oracle(test_torchtitan_experts, tuple(dict.fromkeys(test_torchtitan_experts.counted())), (
                *stage, "stage.expert_parameters", "stage.loss.after_forward", "stage.padded_experts.buffer")),
            Oracle(test_torchtitan_experts, tuple(dict.fromkeys(test_torchtitan_experts.stepped())), ("stage.total",)),
        ),
        # All that a rank keeps between steps, and the peak of the passes.
        "nanotron": (Oracle(test_nanotron_runs, (NANOTRON,), sums=lambda every: [kept_rows(every)]),),
    }


def _tokens(implementation: Implementation) -> Iterable[list[Contribution]]:
    """Return each row of tokens on their way, which are compared one by one."""
    return [[row] for row in kept_rows(implementation) if _names([row]) <= test_megatron_expert_steps.TOKENS]


def _flex(implementation: Implementation) -> Iterable[list[Contribution]]:
    """Return what a block keeps, and what its forward pass needs beside that; backward passes are compared for some."""
    rows = test_megatron_flex.by_moment(implementation)
    yield from (rows["kept"], rows["experts_forward"])


def _coefficients(implementation: Implementation) -> Iterable[list[Contribution]]:
    """Return the parts of layers and ends whose polynomials are compared, and what is alive at moments of the loss."""
    tables = test_counted_coefficients
    parts = [*tables.LAYER_PARTS.values(), *tables.MEGATRON_PARTS.values()]
    parts += [(part,) for part in tables.HEAD_PARTS.values()]
    yield from (rows_of(implementation, *part) for part in parts)
    if implementation in HEAD_VARIANTS.values():
        yield from (tables.live_rows(implementation, site) for site in tables.SITES.values())


def _blocks(implementation: Implementation) -> Iterable[list[Contribution]]:
    """Return weights, saved tensors and buffers of experts and their layers, and what lives while they are at work."""
    tables = test_experts_counted
    rows = [row for row in kept_rows(implementation) if row.component.name in tables.BLOCK]
    for role in (Role.WEIGHT, Role.BUFFER):
        yield [row for row in rows if row.tensor.role is role]
    yield tables.activations(implementation, *tables.BLOCK)
    layers = [row for row in kept_rows(implementation) if row.component.place in (Place.LAYER, Place.EXPERTS)]
    yield [row for row in layers if row.tensor.role is Role.WEIGHT]
    yield [row for row in layers if row.tensor.role is Role.ACTIVATION and not row.tensor.sites]
    for site in tables.TRANSIENT:
        yield [row for row in kept_rows(implementation)
               if row.component.name == "dispatch" and site in row.tensor.sites]


def _latent(implementation: Implementation) -> Iterable[list[Contribution]]:
    """Return weights, saved tensors and tables of latent attention."""
    yield from (test_latent_counted.rows_of_attention(implementation, role) for role in (Role.WEIGHT, Role.ACTIVATION))
    yield test_latent_counted.tables_of(implementation)


def _predictions(_: Implementation) -> Iterable[list[Contribution]]:
    """Return what modules of multi-token prediction save, and their weights."""
    yield test_mtp_counted.saved(Place.MTP, Place.LAST)
    yield test_mtp_counted.weights(Place.MTP, Place.LAST)


def _measured(implementation: Implementation) -> Iterable[list[Contribution]]:
    """Return lines of accounts that are written down as integers beside measured peaks; of experts the whole peak."""
    lines, rows = named(test_peak_simumax), kept_rows(implementation)
    yield from ([row] for row in rows if f"{row.component.name}.{row.tensor.role.value}" in lines)
    if implementation.choices["layers"] == "experts":
        yield [row for row in rows if not row.tensor.sites or "experts_forward" in row.tensor.sites]


def _own(variants: Iterable[Iterable[object]], framework: str) -> tuple[Implementation, ...]:
    """Return the implementations of a framework among the parts of an oracle's variants, of kernels that it has."""
    parts = [part for variant in variants for part in variant if isinstance(part, Implementation)]
    return tuple(dict.fromkeys(
        part for part in parts if part.framework == framework
        and all(option in IMPLEMENTATIONS[framework].options(axis) for axis, option in part.choices.items())))


@cache
def counts() -> Mapping[str, Mapping[str, str]]:
    """Return the file of the oracle that counts each row, by framework and row."""
    return {framework: {row: file for row, (*_, file) in sorted(_shortest(framework, every).items())}
            for framework, every in oracles().items()}


def _shortest(framework: str, every: Iterable[Oracle]) -> dict[str, tuple[bool, int, str]]:
    """Return by row if only a measured run has it, the rows of the shortest sum that is compared, and its file."""
    best: dict[str, tuple[bool, int, str]] = {}
    for row, here in (*_declared(every), *_noted(framework)):
        best[row] = min(best.get(row, here), here)
    return best


def _declared(every: Iterable[Oracle]) -> Iterator[tuple[str, tuple[bool, int, str]]]:
    """Yield the rows of the sums that oracles are said to compare."""
    for oracle in every:
        for rows in oracle.compared():
            yield from ((row, (oracle.module in MEASURED, len(rows), oracle.file)) for row in rows)


def _noted(framework: str) -> Iterator[tuple[str, tuple[bool, int, str]]]:
    """Yield the rows that a run has seen compared, if the ledger and the test are still there."""
    there = {f"{component.name}.{tensor.name}" for component in all_components() for tensor in component.tensors}
    for file, rows in traced.read().get(framework, {}).items():
        if (ROOT / file).is_file():
            yield from ((row, (False, length, file)) for row, length in rows.items() if row in there)


def shared() -> dict[str, dict[str, str]]:
    """Return by framework its rows without a test that lie in the memory of a counted one, of the same size."""
    rows = {f"{component.name}.{tensor.name}": (component, tensor)
            for component in all_components() for tensor in component.tensors}
    by_memory: dict[tuple[object, ...], list[str]] = {}
    for row, (_, tensor) in rows.items():
        if tensor.storage:
            by_memory.setdefault((tensor.storage, tensor.bytes, tensor.shape), []).append(row)
    return {framework: {row: counted[0] for together in by_memory.values()
                        if (counted := [row for row in together if row in tests])
                        for row in together
                        if row not in tests and is_reachable(IMPLEMENTATIONS[framework], *rows[row])}
            for framework, tests in counts().items()}


def written() -> str:
    """Return catalogue/oracles.toml: files by framework, with the rows that each counts, and rows that share memory."""
    return HEADER + tomli_w.dumps({
        "counted": {framework: {file: [row for row in rows if rows[row] == file] for file in sorted({*rows.values()})}
                    for framework, rows in counts().items()},
        "shared": shared(),
    })
