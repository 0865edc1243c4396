"""Work on threads: answers in order, few of them waiting, errors handed on."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from shardmath.commands.evaluate import threads


def test_answers_come_in_order_and_few_items_are_taken_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads.os, "cpu_count", lambda: 3)
    taken: list[int] = []
    ahead: list[int] = []

    def items() -> Iterator[int]:
        for item in range(50):
            taken.append(item)
            yield item

    answers = []
    for answer in threads.in_order(lambda item: item * item, items()):
        answers.append(answer)
        ahead.append(len(taken) - len(answers))
    assert answers == [item * item for item in range(50)]
    assert max(ahead) == 6


def test_an_error_ends_the_work() -> None:
    with pytest.raises(ZeroDivisionError):
        list(threads.in_order(lambda item: 1 // item, [1, 0, 1]))
