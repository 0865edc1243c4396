"""Nests on columns: the same answers as compiled ones, chosen where they are quicker, stored and sent as text."""

import pickle

import numpy as np
import pytest
import small_space
from searches.test_nests_counted import QUESTIONS, SPACES, counted, part_of
from searches.test_nests_random import compare

from shardmath.compiler.expressions import ops
from shardmath.compiler.expressions.arrays import computed, constant, steps_of
from shardmath.compiler.expressions.graph import Graph, exact, ordered
from shardmath.compiler.expressions.source import parse
from shardmath.compiler.nests.stored import restored, stored
from shardmath.search.nests import chosen, turns
from shardmath.search.nests.answers import BestAnswer, FrontAnswer
from shardmath.search.nests.chosen import nest_of
from shardmath.search.nests.columns import ColumnNest
from shardmath.search.nests.compiled import CompiledNest
from shardmath.search.nests.nest import Nest
from shardmath.search.nests.running import run
from shardmath.search.spaces import PowersOfTwo, Space


@pytest.mark.slow
@pytest.mark.parametrize("name", SPACES)
def test_every_configuration_of_a_space(name: str) -> None:
    nest = ColumnNest(part_of(name), QUESTIONS)
    rows = counted(nest)
    assert any(row.verdict is not None for row in rows)
    compare(run(nest, threads=1).answer, rows, nest)
    compare(run(nest, threads=3).answer, rows, nest)


@pytest.mark.slow
def test_answers_are_those_of_the_compiled_nest() -> None:
    part, questions = small_space.space().parts()[0], small_space.QUESTIONS
    one, other = (run(nest(part, questions)).answer for nest in (ColumnNest, CompiledNest))
    assert one.verdicts.tolist() == other.verdicts.tolist()
    assert one.broken.sum() == other.broken.sum()
    for mine, compiled in zip(one.questions, other.questions, strict=True):
        ordered_arrays = [item.merged(item) if isinstance(item, FrontAnswer) else item for item in (mine, compiled)]
        size = int(mine.size[0]) if isinstance(mine, FrontAnswer) else None
        for left, right in zip(*(item.arrays for item in ordered_arrays), strict=True):
            assert left[:size].tolist() == right[:size].tolist()


@pytest.mark.slow
def test_a_problem_is_stored_as_text() -> None:
    nest = ColumnNest(part_of("every moment"), QUESTIONS)
    text = stored(nest.problem)
    again = restored(text)
    assert stored(again) == text
    assert [name for name, _ in again.conditions] == list(nest.conditions)
    names = {str(node.value): 1 + number for number, node in enumerate(ordered(again.roots)) if node.op == "name"}
    roots = again.roots[:len(again.conditions)]
    assert exact(roots, names) == exact(nest.problem.roots[:len(roots)], names)


@pytest.mark.slow
def test_a_nest_is_sent_with_its_problem() -> None:
    nest = ColumnNest(part_of("every moment"), QUESTIONS)
    sent = pickle.loads(pickle.dumps(nest))
    assert sent.key == nest.key
    compare(run(sent).answer, counted(nest), nest)


@pytest.mark.slow
def test_small_spaces_are_swept_on_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    part = part_of("every moment")
    nest = nest_of(part, QUESTIONS)
    assert isinstance(nest, ColumnNest)
    legal, operations = sum(run(nest).answer.verdicts), 0
    while nest.exceeds(operations):
        operations = 2 * operations + 1
    assert legal * 100 < operations < nest.size * 10000
    monkeypatch.setattr(chosen, "OPERATIONS", operations // 4)
    assert isinstance(nest_of(part, QUESTIONS), CompiledNest)


@pytest.mark.slow
@pytest.mark.parametrize(("sizes", "kind"), [
    ({"seq_length": [*range(4096, 4096 + 64000, 4)], "micro_batch_size": [1, 2, 4, 8, 16, 32]}, CompiledNest),
    ({"micro_batch_size": [*range(3, 3 + 2 * 2**14, 2)]}, ColumnNest),  # none of which divides the batch
], ids=["legal", "illegal"])
def test_large_spaces_are_compiled_unless_most_of_them_is_illegal(
    sizes: dict[str, list[int]], kind: type[Nest], monkeypatch: pytest.MonkeyPatch,
) -> None:
    pieces: list[int] = []
    monkeypatch.setattr(turns, "computed", lambda steps, values: pieces.append(1) or computed(steps, values))
    space = Space({**small_space.AXES, "num_gpus": PowersOfTwo(1, 2**20), **sizes}, "llama-3.1-8b", "a100-40gb",
                  fixed={"global_batch_size": 256}, questions=small_space.QUESTIONS)
    (part,) = space.parts()
    assert part.size >= 10**8
    assert isinstance(nest_of(part, space.questions), kind)
    assert len(pieces) < 5000  # the count ends where it is enough


@pytest.mark.parametrize("text", [
    "ceil_div(a, b) + floor_div(a, b) * 3 - lcm(a, 8)", "(a * b + b) / b + c", "max(a, b, 7) - min(a, b, c)",
    "-a * 2 ** 3", "1 if b <= c and (a % b == 0 or not a < c) else a // c",
    "(a == b) + (a != c)",
])
def test_operations_on_columns_are_exact(text: str) -> None:
    graph = Graph()
    root = parse(text, graph, graph.name)
    points = [(a, b, c) for a in (0, 1, 6, 7, 2**40) for b in (1, 2, 3, 2**20) for c in (1, 5, 7)]
    values = {graph.name(name): column.astype(float) for name, column in zip("abc", np.array(points).T, strict=True)}
    nodes = ordered([root])
    values |= {node: constant(node) for node in nodes if node.op == ops.NUMBER}
    computed(steps_of([node for node in nodes if node.args], [root]), values)
    expected = [exact([root], dict(zip("abc", point, strict=True)))[0] for point in points]
    assert np.broadcast_to(values[root], len(points)).tolist() == [float(item) for item in expected]
    assert [node for node in values if node.args] == [root]


def test_what_a_broken_condition_leaves_is_a_number() -> None:
    graph = Graph()
    quotients = (ops.DIV, ops.CEIL_DIV, ops.FLOOR_DIV, ops.LCM, ops.DIVIDES)
    nodes = [graph.binary(op, graph.name("a"), graph.name("b")) for op in quotients]
    root = graph.extreme(ops.MAX, nodes[:4])
    values = {graph.name("a"): np.array([0.0, 1.0]), graph.name("b"): np.array([0.0, np.inf])}
    computed(steps_of([*nodes, root], [*nodes, root]), values)
    assert all(np.ndim(values[node]) == 1 for node in (*nodes, root))


def test_the_best_of_every_group_are_taken() -> None:
    random = np.random.default_rng(3)
    keys, numbers = random.integers(0, 4, (500, 2)).astype(float), random.permutation(500)
    groups = numbers % 3
    answer = BestAnswer.empty(3, 7, 2)
    for start in range(0, 500, 130):
        rows = slice(start, start + 130)
        answer = answer.taken(keys[rows], numbers[rows], groups[rows])
        answer = answer.taken(keys[rows], numbers[rows], groups[rows])  # twice is once
    for group in range(3):
        members = sorted((*keys[row], numbers[row]) for row in range(500) if groups[row] == group)[:7]
        assert [(*key, number) for key, number in zip(answer.keys[group].tolist(), answer.numbers[group].tolist(),
                                                      strict=True)] == members


def test_a_front_takes_what_nothing_beats() -> None:
    random = np.random.default_rng(4)
    keys, numbers = random.integers(0, 30, (400, 3)).astype(float), random.permutation(400)
    answer = FrontAnswer.empty(3)
    for start in range(0, 400, 90):
        rows = slice(start, start + 90)
        answer = answer.taken(keys[rows], numbers[rows])
    kept = {
        int(numbers[row]) for row in range(400)
        if not any((keys[other] <= keys[row]).all()
                   and ((keys[other] < keys[row]).any() or numbers[other] < numbers[row]) for other in range(400))
    }
    assert set(answer.numbers[:answer.size[0]].tolist()) == kept
