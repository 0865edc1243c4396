"""Several kinds of GPUs: steps against 1F1B played pass by pass, and layers of stages against every split."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from random import Random

import numpy as np
import pytest
from oracles.pipelines.mixed_pipeline import at_least, play, splits

from shardmath.account.configured import configured_on_any
from shardmath.account.sharing import Stages, least_largest, shared_out
from shardmath.machines.files import cluster_of


@pytest.mark.cases(60, 3000)
def test_shared_out_against_every_split(draw: Random) -> None:
    """Layers of two kinds, as those with experts: a stage costs more with more of either, and fits with few."""
    stages, layers = draw.randint(1, 4), draw.randint(4, 11)
    expert = np.cumsum([0, *(draw.choice((0, 0, 1)) * draw.choice((0, 1)) for _ in range(layers))])
    columns = np.arange((layers + 1) ** 2)
    dense, experts = columns // (layers + 1), columns % (layers + 1)
    starts, counts = (part[:, None] for part in (np.arange(layers), np.arange(1, layers + 1)))
    ends = np.minimum(starts + counts.T, layers)
    of_experts = expert[ends] - expert[starts]

    def growing(*steps: int) -> np.ndarray:
        each = [[np.cumsum([draw.choice(steps) for _ in range(layers + 1)]) for _ in range(2)] for _ in range(stages)]
        return np.array([of_dense[dense] + of_both[experts] for of_dense, of_both in each]).astype(float)

    sizes, most = growing(1, 2, 3), draw.randint(2, 6 * layers // stages)
    chunks = draw.choice((1, 3))
    asked = Stages((ends - starts - of_experts) * (layers + 1) + of_experts,
                   tuple(growing(0, 1, 2, 5, 9) for _ in range(chunks)), (growing(0, 0, 1, 7), growing(0, 3)),
                   sizes <= most, tuple(draw.randint(0, 12) for _ in range(chunks)))
    known = [split for split in splits(layers, stages) if _fit(asked, split)]
    ours = shared_out(asked, layers)
    least, split = least_largest(asked.places, sizes, layers)
    of_all = [max(sizes[place] for place in _places(asked, item)) for item in splits(layers, stages)]
    assert least == min(of_all) == max(sizes[place] for place in _places(asked, split))
    if not known:
        assert ours is None
        return
    assert ours in known
    assert asked.step(ours) == min(map(asked.step, known))


def _places(stages: Stages, split: Sequence[int]) -> list[tuple[int, int]]:
    return [(rank, int(stages.places[sum(split[:rank]), count - 1])) for rank, count in enumerate(split)]


def _fit(stages: Stages, split: Sequence[int]) -> bool:
    return all(stages.fits[place] for place in _places(stages, split))


@pytest.mark.cases(40, 4000)
def test_steps_against_a_played_pipeline(draw: Random) -> None:
    """The formula is what a step takes where stages get slower, and never less where passes back take twice as long."""
    stages, chunks = draw.randint(2, 7), draw.choice((1, 1, 2, 3, 4))
    microbatches = draw.randint(1, 24) if chunks == 1 else stages * draw.randint(1, 4)
    forward = [Fraction(draw.randint(1, 30), 10) for _ in range(stages)]
    sends = [Fraction(draw.randint(0, 5), 50) for _ in range(stages - 1)] if chunks == 1 else []
    played = play(*passes(forward, chunks), microbatches, sends)
    seconds = [[3 * own] * chunks for own in forward]
    assert at_least(seconds, microbatches) <= played <= step_of_formula(seconds, sends, microbatches)
    slower = sorted(forward)
    exact = step_of_formula([[3 * own] * chunks for own in slower], (), microbatches)
    assert play(*passes(slower, chunks), microbatches) == exact


def passes(forward: Sequence[Fraction], chunks: int) -> tuple[list[list[Fraction]], list[list[Fraction]]]:
    """Seconds of the passes of equal chunks: forward, and back twice as long."""
    return [[own] * chunks for own in forward], [[2 * own] * chunks for own in forward]


@pytest.mark.cases(100, 20000)
def test_chunks_of_unequal_length(draws: list[Random]) -> None:
    """Embedding and head make two chunks longer than others of their GPUs.

    The step is then too long by up to a fifth, as stages work ahead on the chunks that are not delayed; too short only
    where one of few micro-batches waits for the head, by less than an eighth.
    """
    for draw in draws:
        stages, chunks = draw.randint(2, 6), draw.randint(2, 4)
        microbatches = stages * draw.randint(1, 5)
        forward, _ = passes([Fraction(draw.randint(5, 30), 10) for _ in range(stages)], chunks)
        forward[0][0] *= Fraction(draw.randint(10, 15), 10)
        forward[-1][-1] *= Fraction(draw.randint(10, 30), 10)
        backward, seconds = ([[factor * own for own in chunks] for chunks in forward] for factor in (2, 3))
        formula = step_of_formula(seconds, (), microbatches)
        played = play(forward, backward, microbatches)
        assert at_least(seconds, microbatches) <= played
        assert Fraction(-1, 5) <= played / formula - 1 <= Fraction(1, 8)


@pytest.mark.cases(100, 20000)
def test_listed_chunks_on_one_kind(draws: list[Random]) -> None:
    """A step of listed stages has the average of a rank's chunks, also where they differ by a layer.

    It is then too long by less than a seventh or too short by less than a quarter, for chunks of two layers or more.
    """
    for draw in draws:
        stages, chunks = draw.randint(2, 6), draw.randint(2, 4)
        microbatches, least = stages * draw.randint(1, 5), draw.randint(2, 6)
        forward = [[Fraction(least + draw.randint(0, 1)) for _ in range(chunks)] for _ in range(stages)]
        backward = [[2 * own for own in chunks] for chunks in forward]
        seconds = [3 * sum(own) for own in forward]
        formula = microbatches * max(seconds) + (sum(seconds) - max(seconds)) / chunks
        assert Fraction(-1, 7) < play(forward, backward, microbatches) / formula - 1 < Fraction(1, 4)


@pytest.mark.cases(200, 20000)
def test_unrelated_passes_may_take_longer(draws: list[Random]) -> None:
    """With other passes back than twice as long ones a step may be longer than the formula says.

    Where they take two to three times as long, a search for the worst found a quarter of a micro-batch of the slowest
    stage. Where nothing joins both, it found p - 2: one stage has all of the forward pass, the next all of the other.
    """
    for draw in draws:
        stages, microbatches = draw.randint(2, 7), draw.randint(1, 24)
        forward = [Fraction(draw.randint(1, 100)) for _ in range(stages)]
        usual = [own * Fraction(draw.randint(20, 30), 10) for own in forward]
        assert longer(forward, usual, microbatches) <= Fraction(1, 4)
        unrelated = [Fraction(draw.randint(1, 100)) for _ in range(stages)]
        assert longer(forward, unrelated, microbatches) <= max(0, stages - 2)
    for stages in range(2, 8):
        one, other = ([Fraction(int(rank == own)) for rank in range(stages)] for own in (0, 1))
        assert longer(one, other, 3 * stages) == stages - 2
    there, back = ([Fraction(own) for own in passes] for passes in ((99, 7, 13, 10), (13, 80, 1, 9)))
    assert longer(there, back, 8) == Fraction(11, 14)


def longer(forward: Sequence[Fraction], backward: Sequence[Fraction], microbatches: int) -> Fraction:
    """How much longer a step takes than m - 1 micro-batches of the slowest stage and one of all, in the former."""
    seconds = [there + back for there, back in zip(forward, backward, strict=True)]
    formula = (microbatches - 1) * max(seconds) + sum(seconds)
    return (play(forward, backward, microbatches) - formula) / max(seconds)


def step_of_formula(seconds: Sequence[Sequence[Fraction]], sends: Sequence[Fraction], microbatches: int) -> Fraction:
    """Seconds of a step by the ledger's terms alone, with nothing done once for every step, from all chunks."""
    chunks = len(seconds[0])
    configuration = configured_on_any("llama-3.2-1b", cluster_of({"name": "both", "network": "ndr-400", "kinds": [
        {"gpu": "h100-80gb", "gpus": 8}, {"gpu": "a100-80gb", "gpus": 8},
    ]}), tensor_parallel=8, pipeline_parallel=2, virtual_pipeline=min(chunks, 2))
    evaluator = configuration.job.evaluator
    pico, names = 10**12, ("slowest", "slowest_middle", "slowest_last", "sum", "slowest_send", "sends", "data_waiting",
                           "optimizer")
    slowest = [max(own) for own in zip(*seconds, strict=True)]
    figures = (slowest[0], slowest[len(slowest) // 2], slowest[-1], sum(own[0] for own in seconds),
               max(sends, default=0), sum(sends), 0, 0)
    values = {**configuration.job.values, **configuration.job.by_rank[0], **configuration.machine_values(),
              "pipeline_rank": 0, "pipeline_parallel": len(seconds), "global_batch_size": microbatches,
              "micro_batch_size": 1, "data_parallel": 1, "virtual_pipeline": chunks,
              **{f"all_stages_{name}": Fraction(value) * pico for name, value in zip(names, figures, strict=True)}}
    step: Fraction = evaluator.times.terms(*(Fraction(values[name]) for name in evaluator.times.INPUTS))["step.time"]
    return step
