"""Where nothing fits: changes that make something fit are typed, and lead to the memory that was said."""

from __future__ import annotations

import json
from typing import Any

import pytest
from systems.test_mixed_document import both

from shardmath import recommend, sweep
from shardmath.cli.main import exit_code

pytestmark = pytest.mark.slow

#: Jobs in which nothing fits, the options that make something fit in the order of the changes, and their GiB.
JOBS: dict[str, tuple[list[str], dict[str, tuple[float, str]]]] = {
    "FSDP of Transformers and torchtitan on consumer GPUs": (
        ["llama-3.1-8b", "--gpu", "rtx-4090-24gb", "--num-gpus", "8", "--global-batch-size", "64",
         "--implementation", "huggingface", "--seq-length", "4096"],
        {
            "--kernel data_parallel=fsdp": (16.45, "uncertain"),
            "--kernel zero_offload=parameters": (11.86, "fits"),
            "--implementation torchtitan": (16.22, "uncertain"),
            "--lora-rank 16": (23.28, "uncertain"),
        },
    ),
    "adapters on one GPU": (
        ["llama-3.1-8b", "--gpu", "rtx-4090-24gb", "--num-gpus", "1", "--global-batch-size", "16",
         "--implementation", "huggingface", "--lora-rank", "16"],
        {
            "--kernel loss=liger": (18.68, "uncertain"),
            "--kernel zero_offload=parameters": (19.75, "uncertain"),
            "--kernel base_weights=nf4": (21.47, "uncertain"),
        },
    ),
    "4-bit weights of a large model on two consumer GPUs": (
        ["llama-3.1-70b", "--gpu", "rtx-4090-24gb", "--num-gpus", "2", "--global-batch-size", "16", "--seq-length",
         "2048", "--implementation", "huggingface", "--lora-rank", "16", "--kernel", "base_weights=nf4"],
        {"--kernel zero_offload=optimizer --num-gpus 4": (20.91, "uncertain")},
    ),
    "two GPUs": (
        ["llama-3.1-70b", "--gpu", "a100-40gb", "--num-gpus", "2", "--global-batch-size", "16"],
        {"--num-gpus 80": (18.51, "fits")},
    ),
}


@pytest.mark.parametrize("name", JOBS)
def test_changes_that_are_typed_make_something_fit(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    arguments, expected = JOBS[name]
    answer = _sweep(arguments, capsys)
    assert (answer["best"], answer["smallest"]["verdict"]) == ([], "out of memory")
    switches = {item["options"]: item for item in answer["switches"]}
    assert {options: (round(item["peak_bytes"] / 2**30, 2), item["verdict"]) for options, item in switches.items()} \
        == expected
    for options, item in switches.items():  # the whole search, not only the layouts of little memory
        smallest = _sweep([*arguments, *options.split()], capsys)["smallest"]
        assert (smallest["peak_bytes"], smallest["verdict"]) == (item["peak_bytes"], item["verdict"])
    assert exit_code(["recommend", *arguments]) == 0
    text = capsys.readouterr().out
    assert all(f"{item['peak_bytes'] / 2**30:.2f}" in text for item in switches.values())


def test_no_smaller_number_of_whole_nodes_fits() -> None:
    for number in (8, 16, 24, 32, 40):
        result = sweep("llama-3.1-70b", "a100-40gb", number, global_batch_size=16, virtual_pipeline=(1,))
        assert (result.verdicts["fits"], result.legal > 0) == (0, True), number


def test_a_change_is_to_better_what_there_is() -> None:
    """Beside a layout that may fit, both commands name what surely fits."""
    job: dict[str, Any] = {"global_batch_size": 16, "lora_rank": 16, "implementation": "huggingface"}
    job["kernels"] = {"base_weights": "nf4"}
    advice = recommend("llama-3.1-8b", "rtx-4090-24gb", 1, **job)
    assert advice.choices[0].verdict == "uncertain"
    result = sweep("llama-3.1-8b", "rtx-4090-24gb", 1, **job)
    assert advice.switches == result.switches
    assert result.smallest is not None
    assert result.smallest.verdict == "uncertain"
    assert result.switches is not None
    assert [(item.options, item.verdict) for item in result.switches] == [("--kernel loss=liger", "fits")]


def test_one_gpu_shares_nothing_out() -> None:
    result = sweep("llama-3.1-8b", "h100-80gb", 1, global_batch_size=1)
    assert result.switches is not None
    assert [item.options for item in result.switches] == [
        "--optimizer-offload-percent 100", "--num-gpus 4", "--lora-rank 16",
    ]


def test_another_precision_is_said() -> None:
    result = sweep("llama-3.1-8b", "a100-80gb", 2, global_batch_size=8, seq_length=2048, virtual_pipeline=(1,))
    assert {item.what for item in result.switches or () if "huggingface" in item.options} == {
        "weights and states shared out by huggingface, with precision=bf16"}


def test_where_no_change_is_enough(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["llama-3.1-405b", "--gpu", "t4-16gb", "--num-gpus", "1", "--global-batch-size", "1"]
    assert _sweep(arguments, capsys)["switches"] == []
    assert exit_code(["recommend", *arguments]) == 0
    assert "No change that is tried makes anything fit." in capsys.readouterr().out


def test_several_kinds_of_gpus_have_no_changes_yet() -> None:
    result = sweep("llama-3.1-405b", both("a100-40gb", "h100-80gb"), 16, global_batch_size=16, micro_batch_size=(1,),
                   pipeline_parallel=(16,), recompute=("full",))
    assert (result.best, result.switches) == ((), None)
    assert result.smallest is not None


def _sweep(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    assert exit_code(["sweep", *arguments, "--json"]) == 0
    answer: dict[str, Any] = json.loads(capsys.readouterr().out)
    return answer
