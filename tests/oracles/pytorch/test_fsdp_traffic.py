"""Gathers and reductions of FSDP2 in real processes, alone and in PyTorch's pipeline, against the ledger.

A pipeline's first step sends shapes, too; what is compared is its second one.
"""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from random import Random

import pytest
from oracles.hugging_face.huggingface import random_shape
from oracles.instruments.processes import on_ranks
from oracles.instruments.times import timed
from oracles.pipelines.pipeline_run import TOKENS, WIDTH, Layer
from oracles.pytorch.fsdp_traffic import FREED, run_all, run_pipelines

from shardmath.symbolic.implementations import TORCHTITAN
from shardmath.symbolic.parallel.legality import fixed_values


@pytest.mark.cases(6, 40)
def test_gathers_and_reductions_of_every_micro_batch(draws: list[Random], tmp_path: Path) -> None:
    cases = [[shape_for(draw), draw.choice(list(FREED)), draw.randint(1, 3)] for draw in draws]
    found = on_ranks(run_all, 2, tmp_path, cases)[0]
    for (shape, reshard, micro_batches), sent in zip(cases, found, strict=True):
        implementation = TORCHTITAN.with_choices(reshard=reshard)
        terms = timed(implementation, **shape | fixed_values(implementation) | {"D": 2, "w": 4})
        calls, gathered, reduced = (
            int(terms[f"stage.{name}"]) * micro_batches
            for name in ("gathering_calls", "gathered_bytes", "reduced_bytes")
        )
        kept = {"always": 0, "default": head_and_norm(terms, micro_batches), "never": gathered}[reshard]
        assert sent["forward"] == {"gather": [calls, gathered]}
        again = [calls - (reshard == "default") * micro_batches, gathered - kept]
        assert sent["backward"] == {"scatter": [calls, reduced], **({"gather": again} if reshard != "never" else {})}
        # The same share is in the waiting, where nothing takes time but what ranks exchange.
        instant = {"Fm": 10**40, "Fa": 10**40, "Wm": 10**40, "Wn": 1000, "tau": 0, "gap": 0, "D": 2, "w": 4}
        time = timed(implementation, **shape | fixed_values(implementation) | instant)
        exchanged = time["stage.gathering"] * (2 - Fraction(kept, gathered)) + time["stage.reducing"]
        assert float(time["stage.sharding_waiting"]) == pytest.approx(float(exchanged), rel=1e-12)


@pytest.mark.cases(4, 30)
def test_copies_of_weights_and_gradients(draws: list[Random], tmp_path: Path) -> None:
    """Weights are copied into and out of the all-gather's buffer, gradients into the reduce-scatter's, shares added."""
    cases = [[even_shape(draw), draw.choice(list(FREED)), draw.randint(1, 3)] for draw in draws]
    for (shape, reshard, micro_batches), found in zip(cases, on_ranks(run_all, 2, tmp_path, cases)[0], strict=True):
        implementation = TORCHTITAN.with_choices(reshard=reshard)
        a_byte_a_second = {"Wm": 1, "ew": 1000, "D": 2, "w": 4, "b": 1, "B": 2 * micro_batches}
        terms = timed(implementation, **shape | fixed_values(implementation) | a_byte_a_second)
        copied = found["copied"]
        weights = sum(copied[name] for name in ("cast", "copied in", "copied out"))
        assert terms["stage.copying"] * micro_batches == weights
        assert terms["stage.accumulating"] * micro_batches == copied["reduced"] + copied.get("added", 0)


@pytest.mark.cases(2, 20)
def test_replicas_sum_the_shards_of_their_gradients(draws: list[Random], tmp_path: Path) -> None:
    """A mesh of 2 x 2 (HSDP): a copy gathers and reduces among its ranks, then shards are summed over the copies."""
    cases = [[shape_for(draw), draw.choice(list(FREED)), draw.randint(1, 2), 2] for draw in draws]
    for sent in zip(cases, *on_ranks(run_all, 4, tmp_path, cases), strict=True):
        (shape, _, micro_batches, replicas), *ranks = sent
        terms = timed(TORCHTITAN, **shape | fixed_values(TORCHTITAN) | {"D": 4, "R": replicas, "w": 4})
        calls, gathered, reduced = (
            int(terms[f"stage.{name}"]) * micro_batches
            for name in ("gathering_calls", "gathered_bytes", "reduced_bytes")
        )
        for of_rank in ranks:
            assert of_rank["forward"] == {"gather": [calls, gathered]}
            assert of_rank["backward"]["scatter"] == [calls, reduced]
            assert of_rank["backward"]["allreduce"] == [calls, reduced // 2]
        instant = {"Wn": 1000, "an": 0, "ax": 0, "ab": 0, "w": 4}
        whole = timed(TORCHTITAN, **shape | fixed_values(TORCHTITAN) | instant | {"D": 2})["stage.reducing"]
        both = timed(TORCHTITAN, **shape | fixed_values(TORCHTITAN) | instant | {"D": 4, "R": 2})["stage.reducing"]
        # Ranks of a copy exchange half of all gradients, once; copies exchange half of a half of them, twice.
        assert both == whole * 2


def head_and_norm(terms: dict[str, Fraction], micro_batches: int) -> int:
    """Bytes of the last unit, which the default keeps for the backward pass."""
    return 2 * int(terms["final_norm.aligned"] + terms["head.aligned"]) * micro_batches


@pytest.mark.cases(6, 40)
def test_a_pipeline_gathers_and_reduces_once_for_every_step(draws: list[Random], tmp_path: Path) -> None:
    cases = [pipeline_for(draw) for draw in draws]
    by_rank = on_ranks(run_pipelines, 4, tmp_path, cases)
    elements = sum(one.numel() for one in Layer().parameters())
    message = 2 * TOKENS * WIDTH
    for place, case in enumerate(cases):
        schedule, stages, micro_batches, chunks, layers = case
        chosen = TORCHTITAN.with_choices(schedule=schedule, pipeline="torch")
        for results in by_rank:
            sent = results[place]
            rank = sent.pop("place")
            terms = timed(chosen, p=stages, r=rank, D=2, b=1, V=chunks, L=stages * chunks * layers, B=2 * micro_batches,
                          h=8, a=1, k=1, d=8, f=8, u=8, s=8, w=4)
            messages = int(terms["stage.messages"])
            units = chunks * layers
            assert "stage.sharding_waiting" not in terms
            assert sent == {
                "gather": [units, 2 * units * elements], "scatter": [units, 4 * units * elements],
                "send": [messages, messages * message],
            }


def shape_for(draw: Random) -> dict[str, int]:
    """Draw sizes; vocabulary and hidden_size are padded by FSDP, the others divide."""
    shape = random_shape(draw)
    return {**shape, "d": 4 * draw.randint(1, 3), "f": 2 * draw.randint(1, 30), "tied": 0}


def even_shape(draw: Random) -> dict[str, int]:
    """Draw sizes that two ranks share out without padding, which is no part of what is copied."""
    shape = shape_for(draw)
    return {**shape, "h": 2 * shape["h"], "u": 2 * shape["u"]}


def pipeline_for(draw: Random) -> list:
    """Draw a schedule of two stages, with as many micro-batches as it needs."""
    schedule = draw.choice(("1f1b", "gpipe", "interleaved", "zero_bubble", "zbv", "dualpipev"))
    chunks = {"1f1b": 1, "gpipe": 1, "zbv": 2, "dualpipev": 2}.get(schedule) or draw.randint(2, 3)
    return [schedule, 2, 2 * draw.randint(3, 4), chunks, draw.randint(1, 2)]
