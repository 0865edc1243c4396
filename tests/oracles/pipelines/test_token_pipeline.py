"""Bytes of a stage that runs slices of real attention, against the ledger's slices in flight and gradients of keys."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random

import pytest
from counted import DEFAULTS
from oracles.instruments.traced import evaluated
from oracles.pipelines.sliced_attention import run
from oracles.pipelines.token_pipeline import order
from sympy import Expr, Integer, Symbol

from shardmath.symbolic.accounts import build
from shardmath.symbolic.implementations import MEGATRON
from shardmath.symbolic.parameters import symbol
from shardmath.symbolic.terms import TermSet


def _put_in(terms: TermSet, expression: Expr, known: Mapping[Symbol, Expr]) -> Expr:
    value = expression.xreplace(dict(known))
    inner = {part: _put_in(terms, terms.by_symbol[part].expression, known)
             for part in value.free_symbols if part in terms.by_symbol}
    return value.xreplace(inner).doit()


def term(option: str, name: str, **letters: int) -> int:
    """A term of the ledger's memory."""
    value: int = evaluated(MEGATRON.with_choices(slices=option, peak="saved"), [name], {**DEFAULTS, **letters})[name]
    return value


def ledger(option: str, of_slice: int, **letters: int) -> int:
    """Most bytes of a stage between passes, with what one slice of its layers keeps."""
    terms = build(MEGATRON.with_choices(slices=option, peak="saved"))
    known: dict[Symbol, Expr] = {symbol(letter): Integer(value) for letter, value in letters.items()}
    held = int(_put_in(terms, terms["in_flight"].symbol, known))
    known |= {terms["stage.inner_activations"].symbol: Integer(held * of_slice),
              terms["stage.input"].symbol: Integer(0)}
    return held * of_slice + int(_put_in(terms, terms["stage.key_gradients.layer_backward"].symbol, known))


@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize("option", ["tokens", "1f1b"])
@pytest.mark.cases(6, 100)
def test_slices(draw: Random, option: str, recompute: bool) -> None:
    ranks, sequences, slices, layers = (draw.randint(1, most) for most in (4, 3, 6, 3))
    rank, tokens, kv_heads, width = draw.randrange(ranks), draw.randint(1, 3), draw.choice((1, 2)), draw.choice((4, 8))
    heads = kv_heads * draw.choice((1, 2, 8))
    actions = order(option, ranks, sequences, slices, rank)
    counted = run(actions, layers, tokens, heads, kv_heads, width, recompute)
    letters = {"p": ranks, "r": rank, "m": sequences, "sn": slices, "s": slices * tokens, "b": 1, "k": kv_heads, "t": 1,
               "c": 1, "d": width, "h": heads * width, "Lr": layers, "ts": 1}
    assert counted.after[-1] == 0
    assert max(counted.after) == ledger(option, counted.of_slice, **letters)
    if recompute:  # beside what layers keep, the program holds the stage's output, which is a layer's input to the next
        kept = sum(term(option, f"{name}.saved", **letters) for name in ("layer_input", "sliced_keys"))
        assert counted.of_slice == layers * kept + term(option, "layer_input.saved", **letters)
