"""Multi-token prediction against counted bytes: models without and with one or two modules, two recompute modes."""

from functools import cache

import pytest
from counted import DEFAULTS, inline, saved_tables, table, value
from sympy import Expr, Integer

from shardmath.symbolic.accounts import build, kept_rows
from shardmath.symbolic.accounts.units import is_layer_input
from shardmath.symbolic.exact import evaluate
from shardmath.symbolic.functions import Iverson
from shardmath.symbolic.implementations import MEGATRON
from shardmath.symbolic.ledger import Place, Role
from shardmath.symbolic.parameters import symbol
from shardmath.symbolic.terms import Contribution, total

# The counted modules have a dense MLP, on which nothing depends here: the layer is added by itself.
MTP = MEGATRON.with_choices(layers="experts", rope="unfused", value="view")
ONE_RANK = {"L": 1, "p": 1, "q": 1, "E": 1, "fe": 1}

# Variant of the tables: the switches that are not 0.
VARIANTS: dict[str, dict[str, int]] = {"flash": {}, "flash, recompute full": {"rfull": 1}, "flash, tied": {"tied": 1}}
# What the counting program calls a part of a module: the component, its rows of one module of the ledger.
PARTS: dict[str, tuple[str, ...]] = {
    "mtp.enorm": ("embedding_norm.",),
    "mtp.hnorm": ("hidden_norm.",),
    "mtp.eh_proj": ("projection.",),
    "mtp.final_layernorm": ("final_norm.",),
    "mtp.transformer_layer.input_layernorm": ("layer_input.",),
    "mtp": ("checkpoint.",),
    "embedding.word_embeddings": ("ids",),
    "output_layer": ("head.",),
    "<model>": ("softmax", "masked_target", "target_mask", "loss_", "counted_tokens"),
}


def saved(*places: Place, whole: bool = False) -> list[Contribution]:
    return [
        row for row in kept_rows(MTP)
        if row.component.place in places and row.tensor.role is Role.ACTIVATION and not row.tensor.sites
        and (row.component.place in (Place.FIRST, Place.LAST, Place.MTP) or is_layer_input(row.component) == whole)
    ]


def weights(*places: Place) -> list[Contribution]:
    return [
        row for row in kept_rows(MTP)
        if row.component.place in places and row.tensor.role is Role.WEIGHT
    ]


def formula(rows: list[Contribution]) -> Expr:
    return inline(MTP, total(*(row.expression for row in rows)))


@cache
def formulas(whole: bool) -> dict[str, Expr]:
    """Parameters and saved bytes of one dense layer with embedding and head, and of ``mtp`` modules beside it."""
    ends, layer, mtp = (Place.FIRST, Place.LAST), (Place.LAYER, Place.DENSE), symbol("mtp")
    return {
        "parameters": formula(weights(*ends)) + (1 + mtp) * formula(weights(*layer))
        + mtp * formula(weights(Place.MTP)),
        "saved": formula(saved(*ends)) + formula(saved_tables(MTP, {"rfull": int(whole)}))
        + (1 + mtp) * formula(saved(*layer, whole=whole))
        + mtp * formula(saved(Place.MTP)),
    }


@pytest.mark.slow
@pytest.mark.parametrize("variant", VARIANTS)
def test_parameters_and_saved_bytes_of_a_rank(variant: str) -> None:
    switches = VARIANTS[variant]
    rows = [row for row in table("mtp_saved") if row["variant"] == variant]
    assert {row["mtp"] for row in rows} == {"0", "1", "2"}
    for row in rows:
        sizes = {letter: int(row[letter]) for letter in ("s", "b", "h", "a", "k", "d", "f", "v", "t", "sp", "mtp")}
        known = {**DEFAULTS, **ONE_RANK, **switches, **sizes}
        for column, expression in formulas("rfull" in switches).items():
            assert value(expression, known) == int(row[column]), (column, row)


def unit(column: str) -> Expr:
    """What the header of a column of coefficients says, without the number of modules."""
    letters = {letter: symbol(letter) for letter in ("s", "b", "h", "v", "a", "k", "d", "f")}
    letters |= {"const": Integer(1), "[t>1]": Iverson(symbol("t") > 1)}
    factors, _, ranks = column.partition("/")
    found: Expr = {"": Integer(1), "t": symbol("t"), "ts": symbol("ts")}[ranks] ** -1
    for factor in factors.split("*"):
        found *= letters[factor]
    return found


@pytest.mark.parametrize(
    "row",
    [pytest.param(row, id=f"{row['variant']} {row['component']}") for row in table("mtp_coefficients")
     if row["component"] in PARTS],
)
def test_coefficients_of_a_module(row: dict[str, str]) -> None:
    """What every module adds to a part of the model: the ledger is the polynomial fitted to the counted bytes."""
    assert row["exact"] == "1"
    assert int(row["spare_equations"]) > 0
    assert not [column for column in row if column.startswith("[mtp]") and row[column] != "0"]
    ours = formula([row_ for row_ in saved(Place.MTP) if row_.tensor.name.startswith(PARTS[row["component"]])])
    if row["component"] in ("mtp", "mtp.transformer_layer.input_layernorm"):
        # The layer's norm keeps its input, the layer recomputed in full keeps it instead.
        layer = saved(Place.LAYER, Place.DENSE, whole=row["component"] == "mtp")
        names = ("layer_input",) if row["component"] == "mtp" else ("attention_norm",)
        ours += formula([row_ for row_ in layer if row_.component.name in names])
    columns = [column.removeprefix("mtp*") for column in row if column.startswith("mtp*")]
    theirs: Expr = sum(
        (int(row[f"mtp*{column}"]) * unit(column) for column in columns if int(row[f"mtp*{column}"])), Integer(0)
    )
    for t, sp in ((1, 0), (2, 0), (4, 1)):
        sizes = {"s": 8 * t, "b": 3, "h": 40 * t, "v": 96 * t, "t": t, "sp": sp, "ts": t if sp else 1, "mtp": 1}
        assert value(ours - theirs, {**DEFAULTS, **ONE_RANK, **VARIANTS[row["variant"]], **sizes}) == 0, sizes


def test_every_part_of_a_module_is_compared() -> None:
    """All that depends on the number of modules, but for the layer's own modules, which every layer has."""
    found = {
        row["component"] for row in table("mtp_coefficients")
        if any(row[column] != "0" for column in row if column.startswith("mtp*"))
    }
    assert {name for name in found if not name.startswith("mtp.transformer_layer.")} - {"TOTAL"} < set(PARTS)
    assert {row["variant"] for row in table("mtp_saved")} == set(VARIANTS)


@pytest.mark.slow
@pytest.mark.parametrize("kernels", [{}, {"heads": "latent"}, {"dispatch": "deepep"}], ids=str)
def test_modules_keep_as_much_beside_fp4_as_in_16_bits(kernels: dict[str, str]) -> None:
    """Modules add as much to the last stage in all roles: with Megatron-Core they are in 16 bits in both cases."""
    roles = ("weight", "gradient", "optimizer", "activation", "input", "buffer")
    known = {
        **DEFAULTS, **dict.fromkeys(("h", "d", "fe", "f", "u", "s", "lk", "lq", "dv"), 256), "dr": 128, "fs": 128,
        "a": 2, "k": 1, "E": 4, "q": 2, "L": 4, "ld": 1, "p": 2, "B": 4, "r": 1, "sp": 1, "t": 2, "ts": 2, "e": 2,
    }
    def added(fp8: str, modules: int, **switches: int) -> list[int]:
        terms = build(MEGATRON.with_choices(layers="experts", fp8=fp8, **kernels))
        names = [f"stage.{role}" for role in roles]
        some, none = (evaluate(terms.closure(names), {**known, **switches, "mtp": mtp}) for mtp in (modules, 0))
        return [int(some[name] - none[name]) for name in names]

    for switches in ({}, {"ract": 1, "rup": 1}, {"rnorm": 1, "rshared": 1}):
        for modules in (1, 2):
            assert added("nvfp4", modules, **switches) == added("none", modules, **switches)
    assert added("mx", 1) != added("none", 1)


@pytest.mark.slow
def test_moments_beside_fp4_are_those_of_a_module() -> None:
    """Experts of the last stage have most beside them in the last module, in 16 bits; those of others in FP4."""
    names = [f"stage.{part}.{site}" for part, site in (
        ("dispatch", "experts_forward"), ("quantised_inputs", "experts_forward"), ("dispatch", "experts_backward"),
        ("quantised_gradients", "experts_backward"))]
    known = {**DEFAULTS, **dict.fromkeys(("h", "d", "fe", "f", "u", "s"), 256), "a": 2, "k": 1, "E": 4, "q": 2, "L": 4,
             "p": 2, "B": 4, "e": 2, "D": 2}
    def at(fp8: str, rank: int, modules: int) -> list[int]:
        terms = build(MEGATRON.with_choices(layers="experts", fp8=fp8))
        values = evaluate(terms.closure(name for name in names if name in terms), {**known, "r": rank, "mtp": modules})
        return [int(values.get(name, 0)) for name in names]

    for rank, modules in ((0, 1), (1, 0)):
        assert at("nvfp4", rank, modules)[1] > at("none", rank, modules)[1] == 0
    assert at("nvfp4", 1, 1) == at("none", 1, 1)


def test_modules_are_layers_with_experts_of_the_last_stage() -> None:
    """Two stages of a model with two modules: only the last has them, and an embedding of its own for them."""
    terms = build(MTP)
    names = ("dense_layers", "expert_layers", "held_expert_layers", "stage.parameters", "stage.expert_parameters")
    known = {
        **DEFAULTS, **dict.fromkeys(("h", "d", "fe", "f", "u", "s"), 8), "a": 1, "k": 1, "E": 4, "q": 2,
        "L": 4, "ld": 1, "p": 2, "B": 4,
    }
    def of(rank: int, modules: int) -> dict[str, int]:
        found = evaluate(terms.closure(names), {**known, "r": rank, "mtp": modules})
        return {name: int(found[name]) for name in names}

    assert of(0, 2) == of(0, 0)
    without, some = of(1, 0), of(1, 2)
    assert (without["expert_layers"], some["expert_layers"], some["dense_layers"]) == (2, 4, 0)
    assert some["held_expert_layers"] == without["held_expert_layers"] + 2
    assert some["stage.expert_parameters"] == 2 * without["stage.expert_parameters"]
    layer = 4 * 8 * 8 + 2 * 8 + 4 * 8  # attention, norms and router of one layer
    module = 2 * 8 * 8 + 3 * 8  # projection and norms
    assert some["stage.parameters"] == without["stage.parameters"] + 2 * (layer + module) + 8 * 8
