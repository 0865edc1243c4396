"""Branch and bound against a look at every configuration: the same best and the same front, on drawn spaces."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest
from oracles.extent import cases

from shardmath import InputError
from shardmath.compiler.expressions import ops
from shardmath.compiler.expressions.arrays import operated
from shardmath.compiler.expressions.graph import Graph, Node
from shardmath.compiler.nests.posing import posed
from shardmath.search.boxes import improving, order, programs
from shardmath.search.boxes.answered import Bounded, bounded
from shardmath.search.boxes.bounds import Bounds
from shardmath.search.boxes.branching import branched
from shardmath.search.boxes.kept import kept_for, opened
from shardmath.search.boxes.packing import packed
from shardmath.search.boxes.prepared import Prepared
from shardmath.search.boxes.preparing import prepare
from shardmath.search.boxes.programs import ranged
from shardmath.search.boxes.switched import switched
from shardmath.search.nests.answers import BestAnswer, FrontAnswer
from shardmath.search.nests.columns import ColumnNest
from shardmath.search.nests.posing import evaluator_source, posing_of, verdict_source
from shardmath.search.spaces import Best, Front, Histogram, Part, Space
from shardmath.search.spaces.rows import legal_rows

pytestmark = pytest.mark.slow

#: Axes that spaces are drawn from, by what is fixed beside them; the first candidate of each is in every space.
KINDS: dict[str, tuple[dict[str, Any], dict[str, tuple[Any, ...]]]] = {
    "dense": (
        {"model": "llama-3.1-8b", "gpu": "h100-80gb", "schedule": "interleaved",
         "kernels": {"stages": "uneven", "recompute_method": "block"}},
        {"num_gpus": (64, 16, 128), "global_batch_size": (256, 64), "tensor_parallel": (2, 1, 4, 8),
         "context_parallel": (1, 2, 4), "pipeline_parallel": (2, 1, 4, 8, 16), "virtual_pipeline": (2, 1, 4),
         "micro_batch_size": (1, 2, 4, 8), "sequence_parallel": (1, 0), "recompute": ("none", "mlp", "full"),
         "recompute_num_layers": (1, 2, 4), "first_stage_layers": (0, 1, 2, 4, 8), "last_stage_layers": (0, 2, 4, 16),
         "account_for_embedding": (0, 1), "account_for_loss": (0, 1), "microbatch_group": (0, 4, 8),
         "distributed_optimizer": (1, 0), "gradient_bytes": (4, 2), "overlap_grad_reduce": (0, 1),
         "tp_comm_overlap": (0, 1), "seq_length": (4096, 8192, 32768)},
    ),
    "experts": (
        {"model": "mixtral-8x7b-v0.1", "gpu": "h100-80gb"},
        {"num_gpus": (64, 32), "global_batch_size": (256, 128), "tensor_parallel": (2, 1, 4, 8),
         "context_parallel": (1, 2), "pipeline_parallel": (2, 1, 4, 8), "expert_parallel": (8, 1, 2, 4),
         "expert_tensor_parallel": (1, 2, 4), "micro_batch_size": (1, 2, 4), "sequence_parallel": (1, 0),
         "recompute": ("none", "core_attention", "full"), "gradient_bytes": (4, 2), "overlap_param_gather": (0, 1),
         "expert_load_percent": (100, 150)},
    ),
    "shapes": (
        {"model": "llama-3.1-8b", "gpu": "h100-80gb"},
        {"num_gpus": (32, 64), "global_batch_size": (128, 256), "num_layers": (32, 16, 24, 48),
         "hidden_size": (4096, 2048, 6144), "ffn_hidden_size": (14336, 8192, 12288), "num_kv_heads": (8, 4, 16),
         "tensor_parallel": (2, 1, 4, 8), "context_parallel": (1, 2), "pipeline_parallel": (2, 1, 4, 8),
         "micro_batch_size": (1, 2, 4), "sequence_parallel": (1, 0), "recompute": ("none", "mlp", "full"),
         "gradient_bytes": (4, 2), "overlap_grad_reduce": (0, 1)},
    ),
    "kernels": (
        {"model": "llama-3.1-8b", "gpu": "h100-80gb",
         "kernels": {"loss": ("vocab_parallel", "te_fused"), "optimizer": ("adamw", "precision_aware")}},
        {"num_gpus": (32, 64), "global_batch_size": (128, 256), "tensor_parallel": (2, 1, 4, 8),
         "context_parallel": (1, 2), "pipeline_parallel": (2, 1, 4), "micro_batch_size": (1, 2, 4),
         "sequence_parallel": (1, 0), "recompute": ("none", "mlp", "full"), "gradient_bytes": (4, 2),
         "overlap_grad_reduce": (0, 1)},
    ),
}
QUESTIONS = (
    Best("fastest", ("step.time",), 10), Best("least", ("num_gpus", "peak"), 5, among="uncertain"),
    Front("both", ("step.time", "peak")), Front("sizes", ("peak", "num_gpus", "step.time"), among="legal"),
)
#: Configurations of a drawn space at most: all of them are looked at.
MOST = 60_000


def drawn(kind: str, random: random.Random) -> Space:
    """A space with some candidates of some axes, some options of kernels, and two questions."""
    base, axes = KINDS[kind]
    base = {**base, "kernels": {
        name: option if isinstance(option, str) else tuple(random.sample(option, random.randrange(1, len(option) + 1)))
        for name, option in base.get("kernels", {}).items()}}
    chosen = {name: (values[0], *random.sample(values[1:], random.randrange(len(values))))
              for name, values in axes.items()}
    while np.prod([len(values) for values in chosen.values()]) > MOST:
        name = max(chosen, key=lambda name: (len(chosen[name]), random.random()))
        gone = random.choice(chosen[name][1:])
        chosen[name] = tuple(value for value in chosen[name] if value != gone)
    names = random.sample(list(chosen), len(chosen))
    return Space(axes={name: chosen[name] for name in names}, questions=tuple(random.sample(QUESTIONS, 2)), **base)


def compared(space: Space) -> int:
    """Compare the answers of all parts together; return how many there are."""
    count, result = 0, _of(space)
    assert result.complete
    every = tuple(Best(item.name, item.by, 10_000, among=item.among) if isinstance(item, Best) else item
                  for item in space.questions)
    nests = [ColumnNest(part, every) for part in result.parts]
    swept = [nest.swept(0, nest.shards, nest.empty()) for nest in nests]
    for place, question in enumerate(space.questions):
        answers = [answer.questions[place] for answer in swept]
        if isinstance(question, Best):
            rows = np.concatenate([answer.keys[0] for answer in answers if isinstance(answer, BestAnswer)])
            expected = np.unique(rows[np.isfinite(rows).all(axis=1)], axis=0)[: question.count]
        else:
            rows = np.unique(np.concatenate([answer.keys[: answer.size[0]] for answer in answers
                                             if isinstance(answer, FrontAnswer)]), axis=0)
            better = (rows[:, np.newaxis] <= rows).all(axis=2) & ~np.eye(len(rows), dtype=bool)
            expected = rows[~better.any(axis=0)]
        assert np.array_equal(result.answers[place].keys, expected), question.name
        among = {"fits": ("fits",), "uncertain": ("fits", "uncertain")}.get(question.among)
        for item in list(result.configurations(place))[:3]:
            assert among is None or item.verdict in among
            for text in ("peak", "step.time"):
                if text in item.keys:
                    assert float(item.terms[text]) == pytest.approx(item.keys[text], rel=1e-12)
            count += 1
    return count


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.cases(6, 250)
def test_drawn_spaces_have_the_answers_of_a_sweep(kind: str) -> None:
    draws = random.Random(f"boxes {kind}")
    number = cases(test_drawn_spaces_have_the_answers_of_a_sweep)
    assert sum(compared(drawn(kind, draws)) for _ in range(number)) > number


def _of(space: Space) -> Bounded:
    return bounded(space.parts(), space.questions)


def test_options_of_kernels_share_their_answers() -> None:
    """An answer of one option closes boxes of the other: fewer are bounded than in two searches."""
    base, axes = KINDS["kernels"]
    names = ("tensor_parallel", "context_parallel", "pipeline_parallel", "micro_batch_size", "recompute")
    space = Space(axes={name: axes[name] for name in names}, questions=(QUESTIONS[0], QUESTIONS[2]),
                  fixed={"num_gpus": 32, "global_batch_size": 128}, **{**base, "kernels": {
                      "loss": base["kernels"]["loss"]}})
    together = _of(space)
    apart = [_of(replace(space, kernels={"loss": option})) for option in base["kernels"]["loss"]]
    assert [part.labels for part in together.parts] == [{"loss": option} for option in base["kernels"]["loss"]]
    assert sum(cut.bounded for cut in together.cuts) < sum(result.cuts[0].bounded for result in apart)
    keys = np.unique(np.concatenate([result.answers[0].keys for result in apart]), axis=0)
    assert np.array_equal(together.answers[0].keys, keys[: QUESTIONS[0].count])
    assert {item.labels["loss"] for item in together.configurations(1)} <= {*base["kernels"]["loss"]}


def test_intervals_enclose_what_operations_give() -> None:
    draws = np.random.default_rng(3)
    graph = Graph()
    names = [graph.name(letter) for letter in "abc"]
    made = {
        ops.ADD: graph.add(names), ops.MUL: graph.mul(names), ops.DIV: graph.binary(ops.DIV, *names[:2]),
        ops.CEIL_DIV: graph.binary(ops.CEIL_DIV, *names[:2]), ops.FLOOR_DIV: graph.binary(ops.FLOOR_DIV, *names[:2]),
        ops.MAX: graph.extreme(ops.MAX, names), ops.MIN: graph.extreme(ops.MIN, names),
        ops.LCM: graph.binary(ops.LCM, *names[:2]), ops.EQ: graph.binary(ops.EQ, *names[:2]),
        ops.LE: graph.binary(ops.LE, *names[:2]), ops.LT: graph.binary(ops.LT, *names[:2]),
        ops.DIVIDES: graph.binary(ops.DIVIDES, *names[:2]),
    }
    for (op, node), number, smallest in product(made.items(), (None, 0, 1), (-4, 1)):
        least = 1 if op in (ops.LCM, ops.DIVIDES) else smallest
        ends = np.sort(draws.integers(least, 9, (2, len(names), 400)), axis=0).astype(np.float64)
        if number is not None:  # an argument that every box has the same value of
            ends[:, number] = draws.integers(least, 9)
        inside = np.floor(ends[0] + draws.random((len(names), 400)) * (ends[1] - ends[0] + 1)).clip(ends[0], ends[1])
        if op in (ops.DIV, ops.CEIL_DIV, ops.FLOOR_DIV):  # what a divisor of 0 gives is nobody's business
            good = inside[1] != 0
            ends, inside = ends[:, :, good], inside[:, good]
        if not inside.size:
            continue
        args = [float(ends[0, place, 0]) if place == number else (ends[0, place], ends[1, place])
                for place in range(len(node.args))]
        own = dict(zip(names, inside, strict=True))
        with np.errstate(all="ignore"):
            low, high = ranged(node, args, [float(ends[0, place].min()) for place in range(len(args))])
            value = operated(node, own)
            points = [own[arg] for arg in node.args]
            point = ranged(node, [(value, value) for value in points], [float(value.min()) for value in points])
        assert (low <= value).all(), op  # a condition has 0 or 1
        assert (value <= high).all(), op
        assert np.array_equal(point[0], value), op
        assert np.array_equal(point[1], value), op


def test_unbounded_ends_close_nothing() -> None:
    """A divisor that may be 0 leaves a quotient without bounds: 0 times it is 0, and a comparison with it may hold."""
    graph = Graph()
    left, right = graph.name("a"), graph.name("b")
    every, naught, unit = ((np.asarray([low]), np.asarray([high])) for low, high in (
        (-np.inf, np.inf), (0.0, 0.0), (0.0, 1.0)))
    product, quotient = graph.mul((left, right)), graph.binary(ops.DIV, left, right)
    with np.errstate(all="ignore"):
        assert ranged(product, [naught, every], [0, -np.inf]) == naught
        assert ranged(product, [unit, every], [0, -np.inf]) == every
        for dividend, divisor in ((unit, unit), (every, unit), (every, every)):
            assert ranged(quotient, [dividend, divisor], [float(dividend[0][0]), float(divisor[0][0])]) == every
    unknown = np.asarray([np.nan]), np.asarray([np.nan])
    for op in (ops.EQ, ops.LE, ops.LT):
        surely, maybe = ranged(graph.binary(op, left, right), [unknown, unit], [-np.inf, 0])
        assert maybe.all()
        assert not surely.any()


def test_a_wrong_bound_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The comparison notices a minimum that takes the place of a maximum."""
    monkeypatch.setattr(programs, "_FOLDED", {**programs._FOLDED, ops.MIN: programs._FOLDED[ops.MAX]})
    draws = random.Random("boxes dense")
    spaces = [drawn("dense", draws) for _ in range(6)]
    with pytest.raises(AssertionError):
        list(map(compared, spaces))


def test_idle_axes_are_not_cut() -> None:
    """Layers of a recompute that is off change nothing: boxes are cut into the first of them alone."""
    base, axes = KINDS["dense"]
    names = ("recompute", "recompute_num_layers", "pipeline_parallel")
    space = Space(axes={name: axes[name] for name in names}, questions=QUESTIONS[:1],
                  fixed={"num_gpus": 64, "global_batch_size": 64, "tensor_parallel": 4}, **base)
    part, = space.parts()
    bounds = _bounds(part)
    modes = bounds.children(bounds.root, 0)
    assert [len(modes), len(bounds.children(modes, 1))] == [3, 1 + 1 + 3]


@pytest.mark.parametrize(("degrees", "gib", "legal"), [((3, 5), 80, False), ((2, 4), 1, True)])
def test_first_answers_are_looked_for_inside_once_where_nothing_fits(
    degrees: tuple[int, ...], gib: int, legal: bool, monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also where a question about what is legal has an answer."""
    base, _ = KINDS["dense"]
    space = Space(axes={"tensor_parallel": degrees, "pipeline_parallel": (2, 1, 4)},
                  questions=(QUESTIONS[0], QUESTIONS[3]),
                  fixed={"num_gpus": 64, "global_batch_size": 64, "gpu_memory_gib": gib}, **base)
    inside, begun = order._begin_inside, list[int]()

    def counted(*arguments: Any) -> None:
        begun.append(1)
        inside(*arguments)

    monkeypatch.setattr(order, "_begin_inside", counted)
    answers, cuts = branched(space.parts(), space.questions)
    assert (len(begun), len(answers[0].keys), len(answers[1].keys) > 0) == (1, 0, legal)
    assert all(cut.left is None for cut in cuts)


def test_places_at_which_nothing_is_legal_are_no_boxes() -> None:
    """Legal configurations have live places alone; where none is legal, all places stay."""
    base, axes = KINDS["dense"]
    space = Space(axes={"tensor_parallel": (1, 2, 3, 4, 5, 64), "context_parallel": (1, 2, 3),
                        "pipeline_parallel": (2, 1, 4, 48), "first_stage_layers": axes["first_stage_layers"]},
                  questions=QUESTIONS[:1], fixed={"num_gpus": 64, "global_batch_size": 64}, **base)
    part, = space.parts()
    bounds = _bounds(part)
    live = [{*places.tolist()} for places in bounds.prepared.live]
    legal = bounds.at(legal_rows(part).numbers)
    assert all({*column.tolist()} <= places for column, places in zip(legal.T, live, strict=True))
    assert [[axis.labels[place] for place in sorted(places)] for axis, places in zip(part.axes[:3], live, strict=False)
            ] == [[1, 2, 4], [1, 2], [2, 1, 4]]
    boxes = bounds.children(bounds.root, 0)
    assert bounds.bounded == 3
    assert {*boxes.places[:, 0].tolist()} == live[0]
    dead = bounds.root
    dead.places[0, 0] = part.axes[0].labels.index(3)
    assert not len(bounds.children(dead, 1))
    nothing, = replace(space, axes={**space.axes, "tensor_parallel": (3, 5)}).parts()
    assert [len(places) for places in _bounds(nothing).prepared.live] == [2, 3, 4, 5]


def test_a_switch_that_puts_one_part_in_place_of_another_is_a_choice() -> None:
    """Values stay as they are, and bounds do not mix both sides: with the switch free they are those of both."""
    space = Space(axes={"distributed_optimizer": (0, 1), "tensor_parallel": (1, 2, 3)}, questions=QUESTIONS[:1],
                  fixed={"num_gpus": 64, "global_batch_size": 64}, model="llama-3.1-8b", gpu="h100-80gb")
    part, = space.parts()
    problem, _ = posed(posing_of(part, QUESTIONS[:1], literal=True), evaluator_source(part), verdict_source())
    graph = problem.graph
    s, t, a, b = (graph.name(name) for name in ("distributed_optimizer", "tensor_parallel", "a", "b"))
    one, less = graph.number(1), graph.number(-1)
    other, same = (graph.select(graph.binary(op, one, t), one, graph.number(0)) for op in (ops.LT, ops.EQ))
    inside = graph.add((graph.mul((less, a)), graph.mul((other, b)), graph.mul((same, graph.mul((a, b))))))
    asked = replace(problem, conditions=(), estimate=graph.add((a, graph.mul((s, inside)))), verdicts=(), questions=())
    choice = switched(asked, part).estimate
    of_one, of_others = graph.mul((a, b)), b
    on = (graph.select(other.args[0], of_others, of_one), graph.select(same.args[0], of_one, of_others))
    assert choice in [graph.select(graph.binary(ops.EQ, s, one), yes, a) for yes in on]
    alone = replace(asked, estimate=graph.add((a, graph.mul((s, b)))))
    assert switched(alone, part).estimate is alone.estimate


def test_sums_that_decide_something_stay_as_they_are_unless_they_are_whole() -> None:
    """A last digit may decide at an edge, but only changes a key in its last digit."""
    space = Space(axes={"distributed_optimizer": (0, 1)}, questions=QUESTIONS[:1],
                  fixed={"num_gpus": 64, "global_batch_size": 64}, model="llama-3.1-8b", gpu="h100-80gb")
    part, = space.parts()
    problem, _ = posed(posing_of(part, QUESTIONS[:1], literal=True), evaluator_source(part), verdict_source())
    graph = problem.graph
    s, a, b = (graph.name(name) for name in ("distributed_optimizer", "a", "b"))
    third = graph.binary(ops.DIV, a, graph.number(3))
    total = graph.add((third, graph.mul((graph.number(-1), s, third)), graph.mul((s, b))))
    question, = problem.questions

    def keys(key: Node, conditions: tuple[tuple[str, Node], ...] = ()) -> tuple[Node, ...]:
        asked = replace(problem, conditions=conditions, verdicts=(), questions=(replace(question, keys=(key,)),))
        return switched(asked, part).questions[0].keys

    choice = graph.select(graph.binary(ops.EQ, s, graph.number(1)), b, third)
    assert keys(total) == (choice,)
    same = graph.binary(ops.EQ, total, b)
    kept = graph.binary(ops.LE, total, b), graph.binary(ops.CEIL_DIV, total, b), graph.select(same, a, b)
    assert all(keys(node) == (node,) for node in kept)
    assert keys(total, (("rule", graph.binary(ops.LE, total, b)),)) == (total,)


def test_quotients_and_multiples_are_written_so_that_intervals_see_what_cancels() -> None:
    """What decides something is not, unless it is whole, as a rule may say; nor a multiple of what may be 0."""
    space = Space(axes={"distributed_optimizer": (0, 1), "tensor_parallel": (1, 2, 4)}, questions=QUESTIONS[:1],
                  fixed={"num_gpus": 64, "global_batch_size": 64}, model="llama-3.1-8b", gpu="h100-80gb")
    part, = space.parts()
    problem, _ = posed(posing_of(part, QUESTIONS[:1], literal=True), evaluator_source(part), verdict_source())
    graph = problem.graph
    s, t, a, b = (graph.name(name) for name in ("distributed_optimizer", "tensor_parallel", "a", "b"))
    question, = problem.questions

    def written(key: Node, *rules: Node) -> tuple[Node, list[Node]]:
        asked = switched(replace(problem, conditions=tuple((str(rule), rule) for rule in rules), verdicts=(),
                                 questions=(replace(question, keys=(key,)),)), part)
        return asked.questions[0].keys[0], [rule for _, rule in asked.conditions]

    def over(above: Node, below: Node) -> Node:
        return graph.binary(ops.DIV, above, below)

    assert written(over(graph.mul((t, a)), t))[0] is a
    kept, whole = (graph.binary(ops.LE, over(graph.mul((t, times)), t), b) for times in (over(a, b), a))
    assert written(a, kept, whole)[1] == [kept, graph.binary(ops.LE, a, b)]
    for step, rewritten in ((t, True), (s, False)):
        multiple = graph.mul((step, graph.binary(ops.CEIL_DIV, a, step)))
        inside = graph.extreme(ops.MIN, (graph.extreme(ops.MAX, (multiple, a)), graph.add((a, step))))
        assert written(graph.mul((b, multiple)))[0] is graph.mul((b, inside if rewritten else multiple))
    share = over(a, t)
    total = graph.add((share, graph.mul((s, b)), graph.mul((graph.number(-1), s, share))))
    divides, rule = graph.binary(ops.DIVIDES, t, a), graph.binary(ops.LE, total, b)
    assert written(a, rule)[1] == [rule]
    choice = graph.select(graph.binary(ops.EQ, s, graph.number(1)), b, share)
    assert written(a, divides, rule)[1] == [divides, graph.binary(ops.LE, choice, b)]


@pytest.mark.parametrize("kind", KINDS)
def test_keys_of_answers_are_those_of_formulas_as_they_are_written(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """To the last digit; those of bounds are near, as sums in them are in another order."""
    space = drawn(kind, random.Random(f"points {kind}"))
    for part in space.parts():
        rows = legal_rows(part).numbers[:200]
        if not len(rows):
            continue
        changed = _bounds(part)
        with monkeypatch.context() as patch:
            patch.setattr("shardmath.search.boxes.preparing.switched", lambda problem, axes: problem)
            written = _bounds(part)
        ends = []
        for bounds in (written, changed):
            places = bounds.at(rows)
            places[:, -1] = bounds.sizes[-1]
            ends.append(bounds.children(bounds.unknown(np.unique(places, axis=0)), len(bounds.sizes) - 1))
        assert np.array_equal(ends[0].places, ends[1].places)
        assert np.array_equal(written.exact(ends[0]).low, ends[0].low)
        assert np.array_equal(changed.exact(ends[1]).low, ends[0].low)
        np.testing.assert_allclose(ends[1].low, ends[0].low, rtol=1e-12)


def _bounds(part: Part) -> Bounds:
    problem, _ = posed(posing_of(part, QUESTIONS[:1], literal=True), evaluator_source(part), verdict_source())
    return Bounds(part, prepare(part, problem))


def test_what_is_prepared_is_read_as_it_was_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs and tables are kept for large parts, and other bounds are not taken for them."""
    from shardmath.search.boxes import preparing

    contents = dict[tuple[str, str], bytes]()
    monkeypatch.setattr(preparing, "is_large", lambda part: True)
    monkeypatch.setattr(preparing, "kept", lambda *name: contents.get(name))
    monkeypatch.setattr(preparing, "keep", lambda kind, name, content: contents.update({(kind, name): content}))
    part, = drawn("dense", random.Random(5)).parts()
    made, again = (preparing.prepared_for(part, QUESTIONS) for _ in "ma")
    assert len(contents) == 1
    assert made.written() == again.written() == Prepared.read(made.written()).written()
    assert np.array_equal(made.low, again.low)
    assert [stages.slots for stages in made.stages] == [stages.slots for stages in again.stages]
    preparing.prepared_for(replace(part, fixed={**part.fixed, "seq_length": 2048}), QUESTIONS)
    monkeypatch.setattr(programs, "_FOLDED", {**programs._FOLDED, ops.MIN: programs._FOLDED[ops.MAX]})
    preparing.prepared_for(part, QUESTIONS)
    assert len(contents) == 3


@pytest.mark.parametrize("kind", KINDS)
def test_programs_and_tables_for_one_order_have_what_those_for_any_order_have(kind: str) -> None:
    """What closes boxes; may be and surely are one of single configurations."""
    for part in drawn(kind, random.Random(f"packed {kind}")).parts():
        problem, _ = posed(posing_of(part, QUESTIONS, literal=True), evaluator_source(part), verdict_source())
        made = order.settled(part, prepare(part, problem), QUESTIONS)
        less = packed(made)
        assert less.low.nbytes < made.low.nbytes
        assert len(less.legal) < len(made.legal)
        every, own = Bounds(part, made), Bounds(part, less)
        boxes, same = every.root, own.root
        for axis in made.order.tolist():
            boxes, same = every.children(boxes, axis), own.children(same, axis)
            for name in ("places", "low", "may"):
                assert np.array_equal(getattr(boxes, name), getattr(same, name)), name
            assert not same.surely.any()
            assert np.isinf(same.high).all()
            boxes, same = boxes.taken(slice(1000)), same.taken(slice(1000))
        assert np.array_equal(boxes.low, boxes.high)
        assert np.array_equal(own.exact(same).surely, boxes.surely)


@pytest.mark.parametrize("kind", ["dense", "experts"])
def test_open_boxes_are_those_of_the_axes_that_are_cut_in_any_order(kind: str) -> None:
    """Samples that hold all boxes count those of any order, though a set of axes is looked at once."""
    part, *_ = drawn(kind, random.Random(f"sets {kind}")).parts()
    problem, _ = posed(posing_of(part, QUESTIONS[:1], literal=True), evaluator_source(part), verdict_source())
    made = order.settled(part, prepare(part, problem), QUESTIONS[:1])
    bounds, answers = Bounds(part, made), kept_for(QUESTIONS[:1], made.whole)
    order.begin_again(bounds, answers)
    orders = improving._Orders(bounds, answers, part.size, np.random.default_rng(0))
    draws = random.Random(0)
    for _ in range(4):
        axes = draws.sample(range(len(bounds.sizes)), len(bounds.sizes))
        before, boxes = bounds.bounded, bounds.root
        for axis in axes:
            boxes = opened(bounds.children(boxes, axis), answers)
        own = bounds.bounded - before
        assert orders.boxes(axes) == pytest.approx(own, rel=1e-6), axes
    assert orders.boxes(made.order.tolist()) < orders.boxes(axes)


def test_boxes_that_are_bounded_a_few_at_a_time_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    from shardmath.search.boxes import bounds as module

    part, = drawn("dense", random.Random(4)).parts()
    problem, _ = posed(posing_of(part, QUESTIONS, literal=True), evaluator_source(part), verdict_source())
    bounds = Bounds(part, prepare(part, problem))
    parents = bounds.root
    for axis in range(len(bounds.sizes)):
        together = bounds.children(parents, axis)
        monkeypatch.setattr(module, "BATCH", 3)
        apart = bounds.children(parents, axis)
        monkeypatch.undo()
        for name in ("places", "low", "high", "may", "surely"):
            assert np.array_equal(getattr(together, name), getattr(apart, name))
        parents = together.taken(slice(20))
    assert len(parents)


def test_a_search_that_is_stopped_says_how_far_it_came() -> None:
    """Nothing that is left is better than the last of the best, or an answer of the front in all keys, by more."""
    parts, questions = drawn("dense", random.Random(1)).parts(), (QUESTIONS[0], QUESTIONS[2])
    answers, (cut,) = branched(parts, questions, most=1)
    whole, _ = branched(parts, questions)
    assert cut.left is not None
    best, front = (answer.gap(cut.left.low) for answer in answers)
    assert best is not None
    assert front is not None
    assert whole[0].keys[-1, 0] >= answers[0].keys[-1, 0] * (1 - best)
    for keys in whole[1].keys:
        assert (keys >= answers[1].keys * (1 - front - 1e-12)).all(axis=1).any()
    assert max(best, front) > 0


@pytest.mark.parametrize(("question", "field"), [
    (Histogram("peaks", "peak", (1, 2)), r"questions\.peaks = 'histogram': must be best or front"),
    (Best("each", ("peak",), 1, ("num_gpus",)), r"questions\.each\.per = \['num_gpus'\]: must be empty"),
])
def test_counts_are_refused(question: Any, field: str) -> None:
    base, axes = KINDS["dense"]
    space = Space(axes={"num_gpus": axes["num_gpus"]}, fixed={"global_batch_size": 64}, questions=(question,), **base)
    with pytest.raises(InputError, match=field):
        _of(space)
