"""The reductions that compiled nests are compared with, on rows whose answers can be counted by hand."""

from __future__ import annotations

from fractions import Fraction
from itertools import product

import brute_force
import pytest
from brute_force import Row

from shardmath.search.spaces import Best, Constraint, Front, Histogram, Space

#: Keys, verdict and group of every row, in the order of their numbers; None is a row that is not legal.
ROWS = [
    ((3, 1), 0, "a"), ((1, 3), 0, "b"), None, ((3, 1), 0, "b"), ((2, 2), 1, "a"), ((1, 4), 0, "a"), ((1, 3), 2, "a"),
    ((4, 1), 0, "a"),
]


def rows(question: Best | Front | Histogram, keys: int = 2) -> list[Row]:
    return [
        Row(0, number, {"group": "a"}, {}, broken=1) if row is None else
        Row(0, number, {"group": row[2]}, {}, None, row[1], Fraction(9),
            {question.name: tuple(map(Fraction, row[0][:keys]))})
        for number, row in enumerate(ROWS)
    ]


def numbers(found: list[Row]) -> list[int]:
    return [row.index for row in found]


def test_of_equal_ones_the_first_is_best() -> None:
    question = Best("q", ("x", "y"), 3)
    assert {group: numbers(found) for group, found in brute_force.best(rows(question), question).items()} == {
        (): [1, 5, 0]}
    assert numbers(brute_force.best(rows(question)[::-1], question)[()]) == [1, 5, 0]


def test_every_group_has_its_best() -> None:
    question = Best("q", ("x", "y"), 2, ("group",), "legal")
    found = brute_force.best(rows(question), question)
    assert {group: numbers(members) for group, members in found.items()} == {("a",): [6, 5], ("b",): [1, 3]}


@pytest.mark.parametrize(("among", "front"), [("fits", [0, 1]), ("uncertain", [0, 1, 4]), ("legal", [0, 1, 4])])
def test_a_front_has_the_first_of_what_is_not_beaten(among: str, front: list[int]) -> None:
    question = Front("q", ("x", "y"), among)
    assert numbers(brute_force.front(rows(question), question)) == front


def test_histograms_count_from_each_edge_to_the_next() -> None:
    question = Histogram("q", "x", (2, 3), "uncertain")
    assert brute_force.histogram(rows(question, 1), question) == [2, 1, 3]


def test_counts() -> None:
    found = rows(Front("q", ("x", "y")))
    assert brute_force.broken(found) == {1: 1}
    assert brute_force.verdicts(found) == {0: 5, 1: 1, 2: 1}


def test_the_order_of_conditions_decides_which_one_is_broken_first() -> None:
    space = Space(
        {"tensor_parallel": (1, 2, 3), "num_gpus": (2, 4)}, "llama-3.2-1b", "h200", fixed={"global_batch_size": 4},
        constraints=(Constraint("small", "tensor_parallel < 3"), Constraint("large", "last.total > 2**30")),
    )
    part, = space.parts()
    names = brute_force.conditions(part)
    found = {}
    for order in (None, [names.index("small"), *(place for place, name in enumerate(names) if name != "small")],
                  [names.index("heads"), *(place for place, name in enumerate(names) if name != "heads")]):
        broken = [row.broken for row in brute_force.rows(part, order=order)]
        assert [place is None for place in broken] == [True, True, True, True, False, False]
        found[names[broken[-1] or 0]] = order
    assert list(found) == ["data_parallel", "small", "heads"]


def test_every_combination_is_a_row() -> None:
    space = Space(
        {"recompute": ("none", "full"), "gpu": ("h200", "a100-40gb"), "micro_batch_size": (2, 1)}, "llama-3.2-1b",
        fixed={"num_gpus": 1, "global_batch_size": 4},
    )
    found = brute_force.all_rows(space)
    expected = list(product(("none", "full"), ("h200-141gb", "a100-40gb"), (2, 1)))
    assert [tuple(row.labels.values()) for row in found] == expected
    assert [row.values["recompute_full"] for row in found] == [0] * 4 + [1] * 4
    assert [row.values["micro_batch_size"] for row in found] == [2, 1] * 4
    assert len({row.values["gpu_memory"] for row in found}) == 2
    assert len({row.peak for row in found}) > 4
