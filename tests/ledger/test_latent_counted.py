"""Latent attention against counted bytes: compressed queries or not, every recompute region, rotary tables."""

from functools import cache
from random import Random

import pytest
from counted import DEFAULTS, inline, table, value
from sympy import Expr, Integer

from shardmath.symbolic.accounts import kept_rows
from shardmath.symbolic.functions import Iverson
from shardmath.symbolic.implementations import HUGGINGFACE, MEGATRON, Implementation
from shardmath.symbolic.ledger import Role
from shardmath.symbolic.parameters import PARAMETERS, symbol
from shardmath.symbolic.terms import Contribution, total

FUSED = MEGATRON.with_choices(heads="latent")
UNFUSED = FUSED.with_choices(rope="unfused")
HUGGING = HUGGINGFACE.with_choices(heads="latent")
EAGER = HUGGING.with_choices(attention="eager")

# Variant of the tables: the implementation, and the switches that are not 0.
VARIANTS: dict[str, tuple[Implementation, dict[str, int]]] = {
    "fused norm": (UNFUSED, {}),
    "fused norm, plain rope": (UNFUSED, {}),
    "fused norm, queries not compressed": (UNFUSED, {}),
    "fused norm, fused rope": (FUSED, {}),
    "fused norm, recompute mla_up_proj": (UNFUSED, {"rup": 1}),
    "fused norm, fused rope, recompute mla_up_proj": (FUSED, {"rup": 1}),
    "fused norm, queries not compressed, recompute mla_up_proj": (UNFUSED, {"rup": 1}),
    "fused norm, recompute core_attn": (UNFUSED, {"rcore": 1}),
    "fused norm, recompute core_attn and mla_up_proj": (UNFUSED, {"rcore": 1, "rup": 1}),
    "hugging face sdpa": (HUGGING, {}),
    "hugging face sdpa, queries not compressed": (HUGGING, {}),
    "hugging face eager": (EAGER, {}),
    "hugging face eager, queries not compressed": (EAGER, {}),
}
# What the counting program calls a part: how the names of its rows begin.
PARTS: dict[str, tuple[str, ...]] = {
    "<attention>": ("rope.", "checkpoint."),
    "linear_q_down_proj": ("down.input",),
    "linear_kv_down_proj": ("down.input",),
    "linear_q_up_proj": ("q_up.",),
    "linear_q_up_proj.norm": ("q_norm.",),
    "linear_kv_up_proj": ("kv_up.",),
    "linear_kv_up_proj.norm": ("kv_norm.",),
    "core_attention": ("q", "k", "v", "context", "logsumexp"),
    "linear_proj": ("o_proj.",),
}


def rows_of_attention(implementation: Implementation, role: Role) -> list[Contribution]:
    return [
        row for row in kept_rows(implementation)
        if row.component.name == "latent_attention" and row.tensor.role is role and not row.tensor.sites
    ]


def formula(implementation: Implementation, rows: list[Contribution]) -> Expr:
    return inline(implementation, total(*(row.expression for row in rows)))


def tables_of(implementation: Implementation) -> list[Contribution]:
    return [row for row in kept_rows(implementation) if row.component.name in ("latent_tables", "latent_shared_tables")]


@cache
def formulas(implementation: Implementation) -> dict[str, Expr]:
    """What the columns of the table are in the ledger."""
    return {
        "parameters": formula(implementation, rows_of_attention(implementation, Role.WEIGHT)),
        "saved": formula(implementation, rows_of_attention(implementation, Role.ACTIVATION)),
        "tables": formula(implementation, tables_of(implementation)),
    }


def part(implementation: Implementation, name: str, *, recomputed: bool, core: bool) -> Expr:
    """The rows that the counting program finds under ``name``, with the tables that it calls saved."""
    if name == "PARAMETERS":
        return formulas(implementation)["parameters"]
    rows = rows_of_attention(implementation, Role.ACTIVATION)
    if name in PARTS:
        # What core attention keeps when it is recomputed belongs to the module that calls it.
        begin = PARTS[name] + (PARTS["core_attention"] if core and name == "<attention>" else ())
        rows = [
            row for row in rows
            if row.tensor.name in begin or row.tensor.name.startswith(tuple(one for one in begin if "." in one))
        ]
    # Fused kernels save cosines and sines, recomputed unfused ones their angles: both are among the buffers.
    tables = name in ("TOTAL", "<attention>") and recomputed == (implementation.choices["rope"] == "unfused")
    return formula(implementation, rows) + (4 * symbol("s") * symbol("dr") if tables else 0)


def known_of(row: dict[str, str], switches: dict[str, int]) -> dict[str, int]:
    sizes = {letter: int(row[letter]) for letter in ("s", "b", "h", "a", "dr", "dv", "lq", "lk", "t", "sp")}
    defaults = {p.letter: p.default for p in PARAMETERS if p.default is not None}
    return {**DEFAULTS, **defaults, **switches, **sizes, "k": sizes["a"], "d": int(row["dn"]) + sizes["dr"]}


def copied(implementation: Implementation, known: dict[str, int]) -> int:
    """Bytes of the copy for the output projection where values are as wide as keys and a head lies after another.

    So PyTorch's own kernel lays its result; the stand-in of the table lays a token after another. The copy is counted
    with that kernel in oracles/hugging_face/test_expert_family_bytes.py.
    """
    row, = (row for row in rows_of_attention(HUGGING, Role.ACTIVATION) if row.tensor.name == "o_proj.input_of_heads")
    return value(formula(HUGGING, [row]), known) if implementation is HUGGING else 0


@pytest.mark.parametrize("variant", VARIANTS)
def test_parameters_saved_bytes_and_tables(variant: str) -> None:
    implementation, switches = VARIANTS[variant]
    found_rows = [row for row in table("latent_saved") if row["variant"] == variant]
    assert len(found_rows) >= 8
    for row in found_rows:
        known = known_of(row, switches)
        for column, expression in formulas(implementation).items():
            missing = copied(implementation, known) if column == "saved" else 0
            assert value(expression, known) == int(row[column]) + missing, (column, row)


def polynomial_of(row: dict[str, str]) -> Expr:
    """A row of coefficients in the letters of the ledger."""
    s, b, h, a, d, dr, dv, lq, lk, t, ts = map(symbol, ["s", "b", "h", "a", "d", "dr", "dv", "lq", "lk", "t", "ts"])
    alone = 1 - Iverson(ts > 1)
    letters = {"s": s, "b": b, "h": h, "a": a, "dn": d - dr, "dr": dr, "dv": dv, "lq": lq, "lk": lk, "[ts=1]": alone}
    found: Expr = Integer(0)
    for column, number in row.items():
        if column in ("variant", "component", "exact", "spare_equations"):
            continue
        factors, _, ranks = column.partition("/")
        unit: Expr = {"": Integer(1), "t": t, "ts": ts}[ranks] ** -1
        for factor in () if column == "const" else factors.split("*"):
            unit *= letters[factor]
        found += int(number) * unit
    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    "row", [pytest.param(row, id=f"{row['variant']} {row['component']}") for row in table("latent_coefficients")]
)
def test_coefficients(row: dict[str, str]) -> None:
    """By part and in all, at random sizes: the ledger is the polynomial that was fitted to the counted bytes."""
    implementation, switches = VARIANTS[row["variant"]]
    assert row["exact"] == "1"
    assert int(row["spare_equations"]) > 0
    ours = part(implementation, row["component"], recomputed="rup" in switches, core="rcore" in switches)
    random = Random(row["variant"])
    for _ in range(4):
        t = random.choice((1, 2, 4))
        known = {
            **DEFAULTS, **switches, "t": t, "sp": int(t > 1) * random.randint(0, 1), "s": t * random.randint(1, 50),
            "a": t * random.randint(1, 9), "lq": 0 if "not compressed" in row["variant"] else random.randint(1, 99),
            **{letter: random.randint(1, 99) for letter in ("b", "h", "dr", "dv", "lk")},
        }
        known |= {"d": known["dr"] + random.randint(1, 99), "ts": t if known["sp"] else 1}
        assert value(ours - polynomial_of(row), known) == 0, known


def test_every_counted_variant_and_part_is_compared() -> None:
    assert {row["variant"] for row in table("latent_saved")} == set(VARIANTS)
    assert {row["component"] for row in table("latent_coefficients")} == {"PARAMETERS", "TOTAL", *PARTS}
