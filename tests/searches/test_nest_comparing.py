"""What proofs leave out of an estimate never changes its value; it is counted that they leave out something."""

import inspect
import random
from collections.abc import Iterator, Mapping
from fractions import Fraction
from functools import cache
from math import ceil, floor, lcm
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles.extent import FULL

from shardmath.compiler.evaluators import find
from shardmath.compiler.expressions import ops
from shardmath.compiler.expressions.comparing import Prover
from shardmath.compiler.expressions.dominated import pairs_of, thinned, without_dominated
from shardmath.compiler.expressions.formulas import formulas
from shardmath.compiler.expressions.graph import Graph, Node, exact, ordered
from shardmath.compiler.expressions.intervals import Bounds
from shardmath.compiler.expressions.source import parse
from shardmath.compiler.expressions.trials import Points
from shardmath.generated.definitions import PARAMETERS
from shardmath.symbolic.compiled import derive_layouts
from shardmath.symbolic.implementations import IMPLEMENTATIONS
from shardmath.symbolic.plain import derive_memory

LIMITS = {name: (item[2], item[3]) for name, item in PARAMETERS.items()}
#: Names of random graphs: two sizes, a switch, and one that may be negative.
NAMES = {"x": (1, None), "y": (2, 9), "on": (0, 1), "any": (-5, 5)}
#: For every evaluator: pairs of a rank and a moment, how many of them are left, and of how many ranks.
COUNTS = {
    ("megatron", "megatron_te"): (32, 10, 4),
    ("megatron", "saved"): (16, 5, 2),
    ("huggingface", "saved"): (8, 3, 1),
    ("torchtitan", "torch"): (40, 9, 1),
    ("nanotron", "saved"): (28, 12, 3),
}
#: A space of layouts of models like Llama, with the optimizer sharded.
SPACE = {
    "hidden_size": (4096,), "num_attention_heads": (32,), "num_kv_heads": (8,), "head_dim": (128,),
    "ffn_hidden_size": (11008, 14336, 32768), "num_layers": (32, 64, 80), "vocab_size": (32000, 128256),
    "tied_embeddings": (0,), "qkv_bias": (0,), "qk_norm": (0,), "seq_length": (2048, 8192, 131072),
    "global_batch_size": (1024,), "vocab_multiple": (128,), "gradient_bytes": (4,), "distributed_optimizer": (1,),
    "data_parallel_replicas": (1,), "tensor_parallel": (1, 2, 4, 8), "context_parallel": (1, 2, 16),
    "pipeline_parallel": (1, 2, 4, 8, 16), "data_parallel": (1, 8, 64, 512), "micro_batch_size": (1, 2, 4, 16),
    "sequence_parallel": (0, 1), "recompute_full": (0, 1), "recompute_core_attention": (0, 1), "recompute_mlp": (0, 1),
    "engine_workspace_bytes": (2**25,), "torch_workspace_bytes": (2**25,), "node_size": (8,),
}
EVERY_EVALUATOR = pytest.mark.parametrize(("implementation", "peak"), COUNTS)


class Space:
    """A graph, the names' values at one point, and random nodes."""

    def __init__(self, draw: Any, holds: str | None = None) -> None:
        self.draw, self.graph = draw, Graph()
        self.values = {
            name: draw(st.integers(low, 40 if high is None else high)) for name, (low, high) in NAMES.items()
        }
        y = self.values["y"]
        if holds == ops.DIVIDES:
            self.values["x"] = y * draw(st.integers(1, 40 // y))
        elif holds == ops.LE:
            self.values["x"] = draw(st.integers(1, y))

    def any_of(self, *options: Any) -> Any:
        return self.draw(st.sampled_from(options))

    def number(self, depth: int) -> Node:
        graph = self.graph
        inner = (ops.ADD, ops.MUL, ops.MAX, ops.MIN, ops.DIV, ops.CEIL_DIV, ops.FLOOR_DIV, ops.LCM, ops.SELECT)
        kind = self.any_of("leaf", *inner) if depth else "leaf"
        if kind == "leaf":
            return self.any_of(*map(graph.name, NAMES), *map(graph.number, (-2, -1, 0, 1, 2, 3)))
        if kind == ops.SELECT:
            return graph.select(self.condition(depth - 1), self.any_of(graph.number(1), self.number(depth - 1)),
                                self.any_of(graph.number(0), self.number(depth - 1)))
        parts = [self.number(depth - 1), self.number(depth - 1)]
        if kind in (ops.ADD, ops.MUL):
            return getattr(graph, kind)(parts)
        if kind in (ops.MAX, ops.MIN):
            return graph.extreme(kind, [*parts, self.number(depth - 1)])
        if kind == ops.LCM:
            return graph.binary(kind, *(self.any_of(*map(graph.name, ("x", "y"))) for _ in parts))
        return graph.binary(kind, parts[0], self.any_of(graph.name("x"), graph.name("y"), graph.number(3)))

    def condition(self, depth: int) -> Node:
        graph = self.graph
        pair = self.number(depth), self.number(depth)
        kind = self.any_of(ops.EQ, ops.LE, ops.LT, ops.DIVIDES, "not", "and")
        if kind == ops.DIVIDES:
            return graph.binary(kind, graph.name("y"), pair[1])
        if kind == "not":
            return graph.negation(graph.binary(ops.LE, *pair))
        if kind == "and":
            return graph.logic("and", [graph.binary(ops.LE, *pair), graph.binary(ops.EQ, pair[0], graph.number(1))])
        return graph.binary(kind, *pair)

    def exact(self, *roots: Node) -> list[Any]:
        return exact(roots, self.values)


@st.composite
def spaces(draw: st.DrawFn) -> Space:
    return Space(draw)


@st.composite
def spaces_where(draw: st.DrawFn, *conditions: str) -> tuple[Space, Node]:
    """Draw a space, and one of the conditions on x and y, which holds at the space's point."""
    holds = draw(st.sampled_from(conditions))
    space = Space(draw, holds)
    x, y = map(space.graph.name, "xy")
    condition = space.graph.binary(holds, *((y, x) if holds == ops.DIVIDES else (x, y)))
    assert space.exact(condition) == [True]
    return space, condition


@pytest.mark.slow
@settings(max_examples=400 if FULL else 100)
@given(spaces())
def test_intervals_hold_and_folding_keeps_values(space: Space) -> None:
    root, condition = space.number(4), space.condition(3)
    bounds = Bounds(space.graph, NAMES)
    value, truth = space.exact(root, condition)
    low, high = bounds.interval(root)
    assert low <= value <= high
    assert space.exact(*bounds.folded([root, condition])) == [value, truth]


@pytest.mark.slow
@settings(max_examples=400 if FULL else 100)
@given(spaces())
def test_what_is_proved_holds(space: Space) -> None:
    """Of two parts of each sum and maximum as well: they often can be compared."""
    graph = space.graph
    left, right, more = space.number(3), space.number(3), space.number(2)
    nodes = [left, right, graph.add((left, more)), graph.mul((left, space.graph.name("x"))),
             graph.extreme(ops.MAX, (left, right)), graph.extreme(ops.MIN, (right, more)), graph.name("y")]
    bounds = Bounds(graph, NAMES)
    prover = Prover(bounds, Points(bounds, nodes))
    values = space.exact(*nodes)
    for one, value in zip(nodes, values, strict=True):
        for other, larger in zip(nodes, values, strict=True):
            assert value <= larger or not prover.never_exceeds(one, other)


@pytest.mark.slow
@settings(max_examples=200 if FULL else 60)
@given(spaces_where(ops.DIVIDES))
def test_thinned_maxima_and_minima_keep_values(drawn: tuple[Space, Node]) -> None:
    space, condition = drawn
    roots = [space.number(4), space.condition(3)]
    assert space.exact(*thinned(space.graph, roots, NAMES, [condition])) == space.exact(*roots)


@pytest.mark.slow
@settings(max_examples=100 if FULL else 40)
@given(spaces_where(ops.DIVIDES, ops.LE))
def test_what_is_left_out_is_never_the_largest(drawn: tuple[Space, Node]) -> None:
    space, condition = drawn
    graph = space.graph
    parts = [space.number(2) for _ in range(4)]
    def largest() -> Node:
        return graph.extreme(ops.MAX, [graph.add((part, space.number(1))) for part in parts])

    ranks = [graph.add((space.number(1), largest())) for _ in range(3)]
    estimate = graph.extreme(ops.MAX, ranks)
    assert space.exact(without_dominated(graph, estimate, NAMES, [condition])) == space.exact(estimate)


@pytest.mark.parametrize(("smaller", "larger"), [
    ("h", "3*h"), ("x*(1 if t == 1 else 0)", "x"), ("ceil_div(h*x, 64)", "ceil_div(h*x + x, 64)"),
    ("min(x, t - 1)", "min(x, t)"), ("h*(x - x/t)", "h*x"), ("x/(1 + z*(t - 1))", "x"),
    ("h*z + x*(1 - z)", "x + h"), ("max(h, x)*t", "(h + x)*t"), ("h*x", "h*(x + z*x)"),
    ("2*h*x", "x*(1 - z)*(2*h + x) + 2*x*h*z"),
])
def test_what_can_be_proved(smaller: str, larger: str) -> None:
    graph = Graph()
    bounds = Bounds(graph, {**dict.fromkeys("hxt", (1, None)), "z": (0, 1)})
    nodes = [parse(text, graph, graph.name) for text in (smaller, larger)]
    prover = Prover(bounds, Points(bounds, nodes))
    assert prover.never_exceeds(*nodes)
    assert not prover.never_exceeds(*reversed(nodes))


def test_maxima_and_minima_are_thinned() -> None:
    graph = Graph()
    names = {**dict.fromkeys("hxt", (1, None)), "z": (0, 1)}
    texts = {"t*max(h*z, 3*h, x)": "t*max(3*h, x)", "min(h, x*t, h + x)": "min(h, x*t)", "max(x/t, z)": "x/t",
             "max(h, x) <= min(h + 1, h)": "max(h, x) <= h"}
    roots, left = ([parse(text, graph, graph.name) for text in column] for column in (texts, texts.values()))
    assert thinned(graph, roots, names, [parse("divides(t, x)", graph, graph.name)]) == left
    assert thinned(graph, roots, names) == [left[0], left[1], roots[2], left[3]]


@cache
def pruned(implementation: str, peak: str, in_space: bool = False) -> tuple[ModuleType, Node, Node]:
    """The module of an evaluator, its estimate, and what is left of that: for all that is legal, or for ``SPACE``."""
    evaluator = find(implementation, {"peak": peak})
    graph = Graph()
    found = formulas(inspect.getsource(evaluator.terms), graph)
    limits = {**LIMITS, **({name: (min(values), max(values)) for name, values in SPACE.items()} if in_space else {})}
    estimate, *conditions = graph.replaced(
        [found.terms["peak"], *(condition for _, condition in found.rules)],
        {graph.name(name): graph.number(value) for name, value in evaluator.fixed.items()},
    )
    return evaluator.terms, estimate, without_dominated(graph, estimate, limits, conditions)


@pytest.mark.slow
@EVERY_EVALUATOR
def test_how_much_is_left(implementation: str, peak: str) -> None:
    _, estimate, left = pruned(implementation, peak)
    before, after, ranks = COUNTS[implementation, peak]
    assert [len(pairs_of(node)) for node in (estimate, left)] == [before, after]
    assert len({pair.rank for pair in pairs_of(left)}) == ranks
    assert len(ordered([left])) < len(ordered([estimate]))


@pytest.mark.slow
@EVERY_EVALUATOR
def test_the_peak_of_legal_layouts_is_unchanged(implementation: str, peak: str) -> None:
    module, _, left = pruned(implementation, peak)
    fixed = find(implementation, {"peak": peak}).fixed
    function = compiled(left)
    tried = 0
    count = 2000 if FULL else 700
    for row in layouts(fixed, count):
        inputs = {name: Fraction(row[name]) for name in module.INPUTS}
        if all(module.rules_met(**inputs)):
            tried += 1
            assert function(inputs) == module.terms(**inputs)["peak"], row
    assert tried > 0.15 * count


@pytest.mark.slow
def test_a_space_leaves_less() -> None:
    """Where stages have two layers or more, no rank between the first and the last can be the peak's."""
    module, _, left = pruned("megatron", "megatron_te", in_space=True)
    assert (len(pairs_of(left)), len({pair.rank for pair in pairs_of(left)})) == (5, 2)
    function, generator, tried, count = compiled(left), random.Random(3), 0, 3000 if FULL else 1000
    for _ in range(count):
        row = {name: item[2] for name, item in PARAMETERS.items()}
        row |= {name: generator.choice(values) for name, values in SPACE.items()}
        row["num_gpus"] = row["tensor_parallel"]*row["context_parallel"]*row["pipeline_parallel"]*row["data_parallel"]
        inputs = {name: Fraction(row[name]) for name in module.INPUTS}
        if all(module.rules_met(**inputs)):
            tried += 1
            assert function(inputs) == module.terms(**inputs)["peak"], row
    assert tried > count / 6


def layouts(fixed: Mapping[str, int], count: int) -> Iterator[dict[str, int]]:
    """Random configurations, most of them legal; small numbers, where each part can be the largest."""
    generator = random.Random(7)
    one_of = generator.choice
    for _ in range(count):
        size = one_of((3, 40, 5000))
        row = {name: item[2] for name, item in PARAMETERS.items()}
        row |= {name: generator.randint(0, 1) for name, item in PARAMETERS.items() if item[2:4] == (0, 1)}
        row |= {name: generator.randint(1, size) for name in ("hidden_size", "head_dim", "vocab_size")}
        row |= {"tensor_parallel": one_of((1, 2, 3, 4)), "context_parallel": one_of((1, 2)), "gradient_bytes": one_of(
            (2, 4)), "pipeline_parallel": one_of((1, 1, 2, 3, 4, 5)), "micro_batch_size": one_of((1, 2, 3)),
            "data_parallel": one_of((1, 2, 6)), "vocab_multiple": one_of((1, 128)), "node_size": 64,
            "engine_workspace_bytes": one_of((0, 2**25)), "torch_workspace_bytes": one_of((0, 2**25))}
        row |= fixed
        t, c, p, d = (row[f"{name}_parallel"] for name in ("tensor", "context", "pipeline", "data"))
        row |= {"sequence_parallel": min(row["sequence_parallel"], t - 1)} if "sequence_parallel" not in fixed else {}
        if row["recompute_full"]:
            row |= {"recompute_core_attention": 0, "recompute_mlp": 0}
        if not {"sharded_gradients", "sharded_weights"} & fixed.keys():
            row |= {"sharded_gradients": 0, "sharded_weights": 0}
        heads = t * one_of((1, 2, 3))
        row |= {
            "num_attention_heads": heads, "num_kv_heads": one_of((t, heads)), "num_gpus": t * c * p * d,
            "num_layers": p * one_of((1, 1, 2, 7)), "ffn_hidden_size": t * generator.randint(1, size),
            "seq_length": 2 * c * t * generator.randint(1, one_of((1, 9, 2000))),
            "global_batch_size": row["micro_batch_size"] * d * generator.randint(1, 2 * p + 1),
        }
        yield row


_SOURCES = {
    ops.ADD: " + ".join, ops.MUL: "*".join, ops.DIV: "/".join, ops.MAX: lambda args: f"max({', '.join(args)})",
    ops.MIN: lambda args: f"min({', '.join(args)})", ops.CEIL_DIV: lambda args: f"ceil({args[0]}/{args[1]})",
    ops.FLOOR_DIV: lambda args: f"floor({args[0]}/{args[1]})",
    ops.LCM: lambda args: f"lcm(int({args[0]}), int({args[1]}))",
    ops.SELECT: lambda args: f"({args[1]} if {args[0]} else {args[2]})",
    ops.EQ: " == ".join, ops.LE: " <= ".join, ops.LT: " < ".join,
    ops.DIVIDES: lambda args: f"{args[1]} % {args[0]} == 0", "and": " and ".join, "or": " or ".join,
    "not": lambda args: f"not {args[0]}",
}


def compiled(root: Node) -> Any:
    """A function of inputs by name that computes a node exactly, written as one line for every operation."""
    names: dict[Node, str] = {}
    lines = ["def function(inputs):"]
    for node in ordered([root]):
        if node.op == ops.NAME:
            names[node] = f"inputs[{node.value!r}]"
        elif node.op in (ops.NUMBER, ops.TRUTH):
            names[node] = f"Fraction({node.value})" if node.op == ops.NUMBER else str(node.value)
        else:
            lines.append(f"    v{len(lines)} = {_SOURCES[node.op]([names[arg] for arg in node.args])}")
            names[node] = f"v{len(lines) - 1}"
    scope = {"Fraction": Fraction, "ceil": ceil, "floor": floor, "lcm": lcm}
    exec("\n".join([*lines, f"    return {names[root]}"]), scope)
    return scope["function"]


@pytest.mark.slow
def test_no_proof_is_tried_over_and_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """Proofs inside of proofs have the same ones inside: of experts with saved tensors alone they took hours."""
    implementation = IMPLEMENTATIONS["megatron"].with_choices(layers="experts", peak="saved")
    compared, count = Prover._compared, 0

    def counted(prover: Prover, smaller: Node, larger: Node) -> bool:
        nonlocal count
        count += 1
        assert count < 100_000
        return compared(prover, smaller, larger)

    monkeypatch.setattr(Prover, "_compared", counted)
    assert derive_layouts(implementation, derive_memory(implementation, simplified=True), simplified=True)
    assert count > 0
