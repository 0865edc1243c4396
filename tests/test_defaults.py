"""Defaults: every model of the catalogue is explained with no option but a GPU, and all questions share them."""

from __future__ import annotations

import inspect
from collections.abc import Callable

import pytest

from shardmath import InputError, evaluate, explain, load_model, recommend, scale, sweep
from shardmath.account.configured import configured
from shardmath.catalogue import read
from shardmath.cli.main import exit_code
from shardmath.commands.calibrate.runs import JOB
from shardmath.configuration.job import job
from shardmath.search.spaces import Space
from shardmath.search.spaces.standard import layouts

LEARNED = {"gpt2-xl": 1024, "gpt-3-175b": 2048}


@pytest.mark.slow
@pytest.mark.parametrize("name", read("models"))
def test_every_model_is_explained_with_a_gpu_alone(name: str) -> None:
    model = load_model(name)
    found = explain(model, "h100-80gb")
    rows = model.learned_positions
    assert found.inputs["seq_length"] == (min(8192, rows) if rows else 8192)
    assert found.implementation.partition("_")[0] == ("huggingface" if model.parallel_residual else "megatron")
    assert found.time is not None


@pytest.mark.slow
@pytest.mark.parametrize("command", ["explain gpt2-xl", "explain pythia-6.9b"])
def test_the_command_line_has_the_same_defaults(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code([*command.split(), "--gpu", "h100-80gb"]) == 0
    shown = capsys.readouterr().out
    assert ("1 sequence of 1024" in shown) == ("gpt2" in command)
    assert ("huggingface" in shown) == ("pythia" in command)


@pytest.mark.slow
@pytest.mark.parametrize("name", LEARNED)
def test_every_question_takes_the_length_of_the_table(name: str) -> None:
    length, job = LEARNED[name], {"num_gpus": 64, "global_batch_size": 64}
    sizes = {"tensor_parallel": (8,), "pipeline_parallel": (1, 8), "micro_batch_size": (1,), "context_parallel": (1,)}
    if name == "gpt2-xl":
        sizes["tensor_parallel"] = (1,)
        sizes["pipeline_parallel"] = (1, 2)
    assert sweep(name, "h100-80gb", **job, **sizes).values["seq_length"] == length
    assert recommend(name, "h100-80gb", **job, **sizes).seq_length == length
    assert scale(name, "h100-80gb", [64], global_batch_size=64, **sizes).seq_length == length
    (part,) = Space(axes={"tensor_parallel": [1]}, model=name, gpu="h100-80gb",
                    fixed={"num_gpus": 1, "global_batch_size": 1}).parts()
    assert part.fixed["seq_length"] == length
    rows = evaluate({"tensor_parallel": [1]}, name, "h100-80gb", terms=["peak"]).read_all()
    assert rows["peak"].to_pylist() == [explain(name, "h100-80gb").peak.total]
    with pytest.raises(InputError, match=f"^seq_length = {length + 1}: must be at most learned_positions"):
        explain(name, "h100-80gb", seq_length=length + 1)


@pytest.mark.slow
def test_a_space_of_several_models_gives_each_its_own_length() -> None:
    (part,) = Space(axes={"model": ["gpt2-xl", "gpt-3-175b"]}, gpu="h100-80gb",
                    fixed={"num_gpus": 1, "global_batch_size": 1}).parts()
    (axis,) = part.axes
    assert axis.values["seq_length"] == (1024, 2048)


@pytest.mark.parametrize("question", [sweep, recommend, scale, layouts, evaluate, job], ids=lambda item: item.__name__)
def test_what_is_not_given_is_so_everywhere(question: Callable[..., object]) -> None:
    """No function has a default of its own: what an argument is without a value is said once, in ``explain``."""
    usual = {name: item.default for name, item in inspect.signature(configured).parameters.items()}
    axes = {name for name, item in inspect.signature(layouts).parameters.items() if "Sequence" in str(item.annotation)}
    for name, item in inspect.signature(question).parameters.items():
        if name in usual and name not in {*axes, "model", "gpu"} and item.default is not inspect.Parameter.empty:
            assert item.default == usual[name], name
    assert {name: usual[name] for name in JOB if name in usual} == dict(JOB)
