"""One search: every command that looks for the best layout of a job looks at the same layouts, and finds the same."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from itertools import product
from typing import Any

import pytest
from oracles.extent import FULL

from shardmath import InputError, explore, recommend, scale, sweep
from shardmath.commands.explore.answer import Ranking
from shardmath.commands.moves import moves
from shardmath.configuration.settings import recompute_switches
from shardmath.models.model import load_model
from shardmath.search.offered import offered
from shardmath.search.sizes import AXES, FOLLOWING
from shardmath.search.spaces import Best, Space
from shardmath.search.timed import timed

pytestmark = pytest.mark.slow

#: Jobs of dense models and of experts, on few and on many GPUs, with every implementation.
JOBS: dict[str, tuple[str, dict[str, Any]]] = {
    "one node": ("llama-3.2-1b", {"num_gpus": 8, "global_batch_size": 64, "seq_length": 4096}),
    "interleaved": ("llama-3.1-70b", {"num_gpus": 64, "global_batch_size": 64}),
    "no number of stages divides the layers": ("llama-3.1-405b", {"num_gpus": 2048, "global_batch_size": 256}),
    "experts": ("mixtral-8x7b", {
        "num_gpus": 32, "global_batch_size": 32, "micro_batch_size": (1, 2), "tensor_parallel": (1, 2, 4),
        "context_parallel": (1,), "virtual_pipeline": (1, 2), "recompute": ("none", "moe_act", "full"),
    }),
    "all of experts": ("mixtral-8x7b", {"num_gpus": 32, "global_batch_size": 32, "micro_batch_size": (1, 2)}),
    "latent attention": ("deepseek-v2-lite", {"num_gpus": 16, "global_batch_size": 16, "micro_batch_size": (1,)}),
    "huggingface": ("llama-3.2-1b", {"num_gpus": 8, "global_batch_size": 64, "implementation": "huggingface"}),
    "nanotron": ("llama-3.1-8b", {"num_gpus": 32, "global_batch_size": 64, "implementation": "nanotron"}),
    "torchtitan": ("llama-3.1-8b", {"num_gpus": 16, "global_batch_size": 64, "implementation": "torchtitan"}),
}
#: Jobs that take minutes each: `ORACLES=full` looks at them.
LONG = ("all of experts", "latent attention", "torchtitan")
LATER = pytest.mark.skipif(not FULL, reason="takes minutes: ORACLES=full")


def _sizes(found: Any) -> Mapping[str, Any]:
    return {name: asdict(found)[name] for name in (*AXES, *FOLLOWING)}


def test_options_of_kernels_are_searched_together() -> None:
    """The best is the best of all options, as `explain` has it; recommend, scale and sweep have the same."""
    options = {"loss": ("vocab_parallel", "te_fused"), "optimizer": ("adamw", "precision_aware")}
    asked: dict[str, Any] = {"num_gpus": 8, "global_batch_size": 32, "seq_length": 4096, "tensor_parallel": (1, 2),
                             "pipeline_parallel": (1, 2), "virtual_pipeline": (1,), "context_parallel": (1,)}
    together = sweep("llama-3.2-1b", "h100-80gb", kernels=options, **asked)
    apart = [sweep("llama-3.2-1b", "h100-80gb", kernels=dict(zip(options, chosen, strict=True)), **asked)
             for chosen in product(*options.values())]
    every = [(item.step_seconds, -item.share) for result in apart for item in result.best]
    assert together.legal == sum(result.legal for result in apart)
    assert [(item.step_seconds, -item.share) for item in together.best] == sorted(every)[:10]
    first = together.best[0]
    assert first.kernels.keys() == options.keys()
    advice = recommend("llama-3.2-1b", "h100-80gb", kernels=options, **asked)
    choice = advice.choices[0]
    assert {name: choice.layout[name] for name in options} == first.kernels
    assert choice.time.seconds == pytest.approx(first.step_seconds, rel=1e-12)
    assert {name: choice.explanation.choices[name] for name in options} == first.kernels
    point, = scale("llama-3.2-1b", "h100-80gb", kernels=options, **{**asked, "num_gpus": (8,)}).points
    assert point.layout == choice.layout
    with pytest.raises(InputError, match=r"kernels\.loss = .*: must be one option here"):
        sweep("llama-3.2-1b", "h100-80gb", kernels=options, on_layouts=print, **asked)
    with pytest.raises(InputError, match=r"huggingface_freed.*must be one of"):
        sweep("llama-3.2-1b", "h100-80gb", kernels={"loss": ("te_fused", "huggingface_freed")}, **asked)


@pytest.mark.parametrize("job", [pytest.param(job, marks=LATER if job in LONG else ()) for job in JOBS])
def test_sweep_recommend_scale_and_moves_agree(job: str) -> None:
    model, asked = JOBS[job]
    swept = sweep(model, "h100-80gb", **asked)
    best = swept.best[0]
    advice = recommend(model, "h100-80gb", **asked)
    assert advice.legal == swept.legal
    first = advice.choices[0]
    assert dict(first.layout) == _sizes(best)
    assert first.time.seconds == pytest.approx(best.step_seconds, rel=1e-12)
    assert first.explanation.peak.total == best.peak_bytes
    assert swept.error == first.time.error
    assert swept.equally_fast == sum(item.step_seconds <= 1.03 * best.step_seconds for item in swept.best)

    point, = scale(model, "h100-80gb", **{**asked, "num_gpus": (asked["num_gpus"],)}).points
    assert (point.layout, point.peak_bytes, point.legal) == (_sizes(best), best.peak_bytes, swept.legal)
    assert point.time is not None
    assert point.time.seconds == pytest.approx(best.step_seconds, rel=1e-12)

    if "micro_batch_size" not in asked:  # what is asked of moves is one layout
        here = moves(model, "h100-80gb", **{**asked, **_arguments(best)})
        assert here.seconds == pytest.approx(best.step_seconds, rel=1e-12)
        searched = [move for move in (*here.gains, *here.differences)
                    if {change.name for change in move.changes} <= {*AXES}]
        assert all(move.seconds is None or move.seconds >= best.step_seconds * (1 - 1e-12) or
                   move.peak_bytes > here.limit_bytes for move in searched)
        if job != "torchtitan":  # all orders of passes are one search there, and moves keeps its own
            assert here.least.peak_bytes == swept.smallest.peak_bytes


def _arguments(best: Any) -> dict[str, Any]:
    sizes = {name: value for name, value in _sizes(best).items() if value or name not in FOLLOWING}
    if best.pipeline_parallel == 1 or best.schedule in ("1f1b", "interleaved"):
        del sizes["schedule"]
    return {**sizes, "sequence_parallel": bool(best.sequence_parallel)}


@pytest.mark.parametrize("job", ["one node", "experts", "huggingface"])
def test_no_legal_layout_is_better_or_left_out(job: str) -> None:
    """Columns of all candidates, evaluated without a nest."""
    model, asked = JOBS[job]
    swept = sweep(model, "h100-80gb", **asked)
    rows = timed(offered(load_model(model), "h100-80gb", **asked))
    assert len(rows) == swept.legal
    for verdict, count in swept.verdicts.items():
        assert int(rows.are(verdict).sum()) == count
    assert swept.best[0].step_seconds == pytest.approx(rows.columns["seconds"][rows.are("fits")].min(), rel=1e-12)


def test_the_largest_jobs_have_layouts() -> None:
    """The largest public model on as many GPUs as it was trained on, with Megatron-LM's overlaps off, then on.

    Its authors report an MFU of 41 %. Without overlaps a step takes 0.87 s longer, and a risk below 1 % takes as much:
    the fastest runs out in one of twelve cases.
    """
    job = {"global_batch_size": 2048, "recompute": ["none"]}
    overlaps = dict.fromkeys(("overlap_grad_reduce", "overlap_param_gather", "tp_comm_overlap"), 1)
    for risk, without, seconds in (("1%", 8.2, 7.3), ("10%", 7.3, 6.4)):
        best = [sweep("llama-3.1-405b", "h100-80gb", 16384, risk=risk, **asked).best[0]
                for asked in (job, {**job, **overlaps, "sequence_parallel": (1,)})]
        assert best[0].step_seconds is not None
        assert best[1].step_seconds is not None
        assert best[0].step_seconds < without
        assert best[1].step_seconds < seconds
    assert best[1].mfu == pytest.approx(0.41, abs=0.01)
    space, = offered(load_model("deepseek-v3"), "h100-80gb", 2048, global_batch_size=15360, seq_length=4096)
    part, = space.parts()
    assert 10**9 < part.size < 10**10  # what a nest sweeps in a minute


@pytest.mark.parametrize(("model", "count"), [("llama-3.1-8b", 5), ("mixtral-8x7b", 13), ("deepseek-v3", 81)])
def test_every_set_of_modules_is_a_mode(model: str, count: int) -> None:
    space, = offered(load_model(model), "h100-80gb", 64, global_batch_size=64)
    modes = tuple(map(str, space.axes["recompute"]))  # type: ignore[arg-type]
    assert len(modes) == len({tuple(recompute_switches(mode).values()) for mode in modes}) == count
    assert {"none", "full"} <= {*modes}
    assert ("mla_up_proj+moe_act" in modes) == (model == "deepseek-v3")


def test_the_best_are_different_layouts() -> None:
    """Axes that change nothing beside others give copies: they count, and are shown once."""
    space = Space(
        axes={"tensor_parallel": (4, 8), "pipeline_parallel": (4, 8), "first_stage_layers": (0, 10, 20),
              "recompute": ("none", "full"), "recompute_num_layers": (1, 2, 4)},
        model="llama-3.1-70b", gpu="h100-80gb", fixed={"num_gpus": 64, "global_batch_size": 64, "micro_batch_size": 1},
        questions=(Best("best", ("peak",), 10, among="legal"),),
    )
    found = explore(space)
    ranking = found.answers["best"]
    assert isinstance(ranking, Ranking)
    best = ranking.groups[0].configurations
    assert found.legal > len(best)
    kinds = {(item.labels["tensor_parallel"], item.labels["pipeline_parallel"], item.labels["recompute"],
              item.labels["recompute_num_layers"] if item.labels["recompute"] == "full" else None,
              item.values["first_stage_layers"] or 80 // item.values["pipeline_parallel"]) for item in best}
    assert len(kinds) == len(best) == 10
    swept = sweep("llama-3.2-1b", "h100-80gb", 8, global_batch_size=8, top=50).best
    assert len({(*_sizes(item).values(), item.data_parallel) for item in swept}) == 50
    assert len({(item.step_seconds, item.peak_bytes, item.first_stage_bytes, item.last_stage_bytes,
                 item.tensor_parallel, item.context_parallel, item.pipeline_parallel, item.virtual_pipeline,
                 item.micro_batch_size) for item in swept}) == 50
