"""What fuzzing has found, each input as small as it repeats: refused in one line now, or answered."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from shardmath import InputError, evaluate, explain
from shardmath.account.anchor import anchored
from shardmath.account.time import as_cluster
from shardmath.cli.main import exit_code
from shardmath.commands.calibrate.files import read_runs
from shardmath.compiler.evaluators import find
from shardmath.errors import nearest_names
from shardmath.formats import read
from shardmath.formats.scripts.shell import read_script
from shardmath.models.expert_families import first_layer_and_step
from shardmath.search.spaces import read_space

SPACE = "model: llama-3.1-8b\ngpu: h100-80gb\naxes: {tensor_parallel: [1, 2]}\n"
YAML = {
    "a tag that is no date": "x: !!timestamp y", "a tag that is no truth": "x: !!bool y",
    "a tag without digits": "x: !!int ''",
    "a tag that is no number": "x: !!float y", "a date before all": "x: 0001-01-01T00:00:00+23:59",
    "a sum of times": "x: 1:2:3:" + ":".join(["59"] * 300) + ".5", "a tag of code": "x: !!python/name:os.system",
    "no first multiple": "axes: {seq_length: {multiples: {of: 2, from: null, to: 8}}}",
    "divisors from a text": "gpu: h100-80gb\naxes: {num_layers: {divisors_of: hidden_size, at_least: x}}",
    "divisors to a text": "gpu: h100-80gb\naxes: {num_layers: {divisors_of: hidden_size, at_most: y}}",
}


@pytest.mark.parametrize("content", YAML)
def test_yaml(tmp_path: Path, content: str) -> None:
    path = tmp_path / "space.yaml"
    path.write_text(YAML[content])
    with pytest.raises(InputError):
        read_space(path).parts()


def test_keys_as_long_as_a_file(tmp_path: Path) -> None:
    path = tmp_path / "space.toml"
    path.write_text(f"{'a' * 5000} = 1\n")
    with pytest.raises(InputError) as refused:
        read_space(path)
    assert len(str(refused.value)) < 1000


def test_a_command_that_is_empty_once_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "run.sh"
    path.write_text("eval ''\neval ' '\n")
    with pytest.raises(InputError, match="must start a training program"):
        read(path)


def test_more_layers_than_a_list_can_have() -> None:
    with pytest.raises(InputError, match="must be every layer, or every n-th, from one of them on to the last"):
        first_layer_and_step([3, 4, 5], 2**64, 1)


def test_a_table_of_runs_without_a_word(tmp_path: Path) -> None:
    path = tmp_path / "runs.csv"
    path.write_text(",,,\n,,\n")
    with pytest.raises(InputError, match="must have a line with the names of columns"):
        read_runs(path, as_cluster("h100-80gb"))


def test_a_column_that_is_no_text(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    path = tmp_path / "table.csv"
    path.write_bytes(b"num_gpus,\x93\n8,1\n")
    with pytest.raises(InputError, match="must be a table that can be read"):
        evaluate(path, "llama-3.1-8b", "h100-80gb")


@pytest.mark.parametrize("text", ["$'", "--a 'b", "x=$'\n--num-layers 2", "$\"'"])
def test_quotes_without_their_pair(tmp_path: Path, text: str) -> None:
    path = tmp_path / "run.txt"
    path.write_text(f"--num-layers 2 --hidden-size {text}\n{text}")
    with pytest.raises(InputError):
        read(path)


def test_words_as_long_as_a_file(tmp_path: Path) -> None:
    path = tmp_path / "run.txt"
    path.write_text(f"--num-layers 2 --hidden-size 64 --tokenizer-type {'a' * 5000}")
    with pytest.raises(InputError) as refused:
        read(path)
    assert len(str(refused.value)) <= 1500


@pytest.mark.parametrize("changes", [
    {"gpu": None}, {"gpu": 1}, {"model": []}, {"tensor_parallel": [1]}, {"kernels": {"loss": 1}}, {"kernels": []},
    {"pipeline_layout": ["a"]}, {"pipeline_layout": {}}, {"recompute": {}}, {"seq_length": 1.5}, {"no_such": 1},
    {"network": 16}, {"network": 0}, {"network": ""}, {"recompute": 1}, {"implementation": 1}, {"schedule": True},
    {"kernels": "x"}, {"kernels": 0}, {"tensor_parallel": "2"}, {"sequence_parallel": "on"}, {"pipeline_layout": 2},
])
def test_a_measured_run_with_anything_in_it(tmp_path: Path, changes: dict[str, object]) -> None:
    path = tmp_path / "measured.json"
    run = {"model": "llama-3.1-8b", "gpu": "h100-80gb", **changes}
    path.write_text(json.dumps({"run": run, "measured": {"allocated_bytes": 2**37}}))
    with pytest.raises(InputError):
        anchored(path)


def test_letters_beyond_the_tables_of_the_grammar(tmp_path: Path) -> None:
    path = tmp_path / "run.sh"
    path.write_text("# 参数\nNAME='\U0010ffff{{{{é'\nif [ \"$NAME\" = \"${X:-ä}\" ]; then\nL=1\nelse\nL=2\nfi\n"
                    "python pretrain_gpt.py --num-layers $L --hidden-size 64 --data-path /\U0010ffff/é $NAME\n")
    for _ in range(50):
        script = read_script("", path.read_text(), {})
        assert script.variables["NAME"] == "\U0010ffff{{{{é"
        (command,) = script.commands
        assert command[2:4] == ["--num-layers", "2"]
        assert command[-2:] == ["/\U0010ffff/é", "\U0010ffff{{{{é"]


@pytest.mark.slow
def test_a_date_that_python_has_not(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    path = tmp_path / "table.csv"
    path.write_text("num_gpus\n0001-01-01T00:00:00+23:59\n")
    with pytest.raises(InputError, match="num_gpus = 'timestamp"):
        evaluate(path, "llama-3.1-8b", "h100-80gb").read_all()


@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".arrow", ".arrows"])
def test_a_file_whose_name_is_no_text(tmp_path: Path, suffix: str) -> None:
    pytest.importorskip("pyarrow")
    path = tmp_path / f"t\udce2{suffix}"
    path.write_text("num_gpus\n8\n")
    with pytest.raises(InputError) as refused:
        evaluate(path, "llama-3.1-8b", "h100-80gb").read_all()
    assert str(refused.value).isprintable()


@pytest.mark.parametrize("command", ["sweep", "recommend", "scale"])
def test_more_gpus_than_can_be(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    start = time.process_time()
    assert exit_code([command, "llama-3.1-8b", "--gpu", "h100-80gb", "--num-gpus", str(2**63),
                      "--global-batch-size", "64"]) == 2
    assert "num_gpus = 9223372036854775808: must be an integer from 1 to" in capsys.readouterr().err
    assert time.process_time() - start < 10


def test_a_list_of_layers_with_a_number_of_thousands_of_digits() -> None:
    with pytest.raises(InputError, match="must be numbers of layers"):
        explain("llama-3.1-8b", "h100-80gb", pipeline_layout="9" * 4301)


@pytest.mark.slow
def test_listed_stages_of_a_step_with_billions_of_sequences() -> None:
    start = time.process_time()
    with pytest.raises(InputError, match="pipeline_layout = '16,16': must have at most 1048576 passes"):
        explain("llama-3.1-8b", "h100-80gb", pipeline_parallel=2, pipeline_layout=(16, 16), global_batch_size=2**31)
    assert time.process_time() - start < 10


def test_a_name_like_none_is_not_answered_with_hundreds() -> None:
    with pytest.raises(InputError) as refused:
        find("megatron").unit_and_meaning("@@@")
    assert len(str(refused.value)) < 400
    assert nearest_names("@@@", ["a", "b"]) == "a, b"
    assert nearest_names("peek", [*(f"term.{number}" for number in range(900)), "peak"]) == "peak"


@pytest.mark.parametrize("pair", ["seq_length=--5", f"seq_length={'9' * 5000}", "seq_length=１２", "=1"])
def test_values_for_all_rows_that_are_no_numbers(tmp_path: Path, pair: str, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("pyarrow")
    path = tmp_path / "table.csv"
    path.write_text("num_gpus\n8\n")
    arguments = ["evaluate", str(path), "-o", str(tmp_path / "out.parquet"), "--model", "llama-3.1-8b", "--gpu",
                 "h100-80gb"]
    assert exit_code([*arguments, "--set", pair]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: ")
