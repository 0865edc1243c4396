"""The step that the page draws: passes of every rank, and bytes in use, are those of the replay in Python."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any
from urllib.parse import urlencode

from oracles.extent import FULL, SEED

from shardmath.account.configured import configured
from shardmath.compiler.evaluators import terms_at
from shardmath.steps.rows import Rows
from shardmath.steps.step import Steps
from shardmath.symbolic.parallel.walk import FOLDED, actions, moments

CASES = 3000 if FULL else 300
TRACE = """async (link) => {
  fromLink(link);
  await ready();
  const { values, accounts } = examined(state);
  return accounts.map((account) => {
    const { points } = tracedStep(state, values, account, account.numbers.num_microbatches);
    return { passes: points.length, peak: Math.max(...points.map(({ peak }) => peak)), after: points.at(-1).total,
      static: account.numbers["stage.static"],
      sums: points.every(({ peak, at }) => peak === Object.values(at).reduce((sum, size) => sum + size, 0)) };
  });
}"""
#: Steps with and without pipeline, chunks, recompute and another order of passes.
RUNS: tuple[dict[str, Any], ...] = (
    {"model": "llama-3.2-1b", "tensor_parallel": 2, "pipeline_parallel": 4, "num_gpus": 8, "global_batch_size": 16},
    {"model": "llama-3.1-8b", "tensor_parallel": 4, "pipeline_parallel": 2, "virtual_pipeline": 4, "num_gpus": 16,
     "global_batch_size": 16},
    {"model": "llama-3.1-8b", "tensor_parallel": 1, "pipeline_parallel": 4, "num_gpus": 4, "global_batch_size": 8,
     "recompute": "full"},
    {"model": "qwen3-8b", "tensor_parallel": 2, "pipeline_parallel": 1, "num_gpus": 2, "global_batch_size": 4},
    {"model": "llama-3.1-8b", "implementation": "nanotron", "tensor_parallel": 2, "pipeline_parallel": 2, "num_gpus": 8,
     "global_batch_size": 16},
    {"model": "llama-3.1-8b", "implementation": "nanotron", "tensor_parallel": 2, "pipeline_parallel": 2, "num_gpus": 8,
     "global_batch_size": 16, "schedule": "gpipe"},
    {"model": "llama-3.2-1b", "implementation": "huggingface", "num_gpus": 8, "global_batch_size": 64},
)
USUAL = {"gpu": "h100-80gb", "seq_length": 4096}
#: What the page has where a link does not say.
OF_THE_PAGE = {"tensor_parallel": 1, "pipeline_parallel": 1}


def test_passes_are_those_of_the_walk(opened: Callable[..., Any]) -> None:
    random, cases = Random(SEED), []
    while len(cases) < CASES:
        schedule = random.choice(("1f1b", "interleaved", "gpipe", "zero_bubble", "zbv", "dualpipev"))
        p, m = random.randint(1, 6), random.randint(1, 20)
        chunks = 1 if schedule == "1f1b" else 2 if schedule in FOLDED else random.randint(1, 4)
        if schedule != "dualpipev" or m >= 2 * p:
            cases.append((schedule, p, m, chunks, random.randint(1, p), random.randrange(p)))
    drawn = opened().evaluate("""(cases) => cases.map((one) => {
      const actions = actionsOf(...one);
      return [actions.map(({ kind, chunk, microbatch }) => [kind, chunk, microbatch]), inFlight(actions)];
    })""", cases)
    for case, (passes, flying) in zip(cases, drawn, strict=True):
        expected = actions(*case)
        assert passes == [list(action) for action in expected], case
        assert flying == [sum(moment.in_flight) for moment in moments(expected, case[3])], case


def test_passes_of_all_ranks_wait_for_their_inputs(opened: Callable[..., Any]) -> None:
    """Without gaps a step of 1F1B takes m + p - 1 times a forward and a backward pass."""
    tab = opened()
    for p, m in ((1, 4), (4, 4), (4, 12), (6, 20)):
        ends = tab.evaluate("""([p, m]) => placed("1f1b", p, m, 1, p, (rank, kind) => (kind === "F" ? 1 : 2))
          .map((actions) => actions.at(-1).end)""", [p, m])
        assert max(ends) == 3 * (m + p - 1)


def test_a_step_that_is_not_drawn_says_why(opened: Callable[..., Any]) -> None:
    run = {**OF_THE_PAGE, **USUAL, "model": "llama-3.1-8b", "implementation": "torchtitan", "num_gpus": 8}
    why = opened().evaluate("""async (link) => {
      fromLink(link);
      await ready();
      return untraced(state, examined(state).values);
    }""", "#" + urlencode(run))
    assert "gathered unit by unit" in why


def test_bytes_of_a_step_are_those_of_the_replay(opened: Callable[..., Any]) -> None:
    tab = opened()
    for run in RUNS:
        ranks = tab.evaluate(TRACE, "#" + urlencode({**OF_THE_PAGE, **USUAL, **run}))
        job = configured(**{**USUAL, **run}).job
        assert len(ranks) == job.values["pipeline_parallel"]
        for rank, found in enumerate(ranks):
            values = job.on_rank(rank)
            rows = Rows.of(job.evaluator, values, terms_at(job.evaluator.terms, values))
            steps = Steps(rows, job.evaluator.choices["schedule"], values["pipeline_parallel"])
            steps.run()
            assert found["peak"] == steps.trace.peak, (run, rank)
            assert found["sums"], (run, rank)
            assert found["passes"] > 1
