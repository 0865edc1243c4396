"""Names of other programs: the way that is said instead exists here, and amounts are read as people write them."""

from __future__ import annotations

import re
from fractions import Fraction

import click
import pytest

from shardmath.cli.main import cli
from shardmath.cli.meant import meant_command
from shardmath.errors import InputError, nearest_by_words, nearest_names
from shardmath.generated.definitions import CHOICES, IMPLEMENTATIONS, PARAMETERS
from shardmath.input.meant import MEANT, parameter_of
from shardmath.input.naming import nearest_implementation
from shardmath.input.parameters import TYPED
from shardmath.input.quantities import amount, money

OPTIONS = {name: {option for item in command.params for option in (*item.opts, *item.secondary_opts)}
           for name, command in cli.commands.items()}


@pytest.mark.parametrize("way", sorted(set(MEANT.values())))
def test_every_way_is_one_of_the_command_line(way: str) -> None:
    options = re.findall(r"--[a-z][a-z0-9-]*", way)
    commands = re.findall(r"`shardmath (\w+)", way)
    assert options or commands or "MODEL" in way or "first argument" in way
    assert all(any(option in known for known in OPTIONS.values()) for option in options)
    assert set(commands) <= OPTIONS.keys()
    for axis, option in re.findall(r"--kernel (\w+)=(\w+)", way):
        assert option == "OPTION" or option in CHOICES[axis][1]


def test_no_option_of_explain_is_said_to_be_missing() -> None:
    assert MEANT.keys() & OPTIONS["explain"] == {"--output"}  # of --write; sweep writes tables by other names
    assert len(MEANT) > 100


@pytest.mark.parametrize(("name", "meant"), [
    ("world_size", "num_gpus"), ("tensor_model_parallel_size", "tensor_parallel"), ("max_seq_length", "seq_length"),
    ("batch_size", "global_batch_size"), ("optimizer", 'kernels={"optimizer": ...}'), ("model_name", ""),
    ("dtype", 'kernels={"precision": ...}'), ("swiglu", 'kernels={"swiglu": ...}'), ("train_iters", ""),
])
def test_arguments_of_other_programs_are_those_of_python(name: str, meant: str) -> None:
    assert parameter_of(name, (*PARAMETERS, "kernels"), TYPED) == meant


def test_underscores_in_options_are_hyphens() -> None:
    context = cli.commands["explain"].make_context("explain", ["llama-3.1-8b", "--num_gpus", "8"], cli.make_context(
        "shardmath", ["explain"], resilient_parsing=True))
    assert context.params["num_gpus"] == 8
    with pytest.raises(click.NoSuchOption):
        cli.commands["explain"].make_context("explain", ["llama-3.1-8b", "--num_gpus_", "8"])


@pytest.mark.parametrize(("text", "number"), [
    ("15T", 15 * 10**12), ("1e12", 10**12), ("1.5e3", 1500), ("2,000,000", 2 * 10**6), ("2_000", 2000),
    ("1.5 M", 1_500_000), ("0.25", Fraction(1, 4)),
])
def test_amounts_are_read_as_they_are_written(text: str, number: Fraction) -> None:
    assert amount("tokens", text, least=0) == number
    assert money("budget", f"${text}", "20M", least=0) == number


@pytest.mark.parametrize("text", ["2,5M", "1e12T", "20,00", "2MUSD", "$", "", "1e99", "1,0000", "1e-3"])
def test_other_amounts_are_refused(text: str) -> None:
    with pytest.raises(InputError, match="20M" if text != "1e99" else "must be from"):
        money("budget", text, "20M")
    with pytest.raises(InputError):
        amount("tokens", f"${text}")


def test_names_are_found_by_their_words() -> None:
    models = ("llama-3-8b", "llama-3.1-8b", "llama-3.1-70b", "mixtral-8x7b-v0.1", "kimi-k2-instruct", "gpt-oss-20b",
              "phi-4")
    assert nearest_by_words("llama-8b", models) == "llama-3-8b or llama-3.1-8b"
    assert nearest_by_words("mixtral-8x7b-instruct", models) == "mixtral-8x7b-v0.1"
    assert nearest_by_words("gpt-4", models) == "gpt-oss-20b"
    assert nearest_by_words("lama-3.1-8b", models).startswith("llama-3.1-8b")
    assert nearest_names("batch", ("micro_batch_size", "num_layers", "seq_length")) == "micro_batch_size"
    assert nearest_implementation("Megatron-LM", IMPLEMENTATIONS) == "megatron"
    assert nearest_implementation("huggingfase", IMPLEMENTATIONS) == "huggingface"
    assert meant_command("explian", list(OPTIONS)) == "explain or plan"
    assert meant_command("Estimate", list(OPTIONS)) == "explain"
