"""Published terms beside counted ones at random legal layouts: the two differ by what the sets say."""

from __future__ import annotations

from random import Random

import pytest
from sympy import Expr, Integer, Rational

from shardmath.symbolic.exact import evaluate, holds, number
from shardmath.symbolic.implementations import Implementation
from shardmath.symbolic.parallel.legality import fixed_values, rules_for
from shardmath.symbolic.parameters import BY_LETTER, PARAMETERS, QUANTITIES, Kind, symbol
from shardmath.symbolic.published import Counterpart, PublishedSet, all_published
from shardmath.symbolic.published.beside import implementation_of, ledger_of

STATED = [(item, pair) for item in all_published() for pair in item.correspondence if pair.difference is not None]
POINTS, TRIES = 10, 40
#: Values of what the drawn layouts do without, and of letters whose least value is not legal.
USUAL = {"pos": 10**6, "w": 4, "M": 2**37, "n": 8, "dom": 8, "load": 100, "wm": 2, "m1": 4, "m2": 4, "slack": 1000,
         "Xx": 10**9}


def drawn(pair: Counterpart, implementation: Implementation, random: Random) -> dict[str, Expr]:
    """Draw a layout, in most cases a legal one, that keeps the assumptions of a counterpart."""
    chosen = {letter: Integer(value) for letter, value in fixed_values(implementation).items()}
    chosen |= {letter: value for letter, value in pair.values.items() if value.is_Rational}
    known = {item.letter: Integer(item.minimum) for item in PARAMETERS if item.kind is not Kind.DERIVED}
    known |= {item.letter: Integer(random.randint(1, 10**12)) for item in QUANTITIES}
    known |= {letter: Integer(value) for letter, value in USUAL.items()}

    def draw(letter: str, *values: int) -> Expr:
        known[letter] = chosen.get(letter, Integer(random.choice(values)))
        return known[letter]

    t = draw("t", *((2, 4) if chosen.get("sp") == 1 else (1, 2, 4)))
    c, p, D = (draw(letter, 1, 2, 4) for letter in "cpD")
    for letter in ("tied", "bias", "qkn", "lbias", "zero1"):
        draw(letter, 0, 1)
    draw("sp", *((0, 1) if t > 1 else (0,)))
    a = draw("a", *(4 * number for number in range(1, 9)))
    draw("k", *(number for number in range(int(t), int(a) + 1) if a % number == 0 and number % t == 0))
    d, b, V = draw("d", 2, 64, 128), draw("b", 1, 2, 3), draw("V", *((1, 2) if p > 1 else (1,)))
    draw("h", int(a * d))
    draw("gk", 2, 3, 5)
    draw("sg", *(random.randint(1, 10**8) for _ in range(2)))
    draw("f", *(4 * random.randint(1, 9999) for _ in range(2)))
    draw("L", *(int(p * V) * number for number in range(1, 9)))
    draw("rfull", *((0, 1) if "ol" in known and pair.term.startswith("wahib") else (0,)))
    draw("s", *(2 * int(t * c) * number for number in range(1, 999)))
    draw("u", random.randint(1, 200_000))
    draw("B", *(int(D * b * p) * number for number in range(1, 9)))
    known |= chosen | {"N": t * c * p * D}
    for letter, value in pair.values.items():
        if value.free_symbols and all(part.name in BY_LETTER for part in value.free_symbols):
            known[letter] = number(value, {symbol(name): known[name] for name in known})
    return known


def broken_rule(implementation: Implementation, known: dict[str, Expr]) -> str:
    """Name the first rule of layouts, of those about given letters alone, that a layout breaks."""
    letters = {symbol(letter): value for letter, value in known.items()}
    asked = (rule for rule in rules_for(implementation) if rule.condition.free_symbols <= letters.keys())
    return next((rule.name for rule in asked if not holds(rule.condition, letters)), "")


def legal(pair: Counterpart, implementation: Implementation, random: Random) -> dict[str, Expr]:
    """Draw layouts until one is legal."""
    for _ in range(TRIES):
        known = drawn(pair, implementation, random)
        broken = broken_rule(implementation, known)
        if not broken:
            return known
    raise AssertionError(f"no legal layout in {TRIES}: {broken}")


@pytest.mark.slow
@pytest.mark.parametrize(("item", "pair"), STATED, ids=lambda value: getattr(value, "term", ""))
def test_the_difference_is_the_stated_one(item: PublishedSet, pair: Counterpart) -> None:
    ledger, implementation = ledger_of(item, pair), implementation_of(item, pair)
    random = Random(pair.term)
    meant_terms = {ledger.by_symbol[part].name for value in pair.values.values() for part in value.free_symbols
                   if part in ledger.by_symbol}
    for _ in range(POINTS):
        known = legal(pair, implementation, random)
        counted = evaluate(ledger.closure({*pair.ledger, *pair.over, *pair.kept, *meant_terms}), known)
        letters = {symbol(letter): value for letter, value in known.items()}
        letters |= {ledger[name].symbol: value for name, value in counted.items()}
        meant = {letter: number(value, letters) for letter, value in pair.values.items()}
        letters |= {symbol(letter): value for letter, value in meant.items()}
        published = evaluate(item.terms.closure([pair.term]), known | meant)[pair.term]
        ours: Rational = number(pair.scale, letters) * sum(counted[name] for name in pair.ledger)
        if pair.over:
            ours /= sum(counted[name] for name in pair.over)
        assert pair.difference is not None
        assert published - ours == number(pair.difference, letters), known
