"""Closed forms against search, on random legal configurations: `ORACLES=full` looks at all values of 10,000."""

from random import Random

import pytest
from inverse_cases import KINDS, Case, cases, searched
from oracles.extent import FULL, SEED

from shardmath.compiler.inverses import solve
from shardmath.compiler.inverses.laurent import NoClosedFormError, constant
from shardmath.compiler.inverses.legal import LegalValues
from shardmath.compiler.inverses.pieces import Piece

#: Kinds whose evaluators are in the package.
STORED = {kind: KINDS[kind] for kind in ("megatron", "huggingface", "torchtitan", "nanotron")}
#: Values beside an answer that are evaluated on fractions.
_NEAR, _FAR = 4, 3


def _nearby(case: Case, start: int, step: int) -> list[int]:
    """The next legal values on one side, found by looking at each."""
    side = range(start + step, case.last + 1 if step > 0 else 0, step)
    legal = (value for value in side[:4000] if case.legal(value))
    return [value for value, _ in zip(legal, range(_NEAR), strict=False)]


def check_neighbours(case: Case, random: Random) -> bool:
    """The answer fits and nothing beyond it does: next to it, and wherever one looks. True if there is an answer."""
    found = case.question().answer(case.limit, largest=case.largest)
    step = 1 if case.largest else -1
    if found is None:
        at = 0 if case.largest else case.last + 1
    else:
        at = found.value
        assert case.legal(at), case
        assert case.peak(at) <= case.limit, case
    beyond = _nearby(case, at, step)
    side = (at + 1, case.last) if step > 0 else (1, at - 1)
    if side[0] <= side[1]:
        beyond += [value for _ in range(40 * _FAR) if case.legal(value := random.randint(*side))][:_FAR]
    for value in beyond:
        assert case.peak(value) > case.limit, (case, value)
    return found is not None


def test_bounds_with_too_many_values_between_them_are_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(solve, "_MOST_TRIED", 5)
    wide = (Piece(1, 1000, constant(0), constant(20)),)
    asked = solve.Asked(lambda first, last: tuple(piece.within(first, last) for piece in wide), lambda at: 15,
                        LegalValues([], "x"), 10)
    with pytest.raises(NoClosedFormError, match="more than 5 values open"):
        solve.extreme(asked, 1, 1000, largest=True)


@pytest.mark.slow
@pytest.mark.parametrize("kind", STORED)
def test_an_answer_fits_and_nothing_beyond_it_does(kind: str) -> None:
    random = Random(SEED)
    answered = [check_neighbours(case, random) for case in cases(SEED, 40, {kind: KINDS[kind]})]
    assert sum(answered) > len(answered) / 2


@pytest.mark.skipif(not FULL, reason="looks at all values of 10,000 cases: ORACLES=full")
@pytest.mark.parametrize("kind", KINDS)
def test_the_closed_form_is_what_a_search_finds(kind: str) -> None:
    count = -(-10_000 // len(KINDS))
    wrong = []
    for case in cases(SEED + 1, count, {kind: KINDS[kind]}):
        found = case.question().answer(case.limit, largest=case.largest)
        if (None if found is None else found.value) != searched(case):
            wrong.append((case, found))
    assert not wrong


@pytest.mark.skipif(not FULL, reason="evaluates on fractions: ORACLES=full")
@pytest.mark.parametrize("kind", KINDS)
def test_more_answers_fit_on_fractions(kind: str) -> None:
    random = Random(SEED)
    for case in cases(SEED + 2, 300, {kind: KINDS[kind]}):
        check_neighbours(case, random)
