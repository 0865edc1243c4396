"""Attention windows: which layers have one, on which ranks, and the pairs of tokens that are left."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from counted import DEFAULTS

from shardmath.errors import InputError
from shardmath.models.gated_families import pattern_of
from shardmath.models.windows import step_of, windows_of
from shardmath.symbolic.accounts import build
from shardmath.symbolic.exact import evaluate
from shardmath.symbolic.implementations import MEGATRON
from shardmath.symbolic.parameters import BY_NAME
from shardmath.symbolic.timing.build import build_times

FULL, SLIDING = "full_attention", "sliding_attention"


@pytest.mark.parametrize(("layers", "step"), [
    ([SLIDING] * 4, 0), ([FULL] * 3, 1), ([SLIDING, FULL] * 3, 2), ([SLIDING, SLIDING, FULL, SLIDING], 3),
    ([FULL, SLIDING], None), ([SLIDING, FULL, FULL], None), ([SLIDING, "chunked_attention"], None), ([], 0),
])
def test_every_how_many_th_layer_is_whole(layers: list[str], step: int | None) -> None:
    assert step_of(layers) == step


@pytest.mark.parametrize(("arguments", "window", "step"), [
    ((None, None), 0, 0), ((0, None, 6), 0, 0), ((512, None), 512, 0), ((512, None, 6), 512, 6),
    ((512, [SLIDING, FULL], 6), 512, 2), ((512, [FULL, FULL]), 0, 0), ((512, [FULL, SLIDING]), 0, 0),
])
def test_windows_of_a_file(arguments: Any, window: int, step: int) -> None:
    assert windows_of(*arguments) == {"attention_window": window, "full_attention_step": step}


def test_patterns_in_words() -> None:
    assert [pattern_of(word) for word in ("LLLG", "LG", 6)] == [4, 2, 6]
    for word in ("GLLL", "LLGG", "", 0, True, None):
        with pytest.raises(InputError, match="must be a number above 0"):
            pattern_of(word)


def core_flops(stages: str, **letters: int) -> tuple[int, float]:
    """Layers with windows on rank r, and FLOPs of core attention of one of its layers, on average."""
    terms = build_times(MEGATRON.with_choices(window="sliding", stages=stages))
    known = {**dict.fromkeys(("N", "n"), letters["p"]), **DEFAULTS, **letters}
    found = evaluate(tuple(terms.closure(["windowed_layers", "attention.core_flops"])), known)
    return int(found["windowed_layers"]), float(found["attention.core_flops"])


def pairs(tokens: int, window: int) -> float:
    """Pairs of tokens under a causal mask and a window; a token counts half with itself, as in the ledger."""
    window = min(window, tokens)
    return sum(min(query, window) for query in range(tokens)) + min(window, tokens) / 2


@pytest.mark.parametrize("stages", ["even", "uneven"])
def test_layers_of_each_rank_and_their_products(stages: str) -> None:
    """Against a walk through all layers and tokens."""
    draw = Random(7)
    for _ in range(12):
        p, per_stage, step = draw.randint(1, 4), draw.randint(1, 6), draw.choice((0, 2, 3, 6))
        sizes = [per_stage] * p
        letters = {"Lf": 0, "Ll": 0}
        if stages == "uneven" and p > 1:
            sizes[0], sizes[-1] = draw.randint(1, 6), draw.randint(1, 6)
            letters = {"Lf": sizes[0], "Ll": sizes[-1]}
        s, win, a, d = draw.randint(2, 60), draw.randint(1, 80), draw.randint(1, 4), draw.randint(1, 8)
        before = 0
        for rank, layers in enumerate(sizes):
            windowed = sum(1 for layer in range(before + 1, before + layers + 1) if not step or layer % step)
            before += layers
            found, flops = core_flops(
                stages, p=p, r=rank, L=sum(sizes), s=s, win=win, wstep=step, a=a, k=a, d=d, b=1, **letters)
            assert found == windowed
            counted = windowed * pairs(s, win) + (layers - windowed) * pairs(s, s)
            # The ledger takes the edge of the mask as a line: half a token more or less for each query.
            assert layers * flops / (4 * a * d) == pytest.approx(counted, abs=0.51 * layers * s)


def test_a_window_as_long_as_the_sequence_hides_nothing() -> None:
    sizes = {"p": 1, "r": 0, "L": 6, "s": 64, "a": 2, "k": 2, "d": 8, "b": 1, "Lf": 0, "Ll": 0}
    assert core_flops("even", **sizes, win=64, wstep=0)[1] == core_flops("even", **sizes, win=9999, wstep=3)[1]
    assert BY_NAME["attention_window"].default == 0


def test_gathered_keys_and_values_do_not_know_the_window() -> None:
    """All keys and values travel once forward and twice backward; the outputs of both halves of the tokens stay."""
    sizes = {"c": 4, "s": 64, "b": 3, "a": 8, "k": 2, "d": 16, "h": 8, "f": 8, "L": 1, "u": 8, "B": 3}
    sizes |= {"A": 8 * 16, "K": 2 * 16}
    kept: dict[str, int] = {}
    for context in ("ring", "all_gather"):
        for window in ("none", "sliding"):
            implementation = MEGATRON.with_choices(context=context, window=window)
            times, saved = build_times(implementation), build(implementation)
            names = [f"attention.context_{way}_bytes" for way in ("forward", "backward")]
            known = {**DEFAULTS, **sizes, "win": 5 if window == "sliding" else 0, "wstep": 0}
            forward, backward = (evaluate(tuple(times.closure(names)), known)[name] for name in names)
            kept[context] = int(evaluate(tuple(saved.closure(["attention.saved"])), known)["attention.saved"])
            assert (forward, backward) == (2 * 2 * 64 * 3 * 2 * 16, 2 * 2 * 2 * 64 * 3 * 2 * 16)
    assert kept["all_gather"] - kept["ring"] == 2 * (64 // 4) * 3 * 8 * 16
