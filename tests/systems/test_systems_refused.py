"""Illegal values of systems, alone and together: one line with field, value, rule and nearest legal value."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

import shardmath
from shardmath.cli.main import exit_code
from shardmath.commands.phases.plan import read_plan
from shardmath.errors import InputError, InputWarning
from shardmath.search.spaces import Best, Space

pytestmark = pytest.mark.slow
CLUSTERS = Path(__file__).resolve().parents[2] / "docs"
SMALL, MIXED, MEASURED = (CLUSTERS / path for path in (
    "clusters/small_host.toml", "systems/mixed_gpus.toml", "clusters/measured.toml"))
KARMA = "--kernel activation_offload=karma --kernel recompute_method=block"
#: Options of ``explain`` for 8 H100 unless they name a cluster, and what the error says after ``error: ``.
REFUSED = {
    "--pp 4 --sequence-slices 3": "sequence_slices = 3: times the sequence-parallel ranks must divide seq_length"
                                  " (seq_length = 8192); nearest legal: 2 or 4",
    "--tpy 2 --tpz 3": "num_gpus = 8: must be a multiple of *; nearest legal: tensor_parallel_z 2 or 4",
    "--tpz 8 --global-batch-size 4": "tensor_parallel_z = 8: *; nearest legal: global_batch_size 8",
    "--tpy 2 --sequence-parallel": "sequence_parallel = 1: must be 0 *; nearest legal: 0",
    "--cpu-offloading-num-layers 32":
        "cpu_offloading_num_layers = 32: must be less than num_layers *; nearest legal: 31",
    "--cpu-offloading-num-layers 8 --recompute full": "cpu_offloading_num_layers = 8: must be 0 *; nearest legal: 0",
    "--cpu-offloading-num-layers 8 --pp 2": "pipeline_parallel = 2: must be 1 *; nearest legal: 1",
    f"{KARMA} --cpu-offloading-num-layers 20 --recompute full --recompute-num-layers 20":
        "cpu_offloading_num_layers = 20: *; nearest legal: 10",
    f"{KARMA} --cpu-offloading-num-layers 4 --recompute mlp":
        "recompute = 'mlp': must not be mlp where layers are recomputed; nearest legal: *",
    "--kernel optimizer_offload=interleaved --gpu-update-stride 1": "gpu_update_stride = 1: *; nearest legal: 2",
    "--optimizer-offload-percent 101": "optimizer_offload_percent = 101: *; nearest legal: 100",
    "--gpu-update-stride 2 --optimizer-offload-percent 50":
        "optimizer_offload_percent = 50: must be 0: optimizer_offload = interleaved does not have it; nearest legal: 0",
    "--kernel optimizer_offload=none --optimizer-offload-percent 50":
        "optimizer_offload_percent = 50: *; nearest legal: 0",
    "--kernel local_updates=diloco --inner-steps 0": "inner_steps = 0: *; nearest legal: 1",
    "--inner-steps 100 --data-parallel-replicas 3": "data_parallel_replicas = 3: *; nearest legal: 2 or 4",
    "--inner-steps 10 --fragments 3 --data-parallel-replicas 2": "fragments = 3: *; nearest legal: 2 or 5",
    "--inner-steps 100 --fragments 64 --data-parallel-replicas 2": "fragments = 64: *; nearest legal: 50 or 100",
    "--inner-steps 100 --fragments 4 --outer-overlap-steps 30 --data-parallel-replicas 2":
        "outer_overlap_steps = 30: *; nearest legal: 24",
    "--inner-steps 100 --outer-gradient-bits 5 --data-parallel-replicas 2":
        "outer_gradient_bits = 5: *; nearest legal: 4 or 8",
    "--inner-steps 10 --optimizer-offload-percent 50 --data-parallel-replicas 2":
        "kernel = *; nearest legal: local_updates=none or optimizer_offload=none",
    "--pp 2 --sequence-slices 2 --tpz 2": "kernel = *; nearest legal: slices=one or tensor_axes=one",
    "--pp 2 --sequence-slices 2 --cpu-offloading-num-layers 4":
        "kernel = *; nearest legal: activation_offload=none or slices=one",
    "--implementation nanotron --optimizer-offload-percent 50": "optimizer_offload = 'cpu': *; nearest legal: none",
    "--kernel zero_offload=parameters": "zero_offload = 'parameters': *; nearest legal: none",
    "--kernel links=measured": "links = 'measured': must not be given without measured links *; nearest legal: uniform",
    "--kernel gpus=mixed": "gpus = 'mixed': *; nearest legal: alike",
    f"--gpu {SMALL} --gpu-update-stride 2": "optimizer_offload = 'interleaved': *135 GiB*96 GiB*; nearest legal: none",
    f"--gpu {SMALL} --seq 64k --cpu-offloading-num-layers 31": "cpu_offloading_num_layers = 31: *; nearest legal: 1",
    f"--gpu {SMALL} --seq 64k --cpu-offloading-num-layers 20 --optimizer-offload-percent 60":
        "cpu_offloading_num_layers = 20: *; nearest legal: 0",
    f"--gpu {MIXED} --pp 3 --num-gpus 16": "pipeline_parallel = 3: *; nearest legal: 2 or 4",
    f"--gpu {MIXED} --pp 2": "num_gpus = 8: must be all GPUs of the cluster, *; nearest legal: 16",
    f"--gpu {MIXED} --num-gpus 16 --pp 4 --optimizer-offload-percent 50":
        "kernel = *; nearest legal: optimizer_offload=none",
    f"--gpu {MEASURED} --num-gpus 72 --tp 8": "num_gpus = 72: must be at most 64: *; nearest legal: 64",
}


def refused(arguments: str, capsys: pytest.CaptureFixture[str]) -> str:
    """The one line of an error, after the word."""
    code = exit_code(shlex.split(arguments))
    captured = capsys.readouterr()
    assert code == 2, captured
    assert captured.out == ""
    start, _, line = captured.err.partition("error: ")
    assert start == ""
    assert line.count("\n") == 1
    return line.strip()


def matches(line: str, pattern: str) -> bool:
    """Tell whether a line is a pattern in which a star stands for any words."""
    return re.fullmatch(".*".join(map(re.escape, pattern.split("*"))), line) is not None


@pytest.mark.parametrize(("options", "said"), REFUSED.items())
def test_one_line_says_what_is_legal(options: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    gpu = "" if "--gpu " in options else "--gpu h100-80gb"
    gpus = "" if "--num-gpus" in options else "--num-gpus 8"
    line = refused(f"explain llama-3.1-8b {gpu} {gpus} {options}", capsys)
    assert matches(line, said), line


@pytest.mark.parametrize(("options", "said"), {
    "--cpu-offloading-num-layers 32":
        "cpu_offloading_num_layers = 32: must be less than num_layers *; nearest legal: 31",
    "--inner-steps 100 --fragments 7 --data-parallel-replicas 2": "fragments = 7: *; nearest legal: 5 or 10",
    "--pp 4 --sequence-slices 3": "sequence_slices = 3: *; nearest legal: 2 or 4",
    "--inner-steps 100": "data_parallel_replicas = 1: *; nearest legal: 2",
    "--pp 4 --sequence-slices 3,5": "sequence_slices = 3: *; nearest legal: 2 or 4",
    "--kernel tensor_axes=three --tpz 3,5 --tp 2": "tensor_parallel_z = [3, 5]: *; nearest legal: 2 or 4",
    "--tp 3": "tensor_parallel = 3: must leave a legal layout with the other values; nearest legal: 2 or 4",
}.items())
def test_searches_say_so_too(options: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    job = "llama-3.1-8b --gpu h100-80gb --num-gpus 8 --global-batch-size 64 --recompute none"
    line = refused(f"recommend {job} {options}", capsys)
    assert matches(line, said), line


def test_the_third_tensor_axis_is_part_of_the_usual_batch() -> None:
    account = shardmath.explain("llama-3.1-8b", "h100-80gb", num_gpus=8, tensor_parallel_z=2)
    assert account.inputs["global_batch_size"] == 8


def test_phases_add_up(tmp_path: Path) -> None:
    plan = (CLUSTERS / "systems" / "phases.toml").read_text(encoding="utf-8")
    file = tmp_path / "plan.toml"
    file.write_text(f"tokens = 1_000_000_000_000\n{plan}", encoding="utf-8")
    with pytest.raises(InputError, match="tokens of all phases together; nearest legal: 1100000000000"):
        read_plan(file)
    file.write_text(f"tokens = 1_100_000_000_000\n{plan}", encoding="utf-8")
    assert sum(phase.tokens for phase in read_plan(file).phases) == 1_100_000_000_000


@pytest.mark.parametrize(("axes", "fixed", "said"), [
    ({"tensor_parallel": [3, 5]}, {}, "tensor_parallel = [3, 5]: *; nearest legal: 2 or 4"),
    ({"sequence_slices": [3, 5], "pipeline_parallel": [4]}, {}, "sequence_slices = 3: *; nearest legal: 2 or 4"),
    ({"fragments": [7, 9]}, {"inner_steps": 100, "data_parallel_replicas": 2},
     "fragments = 7: *; nearest legal: 5 or 10"),
])
def test_spaces_say_so_too(axes: dict[str, list[int]], fixed: dict[str, int], said: str) -> None:
    jobs = {"num_gpus": 8, "global_batch_size": 64, **fixed}
    space = Space(axes={**axes, "micro_batch_size": [1, 2]}, model="llama-3.1-8b", gpu="h100-80gb", fixed=jobs,
                  questions=(Best("fastest", ("step.time",)),))
    answer = shardmath.explore(space)
    assert answer.legal == 0
    assert matches(answer.refusal, said), answer.refusal
    assert f"No configuration is legal. {answer.refusal.split(':')[0]}" in str(answer)


@pytest.mark.parametrize(("kernels", "amount"), [
    ({"optimizer_offload": "cpu"}, "optimizer_offload_percent"),
    ({"activation_offload": "layers"}, "cpu_offloading_num_layers"),
    ({"activation_offload": "karma"}, "cpu_offloading_num_layers"),
])
def test_a_host_that_keeps_nothing_is_said_to(
    kernels: dict[str, str], amount: str, recwarn: pytest.WarningsRecorder,
) -> None:
    axis, option = next(iter(kernels.items()))
    line = f"{axis} = {option} keeps nothing on the host: {amount} is 0"
    with pytest.warns(InputWarning, match=line):
        idle = shardmath.explain("llama-3.1-8b", gpu="h100-80gb", num_gpus=8, kernels=kernels)
    at_work = shardmath.explain("llama-3.1-8b", gpu="h100-80gb", num_gpus=8, kernels=kernels, **{amount: 8})
    assert not recwarn.list
    assert at_work.peak.total < idle.peak.total
