"""Estimators on the same measured rows: the page, its numbers by hand, and columns that others add."""

from __future__ import annotations

import csv
from pathlib import Path
from statistics import median

import pytest

from shardmath.models.model import Model
from validation import leaderboard
from validation.measured import board

DATA = Path(__file__).resolve().parents[1] / "data"
EXAMPLE = DATA / "leaderboard_example.csv"
KNOWN = board.known_rows(leaderboard.ROWS.read_text(encoding="utf-8"))
COLUMNS = board.stored_columns(KNOWN)
BY_NAME = {line["row"]: line for line in KNOWN}


def errors(table: str, tool: str) -> list[float]:
    return [abs(COLUMNS[tool][name] / int(line["measured_bytes"]) - 1) for name, line in BY_NAME.items()
            if line["table"] == table and name in COLUMNS[tool]]


def test_the_page_is_that_of_the_stored_rows() -> None:
    assert leaderboard.PAGE.read_text(encoding="utf-8") == leaderboard.page(KNOWN)
    assert len(BY_NAME) == len(KNOWN)


@pytest.mark.slow
def test_the_stored_rows_are_fresh(capsys: pytest.CaptureFixture[str]) -> None:
    assert leaderboard.main(["--check"]) == 0, capsys.readouterr().out


def test_simumax_is_judged_by_its_own_table() -> None:
    with (DATA / "simumax_b200_stages.csv").open(encoding="utf-8", newline="") as file:
        wanted = [abs(float(row["simumax_peak_gib"]) * 2**30 / int(row["most_peak_bytes"]) - 1)
                  for row in csv.DictReader(file)]
    (line,) = [line for line in board.lines(KNOWN, COLUMNS) if line.tool == board.SIMUMAX]
    assert (line.count, line.median, line.worst) == pytest.approx((len(wanted), median(wanted), max(wanted)), abs=1e-8)
    assert line.ours == pytest.approx(median(errors("simumax", board.SHARDMATH)))


def test_every_estimator_has_rows_and_ours_has_all() -> None:
    assert {*COLUMNS} == {*board.COMPUTED, "llm-analysis"}
    assert {*COLUMNS[board.SHARDMATH]} == {*BY_NAME}
    assert all(len(predicted) > 20 for predicted in COLUMNS.values())


def test_the_playbooks_bytes_by_hand() -> None:
    """Llama 3.2 1B on one H100: 2 + 2 + 12 bytes of states, activations of Korthikanti et al. in every layer."""
    model = Model.named("llama-3.2-1b")
    name = "one_h100: megatron-core, llama-3.2-1b, 4096 tokens, 1 x 1, recompute none, flash"
    tokens, width, heads, parameters = 4096, model.hidden_size, model.num_attention_heads, 1_235_814_400
    activations = model.num_layers * tokens * width * (34 + 5 * heads * tokens / width)
    assert COLUMNS[board.PLAYBOOK][name] == 20 * parameters + activations  # with fp32 gradients
    split = [line for line in KNOWN if line["tensor_parallel"] != "1" or line["recompute"] != "none"]
    assert split
    assert not {line["row"] for line in split} & {*COLUMNS[board.PLAYBOOK]}


def test_states_of_llm_analysis_by_hand() -> None:
    """Weights 2, fp32 gradients 4, Adam with fp32 weights 12 bytes; inputs of layers; logits twice."""
    model = Model.named("llama-3.2-1b")
    name = "one_h100: megatron-core, llama-3.2-1b, 4096 tokens, 1 x 1, recompute full, flash"
    kept, tokens, width = model.num_kv_heads / model.num_attention_heads, 4096, model.hidden_size
    layer = (2 + 2 * kept) * width**2 + 3 * width * model.ffn_hidden_size + 2 * width
    parameters = model.num_layers * layer + width + model.vocab_size * width
    inputs, logits = model.num_layers * tokens * width * 2, tokens * model.vocab_size * 2
    assert COLUMNS["llm-analysis"][name] == 18 * parameters + inputs + 2 * logits


def test_a_column_of_another_estimator(capsys: pytest.CaptureFixture[str]) -> None:
    """The file of the example predicts 0, 20 and 50 % too much for three rows of one table."""
    assert leaderboard.main(["--column", str(EXAMPLE)]) == 0
    (line,) = [line for line in capsys.readouterr().out.splitlines() if "leaderboard_example" in line]
    assert line.split(" | ")[1:6] == ["leaderboard_example", "3 of 23", "20.00%", "50.0%", "33%"]
    with EXAMPLE.open(encoding="utf-8", newline="") as file:
        own = [row["row"] for row in csv.DictReader(file)]
    ours = median(abs(COLUMNS[board.SHARDMATH][name] / int(BY_NAME[name]["measured_bytes"]) - 1) for name in own)
    assert line.endswith(f"| {ours:.2%} |")


@pytest.mark.parametrize(("text", "words"), [
    ("row,size\na,1\n", "must have the columns row and bytes"),
    ("row,bytes\nnobody,1\n", "line 2 = 'nobody': must be a row of docs/leaderboard/rows.csv"),
    ("row,bytes\n{row},1\n{row},2\n", "must not be there twice"),
    ("row,bytes\n{row},1.5\n", "must be a whole number of bytes"),
    ("row,bytes\n{row},0\n", "must be a whole number of bytes"),
    ("row,bytes\n{row},-3\n", "must be a whole number of bytes"),
    ("row,bytes\n{row}\n", "must be a whole number of bytes"),
    ("row,bytes\n{row},99999999999999999999\n", "must be a whole number of bytes"),
    ("row,bytes\n", "must have a row beside the first line"),
    ('row,bytes\n"{row},1\n', "must be CSV"),
    ("", "must not be empty"),
])
def test_a_column_that_is_wrong_is_refused(text: str, words: str, tmp_path: Path,
                                           capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "mine.csv"
    file.write_text(text.format(row=f'"{KNOWN[0]["row"]}"' if '"' not in text else KNOWN[0]["row"]), encoding="utf-8")
    assert leaderboard.main(["--column", str(file)]) == 2
    captured = capsys.readouterr()
    assert not captured.out
    assert words in captured.err
    assert captured.err.count("\n") == 1


def test_a_missing_file_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert leaderboard.main(["--column", str(tmp_path / "none.csv")]) == 2
    assert "must be the path of an existing file" in capsys.readouterr().err
