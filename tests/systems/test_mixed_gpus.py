"""Stages on several kinds of GPUs: each as on its own GPUs alone, and layers against every split of them."""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from oracles.pipelines.mixed_pipeline import play, splits

from shardmath import Cluster, InputError, explain, explore, read_cluster, recommend, sweep
from shardmath.account.configured import configured_on_any
from shardmath.account.kinds import together
from shardmath.account.mixed import Mixed
from shardmath.cli.main import exit_code
from shardmath.commands.sweep.report import show
from shardmath.compiler.evaluators import times_at
from shardmath.generated.definitions import VERDICTS
from shardmath.machines import write_cluster
from shardmath.machines.files import cluster_of, plain
from shardmath.search.spaces import Best, Space

pytestmark = pytest.mark.slow

SMALL = "llama-3.2-1b"
ORDER = [name for name, _ in VERDICTS]


def mixed(*kinds: tuple[str, int], network: str = "ndr-400", **others: object) -> Cluster:
    tables = [{"gpu": gpu, "gpus": gpus} for gpu, gpus in kinds]
    return cluster_of({"name": "ours", "network": network, "kinds": tables, **others})


BOTH = mixed(("h100-80gb", 8), ("a100-80gb", 8))


@pytest.mark.parametrize("layout", ["10,6", None])
def test_each_stage_is_that_of_its_own_gpus(layout: str | None) -> None:
    options = {"tensor_parallel": 4, "pipeline_parallel": 2, "global_batch_size": 32, "pipeline_layout": layout}
    ours = configured_on_any(SMALL, BOTH, **options)
    layers = ours.stages(None)
    account = explain(SMALL, BOTH, **options)
    assert account.time is not None
    assert [stage.gpu for stage in account.stages] == ["h100-80gb", "a100-80gb"]
    for rank, gpu in enumerate(("h100-80gb", "a100-80gb")):
        alone = configured_on_any(SMALL, Cluster.named(gpu, "ndr-400"), num_gpus=16, **{
            **options, "pipeline_layout": [stage.layers for stage in layers]})
        theirs = explain(SMALL, alone.cluster, num_gpus=16, **{
            **options, "pipeline_layout": [stage.layers for stage in layers]})
        assert account.ranks[rank] == theirs.ranks[rank]
        numbers = times_at(alone.job.evaluator.times, {**alone.job.on_rank(rank), **alone.machine_values()})
        assert account.stages[rank].microbatch_seconds == numbers["stage.microbatch_time"]


EXPERTS = {"pipeline_parallel": 4, "expert_parallel": 8, "expert_tensor_parallel": 1, "global_batch_size": 32}


@pytest.mark.parametrize("model", ["mixtral-8x7b", "deepseek-v2-lite"])
@pytest.mark.parametrize("recompute", ["none", "full"])
def test_stages_with_experts_are_those_of_their_own_gpus(model: str, recompute: str) -> None:
    """Rows are those of one kind alone with the same list; seconds those of even stages, which have a time there."""
    cluster = mixed(("h100-80gb", 16), ("a100-80gb", 16))
    options = {**EXPERTS, "recompute": recompute}
    ours = configured_on_any(model, cluster, **options)
    layers = [stage.layers for stage in ours.stages(None)]
    rows = explain(model, cluster, **options)
    assert (rows.time is not None, rows.stages[0].layers) == (True, layers[0])
    for gpu, ranks in (("h100-80gb", (0, 1)), ("a100-80gb", (2, 3))):
        alone = explain(model, gpu, num_gpus=32, network="ndr-400", pipeline_layout=layers, **options)
        assert alone.time is not None
        assert [rows.ranks[rank] for rank in ranks] == [alone.ranks[rank] for rank in ranks]
    if model != "mixtral-8x7b":  # its 27 layers, of which the first is dense, have no even stages
        return
    even = explain(model, cluster, pipeline_layout="8,8,8,8", **options)
    for gpu, ranks in (("h100-80gb", (0, 1)), ("a100-80gb", (2, 3))):
        job = configured_on_any(model, gpu, num_gpus=32, network="ndr-400", **options)
        for rank in ranks:
            numbers = times_at(job.job.evaluator.times, {**job.job.on_rank(rank), **job.machine_values()})
            assert even.stages[rank].microbatch_seconds == pytest.approx(numbers["stage.microbatch_time"], rel=1e-12)


@pytest.mark.parametrize(("model", "options"), [
    (SMALL, {"tensor_parallel": 8, "pipeline_parallel": 2, "global_batch_size": 32, "pipeline_layout": "9,7"}),
    ("mixtral-8x7b", {**EXPERTS, "pipeline_parallel": 2, "pipeline_layout": "16,16"}),
])
def test_two_kinds_that_are_one_take_as_long_as_one(model: str, options: dict[str, Any]) -> None:
    ours = explain(model, mixed(("h100-80gb", 8), ("h100-80gb", 8)), **options)
    alone = explain(model, Cluster.named("h100-80gb", "ndr-400"), num_gpus=16, **options)
    assert ours.ranks == alone.ranks
    assert ours.time is not None
    assert alone.time is not None
    assert ours.time.seconds == pytest.approx(alone.time.seconds, rel=1e-8)
    for name in ("mfu", "hfu", "tokens_per_second"):
        assert getattr(ours.time, name) == pytest.approx(getattr(alone.time, name), rel=1e-8)
    assert ours.time.spent == pytest.approx(alone.time.spent, abs=1e-8)


def test_energy_and_price_are_those_of_all_gpus() -> None:
    tables = [{"gpu": "h100-80gb", "gpus": 8, "cents_per_gpu_hour": 300},
              {"gpu": "a100-80gb", "gpus": 8, "cents_per_gpu_hour": 100}]
    cluster = cluster_of({"name": "priced", "network": "ndr-400", "kinds": tables})
    time = explain(SMALL, cluster, tensor_parallel=8, pipeline_parallel=2, global_batch_size=32).time
    assert time is not None
    assert time.cost_per_token == pytest.approx((8 * 3 + 8 * 1) * time.seconds / 3600 / time.tokens, rel=1e-9)
    assert 8 * (700 + 400) * time.seconds * 0.85 < time.joules_per_token * time.tokens < 8 * 1100 * time.seconds
    unpriced = explain(SMALL, replaced(cluster, 1, cents_per_gpu_hour=None), tensor_parallel=8, pipeline_parallel=2)
    assert unpriced.time is not None
    assert unpriced.time.cost_per_token == 0


def replaced(cluster: Cluster, place: int, **fields: object) -> Cluster:
    kind = cluster.kinds[place]
    other = kind.model_copy(update={"cluster": kind.cluster.model_copy(update=fields)})
    return cluster.model_copy(update={"kinds": (*cluster.kinds[:place], other, *cluster.kinds[place + 1:])})


def test_parameters_of_one_kind_are_not_those_of_another() -> None:
    tables = [{"gpu": "h100-80gb", "gpus": 8, "parameters": {"context_bytes": 2**30, "matmul_per_mille": 600}},
              {"gpu": "a100-80gb", "gpus": 8, "parameters": {"matmul_per_mille": 700}}]
    both = {"name": "ours", "network": "ndr-400", "parameters": {"overlap_grad_reduce": 1}}
    cluster = cluster_of({**both, "kinds": tables})
    assert cluster.parameters == {"overlap_grad_reduce": 1}
    ours = configured_on_any(SMALL, cluster, tensor_parallel=8, pipeline_parallel=2)
    assert isinstance(ours.hardware, Mixed)
    stages = ours.hardware.pipeline.stages
    assert [stage["matmul_per_mille"] for stage in stages] == [600, 700]
    assert [stage["context_bytes"] for stage in stages] == [2**30, 501 * 2**20]
    assert explain(SMALL, cluster, tensor_parallel=8, pipeline_parallel=2).switches["overlap_grad_reduce"] == 1


@pytest.mark.parametrize(("model", "cluster", "options"), [
    (SMALL, BOTH, {"tensor_parallel": 8, "pipeline_parallel": 2, "global_batch_size": 8}),
    (SMALL, mixed(("a100-40gb", 4), ("h100-80gb", 8)),
     {"tensor_parallel": 4, "pipeline_parallel": 3, "seq_length": 32768}),
    (SMALL, mixed(("a100-40gb", 8), ("h200", 8)),
     {"pipeline_parallel": 2, "seq_length": 65536, "data_parallel": 8}),
    ("deepseek-v2-lite", BOTH, {"expert_parallel": 8, "pipeline_parallel": 2, "global_batch_size": 16}),
    (SMALL, BOTH, {"tensor_parallel": 4, "pipeline_parallel": 4, "virtual_pipeline": 2, "global_batch_size": 16}),
    (SMALL, mixed(("a100-40gb", 4), ("h100-80gb", 8)),
     {"tensor_parallel": 4, "pipeline_parallel": 3, "virtual_pipeline": 4, "seq_length": 2**16,
      "global_batch_size": 6}),
])
def test_no_split_of_layers_is_faster(model: str, cluster: Cluster, options: dict[str, int]) -> None:
    ours = explain(model, cluster, **options)
    chunks = options.get("virtual_pipeline", 1)
    every = [explain(model, cluster, pipeline_layout=split * chunks, **options)
             for split in splits(ours.model.num_layers // chunks, options["pipeline_parallel"])]
    def worst(account: object) -> int:
        return max(ORDER.index(rank.verdict) for rank in account.ranks)  # type: ignore[attr-defined]
    best = min(map(worst, every))
    assert worst(ours) == best
    assert ours.time is not None
    if best < 2:
        assert ours.time.seconds == min(item.time.seconds for item in every if worst(item) == best and item.time)
    else:
        shares = [max(rank.share for rank in item.ranks) for item in every]
        assert max(rank.share for rank in ours.ranks) == min(shares)


@pytest.mark.parametrize("chunks", [2, 4])
def test_chunks_on_one_kind_in_two_places(chunks: int) -> None:
    """Rows are those of one kind with the same list. A step is longer by the embedding, which is in the first chunk."""
    options = {"tensor_parallel": 8, "pipeline_parallel": 2, "virtual_pipeline": chunks, "global_batch_size": 16,
               "pipeline_layout": [8 // chunks] * 2 * chunks}
    ours = explain(SMALL, mixed(("h100-80gb", 8), ("h100-80gb", 8)), **options)
    alone = explain(SMALL, Cluster.named("h100-80gb", "ndr-400"), num_gpus=16, **options)
    assert ours.ranks == alone.ranks
    assert ours.layers == tuple(options["pipeline_layout"])  # type: ignore[arg-type]
    assert ours.time is not None
    assert alone.time is not None
    assert 1 <= ours.time.seconds / alone.time.seconds < 1.02
    assert ours.time.spent["computing"] == pytest.approx(alone.time.spent["computing"])


@pytest.mark.parametrize(("gpus", "options", "least"), [
    (("h100-80gb", "a100-80gb"), {"pipeline_parallel": 4, "virtual_pipeline": 2}, 0.99),
    (("a100-80gb", "h100-80gb"), {"pipeline_parallel": 4, "virtual_pipeline": 2}, 0.98),
    (("h100-80gb", "a100-80gb"), {"pipeline_parallel": 4, "virtual_pipeline": 4}, 0.93),
    (("h100-80gb", "a100-80gb"), {"pipeline_parallel": 4, "virtual_pipeline": 8}, 0.99),
])
def test_the_step_of_real_chunks_beside_a_played_one(
    gpus: Sequence[str], options: dict[str, int], least: float,
) -> None:
    """The formula is too long where stages work ahead on chunks that nothing delays, and hardly ever too short."""
    ours = configured_on_any("llama-3.1-8b", mixed(*((gpu, 8) for gpu in gpus)), tensor_parallel=4,
                             global_batch_size=64, **options)
    assert isinstance(ours.hardware, Mixed)
    numbers = [times_at(ours.job.evaluator.times, stage) for stage in ours.hardware.pipeline.stages]
    further = options["virtual_pipeline"] - 2
    chunks = [[Fraction(stage["stage.first_chunk"]), *[Fraction(stage["stage.middle_chunk"])] * further,
               Fraction(stage["stage.last_chunk"])] for stage in numbers]
    for stage, own in zip(numbers, chunks, strict=True):
        assert float(sum(own)) == pytest.approx(stage["stage.microbatch_time"])
    share = [Fraction(stage["stage.forward_computing"] / stage["stage.microbatch_time"]) for stage in numbers]
    forward = [[part * own for own in each] for part, each in zip(share, chunks, strict=True)]
    backward = [[(1 - part) * own for own in each] for part, each in zip(share, chunks, strict=True)]
    formula = 64 * numbers[0]["step.slowest_stage"] + numbers[0]["step.bubble"]
    assert least < float(play(forward, backward, 64)) / formula < 1.002


@pytest.mark.parametrize(("model", "options"), [
    ("llama-3.1-8b", {"tensor_parallel": 4}), ("deepseek-v2-lite", {"expert_parallel": 4}),
])
def test_the_step_of_a_real_split_is_close_to_a_played_one(model: str, options: dict[str, int]) -> None:
    batch = 32 * 4 // options.get("tensor_parallel", 1)
    ours = configured_on_any(model, BOTH, pipeline_parallel=4, global_batch_size=batch, **options)
    assert isinstance(ours.hardware, Mixed)
    values = ours.hardware.pipeline.stages
    numbers = [times_at(ours.job.evaluator.times, stage) for stage in values]
    forward = [Fraction(stage["stage.forward_computing"]) for stage in numbers]
    backward = [Fraction(stage["stage.microbatch_time"]) - own for stage, own in zip(numbers, forward, strict=True)]
    figures = together(ours.job.evaluator, values)
    formula = (31 * figures["all_stages_slowest"] + figures["all_stages_sum"]) / 10**12
    assert float(play(forward, backward, 32)) == pytest.approx(formula, rel=0.01)


def test_sweep_and_recommend_find_what_explain_says(capsys: pytest.CaptureFixture[str]) -> None:
    asked = {"num_gpus": 16, "global_batch_size": 16, "micro_batch_size": (1, 2), "recompute": ("none", "full"),
             "virtual_pipeline": (1, 2)}
    result = sweep(SMALL, BOTH, top=1000, **asked)  # type: ignore[arg-type]
    assert result.legal == sum(result.verdicts.values())
    assert result.tried == result.legal + sum(rule.count for rule in result.broken)
    assert len(result.best) == result.verdicts["fits"]
    show(result)
    assert "runs out" in capsys.readouterr().out
    assert {layout.virtual_pipeline for layout in result.best} == {1, 2}
    seconds = []
    for layout in result.best[:40]:
        account = explain(
            SMALL, BOTH, tensor_parallel=layout.tensor_parallel, context_parallel=layout.context_parallel,
            pipeline_parallel=layout.pipeline_parallel, micro_batch_size=layout.micro_batch_size,
            sequence_parallel=bool(layout.sequence_parallel), recompute=layout.recompute, global_batch_size=16,
            pipeline_layout=layout.pipeline_layout, virtual_pipeline=layout.virtual_pipeline,
        )
        assert account.time is not None
        assert (layout.step_seconds, layout.peak_bytes, layout.verdict, layout.run_out_probability) == (
            account.time.seconds, account.peak.total, account.peak.verdict, account.run_out_probability)
        seconds.append(account.time.seconds)
    assert seconds == sorted(seconds)
    advice = recommend(SMALL, BOTH, **asked)  # type: ignore[arg-type]
    assert advice.choices[0].time.seconds == seconds[0]
    assert advice.choices[0].layout["pipeline_layout"] == result.best[0].pipeline_layout
    stages = ["t" * int(layers) for layers in result.best[0].pipeline_layout.split(",")]
    assert f"E{'|'.join(stages)}L" in advice.choices[0].script()
    json.dumps(advice.to_dict())


def test_a_model_that_no_kind_alone_holds() -> None:
    asked = {"global_batch_size": 16, "tensor_parallel": (8,), "context_parallel": (1,), "recompute": ("full",)}
    for gpu in ("h100-80gb", "a100-80gb"):
        assert sweep("llama-3.1-70b", gpu, 8, **asked).verdicts["out of memory"] > 0  # type: ignore[arg-type]
        assert not sweep("llama-3.1-70b", gpu, 8, **asked).verdicts["uncertain"]  # type: ignore[arg-type]
    both = sweep("llama-3.1-70b", BOTH, 16, **asked)  # type: ignore[arg-type]
    assert both.verdicts["uncertain"] > 0


@pytest.mark.parametrize(("options", "line"), [
    ({"num_gpus": 12, "pipeline_parallel": 2}, "num_gpus = 12: must be all GPUs of the cluster, 8 x h100-80gb + 8 x "
     "a100-80gb; nearest legal: 16"),
    ({"pipeline_parallel": 3}, "pipeline_parallel = 3: must give each kind of GPU whole stages of num_gpus / "
     "pipeline_parallel of them, which divides 8: tensor, context and data parallelism over several kinds are not "
     "counted yet; nearest legal: 2 or 4"),
    ({"pipeline_parallel": 32}, "nearest legal: 16"),
    ({"pipeline_parallel": 2, "virtual_pipeline": 3}, "virtual_pipeline = 3: must divide num_layers = 16 on several"
     " kinds of GPUs: chunks of unequal layers are not counted yet there; nearest legal: 2 or 4"),
    ({"pipeline_parallel": 4, "virtual_pipeline": 8, "tensor_parallel": 4}, "pipeline_parallel = 4: must be at most"
     " num_layers / 8 = 2: each stage has a layer or more in each chunk; nearest legal: 2"),
    ({"pipeline_parallel": 2, "virtual_pipeline": 2, "pipeline_layout": "5,4,4,3"}, "pipeline_layout = '5,4,4,3': must"
     " give the chunks of a GPU equally many layers on several kinds of GPUs: others are not counted yet there"),
    ({"pipeline_parallel": 2, "pipeline_layout": "9,6"}, "must add up to num_layers = 16"),
    ({"pipeline_parallel": 2, "network": "hdr-200"}, "network = 'hdr-200': must be given in the cluster file of several"
     " kinds of GPUs"),
    ({"pipeline_parallel": 2, "node_size": 4}, "node_size = 4: must be given as gpus_per_node of each kind of GPU"),
    ({"pipeline_parallel": 2, "pipeline_place": 1}, "nearest legal: 0"),
    ({"pipeline_parallel": 2, "kernels": {"gpus": "alike"}}, "gpus = 'alike': must be mixed with several kinds in the "
     "cluster file; nearest legal: mixed"),
    ({"pipeline_parallel": 2, "implementation": "huggingface"}, "implementation = 'huggingface': must be megatron or "
     "nanotron on several kinds of GPUs: others are not counted yet"),
    ({"pipeline_parallel": 2, "kernels": {"fp8": "delayed"}}, "precision = 'fp8': must be one that a100-80gb multiplies"
     " matrices in; nearest legal: bf16"),
    ({"pipeline_parallel": 2, "optimizer_offload_percent": 50}, "several kinds of GPUs with optimizer_offload = cpu"),
])
def test_what_is_refused(options: dict[str, object], line: str) -> None:
    with pytest.raises(InputError) as caught:
        explain(SMALL, BOTH, **options)  # type: ignore[arg-type]
    assert line in str(caught.value)


def test_chunks_of_experts_are_refused() -> None:
    line = ("virtual_pipeline = 3: must be 1 for layers with experts on several kinds of GPUs: chunks of unequal"
            " layers are not counted yet there; nearest legal: 1")
    with pytest.raises(InputError, match=line):
        explain("deepseek-v2-lite", BOTH, pipeline_parallel=2, expert_parallel=8, virtual_pipeline=3)


@pytest.mark.parametrize(("changed", "line"), [
    ({"fixed": {"num_gpus": 12}}, "fixed.num_gpus = 12: must be all GPUs of the cluster, 8 x h100-80gb + 8 x a100-80gb;"
     " nearest legal: 16"),
    ({"fixed": {"pipeline_parallel": 3}}, "fixed.pipeline_parallel = 3: must give each kind of GPU whole stages"),
    ({"axes": {"pipeline_parallel": [3, 5]}}, "must meet divides(2, pipeline_parallel)"),
    ({"axes": {"node_size": [4, 8]}}, "axes.node_size = [4, 8]: must be given as gpus_per_node of each kind of GPU"),
    ({"axes": {"pipeline_place": [1, 2]}}, "must be 0 on several kinds of GPUs"),
    ({"axes": {"gpu": ["h100-80gb", "h200"]}}, "must not be given: cluster sets it"),
    ({"kernels": {"gpus": "alike"}}, "kernels.gpus = 'alike': must be mixed with several kinds in the cluster file"),
    ({"implementation": "huggingface"}, "must be megatron or nanotron on several kinds of GPUs"),
    ({"cluster": mixed(("h100-80gb", 8), ("mi250x-64gb-per-gcd", 8))}, "gpu.link_mb_per_s = absent: must be given in a"
     " cluster file: no figure is known for mi250x-64gb-per-gcd"),
    ({"cluster": None, "gpu": "h200", "kernels": {"gpus": "mixed"}}, "must not be given without kinds"),
])
def test_spaces_that_are_refused(changed: dict[str, Any], line: str) -> None:
    axes = {"tensor_parallel": [2, 4], **changed.pop("axes", {})}
    fixed = {"global_batch_size": 16, **changed.pop("fixed", {})}
    with pytest.raises(InputError) as caught:
        explore(Space(axes, SMALL, fixed=fixed, questions=(Best("best", ("peak",)),), **{"cluster": BOTH, **changed}))
    assert line in str(caught.value)


@pytest.mark.parametrize(("name", "value"), [("backend", "numba"), ("backend", "numpy"), ("device", "cuda"),
                                             ("method", "bounds")])
def test_loops_of_one_kind_are_refused(name: str, value: str) -> None:
    space = Space({"pipeline_parallel": [2, 4]}, SMALL, cluster=BOTH, fixed={"global_batch_size": 16},
                  questions=(Best("best", ("peak",)),))
    with pytest.raises(InputError, match=f"{name} = '{value}': must be .* on several kinds of GPUs"):
        explore(space, **{name: value})  # type: ignore[arg-type]


def test_layouts_are_ranked_by_time_alone() -> None:
    with pytest.raises(InputError, match="rank_by = 'memory': must be time where each layout has a list of layers"):
        sweep(SMALL, BOTH, 16, global_batch_size=16, rank_by="memory")


def test_rows_of_a_space(tmp_path: Path) -> None:
    space = Space({"pipeline_parallel": [2, 4], "micro_batch_size": [1, 2]}, SMALL, cluster=BOTH,
                  fixed={"global_batch_size": 16}, questions=(Best("best", ("step.time",)),))
    answer = explore(space, rows=tmp_path / "rows.csv", terms=("stage.total", "1 * step.time"), among="legal")
    with open(tmp_path / "rows.csv", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert answer.rows == len(rows) == 4
    for row in rows:
        account = explain(SMALL, BOTH, pipeline_parallel=int(row["pipeline_parallel"]), global_batch_size=16,
                          micro_batch_size=int(row["micro_batch_size"]))
        assert account.time is not None
        assert (int(row["peak_bytes"]), row["verdict"], int(row["stage.total"]), float(row["1 * step.time"])) == (
            account.peak_bytes, account.verdict, account.ranks[0].total, account.time.seconds)


_OF_COMMANDS = {
    "scale": ["--num-gpus", "16", "--global-batch-size", "16"], "compare": ["--tp", "8", "--against", "--tp 4"],
}


def test_other_commands_refuse_several_kinds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(tmp_path / "both.toml")
    write_cluster(BOTH, path)
    for command in ("moves", "scale", "compare"):
        arguments = [command, SMALL, "--gpu", path, *_OF_COMMANDS.get(command, ["--pp", "2"])]
        assert exit_code(arguments) == 2, command
        assert "must be a cluster of one kind of GPU" in capsys.readouterr().err, command
    assert exit_code(["explain", SMALL, "--gpu", "h100-80gb", "--kernel", "gpus=mixed", "--pp", "2"]) == 2
    assert "must not be given without kinds in a cluster file" in capsys.readouterr().err
    for rows in ("", "--csv"):
        arguments = ["sweep", SMALL, "--gpu", path, "--num-gpus", "16", "--global-batch-size", "16", "--tp", "8",
                     *([rows, str(tmp_path / "rows.csv")] if rows else ["--vpp", "3"])]
        assert exit_code(arguments) == (0 if rows else 2)
    assert (tmp_path / "rows.csv").read_text(encoding="utf-8").count("\n") > 1


@pytest.mark.parametrize(("text", "line"), [
    ("kinds = 3", "kinds = 3: must be tables, each with gpu and gpus"),
    ("kinds = [{gpu = 'h200', gpus = 8}]", "kinds = 1: must be 2 to 16 kinds of GPUs; one kind needs none of them: give"
     " gpu; nearest legal: 2"),
    ("kinds = [{gpu = 'h200', gpus = 8}, {gpu = 'h200'}]", "kinds[1].gpus = absent: must be given"),
    ("kinds = [{gpu = 'h200', gpus = 0}, {gpu = 'a100-80gb', gpus = 8}]", "kinds[0].gpus = 0: must be"),
    ("kinds = [{gpu = 'h2000', gpus = 8}, {gpu = 'a100-80gb', gpus = 8}]", "kinds[0].gpu = 'h2000': must be"),
    ("kinds = [{gpu = 'h200', gpus = 8, nodes = 1}, {gpu = 'a100-80gb', gpus = 8}]", "kinds[0].nodes = 1: must not be "
     "given: there is no such key"),
    ("links = {mb_per_s = [[0, 1], [1, 0]]}\nkinds = [{gpu = 'h200', gpus = 9}, {gpu = 'a100-80gb', gpus = 8}]",
     "links.mb_per_s = '2 rows': must have 2 + 1 rows, one for each node of the kinds in their order; nearest legal: "
     "3"),
    ("links = 3\nkinds = [{gpu = 'h200', gpus = 8}, {gpu = 'a100-80gb', gpus = 8}]", "links = 3: must be a table"),
    ("gpu = 'h200'\nkinds = [{gpu = 'h200', gpus = 8}, {gpu = 'a100-80gb', gpus = 8}]", "gpu = 'h200': must be given"
     " in each of the kinds"),
])
def test_files_that_are_refused(tmp_path: Path, text: str, line: str) -> None:
    path = tmp_path / "mixed.toml"
    path.write_text(f"network = 'ndr-400'\n{text}\n", encoding="utf-8")
    with pytest.raises(InputError) as caught:
        read_cluster(path)
    assert line in str(caught.value)


def test_files_need_a_network_and_are_read_as_written(tmp_path: Path) -> None:
    path = tmp_path / "mixed.toml"
    path.write_text("kinds = [{gpu = 'h200', gpus = 8, network = 'ndr-400'}, {gpu = 'a100-80gb', gpus = 8}]")
    with pytest.raises(InputError, match=r"kinds\[1\].network = absent: must be given"):
        read_cluster(path)
    path.write_text("network = 'hdr-200'\npue_per_mille = 1100\n[parameters]\nmatmul_per_mille = 700\n"
                    "[[kinds]]\ngpu = 'h200'\ngpus = 16\nnetwork = 'ndr-400'\n"
                    "[[kinds]]\ngpu = 'a100-80gb'\ngpus = 8\ngpus_per_node = 4\n"
                    "parameters = {matmul_per_mille = 650}\n"
                    "[links]\nnodes = ['x', 'y', 'z', 'w']\n"
                    "mb_per_s = [[5, 1, 1, 1], [1, 5, 2, 2], [3, 3, 4, 3], [4, 4, 4, 2]]\n")
    cluster = read_cluster(path)
    assert [(kind.gpus, kind.cluster.gpu.name, kind.cluster.gpus_per_node) for kind in cluster.kinds] == [
        (16, "h200-141gb", 8), (8, "a100-80gb", 4)]
    networks = [kind.cluster.network for kind in cluster.kinds]
    assert [network.name for network in networks if network] == ["ndr-400", "hdr-200"]
    assert [kind.cluster.parameters["matmul_per_mille"] for kind in cluster.kinds] == [700, 650]
    assert [kind.cluster.pue_per_mille for kind in cluster.kinds] == [1100, 1100]
    written = tmp_path / "written.toml"
    write_cluster(cluster, str(written))
    assert read_cluster(written) == cluster == cluster_of(plain(cluster))
