"""Data for the Markdown formula tables: tensors and terms of every component, totals, published formulas."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sympy import Basic, Expr, Integer

from shardmath.catalogue.code import codes_of, oracle_of, shared_with

from ..accounts import build
from ..choices import AXES
from ..components import all_components
from ..implementations import IMPLEMENTATIONS, MEGATRON, Implementation
from ..ledger import Component, Role, Tensor
from ..parallel.derived import definitions
from ..parallel.legality import fixed_values
from ..parameters import BY_LETTER, Parameter, symbol
from ..printers.text import LinePrinter, letter
from ..published import PublishedSet, all_published
from ..sources import BY_KEY
from ..work import Transfer
from .forms import Form, definitions_of, forms, own_terms, published_form, row_sizes, time_forms, total_groups
from .scope import EVERYTHING
from .times import described, groups, weight_sides, when


def formulas() -> dict[str, Any]:
    """Prepare the data of ``formulas.md.jinja``: every cell is Markdown that is safe inside a table."""
    sizes = {name: row_sizes(item) for name, item in IMPLEMENTATIONS.items()}
    return {
        "parameters": [_parameter(item) for item in BY_LETTER.values()],
        "implementations": [
            {"name": code(name), "title": cell(item.title), "version": cell(item.version)}
            for name, item in IMPLEMENTATIONS.items()
        ],
        "kernels": [
            {"axis": code(axis.name), "meaning": cell(axis.meaning), "option": code(option), "kept": cell(kept)}
            for axis in AXES for option, kept in axis.options.items()
        ],
        "components": [_component(item, sizes) for item in all_components()],
        "others": [
            {"title": cell(item.title), "groups": _groups(name)} for name, item in IMPLEMENTATIONS.items()
        ],
        "worked": [
            {"title": cell(item.title), "name": code(item.name), "rows": _work(item)}
            for item in EVERYTHING.worked_components
        ],
        "times": [
            {"title": group.title.replace("$", ""), "rows": [_row(time_forms(MEGATRON)[name]) for name in group.terms]}
            for group in groups()
        ],
        "published": [_published(item) for item in all_published()],
    }


def cell(text: str) -> str:
    """Make plain text safe inside a Markdown table."""
    for character in "\\|*_<>[]`":
        text = text.replace(character, "\\" + character)
    return text


def code(text: str) -> str:
    """Set inline code inside a Markdown table; a pipe would end the cell even there."""
    return "`" + text.replace("|", "\\|") + "`"


def formula(expression: Basic) -> str:
    """Set an expression as inline code on one line."""
    return code(LinePrinter().doprint(expression))


def _parameter(item: Parameter) -> dict[str, str]:
    definition = definitions(MEGATRON.choices, MEGATRON.framework).get(item.letter)
    return {
        "letter": code(letter(item.symbol)), "name": code(item.name), "unit": cell(item.unit),
        "smallest": str(item.minimum), "meaning": cell(item.meaning),
        "definition": formula(definition) if definition is not None else "",
    }


def _component(item: Component, sizes: dict[str, dict[tuple[str, str], Expr]]) -> dict[str, Any]:
    return {
        "title": cell(item.title), "name": code(item.name), "place": item.place.value, "note": cell(item.note),
        "tensors": [_tensor(item, tensor, sizes) for tensor in item.tensors],
        "terms": [
            {"implementation": code(name), "rows": _rows(name, own)}
            for name, implementation in IMPLEMENTATIONS.items() if (own := own_terms(build(implementation), item))
        ],
    }


def _tensor(item: Component, tensor: Tensor, sizes: dict[str, dict[tuple[str, str], Expr]]) -> dict[str, Any]:
    row_sizes_of = [of_one.get((item.name, tensor.name)) for of_one in sizes.values()]
    return {
        "name": code(tensor.name), "role": tensor.role.value, "meaning": cell(tensor.meaning),
        "shape": code(" × ".join(dimension.name for dimension in tensor.shape) or "scalar"),
        "bytes": "" if tensor.role is Role.WEIGHT else str(tensor.bytes),
        "lifetime": ", ".join(map(code, tensor.sites)) or tensor.lifetime.value, "when": _when(tensor),
        "source": cell(tensor.source),
        "sizes": ["" if size is None else formula(size) for size in row_sizes_of],
        "code": ", ".join(made_by(item, tensor)), "oracles": ", ".join(counted_by(item, tensor)),
    }


def options_with(implementation: Implementation, item: Component, tensor: Tensor) -> dict[str, tuple[str, ...]]:
    """Return the options of each axis with which a framework may have the tensor, its usual one first where it may.

    Empty if the framework never has the tensor.
    """
    options: dict[str, tuple[str, ...]] = {}
    for axis in AXES:
        usual_first = dict.fromkeys((implementation.choices[axis.name], *implementation.options(axis.name)))
        options[axis.name] = tuple(
            option for option in usual_first
            if all(option in rows.get(axis.name, (option,)) for rows in (item.options, tensor.options)))
        if not options[axis.name]:
            return {}
    fixed = {symbol(letter): Integer(value) for letter, value in fixed_values(implementation).items()}
    return {} if tensor.when.xreplace(fixed).doit() == 0 else options


def made_by(item: Component, tensor: Tensor) -> Iterator[str]:
    """Yield a link for each implementation to each line of its framework that makes the tensor with some kernels."""
    for name, implementation in IMPLEMENTATIONS.items():
        if options := options_with(implementation, item, tensor):
            lines = codes_of(name, options, f"{item.name}.{tensor.name}")
            yield from (f"[{name} {cell(line.short)}]({line.url})" for line in lines)


def counted_by(item: Component, tensor: Tensor) -> Iterator[str]:
    """Yield a link for each implementation to the test that counts the tensor, or the one in whose memory it lies."""
    for name, implementation in IMPLEMENTATIONS.items():
        row = f"{item.name}.{tensor.name}"
        file, other = oracle_of(name, row), shared_with(name, row)
        if file and options_with(implementation, item, tensor):
            yield f"[{name} {cell(file.rpartition('/')[2])}](../{file}){f' as {code(other)}' if other else ''}"


def _work(item: Component) -> list[dict[str, str]]:
    rows = [
        {"name": code(tensor.name), "kind": "product", "size": cell(weight_sides(tensor)),
         "meaning": "a matrix of weights times tokens", "passes": "", "when": "", "source": cell(tensor.source)}
        for tensor in EVERYTHING.multiplied(item)
    ]
    for row in item.work:
        kind, size = described(row)
        conditions = [*map(code, when(row)), *([formula(row.when)] if row.when != 1 else [])]
        passes = f"{formula(row.forward)}, {formula(row.backward)}" if isinstance(row, Transfer) else ""
        rows.append({"name": code(row.name), "kind": kind, "size": cell(size), "meaning": cell(row.meaning),
                     "passes": passes, "when": ", ".join(conditions), "source": cell(row.source)})
    return rows


def _when(tensor: Tensor) -> str:
    """Say when a row exists: kernel choices, a condition, a recomputed region, shared memory."""
    parts = [f"{axis} = {' or '.join(allowed)}" for axis, allowed in tensor.options.items()]
    texts = [code(part) for part in parts]
    if tensor.when != 1:
        texts.append(formula(tensor.when))
    if tensor.checkpoint:
        texts.append(f"recompute of {code(tensor.checkpoint)}")
    if tensor.storage:
        texts.append(f"shares {code(tensor.storage)}")
    return ", ".join(texts)


def _groups(name: str) -> list[dict[str, Any]]:
    terms = build(IMPLEMENTATIONS[name])
    definitions = {"title": "Definitions", "rows": _rows(name, definitions_of(terms))}
    return [definitions] + [
        {"title": group.title.replace("$", ""), "rows": _rows(name, group.terms)} for group in total_groups(terms)
    ]


def _rows(implementation: str, names: tuple[str, ...]) -> list[dict[str, str]]:
    of_all = forms(IMPLEMENTATIONS[implementation])
    return [_row(of_all[name]) for name in names]


def _row(form: Form) -> dict[str, str]:
    before, after = form.operations
    simplified = form.simplified is not None
    return {
        "name": code(form.term.name), "meaning": cell(form.term.meaning), "unit": cell(form.term.unit),
        "written": formula(form.written), "simplified": formula(form.simplified) if simplified else "",
        "operations": f"{before} → {after}" if simplified and before != after else str(before),
    }


def _published(item: PublishedSet) -> dict[str, Any]:
    source = BY_KEY[item.source]
    return {
        "title": cell(item.title), "source": f"{cell(source.authors)}, [{cell(source.title)}]({source.url})",
        "notes": [cell(note) for note in item.notes], "rows": [_row(published_form(term)) for term in item.own],
    }
