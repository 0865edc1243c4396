"""The counted tables: their rows, what implementation each variant is, and the ledger's side of a column."""

import csv
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from sympy import Expr, Integer, sympify

from shardmath.symbolic.accounts import build, kept_rows
from shardmath.symbolic.accounts.units import is_layer_input
from shardmath.symbolic.exact import number
from shardmath.symbolic.functions import Iverson
from shardmath.symbolic.implementations import HUGGINGFACE, MEGATRON, Implementation
from shardmath.symbolic.ledger import Place, Role
from shardmath.symbolic.parameters import PARAMETERS, symbol
from shardmath.symbolic.terms import Contribution

DATA = Path(__file__).parent / "data"

# Megatron-Core was counted on CPU, where its fused rotary kernel does not exist.
MEGATRON_CPU = MEGATRON.with_choices(rope="unfused")
#: Layers that the counting program has with kernels of other frameworks too.
ANY_KERNELS = replace(MEGATRON, allowed={})

# Variant of a table: the implementation, and the switches that are not 0.
LAYER_VARIANTS: dict[str, tuple[Implementation, dict[str, int]]] = {
    "hf_sdpa, fp32 params + autocast(bf16)": (HUGGINGFACE.with_choices(precision="autocast"), {}),
    "hf_sdpa": (HUGGINGFACE, {}),
    "hf_eager_attn": (HUGGINGFACE.with_choices(attention="eager"), {}),
    "fused": (MEGATRON, {}),
    "fused+v_view": (MEGATRON.with_choices(value="view"), {}),
    "fused+rope_eager": (ANY_KERNELS.with_choices(rope="shared"), {}),
    "fused+swiglu_eager(chunked)": (MEGATRON.with_choices(swiglu="eager"), {}),
    "fused+swiglu_split": (MEGATRON.with_choices(swiglu="eager"), {}),
    "fused+norm_eager": (ANY_KERNELS.with_choices(norm="eager"), {}),
    "fused+memeff_norm": (MEGATRON.with_choices(norm="keeps_output"), {}),
    "fused+fa_bshd": (MEGATRON.with_choices(attention="flash_bshd"), {}),
    "fused+full_ckpt": (MEGATRON, {"rfull": 1}),
    "fused+full_ckpt_reentrant": (MEGATRON, {"rfull": 1}),
}
MEGATRON_VARIANTS: dict[str, tuple[Implementation, dict[str, int]]] = {
    "fused": (MEGATRON_CPU, {}),
    "fused,v view": (MEGATRON_CPU.with_choices(value="view"), {}),
    "local spec (unfused attn, torch RMSNorm)": (
        MEGATRON_CPU.with_choices(norm="torch", attention="unfused"), {},
    ),
    "fused, recompute full/uniform/1": (MEGATRON_CPU, {"rfull": 1}),
    "fused, selective core_attn": (MEGATRON_CPU, {"rcore": 1}),
    # The norm of the counted layers stands alone, and is not recomputed with the MLP.
    "fused, selective mlp": (MEGATRON_CPU.with_choices(peak="megatron_local"), {"rmlp": 1}),
}
#: Counted without Megatron-LM's training loop, its batches and the buffers of Transformer Engine.
HEAD_VARIANTS: dict[str, Implementation] = {
    "fused_norm+megatron_ce": MEGATRON.with_choices(peak="saved"),
    "fused_norm+F.cross_entropy(fp32)": ANY_KERNELS.with_choices(peak="saved", loss="float"),
    "eager_norm+F.cross_entropy(bf16)": ANY_KERNELS.with_choices(peak="saved", norm="eager", loss="bf16"),
    "hf LlamaForCausalLM L=0": HUGGINGFACE,
}

# Everything on one rank of 80 GiB, the vocabulary as given, nothing recomputed.
DEFAULTS: dict[str, int] = {
    **dict.fromkeys(("t", "c", "p", "D", "L", "b", "B", "g"), 1), "w": 4, "r": 0, "N": 1, "gs": 8, "M": 80 * 2**30,
    **{parameter.letter: 0 for parameter in PARAMETERS if parameter.is_switch},
    **{parameter.letter: parameter.default for parameter in PARAMETERS if parameter.default is not None},
}


def table(name: str) -> list[dict[str, str]]:
    """The rows of a counted table."""
    with (DATA / f"{name}.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def values(row: dict[str, str], letters: str, **others: int) -> dict[str, int]:
    """The columns ``letters`` of a row and the defaults of all else; one micro-batch makes a step."""
    known = {**DEFAULTS, **{letter: int(row[letter]) for letter in letters.split()}, **others}
    return {**known, "B": known["b"] * known["D"]}


def rows_of(implementation: Implementation, component: str, *modules: str) -> list[Contribution]:
    """The rows of a component, or of some of its modules, that a counting program calls saved."""
    return [
        row for row in kept_rows(implementation)
        if row.component.name == component and (not modules or row.tensor.module in modules)
        and row.tensor.role in (Role.ACTIVATION, Role.INPUT)
    ]


def layer_rows(implementation: Implementation, switches: dict[str, int]) -> list[Contribution]:
    """The rows that every layer keeps: all that it saves, or its input with full recompute."""
    return [
        row for row in kept_rows(implementation)
        if row.component.place in (Place.LAYER, Place.DENSE) and row.tensor.role is Role.ACTIVATION
        and is_layer_input(row.component) == bool(switches.get("rfull"))
    ]


def end_rows(implementation: Implementation) -> list[Contribution]:
    """The rows saved outside of the layers."""
    ends = ("embedding", "final_norm", "head", "loss")
    return [row for component in ends for row in rows_of(implementation, component)]


def saved_tables(implementation: Implementation, switches: dict[str, int]) -> list[Contribution]:
    """The tables that are saved too: the mask of unfused attention; with full recompute the rotary angles."""
    return [
        row for row in kept_rows(implementation) if row.component.name == "tables" and (
            row.tensor.name == "mask" or (switches.get("rfull") and row.tensor.name.startswith("rope.frequencies")))
    ]


def without_inputs(rows: Iterable[Contribution]) -> list[Contribution]:
    """The rows that are not token ids or labels, which exist whether they are saved or not."""
    return [row for row in rows if row.tensor.role is not Role.INPUT]


def total(implementation: Implementation, rows: Iterable[Contribution], switches: dict[str, int]) -> Expr:
    """The sum of ``rows`` in the letters of the tables, with some switches set and all others 0."""
    known = {p.symbol: Integer(switches.get(p.letter, 0)) for p in PARAMETERS if p.is_switch}
    terms = (inline(implementation, row.expression).xreplace(known) for row in rows)
    return sum(terms, Integer(0)).doit()


def polynomial(row: dict[str, str], columns: Iterable[str]) -> Expr:
    """The sum of a row's coefficients times what the headers of their columns say."""
    known = {letter: symbol(letter) for letter in "sbhakdfvt"}
    known |= {"const": Integer(1), "sharded": Iverson(symbol("t") > 1)}
    units = {column: sympify(column.replace("[t>1]", "sharded"), locals=known) for column in columns}
    return sum((int(row[column]) * unit for column, unit in units.items()), Integer(0))


def value(expression: Expr, known: dict[str, int]) -> Expr:
    """The exact value of an expression for values by letter."""
    return number(expression, {symbol(letter): Integer(one) for letter, one in known.items()})


def inline(implementation: Implementation, expression: Expr, letters: tuple[str, ...] = ("v",)) -> Expr:
    """An expression without reference to terms, but for the padded vocabulary or other letters of the tables."""
    by_symbol = build(implementation).by_symbol
    kept = {symbol(letter) for letter in letters}
    known = {
        one: inline(implementation, by_symbol[one].expression, letters)
        for one in expression.free_symbols if one in by_symbol and one not in kept
    }
    return expression.xreplace(known)
