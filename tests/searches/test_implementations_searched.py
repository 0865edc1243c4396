"""Several implementations in one search: the best of all, each with its own layouts, kernels and refusals."""

from __future__ import annotations

from typing import Any

import pytest

from shardmath import InputError, Model, explain, layouts, recommend, scale, sweep
from shardmath.cli.main import exit_code
from shardmath.search.sizes import as_arguments_of_explain

pytestmark = pytest.mark.slow

MODEL, GPU = "llama-3.2-1b", "h100-80gb"
JOB: dict[str, Any] = {"global_batch_size": 32, "seq_length": 4096, "micro_batch_size": (1, 2)}
NAMES = ("megatron", "torchtitan", "nanotron")
#: torchtitan has kernels of its Qwen3 for tied embeddings.
UNTIED = Model.named(MODEL).model_copy(update={"tied_embeddings": False})


@pytest.fixture(scope="module")
def alone() -> dict[str, Any]:
    return {name: sweep(UNTIED, GPU, 8, implementation=name, top=5, **JOB) for name in NAMES}


def test_a_sweep_has_the_best_of_all_sweeps(alone: dict[str, Any]) -> None:
    together = sweep(UNTIED, GPU, 8, implementation=NAMES, top=5, **JOB)
    every = sorted(item.step_seconds for result in alone.values() for item in result.best)
    assert [item.step_seconds for item in together.best] == every[:5]
    assert together.legal == sum(result.legal for result in alone.values())
    assert together.implementation == ", ".join(alone[name].implementation for name in NAMES)
    assert {item.implementation for result in alone.values() for item in result.best} == {None}
    for item in together.best:
        assert item.step_seconds in [other.step_seconds for other in alone[item.implementation].best]
    assert len({item.implementation for item in together.best}) > 1
    header = next(line.split() for line in str(together).splitlines() if " mbs SP " in line)
    assert header[:3] == ["implementation", "TP", "CP"]


def test_advice_has_the_fastest_with_each(alone: dict[str, Any]) -> None:
    advice = recommend(UNTIED, GPU, 8, implementation=NAMES, **JOB)
    assert advice.implementation == ", ".join(NAMES)
    named = {choice.role.removeprefix("the fastest with "): choice for choice in advice.choices
             if choice.role.startswith("the fastest with")}
    first = advice.choices[0]
    assert {*named, first.layout["implementation"]} == {*NAMES}
    for name, choice in {**named, str(first.layout["implementation"]): first}.items():
        assert choice.layout["implementation"] == choice.explanation.framework == name
        assert choice.time.seconds == pytest.approx(alone[name].best[0].step_seconds, rel=1e-12)
        own = {key: value for key, value in JOB.items() if key != "micro_batch_size"}
        account = explain(UNTIED, GPU, num_gpus=8, **{**own, **as_arguments_of_explain(choice.layout)})
        assert account.peak.total == choice.peak_bytes
    said = " ".join(str(advice).split())
    assert all(f"the fastest with {name}:" in said for name in named)


def test_kernels_are_of_those_that_have_them() -> None:
    """Combinations that cannot be are named with the reason; an option that none has is an error."""
    job = {**JOB, "implementation": ("megatron", "huggingface"), "tensor_parallel": (1, 2)}
    advice = recommend(MODEL, GPU, 8, kernels={"data_parallel": ("ddp", "fsdp")}, **job)
    left_out = [item for item in advice.untried if item.option == "--implementation, --kernel"]
    assert [item.what.partition(":")[0] for item in left_out] == ["implementation megatron, data_parallel fsdp"]
    chosen = {(item.layout["implementation"], item.layout["data_parallel"]) for item in advice.choices}
    seconds = {kind: sweep(MODEL, GPU, 8, kernels={"data_parallel": kind}, top=1,
                           **{**job, "implementation": "huggingface", "tensor_parallel": (1,)}).best[0].step_seconds
               for kind in ("ddp", "fsdp")}
    assert chosen >= {("megatron", "ddp"), ("huggingface", min(seconds, key=lambda kind: seconds[kind] or 0))}
    with pytest.raises(InputError, match="data_parallel = 'fsdp': must be one of ddp, megatron_fsdp with megatron"):
        sweep(MODEL, GPU, 8, kernels={"data_parallel": "fsdp"}, **job)


def test_a_scale_takes_the_fastest_of_all() -> None:
    points = scale(MODEL, GPU, [4, 8], implementation=NAMES[:2], **JOB).points
    for point in points:
        assert point.layout is not None
        best = sweep(MODEL, GPU, point.num_gpus, implementation=NAMES[:2], top=1, **JOB).best[0]
        assert point.layout["implementation"] == best.implementation


def test_changes_where_nothing_fits_name_their_implementation() -> None:
    job: dict[str, Any] = {"global_batch_size": 64, "implementation": ("huggingface", "torchtitan"),
                           "tensor_parallel": (1,), "pipeline_parallel": (1,)}
    result = sweep("llama-3.1-8b", "rtx-4090-24gb", 2, **job)
    assert result.switches
    assert not result.best
    names = [item.options.split("--implementation ")[1].split()[0] for item in result.switches]
    assert {*names} <= {*job["implementation"], "nanotron", "megatron"}
    assert names == sorted(names, key=job["implementation"].index)
    again = sweep("llama-3.1-8b", "rtx-4090-24gb", 2, **{**job, "implementation": names[0]})
    assert again.switches is not None
    plain = [item.options for item in again.switches if item.what == result.switches[0].what]
    assert [result.switches[0].options] == [f"--implementation {names[0]} {options}" for options in plain]


@pytest.mark.parametrize(("asked", "message"), [
    ("megatron,megatron", "implementation = 'megatron': must not be there twice"),
    ("megatron,torchtitn", "implementation = 'torchtitn': must be a known implementation; nearest legal: torchtitan"),
    ("torchtitan", None),
])
def test_names_on_the_command_line(asked: str, message: str | None, capsys: pytest.CaptureFixture[str]) -> None:
    code = exit_code(["sweep", MODEL, "--gpu", GPU, "--num-gpus", "2", "--gbs", "8", "--implementation", asked])
    shown = capsys.readouterr()
    assert code == (0 if message is None else 2)
    assert message is None or message in shown.err
    assert message is not None or "implementation" not in shown.out.splitlines()[4]


def test_columns_of_layouts_are_of_one_implementation() -> None:
    with pytest.raises(InputError, match="must be one implementation here; nearest legal: megatron"):
        layouts(MODEL, GPU, 8, implementation=("megatron", "torchtitan"), **JOB)
