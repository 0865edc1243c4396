"""Experts, router and dispatch against counted bytes: saved by blocks and whole layers, and alive for a while."""

from collections.abc import Iterable
from functools import cache
from math import lcm
from random import Random

import pytest
from counted import DEFAULTS, inline, table, value
from sympy import Expr, Integer

from shardmath.symbolic.accounts import build, kept_rows
from shardmath.symbolic.accounts.rows import is_expert
from shardmath.symbolic.accounts.units import is_layer_input
from shardmath.symbolic.exact import evaluate
from shardmath.symbolic.functions import Iverson
from shardmath.symbolic.implementations import HUGGINGFACE, MEGATRON, Implementation
from shardmath.symbolic.ledger import Place, Role
from shardmath.symbolic.parameters import PARAMETERS, symbol
from shardmath.symbolic.terms import Contribution, total

pytestmark = pytest.mark.slow

EXPERTS = MEGATRON.with_choices(layers="experts")
UNSORTED = EXPERTS.with_choices(permute="unfused")
SIGMOID = EXPERTS.with_choices(scores="sigmoid")
FUSED = EXPERTS.with_choices(router="fused")
GATHERED = EXPERTS.with_choices(dispatch="allgather")
HUGGING = HUGGINGFACE.with_choices(layers="experts")
BF16 = {"router_precision": "bf16"}

# Variant of the tables: the implementation, and the switches that are not 0.
VARIANTS: dict[str, tuple[Implementation, dict[str, int]]] = {
    "grouped, fused permute": (EXPERTS, {}),
    "grouped, fused permute, bf16 router": (EXPERTS.with_choices(**BF16), {}),
    "grouped, unfused permute": (UNSORTED, {}),
    "grouped, unfused permute, bf16 router": (UNSORTED.with_choices(**BF16), {}),
    "sequential, unfused permute": (UNSORTED, {}),
    "grouped, unfused permute, unfused activation": (UNSORTED.with_choices(swiglu="unfused"), {}),
    "grouped, fused permute, unfused activation": (EXPERTS.with_choices(swiglu="unfused"), {}),
    "softmax of all": (EXPERTS.with_choices(scores="softmax_all"), {}),
    "softmax of all, bf16 router": (EXPERTS.with_choices(scores="softmax_all", **BF16), {}),
    "softmax of all, groups": (EXPERTS.with_choices(scores="softmax_all"), {}),
    "sigmoid": (SIGMOID, {}),
    "sigmoid, bf16 router": (SIGMOID.with_choices(**BF16), {}),
    "sigmoid, top 1": (SIGMOID, {}),
    "sigmoid, expert bias": (SIGMOID.with_choices(balance="bias"), {}),
    "sigmoid, expert bias, groups": (SIGMOID.with_choices(balance="bias"), {}),
    "softmax, aux loss": (EXPERTS.with_choices(balance="loss"), {}),
    "softmax, aux loss, bf16 router": (EXPERTS.with_choices(balance="loss", **BF16), {}),
    "softmax of all, aux loss": (EXPERTS.with_choices(scores="softmax_all", balance="loss"), {}),
    "sigmoid, aux loss": (SIGMOID.with_choices(balance="loss"), {}),
    "sigmoid, aux loss, bf16 router": (SIGMOID.with_choices(balance="loss", **BF16), {}),
    "sigmoid, expert bias, aux loss": (SIGMOID.with_choices(balance="both"), {}),
    "fused router": (FUSED, {}),
    "fused router, bf16 router": (FUSED.with_choices(**BF16), {}),
    "fused router, aux loss": (FUSED.with_choices(balance="loss"), {}),
    "fused router, aux loss, bf16 router": (FUSED.with_choices(balance="loss", **BF16), {}),
    "capacity, fused permute": (EXPERTS, {}),
    "capacity, unfused permute": (UNSORTED, {}),
    "allgather, fused permute": (GATHERED, {}),
    "allgather, unfused permute": (GATHERED.with_choices(permute="unfused"), {}),
    "allgather, unfused permute, bf16 router": (GATHERED.with_choices(permute="unfused", **BF16), {}),
    "shared": (EXPERTS, {}),
    "shared, gate": (EXPERTS, {"sgate": 1}),
    "shared, unfused activation": (EXPERTS.with_choices(swiglu="unfused"), {}),
    "recompute moe_act": (EXPERTS, {"ract": 1}),
    "recompute moe_act, shared": (EXPERTS, {"ract": 1}),
    "recompute shared_experts": (EXPERTS, {"rshared": 1}),
    "recompute shared_experts, gate": (EXPERTS, {"rshared": 1, "sgate": 1}),
    "recompute moe": (EXPERTS, {"rmoe": 1}),
    "hugging face mixtral": (HUGGING, {}),
    "hugging face qwen3_moe": (HUGGING.with_choices(**BF16), {}),
    "hugging face deepseek_v2": (HUGGING.with_choices(heads="latent", scores="softmax_all"), {}),
    "hugging face qwen2_moe": (HUGGING.with_choices(scores="softmax_all", **BF16), {"sgate": 1}),
}
BLOCK = ("router", "experts", "shared_experts")
# What the counting program calls a part: the component, and its modules.
PARTS: dict[str, tuple[str, ...]] = {
    "router": ("router", "router"),
    "dispatch": ("experts", "dispatch"),
    "experts_up": ("experts", "experts_up"),
    "experts.activation": ("experts", "experts_activation", "experts_product"),
    "experts_down": ("experts", "experts_down"),
    "shared_experts": ("shared_experts",),
    "experts": ("experts",),
}


def activations(implementation: Implementation, *components: str) -> list[Contribution]:
    return [
        row for row in kept_rows(implementation)
        if row.component.name in components and row.tensor.role is Role.ACTIVATION and not row.tensor.sites
    ]


def part(implementation: Implementation, name: str) -> list[Contribution]:
    """The rows that the counting program finds under ``name``; what router and experts read is a part by itself."""
    rows = activations(implementation, *BLOCK)
    inputs = [row for row in rows if row.tensor.storage == "experts.normed"]
    if name == "TOTAL":
        return rows
    if name == "input":
        return inputs
    component, *modules = PARTS[name]
    return [
        row for row in rows
        if row.component.name == component and row not in inputs and (not modules or row.tensor.module in modules)
    ]


def formula(implementation: Implementation, rows: Iterable[Contribution], *letters: str) -> Expr:
    """The sum of rows in the letters of the tables; how many tokens the experts get is one of them."""
    return inline(implementation, total(*(row.expression for row in rows)), ("xn", *letters))


@cache
def block_formulas(implementation: Implementation) -> dict[str, Expr]:
    """What the columns of the table of expert blocks are in the ledger."""
    rows = [row for row in kept_rows(implementation) if row.component.name in BLOCK]
    weights = [row for row in rows if row.tensor.role is Role.WEIGHT]
    buffers = [row for row in rows if row.tensor.role is Role.BUFFER and row.component.name == "router"]
    return {
        "parameters": formula(implementation, (row for row in weights if not is_expert(row.tensor))),
        "expert_parameters": formula(implementation, (row for row in weights if is_expert(row.tensor))),
        "buffers": formula(implementation, buffers),
        "saved": formula(implementation, activations(implementation, *BLOCK)),
    }


def known_of(row: dict[str, str], letters: str, switches: dict[str, int]) -> dict[str, int]:
    """The values of a counted row: one micro-batch, on as few ranks as its layout needs."""
    sizes = {letter: int(row[letter]) for letter in letters.split()}
    ranks = lcm(sizes["t"], sizes["e"] * sizes["et"])
    return {
        **DEFAULTS, **{p.letter: p.default for p in PARAMETERS if p.default is not None}, **switches, **sizes,
        "sp": int(sizes["t"] > 1), "D": ranks // sizes["t"], "xn": int(row["n"]),
    }


@pytest.mark.parametrize("variant", VARIANTS)
def test_parameters_buffers_and_saved_bytes_of_expert_blocks(variant: str) -> None:
    implementation, switches = VARIANTS[variant]
    found_rows = [row for row in table("experts_saved") if row["variant"] == variant]
    assert len(found_rows) >= 6
    for row in found_rows:
        known = known_of(row, "s b h E q fe fs ng gq cf t e et", switches)
        for column, expression in block_formulas(implementation).items():
            assert value(expression, known) == int(row[column]), (column, row)


def test_tokens_of_a_capacity_are_counted_tokens() -> None:
    """With a capacity every rank has as many tokens as the formula says, whatever the router did."""
    defined = inline(EXPERTS, symbol("xn"), ())
    rows = [row for row in table("experts_saved") if row["cf"] != "0"]
    assert len(rows) >= 30
    for row in rows:
        known = known_of(row, "s b h E q fe fs ng gq cf t e et", {})
        assert value(defined, known) == int(row["n"]), row


def test_balanced_and_unbalanced_tokens() -> None:
    """Balanced ranks work on as many tokens as each sends; the fullest of unbalanced ones has ``load`` percent."""
    received, sent = (inline(EXPERTS, symbol(letter), ()) for letter in ("xn", "xs"))
    known = {**DEFAULTS, "s": 48, "b": 3, "q": 2, "E": 12, "t": 2, "sp": 1, "e": 4}
    assert value(sent, known) == value(received, known) == 48 * 3 * 2 // 2
    assert value(received, {**known, "et": 2}) == 2 * 48 * 3 * 2 // 2
    assert value(received, {**known, "load": 150}) == 48 * 3 * 2 // 2 * 3 // 2
    assert value(received, {**known, "load": 101}) == 146  # 144 tokens and one percent of them, in whole tokens
    assert value(sent, {**known, "load": 150}) == 48 * 3 * 2 // 2


def polynomial_of(row: dict[str, str]) -> Expr:
    """A row of coefficients in the letters of the ledger."""
    tokens, sharded = symbol("s") * symbol("b") / symbol("t"), Iverson(symbol("E") > symbol("e"))
    h, E, q, e, et, fe, n, ec = (symbol(letter) for letter in ("h", "E", "q", "e", "et", "fe", "xn", "ec"))
    units = {
        "T*h": tokens * h, "T*E": tokens * E, "T*q": tokens * q, "T": tokens, "T*fs": tokens * symbol("fs"),
        "n*h": n * h, "n*fe/et": n * fe / et, "n": n, "n*[E>e]": n * sharded, "E": E, "E*cap": E * ec,
        "g*E/e": tokens * et * E, "g": tokens * e * et, "const": Integer(1),
    }
    return sum((int(row[column]) * unit for column, unit in units.items()), Integer(0))


COEFFICIENTS = [pytest.param(row, id=f"{row['variant']} {row['component']}") for row in table("experts_coefficients")]


@pytest.mark.parametrize("row", COEFFICIENTS)
def test_coefficients(row: dict[str, str]) -> None:
    """By part and in all, at random sizes: the ledger is the polynomial that was fitted to the counted bytes."""
    implementation, switches = VARIANTS[row["variant"]]
    assert row["exact"] == "1"
    assert int(row["spare_equations"]) > 0
    ours = formula(implementation, part(implementation, row["component"]), "ec")
    theirs = polynomial_of(row)
    random = Random(row["variant"])
    for _ in range(4):
        t, e, et = random.choice(((1, 1, 1), (1, 4, 1), (2, 2, 2), (4, 2, 4), (2, 4, 1)))
        if row["variant"].startswith("hugging face"):
            t = e = et = 1
        q = 1 if "top 1" in row["variant"] else random.randint(2, 4)
        known = {
            **DEFAULTS, **switches, "t": t, "sp": int(t > 1), "e": e, "et": et, "D": 4, "q": q,
            "s": t * random.randint(2, 40), "b": random.randint(1, 5), "h": random.randint(2, 99),
            "E": e * random.randint(1, 5), "fe": et * random.randint(1, 50), "ec": random.randint(1, 20),
            "fs": t * random.randint(1, 50) if row["variant"].startswith(("shared", "recompute")) else 0,
            "cf": 125 if "capacity" in row["variant"] else 0, "xn": random.randint(0, 999),
        }
        if row["variant"] == "recompute moe_act":
            known["fs"] = 0
        if row["variant"].startswith("hugging face"):
            known["xn"] = known["s"] * known["b"] * q
        if not known["cf"]:
            known["ec"] = 0
        assert value(ours - theirs, known) == 0, known


# Modes of the table of whole layers: the switches that they set.
MODES: dict[str, tuple[str, ...]] = {
    "none": (),
    "moe_act": ("ract",),
    "layernorm": ("rnorm",),
    "shared_experts": ("rshared",),
    "moe": ("rmoe",),
    "moe_act+layernorm": ("ract", "rnorm"),
    "layernorm+moe": ("rnorm", "rmoe"),
    "full": ("rfull",),
    "mla_up_proj": ("rup",),
    "mla_up_proj+moe_act+layernorm": ("rup", "ract", "rnorm"),
    "mla_up_proj+layernorm+moe+shared_experts": ("rup", "rnorm", "rmoe", "rshared"),
}
LAYERS: dict[tuple[str, str], Implementation] = {
    # The unfused rotary kernel was counted beside grouped heads, the fused one beside latent attention.
    ("grouped", "softmax"): EXPERTS.with_choices(rope="unfused", value="view"),
    ("grouped", "sigmoid"): EXPERTS.with_choices(rope="unfused", value="view", scores="sigmoid", balance="bias"),
    ("latent", "softmax"): EXPERTS.with_choices(heads="latent"),
    ("latent", "sigmoid"): EXPERTS.with_choices(heads="latent", scores="sigmoid", balance="bias"),
}


@cache
def layer_formulas(implementation: Implementation, whole: bool) -> dict[str, Expr]:
    rows = [row for row in kept_rows(implementation) if row.component.place in (Place.LAYER, Place.EXPERTS)]
    weights = [row for row in rows if row.tensor.role is Role.WEIGHT]
    saved = [
        row for row in rows
        if row.tensor.role is Role.ACTIVATION and not row.tensor.sites and is_layer_input(row.component) == whole
    ]
    return {
        "parameters": formula(implementation, (row for row in weights if not is_expert(row.tensor))),
        "expert_parameters": formula(implementation, (row for row in weights if is_expert(row.tensor))),
        "saved": formula(implementation, saved),
    }


COUNTED_LAYERS = sorted({(row["attention"], row["scores"], row["recompute"]) for row in table("expert_layers")})


@pytest.mark.parametrize(("attention", "scores", "mode"), COUNTED_LAYERS)
def test_whole_layers_in_every_recompute_mode(attention: str, scores: str, mode: str) -> None:
    rows = [
        row for row in table("expert_layers")
        if (row["attention"], row["scores"], row["recompute"]) == (attention, scores, mode)
    ]
    assert len(rows) == 12
    implementation = LAYERS[attention, scores]
    for row in rows:
        known = known_of(row, "s b h a k d fe fs E q t e et lq lk dr dv", dict.fromkeys(MODES[mode], 1))
        for column, expression in layer_formulas(implementation, mode == "full").items():
            assert value(expression, known) == int(row[column]), (column, row)


TRANSIENT = ("experts_forward", "combine_backward", "experts_backward")


@cache
def transient_formulas(permute: str, precision: str) -> dict[str, Expr]:
    implementation = EXPERTS.with_choices(permute=permute, router_precision=precision, peak="megatron_te")
    rows = [row for row in kept_rows(implementation) if row.component.name == "dispatch"]
    assert rows
    return {
        site: formula(implementation, (row for row in rows if site in row.tensor.sites)) for site in TRANSIENT
    }


@pytest.mark.parametrize("row", table("expert_transients"), ids=lambda row: "-".join(row.values()))
def test_what_lives_while_experts_are_at_work(row: dict[str, str]) -> None:
    """Bytes above the saved ones at the peak of the forward pass of an expert block, and of its backward pass."""
    known = known_of(row, "s b h fe fs E q t e et", {})
    found = {
        site: value(one, known) for site, one in transient_formulas(row["permute"], row["router_precision"]).items()
    }
    assert found["experts_forward"] == int(row["forward_above"])
    # Maps of the sorted tokens are freed on the way back to the activation.
    maps = 4 * int(row["n"]) if row["permute"] == "fused" and int(row["E"]) > int(row["e"]) else 0
    assert max(found["combine_backward"], found["experts_backward"] - maps) == int(row["backward_above"])


BUFFERS = ("stage.parameters", "stage.expert_parameters", "stage.buffer_elements", "stage.expert_buffer_elements")
SHARDS = ("optimizer_shards", "expert_optimizer_shards")


@pytest.mark.parametrize("row", table("expert_buffers"), ids=lambda row: "-".join(row.values()))
def test_buffers_of_data_parallelism(row: dict[str, str]) -> None:
    """One layer's parameters in buffers: experts have their own, shared by other ranks, unless EP is 1."""
    terms = build(EXPERTS.with_choices(heads="latent" if int(row["lk"]) else "grouped"))
    ranks, widths = ("t", "e", "et"), ("h", "a", "k", "d", "fe", "fs", "E", "lq", "lk", "dr", "dv")
    sizes = {letter: int(row[letter]) for letter in (*ranks, *widths)}
    known = {
        **DEFAULTS, **sizes, "q": 1, "L": 3, "p": 3, "r": 1, "u": 1, "f": sizes["t"], "sp": int(sizes["t"] > 1),
        "s": sizes["t"], "D": int(row["world"]) // sizes["t"], "zero1": int(row["distributed_optimizer"]),
        "B": int(row["world"]),
    }
    found = evaluate(terms.closure((*BUFFERS, *SHARDS)), known)
    dense, expert, buffer, expert_buffer = (int(found[name]) for name in BUFFERS)
    if sizes["e"] > 1:
        assert (expert, expert_buffer) == (int(row["expert"]), int(row["expert_buffer"]))
        assert (dense, buffer) == (int(row["dense"]), int(row["dense_buffer"]))
        if known["zero1"]:
            assert found["expert_optimizer_shards"] == int(row["expert_shards"])
    else:
        assert int(row["expert"]) == 0
        assert (dense + expert, buffer + expert_buffer) == (int(row["dense"]), int(row["dense_buffer"]))
        assert found["expert_optimizer_shards"] == found["optimizer_shards"]
    if known["zero1"]:
        assert found["optimizer_shards"] == int(row["dense_shards"])


def test_every_counted_variant_is_compared() -> None:
    for name in ("experts_saved", "experts_coefficients"):
        only_saved = {variant for variant in VARIANTS if variant.endswith((", groups", "qwen2_moe", "deepseek_v2"))}
        assert {row["variant"] for row in table(name)} | only_saved == set(VARIANTS)
    assert {mode for *_, mode in COUNTED_LAYERS} == set(MODES)
    assert {(attention, scores) for attention, scores, _ in COUNTED_LAYERS} == set(LAYERS)
