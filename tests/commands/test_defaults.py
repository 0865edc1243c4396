"""Defaults: every model of the catalogue is explained with no option but a GPU, and all questions share them."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import MISSING, FrozenInstanceError, fields

import click
import pytest

from shardmath import InputError, compare, evaluate, explain, fit, load_model, moves, recommend, scale, sweep
from shardmath.account.configured import configured
from shardmath.catalogue import read
from shardmath.cli.main import cli, exit_code
from shardmath.commands.sweep.run import Sweep
from shardmath.configuration.fields import Layouts, Training, names_of, shown
from shardmath.configuration.run import Run, Search, run_of
from shardmath.generated.definitions import PARAMETERS
from shardmath.models.model import Model
from shardmath.search.spaces import Space
from shardmath.search.spaces.standard import layouts

LEARNED = {"gpt2-xl": 1024, "gpt-3-175b": 2048}


#: The last model of each architecture, with the kernels of its classes.
ONE_OF_EACH = {(*(model := Model.named(name)).architecture.values(), model.model_type): name for name in read("models")}
#: What Megatron-Core is not counted with.
NOT_MEGATRON = {
    "residual": ("parallel", "parallel_one"), "qk_norms": ("heads",),
    "capping": ("tanh",), "mlp": ("xielu",), "positions": ("alibi",),
    "normalisation": ("layer_unbiased", "layer_plain"), "heads": ("two_widths",),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", ONE_OF_EACH.values())
def test_every_model_is_explained_with_a_gpu_alone(name: str) -> None:
    model = load_model(name)
    found = explain(model, "h100-80gb")
    assert found.inputs["seq_length"] == (min(8192, model.max_seq_length) if model.learned_positions else 8192)
    assert found.inputs["seq_length"] <= (model.learned_positions or 8192)
    unlike_olmoe = (model.norms, model.num_kv_heads) != ("pre", model.num_attention_heads)
    elsewhere = (model.qk_norms == "width" and unlike_olmoe) or any(
        model.architecture[axis] in options for axis, options in NOT_MEGATRON.items())
    assert found.implementation.partition(" ")[0] == ("huggingface" if elsewhere else "megatron")
    steps_of_attention = found.choices["attention"] == "sdpa_steps"  # their time is not counted yet
    assert (found.time is None) == steps_of_attention


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


@pytest.mark.parametrize("question", [sweep, recommend, scale, layouts, evaluate, moves, fit, compare])
def test_what_is_not_given_is_so_everywhere(question: Callable[..., object]) -> None:
    """No function has a default of its own: the value of an absent argument is declared once, in ``Run``."""
    usual = {item.name: item.default for item in fields(Run)}
    axes = {item.name for item in fields(Layouts) if "Sequence" in str(item.type)}
    for name, item in inspect.signature(question).parameters.items():
        if name in usual and name not in {*axes, "model", "gpu"} and item.default is not inspect.Parameter.empty:
            assert item.default == usual[name], name


@pytest.mark.parametrize(("function", "kind"), [(explain, Run), (configured, Run), (layouts, Search), (sweep, Sweep)])
def test_functions_have_the_fields_as_arguments(function: Callable[..., object], kind: type[Training]) -> None:
    parameters = inspect.signature(function).parameters
    assert [*parameters] == [*names_of(kind), "others"]
    for item in fields(kind):
        if item.name != "others":
            default = inspect.Parameter.empty if item.default is MISSING else item.default
            assert parameters[item.name].default == default
            assert parameters[item.name].annotation == item.type
    lines = (function.__doc__ or "").splitlines()
    for name in names_of(kind):
        line = next(line for line in lines if line.startswith(f"    {name}") and line[4 + len(name)] in ": ")
        if name in PARAMETERS:
            assert PARAMETERS[name][1] in line
            assert PARAMETERS[name][5][1:] in line or name in ("model", "gpu")


@pytest.mark.parametrize(("command", "kind"), [
    ("explain", Run), ("moves", Run), ("fit", Run), ("compare", Run), ("sweep", Search), ("recommend", Search),
    ("scale", Search),
])
def test_options_have_the_meanings_of_the_fields(command: str, kind: type[Training]) -> None:
    options = {item.name: item for item in cli.commands[command].params if isinstance(item, click.Option)}
    own = {"model", "gpu", "kernels", *(("num_gpus", "global_batch_size", "top") if kind is Search else ())}
    for name in names_of(kind):
        if name not in own:
            assert options[name].help == shown(name, kind).sentence
            default = next(item.default for item in fields(kind) if item.name == name)
            assert isinstance(options[name].default, int | str) == (default is not None), name
            assert default is None or options[name].default == default, name


def test_a_run_does_not_change() -> None:
    run = run_of("llama-3.1-8b", "h100-80gb", tensor_parallel=2, virtual_pipeline=3)
    assert (run.tensor_parallel, run.others, run.asked("virtual_pipeline")) == (2, {"virtual_pipeline": 3}, 3)
    with pytest.raises(FrozenInstanceError):
        run.tensor_parallel = 4  # type: ignore[misc]
    with pytest.raises(InputError, match=r"^parameter = 'tensor_paralel': .* nearest legal: tensor_p"):
        explain("llama-3.1-8b", "h100-80gb", tensor_paralel=2)
