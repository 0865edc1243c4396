"""GPT layers against counted bytes: LayerNorm, GELU, biases, dropout, learned positions, and fp16 states."""

from random import Random

import pytest
from counted import DEFAULTS, inline, polynomial, rows_of, table, total, value
from oracles.instruments.traced import evaluated
from sympy import Eq, Expr, Gt, Integer, expand

from shardmath.symbolic.accounts import components_of, kept_rows, weight_tensors
from shardmath.symbolic.exact import number
from shardmath.symbolic.functions import Iverson
from shardmath.symbolic.implementations import MEGATRON, Implementation
from shardmath.symbolic.ledger import IN_LAYER, Place, Role
from shardmath.symbolic.parallel.data import bytes_per_element, states
from shardmath.symbolic.parallel.shards import buffer_size, elements_in_shard, tensors_in_shard
from shardmath.symbolic.parameters import PARAMETERS, symbols
from shardmath.symbolic.terms import Contribution

pytestmark = pytest.mark.slow

s, b, h, a, k, d, f, v, t, c = symbols("s b h a k d f v t c")

GPT = MEGATRON.with_choices(
    normalisation="layer", mlp="gelu", positions="learned", rope="unfused", dropout="masks", biases="linear",
)
# The fused attention that was counted copies neither queries nor keys nor values.
VIEW = GPT.with_choices(value="view")
LOCAL = GPT.with_choices(attention="unfused", norm="torch")
APEX = GPT.with_choices(attention="unfused")
SOFTMAX = GPT.with_choices(attention="fused_softmax")
#: The norm before the MLP stands alone there, and is not recomputed with it.
ALONE = VIEW.with_choices(peak="megatron_local")
SWIGLU = VIEW.with_choices(mlp="swiglu")
ROTARY = VIEW.with_choices(positions="rotary")
HIDDEN, SCORES = {"drop": 1}, {"adrop": 1}
BOTH = {**HIDDEN, **SCORES}

# Variant of the tables: the implementation, and the switches that are not 0; all have linear biases unless they say so.
VARIANTS: dict[str, tuple[Implementation, dict[str, int]]] = {
    "gpt flash": (VIEW, {}),
    "gpt flash, hidden dropout": (VIEW, HIDDEN),
    "gpt flash, attention dropout": (VIEW, SCORES),
    "gpt flash, dropout": (VIEW, BOTH),
    "gpt flash, dropout, untied": (VIEW, {**BOTH, "tied": 0}),
    "gpt flash, dropout, deterministic": (VIEW, BOTH),
    "gpt flash, dropout, unfused gelu": (VIEW, BOTH),
    "gpt flash, no biases": (VIEW, {"lbias": 0}),
    "gpt flash, dropout, recompute full": (VIEW, {**BOTH, "rfull": 1}),
    "gpt flash, dropout, recompute core_attn": (VIEW, {**BOTH, "rcore": 1}),
    "gpt flash, dropout, recompute mlp": (ALONE, {**BOTH, "rmlp": 1}),
    "gpt flash, dropout, recompute core_attn+mlp": (ALONE, {**BOTH, "rcore": 1, "rmlp": 1}),
    "gpt flash, dropout, swiglu": (SWIGLU, BOTH),
    "gpt flash, dropout, unfused swiglu": (SWIGLU.with_choices(swiglu="unfused"), BOTH),
    "gpt flash, dropout, unfused swiglu, no biases": (SWIGLU.with_choices(swiglu="unfused"), {**BOTH, "lbias": 0}),
    "gpt flash, dropout, rope": (ROTARY, BOTH),
    "gpt flash, rope, recompute core_attn": (ROTARY, {"rcore": 1}),
    "gpt flash, dropout, grouped, k/t > 1": (VIEW, BOTH),
    "gpt flash, dropout, grouped, k/t = 1": (VIEW, BOTH),
    "gpt flash, dropout, grouped, rope": (ROTARY, BOTH),
    "gpt flash, grouped, k/t > 1, recompute core_attn": (VIEW, {"rcore": 1}),
    "gpt flash, grouped, rope, recompute core_attn": (ROTARY, {"rcore": 1}),
    "gpt local": (LOCAL, {}),
    "gpt local, attention dropout": (LOCAL, SCORES),
    "gpt local, dropout": (LOCAL, BOTH),
    "gpt local, dropout, layer scaling, fp16": (LOCAL, BOTH),
    "gpt local, dropout, recompute full": (LOCAL, {**BOTH, "rfull": 1}),
    "gpt local, dropout, recompute core_attn": (LOCAL, {**BOTH, "rcore": 1}),
    "gpt local, dropout, recompute mlp": (LOCAL, {**BOTH, "rmlp": 1}),
    "gpt local, dropout, rope": (LOCAL.with_choices(positions="rotary"), BOTH),
    "gpt local, dropout, grouped": (LOCAL, BOTH),
    "gpt local, dropout, grouped, rope": (LOCAL.with_choices(positions="rotary"), BOTH),
    "gpt local, dropout, apex norm": (APEX, BOTH),
    "gpt local, 16-bit softmax": (SOFTMAX, {}),
    "gpt local, dropout, 16-bit softmax": (SOFTMAX, BOTH),
    "gpt local, fused softmax": (SOFTMAX, {}),
    "gpt local, dropout, fused softmax": (SOFTMAX, BOTH),
    "gpt local, dropout, fused softmax, layer scaling, fp16": (SOFTMAX, BOTH),
}
# What the counting program calls a part: the component, and its modules; the mask of the probabilities has no module.
PARTS: dict[str, tuple[str, ...]] = {
    "embedding.word_embeddings": ("embedding",),
    "embedding.embedding_dropout": ("embedding_dropout",),
    "input:ids": ("embedding",),
    "input:position_ids": ("position_embedding",),
    "LAST.input_layernorm": ("attention_norm",),
    "LAST.self_attention.linear_qkv": ("attention", "qkv"),
    "LAST.self_attention": ("attention", "rope", "checkpoint"),
    "LAST.self_attention.core_attention": ("attention", "core_attention"),
    "LAST.self_attention.core_attention.scale_mask_softmax": ("attention", "softmax"),
    "LAST.self_attention.core_attention.attention_dropout": ("attention", "core_attention"),
    "LAST.self_attention.linear_proj": ("attention", "o_proj"),
    "LAST.self_attn_bda": ("hidden_dropout", "attention_dropout"),
    "LAST.pre_mlp_layernorm": ("ffn_norm",),
    "LAST": ("mlp", "up", "gate_up"),  # kept by the recompute of the MLP
    "LAST.mlp": ("mlp", "activation"),
    "LAST.mlp.linear_fc1": ("mlp", "up", "gate_up"),
    "LAST.mlp.linear_fc2": ("mlp", "down"),
    "LAST.mlp_bda": ("hidden_dropout", "mlp_dropout"),
    "decoder.final_layernorm": ("final_norm",),
    "output_layer": ("head",),
    "<model>": ("loss",),
}
MASK = "LAST.self_attention.core_attention.attention_dropout"


def switches_of(variant: str, row: dict[str, str]) -> dict[str, int]:
    return {"lbias": 1, "tied": 1, **VARIANTS[variant][1], "sp": int(row["sp"])}


@pytest.mark.parametrize("variant", VARIANTS)
def test_parameters_and_saved_bytes_of_a_rank(variant: str) -> None:
    implementation = VARIANTS[variant][0]
    found_rows = [row for row in table("gpt_saved") if row["variant"] == variant]
    assert found_rows
    for row in found_rows:
        sizes = {letter: int(row[letter]) for letter in "sbhakdf"}
        known = {
            **{parameter.letter: parameter.default for parameter in PARAMETERS if parameter.default is not None},
            **DEFAULTS, **switches_of(variant, row), **sizes,
            "pos": sizes["s"], "t": int(row["tp"]), "u": int(row["v"]), "L": int(row["layers"]), "B": sizes["b"],
        }
        counted = evaluated(implementation, ("stage.parameters", "stage.activation"), known)
        assert counted["stage.parameters"] == int(row["params_per_rank"]), row
        assert counted["stage.activation"] == int(row["saved_bytes_per_rank"]), row


def part(implementation: Implementation, name: str) -> list[Contribution]:
    """The rows that a counting program finds under the name of a module."""
    component, *modules = PARTS[name]
    found = rows_of(implementation, implementation.choices["mlp"] if component == "mlp" else component, *modules)
    of_mask = name == MASK
    return [
        row for row in found
        if (row.tensor.role is Role.INPUT) == name.startswith("input:")
        and (row.tensor.name == "dropout_mask") == of_mask
    ]


def everything(implementation: Implementation, switches: dict[str, int]) -> list[Contribution]:
    """All saved rows of two layers, the embedding and the head."""
    layers = (Place.LAYER, Place.DENSE)
    whole = bool(switches.get("rfull"))
    found = [row for row in kept_rows(implementation) if row.tensor.role is Role.ACTIVATION and not row.tensor.sites]
    return [row for row in found if row.component.place not in layers] + 2 * [
        row for row in found
        if row.component.place in layers and (row.component.name == "layer_input") == whole
    ]


def legal(variant: str, sp: bool) -> dict[Expr, Expr]:
    """Values of heads and ranks at which a polynomial was fitted; the letters go on as free positive numbers."""
    ranks = t + 1 if sp else t
    several = "grouped" in variant
    heads = Integer(1) if "k/t = 1" in variant else k + 1 if several else a
    queries = heads + a if several else a
    return {t: ranks, a: queries * ranks, k: heads * ranks, c: Integer(1)}


COEFFICIENTS = table("gpt_coefficients")


@pytest.mark.parametrize("variant", dict.fromkeys(row["variant"] for row in COEFFICIENTS))
def test_coefficients(variant: str) -> None:
    for row in COEFFICIENTS:
        if row["variant"] == variant:
            check_coefficients(variant, row)


def check_coefficients(variant: str, row: dict[str, str]) -> None:
    """Compare one component, with sequence parallelism or without: the polynomials, and values at three points."""
    implementation, switches = VARIANTS[variant][0], switches_of(variant, row)
    assert row["exact"] == "1"
    if row["component"] == "TOTAL":
        ours = total(implementation, everything(implementation, switches), switches)
    elif row["component"] == "decoder":
        ours = 2 * total(implementation, rows_of(implementation, "layer_input"), switches)
    else:
        ours = total(implementation, part(implementation, row["component"]), switches)
    names = {"variant", "sp", "component", "exact", "spare_equations"}
    theirs = polynomial(row, [column for column in row if column not in names])
    one_bracket = {Iverson(Eq(t, 1)): 1 - Iverson(t > 1)}
    # No more ranks than key heads were counted, and one for each only where the variant says so.
    keys = {Iverson(Gt(t, k)): Integer(0)} | ({} if "k/t = 1" in variant else {Iverson(Eq(k, t)): Integer(0)})
    difference = (ours - theirs).xreplace(one_bracket).xreplace(keys).xreplace(legal(variant, row["sp"] == "1")).doit()
    assert expand(difference) == 0, row
    random = Random(variant)
    for degree in (1, 2, 7):
        point = {letter: Integer(random.randint(1, 99)) for letter in (s, b, h, a, k, d, f, v)}
        assert number(difference, {**point, t: Integer(degree)}) == 0, row


@pytest.mark.parametrize("row", table("gpt_buffers"), ids=lambda row: f"{row['variant']} t{row['tp']} s{row['s']}")
def test_buffer_that_outlives_the_step(row: dict[str, str]) -> None:
    """Megatron-Core's local attention adds its scores to a global buffer, which it never frees."""
    implementation = VARIANTS[row["variant"]][0]
    sizes = {letter: int(row[letter]) for letter in "sbhakdf"}
    scores = [row for row in kept_rows(implementation) if row.tensor.name == "scores"]
    found = sum(value(inline(implementation, one.expression), {**sizes, "t": int(row["tp"]), "c": 1}) for one in scores)
    assert found == int(row["buffer_bytes"])


def test_every_counted_variant_is_compared() -> None:
    assert {row["variant"] for name in ("gpt_saved", "gpt_coefficients") for row in table(name)} == set(VARIANTS)


def test_a_gpt_has_no_rotary_tables_and_one_mlp() -> None:
    names = {component.name for component in components_of(GPT)}
    assert "swiglu" not in names
    assert {"gelu", "position_embedding", "hidden_dropout", "embedding_dropout"} <= names
    assert not [row for row in kept_rows(GPT) if row.tensor.name.startswith("rope")]
    assert {row.component.place for row in kept_rows(GPT)} & {*IN_LAYER, Place.FIRST, Place.LAST}


# The counted model of the optimizer's table, and its parameters in the order in which Megatron-Core registers them.
MODEL = {"L": 2, "h": 64, "a": 8, "k": 8, "d": 8, "f": 256, "u": 512, "pos": 16, "lbias": 1, "tied": 1}
LAYER = tuple(
    (component, f"{projection}{kind}")
    for component, projection in (
        ("attention_norm", ""), ("attention", "o_proj."), ("attention", "qkv."), ("ffn_norm", ""), ("gelu", "up."),
        ("gelu", "down."),
    )
    for kind in ("weight", "bias")
)
REGISTERED = (
    ("embedding", "weight"), ("position_embedding", "weight"), *LAYER * 2,
    ("final_norm", "weight"), ("final_norm", "bias"),
)
# Loss scale, its limits and factors, and the flag for overflow, in fp32.
SCALER = 5 * 4


@pytest.mark.parametrize("row", table("gpt_optimizer"), ids=lambda row: " ".join(row.values()))
def test_states_of_16_bit_training(row: dict[str, str]) -> None:
    """fp16 and bf16 keep the same; fp32 copies of 16-bit gradients live from one step to the next one's start."""
    elements = {
        (component.name, tensor.name): int(value(inline(GPT, size), {**DEFAULTS, **MODEL, "v": MODEL["u"]}))
        for component, tensor, size in weight_tensors(GPT) if (component.name, tensor.name) in REGISTERED
    }
    sizes = [elements[name] for name in REGISTERED]
    assert sum(sizes) == int(row["parameters"])
    buffer = own = sum(sizes)
    tensors = len(sizes)
    if row["distributed_optimizer"] == "1":
        shard = int(row["dp"]), int(row["rank"])
        buffer, own = buffer_size(sizes, int(row["dp"])), elements_in_shard(sizes, *shard)
        tensors = len(tensors_in_shard(sizes, *shard))
    known = {"w": int(row["gradient_bytes"])}
    kept = states({**MEGATRON.choices, "precision": {"fp16": "fp16", "bf16": "mixed"}[row["dtype"]]})
    each = {role: value(bytes_per_element(kept, role), known) for role in (Role.WEIGHT, Role.GRADIENT, Role.OPTIMIZER)}
    copy = sum(value(state.bytes, known) for state in kept if state.name == "gradient_fp32")
    counters = 4 + 4 * tensors + (SCALER if row["dtype"] == "fp16" else 0)
    always = (each[Role.WEIGHT] + each[Role.GRADIENT]) * buffer + each[Role.OPTIMIZER] * own + counters
    assert always == int(row["after_zero_grad"])
    assert always + copy * own == int(row["after_step"]) == int(row["after_second_step"])
