"""The command ``shardmath compare``: what wins over what, what is printed, and one line for every bad input."""

from __future__ import annotations

import json
from typing import Any

import pytest
from click.testing import CliRunner, Result
from formats.test_formats_read import DATA

from shardmath import compare, explain
from shardmath.cli.main import cli, exit_code
from shardmath.formats import read

BASE = ("llama-3.1-8b", "--gpu", "a100-80gb", "--tp", "4", "--pp", "2")
GPT = str(DATA / "megatron_gpt3_175b.sh")


def asked(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["compare", *arguments])


def answer(*arguments: str) -> dict[str, Any]:
    result = asked(*arguments, "--json")
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def test_it_is_what_python_gives() -> None:
    found = compare("llama-3.1-8b", "a100-80gb", tensor_parallel=4, pipeline_parallel=2,
                    against=[{"tensor_parallel": 2, "pipeline_parallel": 4}])
    shown = answer(*BASE, "--against", "--tp 2 --pp 4")
    assert shown.pop("sides")[1]["asked"] == "--tp 2 --pp 4"
    own = json.loads(json.dumps(found.to_dict()))
    own.pop("sides")
    assert {name: shown[name] for name in own} == own


@pytest.mark.slow
def test_tensors_of_the_answer_add_up() -> None:
    found = answer(*BASE, "--against", "--implementation torchtitan")
    (difference,) = found["differences"]
    assert sum(item["bytes"] for item in difference["tensors"]) == pytest.approx(difference["bytes"], rel=1e-12)
    assert difference["bytes"] == found["sides"][1]["total_bytes"] - found["sides"][0]["total_bytes"]


@pytest.mark.slow
def test_options_win_over_those_of_the_first_and_the_rest_stays() -> None:
    sides = answer(*BASE, "--kernel", "swiglu=eager", "--against", "llama-3.2-1b --tp 2 --kernel norm=keeps_output",
                   "--against", "--gpu-memory 90")["sides"]
    assert [side["model"] for side in sides] == ["llama-3.1-8b", "llama-3.2-1b", "llama-3.1-8b"]
    assert [side["inputs"]["tensor_parallel"] for side in sides] == [4, 2, 4]
    assert [side["inputs"]["pipeline_parallel"] for side in sides] == [2, 2, 2]
    assert [side["choices"]["swiglu"] for side in sides] == ["eager"] * 3
    assert [side["choices"]["norm"] for side in sides] == ["fused", "keeps_output", "fused"]
    assert sides[2]["inputs"]["gpu_memory"] == 90 * 2**30


@pytest.mark.slow
def test_a_script_keeps_its_own_settings_on_the_same_machine() -> None:
    sides = answer(*BASE, "--against", f"{GPT} --num-gpus 1024")["sides"]
    own = read(GPT).explain("a100-80gb", num_gpus=1024)
    assert sides[1]["total_bytes"] == own.peak.total
    assert sides[1]["gpu"] == "a100-80gb"


@pytest.mark.slow
def test_options_change_a_script() -> None:
    sides = answer(GPT, "--gpu", "h100-80gb", "--num-gpus", "1024", "--against", "--seq-length 1024")["sides"]
    assert [side["inputs"]["seq_length"] for side in sides] == [2048, 1024]
    assert [side["inputs"]["tensor_parallel"] for side in sides] == [8, 8]
    assert sides[1]["inputs"]["num_gpus"] == 1024


def test_the_terminal_shows_terms_tensors_and_causes() -> None:
    shown = asked(*BASE, "--against", "--tp 2 --pp 4").stdout
    lines = [" ".join(line.split()) for line in shown.splitlines()]
    assert "tensor_parallel (t) 4 2" in lines
    assert "swiglu.gate 1.75 3.50 +1.75 t 4 -> 2 2*s*b*f*H_d*(1 - μ)/(c*t)" in lines
    assert "embedding.weight 0.25 0.49 +0.24 t 4 -> 2 2*h*v*[r = 0]/t" in lines
    assert any(line.startswith("total ") for line in lines)
    assert sum("nine were within" in line for line in lines) == 1, "once for sides on the same GPUs"
    assert "--all shows them" in shown
    everything = asked(*BASE, "--against", "--tp 2 --pp 4", "--all").stdout
    assert "--all shows them" not in everything
    assert "attention_norm.rms" in everything
    assert "attention_norm.rms" not in shown


@pytest.mark.slow
def test_published_formulas_stand_beside_counted_ones() -> None:
    shown = asked(*BASE, "--against", "published").stdout
    lines = [" ".join(line.split()) for line in shown.splitlines()]
    assert "-<0.01 -4*s*b*a: the source leaves out attention.logsumexp" in lines
    total = explain("llama-3.1-8b", "a100-80gb", tensor_parallel=4, pipeline_parallel=2).published[0].total
    assert f"norms of the layers divided by t: {total / 2**30:.2f} GiB on the first rank" in shown


@pytest.mark.parametrize(("others", "words"), [
    (["--tp 3"], ("B.tensor_parallel = 3", "must divide")),
    (["--tp 2", "--tp 3"], ("C.tensor_parallel = 3",)),
    (["--tpp 2"], ("against = '--tpp 2'", "No such option")),
    (["--tp 'two"], ("against", "No closing quotation")),
    (["--tp two"], ("tensor_parallel = 'two'", "must be an integer")),
    (["tp 2 pp 2"], ("against = 'tp 2 pp 2'", 'nearest legal: "--tp 2 --pp 2"')),
    (["a b"], ("against = 'a b'", "must be options of a configuration")),
    (["publish"], ("against = 'publish'", "nearest legal: published")),
    (["--gpu h100-80gb --gpu-memory 80"], ("gpu_memory",)),
    (["--kernel swiglu"], ("kernel = 'swiglu'", "axis=option")),
])
def test_bad_options_are_one_line(
    others: list[str], words: tuple[str, ...], capsys: pytest.CaptureFixture[str],
) -> None:
    arguments = [text for other in others for text in ("--against", other)]
    assert exit_code(["compare", *BASE, *arguments]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.count("\n") == 1
    assert all(word in shown.err for word in ("error: ", *words)), shown.err


def test_something_to_compare_with_must_be_given(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(["compare", *BASE]) == 2
    assert "--against" in capsys.readouterr().err


@pytest.mark.parametrize(("option", "words"), [
    ("--model llama-3.1-8b", "Give the model as the first argument"), ("--nodes 8", "Give --num-gpus"),
    ("--fsdp", "Give --zero-stage 3"),
])
def test_options_of_other_programs_are_known(option: str, words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(["explain", *option.split(), "--gpu", "h100-80gb"]) == 2
    assert words in capsys.readouterr().err
