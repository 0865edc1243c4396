"""The step that the page draws: passes of every rank, and bytes in use, are those of the replay in Python."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any
from urllib.parse import urlencode

from oracles.extent import FULL, SEED

from shardmath.account.configured import configured
from shardmath.account.replaying import refuse_unreplayed_job
from shardmath.allocator.trace import Action
from shardmath.commands.page.kernels import key_of
from shardmath.compiler.evaluators import terms_at
from shardmath.configuration.job import Job
from shardmath.errors import InputError
from shardmath.generated.definitions import IMPLEMENTATIONS
from shardmath.steps.rows import Rows
from shardmath.steps.step import Steps, refuse_unreplayed
from shardmath.symbolic.parallel.walk import FOLDED, actions, moments

CASES = 3000 if FULL else 300
#: Passes of every rank, each with its bytes and all that it allocates, in its order.
TRACE = """async (link) => {
  const ignored = fromLink(link);
  if (ignored.length) return { ignored };
  await ready();
  const { values, accounts } = examined(state);
  const why = untraced(state, values);
  if (why) return { why };
  const passes = [];
  const { allocate, begin } = Trace.prototype;
  Trace.prototype.begin = function () { passes.push([]); begin.call(this); };
  Trace.prototype.allocate = function (series, size) {
    if (size) passes.at(-1)?.push([series, size]);
    return allocate.call(this, series, size);
  };
  const ranks = accounts.map((account) => {
    passes.length = 0;
    const { points } = tracedStep(state, values, account, account.numbers.num_microbatches);
    return {
      points: points.map(({ peak, total }) => [peak, total]),
      allocated: structuredClone(passes.slice(-points.length - 1)),
      sums: points.every(({ peak, at }) => peak === Object.values(at).reduce((sum, size) => sum + size, 0)),
    };
  });
  Object.assign(Trace.prototype, { allocate, begin });
  return { ranks };
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
    {"model": "mixtral-8x7b-v0.1", "tensor_parallel": 2, "pipeline_parallel": 4, "expert_parallel": 4, "num_gpus": 32,
     "global_batch_size": 64},
    {"model": "mixtral-8x7b-v0.1", "tensor_parallel": 4, "pipeline_parallel": 2, "expert_parallel": 2,
     "expert_tensor_parallel": 4, "num_gpus": 16, "global_batch_size": 32, "recompute": "full"},
    {"model": "llama-3.1-8b", "tensor_parallel": 2, "pipeline_parallel": 4, "num_gpus": 16, "global_batch_size": 16,
     "first_stage_layers": 7, "last_stage_layers": 7},
    {"model": "llama-3.2-1b", "tensor_parallel": 1, "pipeline_parallel": 2, "virtual_pipeline": 3, "num_gpus": 4,
     "global_batch_size": 16, "account_for_embedding": 1, "account_for_loss": 1},
    {"model": "mixtral-8x7b-v0.1", "tensor_parallel": 1, "pipeline_parallel": 4, "expert_parallel": 4, "num_gpus": 16,
     "global_batch_size": 32, "first_stage_layers": 7, "last_stage_layers": 5},
    {"model": "llama-3.1-8b", "implementation": "torchtitan", "tensor_parallel": 2, "num_gpus": 16,
     "global_batch_size": 32, "recompute": "none"},
    {"model": "llama-3.2-1b", "implementation": "torchtitan", "num_gpus": 8, "global_batch_size": 24},
    {"model": "llama-3.2-1b", "implementation": "huggingface", "num_gpus": 8, "global_batch_size": 16},
    {"model": "llama-3.2-1b", "implementation": "huggingface", "num_gpus": 8, "global_batch_size": 16,
     "kernels": {"data_parallel": "fsdp"}},
    {"model": "llama-3.2-1b", "implementation": "huggingface", "num_gpus": 1, "global_batch_size": 2,
     "kernels": {"data_parallel": "fsdp"}},
    {"model": "llama-3.2-1b", "implementation": "huggingface", "num_gpus": 8, "global_batch_size": 16, "lora_rank": 16,
     "kernels": {"adapters": "all_linear"}},
    {"model": "qwen3-8b", "implementation": "huggingface", "num_gpus": 2, "global_batch_size": 4, "lora_rank": 32,
     "kernels": {"adapters": "all_linear"}},
)
#: Models that drawn steps are of, with their implementations; all of these are replayed with some of the layouts.
DRAWN = (
    *(("megatron", model) for model in ("llama-3.1-8b", "qwen3-8b", "mixtral-8x7b-v0.1", "qwen3-30b-a3b",
                                        "mixtral-8x22b-v0.1", "llama-3.2-1b", "starcoder2-15b")),
    ("torchtitan", "llama-3.1-8b"), ("nanotron", "llama-3.2-1b"),
)
JOBS = 50 * len(DRAWN) if FULL else 10 * len(DRAWN)
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


class Marked(Steps):
    """Steps that note what every pass allocates, with the bytes at its fullest moment and after it."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.passes: list[tuple[int, int, list[tuple[str, int]]]] = []

    def _noted(self, act: Callable[..., Any], *arguments: Any) -> Any:
        start, self.trace.peak = len(self.trace.events), self.trace.now
        answer = act(*arguments)
        allocated = [(event.row, event.size) for event in self.trace.events[start:] if event.action is Action.ALLOCATE]
        self.passes.append((self.trace.peak, self.trace.now, allocated))
        return answer

    def _forward(self, *arguments: Any) -> Any:
        return self._noted(super()._forward, *arguments)

    def _backward(self, *arguments: Any) -> Any:
        return self._noted(super()._backward, *arguments)


def _assert_as_replayed(drawn: dict[str, Any], job: Job) -> None:
    """Assert that the page walks through every rank's step as the replay walks through its second step."""
    assert len(drawn["ranks"]) == job.values["pipeline_parallel"]
    for rank, step in enumerate(drawn["ranks"]):
        values = job.on_rank(rank)
        rows = Rows.of(job.evaluator, values, terms_at(job.evaluator.terms, values))
        group = values["microbatch_group"] or values["pipeline_parallel"]
        steps = Marked(rows, job.evaluator.choices["schedule"], values["pipeline_parallel"], group)
        steps.run()
        second = steps.passes[len(steps.passes) // 2:]
        assert step["sums"]
        assert step["points"][:-1] == [[peak, after] for peak, after, _ in second], rank
        components = {row.component for row in rows.every}
        for own, (_, _, replayed) in zip(step["allocated"][1:-1], second, strict=True):
            assert [size for _, size in own] == [size for _, size in replayed]
            assert all(series == name.partition(".")[0] for (series, _), (name, _) in zip(own, replayed, strict=True)
                       if series in components)


def _unreplayed(job: Job) -> InputError | None:
    """Return why a job is not replayed, on all ranks or on one."""
    try:
        refuse_unreplayed_job(job)
        for rank in range(job.values["pipeline_parallel"]):
            refuse_unreplayed(job.evaluator.choices, job.on_rank(rank))
    except InputError as error:
        return error
    return None


def _drawn_jobs(random: Random) -> Iterator[dict[str, Any]]:
    """Draw jobs; some have no legal layout, and some are not replayed."""
    for place in range(JOBS):
        implementation, model = DRAWN[place % len(DRAWN)]
        fixed = IMPLEMENTATIONS[implementation]["fixed"]
        sizes = {"tensor_parallel": random.choice((1, 2, 4)), "pipeline_parallel": random.choice((1, 2, 4)),
                 "context_parallel": random.choice((1, 1, 2)), "virtual_pipeline": random.choice((1, 1, 2)),
                 "expert_parallel": random.choice((1, 2, 4)) if "a" in model.partition("b-")[2] or "x" in model else 1}
        sizes = {name: fixed.get(name, size) for name, size in sizes.items()}
        if sizes["pipeline_parallel"] == 1:
            sizes["virtual_pipeline"] = 1
        ranks = sizes["tensor_parallel"] * sizes["pipeline_parallel"] * sizes["context_parallel"]
        data, micro = random.choice((1, 2, 4)), random.choice((1, 2))
        modes = ["none", "full"] if "recompute_mlp" in fixed else ["none", "full", "mlp", "core_attention"]
        ends = [(), (), ("first_stage_layers", "last_stage_layers"), ("account_for_embedding", "account_for_loss")]
        chosen = random.choice(ends) if implementation == "megatron" and sizes["pipeline_parallel"] > 1 else ()
        uneven = {name: 1 if name.startswith("account") else random.choice((3, 5, 7)) for name in chosen}
        yield {"model": model, "implementation": implementation, **sizes, **uneven, "num_gpus": ranks * data,
               "micro_batch_size": micro, "global_batch_size": data * micro * random.choice((1, 3, 8)),
               "seq_length": random.choice((2048, 4096)), "recompute": random.choice(modes), "gpu": "h100-80gb"}


def test_bytes_of_a_step_are_those_of_the_replay(opened: Callable[..., Any]) -> None:
    tab = opened()
    for run in RUNS:
        link = {**OF_THE_PAGE, **USUAL, **{name: value for name, value in run.items() if name != "kernels"}}
        if kernels := run.get("kernels"):
            link["kernel"] = key_of(kernels)
        drawn = tab.evaluate(TRACE, "#" + urlencode(link))
        assert not {"why", "ignored"} & {*drawn}, (run, drawn)
        _assert_as_replayed(drawn, configured(**{**USUAL, **run}).job)


def test_drawn_steps_are_those_of_the_replay_or_are_refused_as_by_it(
    opened: Callable[..., Any], whole: Path, record_property: Any,
) -> None:
    tab, replayed, refused = opened(path=whole), set(), set()
    for run in _drawn_jobs(Random(SEED)):
        try:
            job = configured(**run).job
        except InputError:  # no such layout
            continue
        drawn = tab.evaluate(TRACE, "#" + urlencode({**OF_THE_PAGE, **run}))
        if "ignored" in drawn:  # the page has no such choice for the model
            continue
        if error := _unreplayed(job):
            assert error.rule in drawn["why"], run
            refused.add(error.field)
            continue
        assert "why" not in drawn, (run, drawn["why"])
        _assert_as_replayed(drawn, job)
        replayed.add((run["implementation"], run["model"]))
    assert replayed == {*DRAWN}
    assert refused
    record_property("replayed", len(replayed))
