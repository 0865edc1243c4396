"""Names of other programs: the way that is said instead exists here, and amounts are read as people write them."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Any

import click
import pytest

import shardmath
from shardmath.cli.main import cli, exit_code
from shardmath.cli.meant import meant_command
from shardmath.errors import InputError, nearest_names
from shardmath.generated.definitions import CHOICES, IMPLEMENTATIONS, PARAMETERS
from shardmath.input.meant import MEANT, OPTIONS_MEANT, kernel_of, kernels_of, option_of, parameter_of, recompute_of
from shardmath.input.naming import LISTED, begun_with, nearest_by_words, nearest_implementation, nearest_terms
from shardmath.input.parameters import TYPED, meant_integer
from shardmath.input.quantities import amount, duration, length, money

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


@pytest.mark.parametrize(("text", "nearest"), [
    ("15TB", "15T"), ("15 trillion", "15T"), ("1.5Mtok", "1.5M"), ("3weeks", "3w"), ("-1", "1"), ("3 months", "90d")])
def test_the_word_behind_an_amount_says_its_unit(text: str, nearest: str) -> None:
    with pytest.raises(InputError) as refused:
        (duration if nearest[-1] in "dw" else amount)("value", text)
    assert refused.value.nearest == nearest


@pytest.mark.parametrize("text", ["2,5M", "1e12T", "20,00", "2 USD", "$", "", "1e99", "1,0000", "1e-3"])
def test_other_amounts_are_refused(text: str) -> None:
    with pytest.raises(InputError, match="20M" if text != "1e99" else "must be from"):
        money("budget", text, "20M")
    with pytest.raises(InputError):
        amount("tokens", f"${text}")


@pytest.mark.parametrize(("value", "meant"), [
    (True, "full"), (False, "none"), ("on", "full"), ("Off", "none"), ("mlp", ""), (None, ""), (3, ""),
])
def test_a_switch_of_recompute_is_a_mode(value: object, meant: str) -> None:
    assert recompute_of(value) == meant


@pytest.mark.parametrize(("value", "meant"), [
    ("attention=flash", "{'attention': 'flash'}"), ("attention:flash, loss=te_fused", "{'attention': 'flash', 'loss': "
                                                   "'te_fused'}"),
    (["attention=flash"], "{'attention': 'flash'}"), ("flash", ""), ([], ""), (3, ""), ("attention=fast", ""),
])
def test_texts_of_kernels_are_an_object_in_python(value: object, meant: str) -> None:
    assert kernels_of(value) == meant


@pytest.mark.parametrize(("text", "meant"), [
    ("attention:flash", "attention=flash"), ("flash", "attention=flash"), ("nothing", ""),
])
def test_an_option_of_kernels_is_found_with_its_axis(text: str, meant: str) -> None:
    assert kernel_of(text) == meant


@pytest.mark.parametrize(("name", "value", "meant"), [
    ("seq_length", "8k", 8192), ("seq_length", "1M", 1048576), ("tensor_parallel", "8k", None),
    ("tensor_parallel", "4", 4), ("tensor_parallel", 4.0, 4),
    ("sequence_parallel", "true", 1), ("sequence_parallel", "off", 0), ("tensor_parallel", "true", None),
    ("tensor_parallel", -3, 1), ("tensor_parallel", None, None),
])
def test_integers_that_were_meant(name: str, value: object, meant: int | None) -> None:
    assert meant_integer(name, value) == meant


@pytest.mark.parametrize(("arguments", "message"), [
    ({"kernels": "attention=flash"}, "must be an object of names; nearest legal: {'attention': 'flash'}"),
    ({"recompute": True}, "must be a name; nearest legal: full"),
    ({"recompute": "true"}, "with + between them; nearest legal: full"),
    ({"recompute": "off"}, "with + between them; nearest legal: none"),
    ({"seq_length": "8k"}, "from 1 to 2147483648; nearest legal: 8192"),
    ({"sequence_parallel": "true", "tensor_parallel": 2}, "must be true or false; nearest legal: 1"),
])
def test_python_says_what_was_meant(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=f"{re.escape(message)}$"):
        shardmath.explain("llama-3.1-8b", "h100-80gb", **arguments)


def test_regions_of_recompute_may_have_their_names_in_megatron() -> None:
    spelled, own = (shardmath.explain("llama-3.2-1b", "h100-80gb", recompute=mode)
                    for mode in ("core_attn+mlp", "core_attention+mlp"))
    assert spelled.to_dict() == own.to_dict()


@pytest.mark.parametrize("link", [
    "https://huggingface.co/meta-llama/Llama-3.1-8B", "hf.co/meta-llama/Llama-3.1-8B/tree/main",
    "https://www.huggingface.co/meta-llama/Llama-3.1-8B/blob/main/config.json",
])
def test_a_link_to_a_model_is_its_name(link: str) -> None:
    assert shardmath.load_model(link).name == "llama-3.1-8b"


def test_a_link_to_an_unknown_model_says_which_file_to_save() -> None:
    with pytest.raises(InputError) as caught:
        shardmath.load_model("https://huggingface.co/foo/bar-7b/blob/main/config.json")
    assert caught.value.nearest == (
        "the path of a file saved from https://huggingface.co/foo/bar-7b/resolve/main/config.json")


def test_only_options_that_begin_alike_are_proposed(capsys: pytest.CaptureFixture[str]) -> None:
    assert [exit_code(["page", "--gpu", "h100"]), exit_code(["page", "--outptu", "x"])] == [2, 2]
    plain = re.sub(r"[':.]", "", capsys.readouterr().err)  # Click's marks around names changed
    have = "`shardmath sweep`, `shardmath recommend`, `shardmath scale` and 11 more commands have it"
    assert plain == f"error No such option --gpu {have}\nerror No such option --outptu Did you mean --output?\n"


def test_names_are_found_by_their_words() -> None:
    models = ("llama-3-8b", "llama-3.1-8b", "llama-3.1-70b", "mixtral-8x7b-v0.1", "kimi-k2-instruct", "gpt-oss-20b",
              "phi-4")
    assert nearest_by_words("llama-8b", models) == "llama-3-8b or llama-3.1-8b"
    assert nearest_by_words("mixtral-8x7b-instruct", models) == "mixtral-8x7b-v0.1"
    assert nearest_by_words("gpt-4", models) == "gpt-oss-20b"
    assert nearest_by_words("lama-3.1-8b", models) == ""
    assert nearest_names("batch", ("micro_batch_size", "num_layers", "seq_length")) == "micro_batch_size"
    assert nearest_implementation("Megatron-LM", IMPLEMENTATIONS) == "megatron"
    assert nearest_implementation("huggingfase", IMPLEMENTATIONS) == "huggingface"
    assert meant_command("explian", list(OPTIONS)) == "explain or plan"
    assert meant_command("Estimate", list(OPTIONS)) == "explain"
    assert meant_command("implementations", list(OPTIONS)) == "kernels"


@pytest.mark.parametrize("name", ["llama-3.1-8b", "meta-llama/Llama-3.1-8B", "config.json", "train.sh"])
def test_a_model_in_place_of_a_command_is_answered_with_commands_that_take_one(name: str) -> None:
    assert meant_command(name, list(cli.commands)) == f"`shardmath explain {name}` or `shardmath recommend {name}`"


def test_letters_and_numbers_may_be_written_together() -> None:
    models = ("llama-33b", "llama-3-8b", "llama-3-70b", "llama-3.1-8b", "gpt2", "gpt2-xl")
    assert begun_with("llama3", models) == ["llama-3-8b", "llama-3-70b"]
    assert begun_with("gpt-2", models) == ["gpt2"]
    assert begun_with("llama-3-8", models) == []
    assert begun_with("\u202ellama3", models) == begun_with("", models) == begun_with("llama-4", models) == []


@pytest.mark.parametrize(("asked", "nearest"), [
    ("swiglu.save", "swiglu.saved"), ("step time", "step.time"), ("activation memory", "stage.activation"),
    ("the activations", "stage.activation"), ("memory", "process.peak"),
    ("step.tame", "step.time"), ("proces.paek", "process.peak"), ("zzz", ""), ("", ""), ("...", ""),
])
def test_terms_are_found_by_what_they_mean(asked: str, nearest: str) -> None:
    terms = {"swiglu.saved": ("bytes", "SwiGLU: tensors saved"), "step.time": ("s", "of one step"),
             "stage.activation": ("bytes", "rank r: activations"), "process.peak": ("bytes", "of a process")}
    assert nearest_terms(asked, terms) == nearest


def test_a_term_that_nobody_can_guess_is_looked_up_in_the_list() -> None:
    with pytest.raises(InputError, match=f"nearest legal: {LISTED}$"):
        shardmath.formula("zzz")
    with pytest.raises(InputError, match=r"nearest legal: fujii2024\.total "):
        shardmath.formula("fujii")


def test_words_that_no_term_has_are_refused_before_anything_is_derived(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shardmath.commands.formula.run.home_of", lambda *_: pytest.fail("derives terms"))
    for words, nearest in (("hello world", LISTED), ("memory of optimizer", "step.optimizer ")):
        with pytest.raises(InputError, match=f"nearest legal: {re.escape(nearest)}"):
            shardmath.formula(words)


@pytest.mark.parametrize(("words", "command"), [
    ("--gpu zzz", "shardmath gpus"), ("--gpu h100-80gb --kernel zzz=1", "shardmath kernels"),
])
def test_long_lists_are_named_by_the_command_that_prints_them(
    words: str, command: str, capsys: pytest.CaptureFixture[str],
) -> None:
    assert exit_code(["explain", "llama-3.1-8b", *words.split()]) == 2
    assert f"nearest legal: those of `{command}`, which lists all " in capsys.readouterr().err
    with pytest.raises(InputError, match="those of `shardmath models`, which lists all "):
        shardmath.load_model("zzz")


def test_every_option_of_others_is_one_of_ours() -> None:
    for axis, options in OPTIONS_MEANT.items():
        known = CHOICES[axis][1]
        assert options.keys() <= {*known}
        others = [name for names in options.values() for name in names.split()]
        assert len(others) == len({*others})
        assert not {*others} & {*known}
        assert option_of(axis, others[0].upper().replace("-", "_")) == next(iter(options))
    assert option_of("norms", "lora") == ""


@pytest.mark.parametrize(("words", "message"), [
    ("-tp 4", "No such option '-tp'. Did you mean --tp?"), ("tp=4", "'tp=4' is no argument. Give --tp 4."),
    ("zz=4", "Got unexpected extra argument (zz=4)"), ("-zz 4", "No such option '-z'. A launch script"),
])
def test_options_without_hyphens_are_told_apart(words: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(["explain", "llama-3.1-8b", "--gpu", "h100-80gb", *words.split()]) == 2
    plain, expected = (re.sub("[':.]", "", text) for text in (capsys.readouterr().err, f"error: {message}"))
    assert plain.startswith(expected)


@pytest.mark.parametrize(("text", "tokens"), [
    ("8k", 8192), ("128K", 131072), ("1M", 1048576), ("8192", None), ("1.5M", None), ("k", None), ("1m", None),
])
def test_letters_of_lengths_are_powers_of_two(text: str, tokens: int | None) -> None:
    assert length(text) == tokens
