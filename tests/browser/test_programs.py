"""Settings of other programs: the page reads them as the commands do, and says the same of what it does not."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from shardmath.errors import InputError
from shardmath.formats import read

DATA = Path(__file__).parents[1] / "data"
NAMES = ("accelerate", "axolotl", "deepspeed", "llamafactory", "nanotron", "torchtune", "trl")
#: Runs of files by the page, with its model and sizes where a file is silent, or the message of why there is none.
READ = """async (files) => {
  await load("readers");
  const { readProgram, InputError } = shardmath.readers;
  const plainOf = (value) => (value instanceof Map ? Object.fromEntries(value) : value);
  return files.map(([text, page]) => {
    try {
      const { model, given, understood, idle, unknown, warnings, replica } = readProgram(text, page);
      const said = Object.fromEntries([...given].map(([name, value]) => [name, plainOf(value)]));
      const sizes = [model.num_layers, model.hidden_size, model.vocab_size];
      return { sizes, given: said, understood, idle, unknown, warnings, replica };
    } catch (error) {
      if (!(error instanceof InputError)) throw error;
      return { error: error.field };
    }
  });
}"""


def _files(folder: Path) -> dict[Path, dict[str, Any]]:
    """Write the public files of the tests, each with what the page says where it is silent."""
    files: dict[Path, dict[str, Any]] = {path: {} for path in sorted((DATA / "formats").glob("torchtitan_*.toml"))}
    files[DATA / "launched" / "axolotl_llama3_8b.yaml"] = {}
    for name in NAMES:
        for number, row in enumerate(json.loads((DATA / "launched" / f"{name}.json").read_text(encoding="utf-8"))):
            path = folder / f"{name}_{number}.json"
            path.write_text(json.dumps(row["settings"]), encoding="utf-8")
            files[path] = {}
    return files


def _expected(path: Path) -> dict[str, Any]:
    try:
        run = read(path)
    except InputError as error:
        return {"error": error.field}
    return {"sizes": [run.model.num_layers, run.model.hidden_size, run.model.vocab_size],
            "given": dict(run.arguments), "understood": [*run.understood], "idle": [*run.without_effect],
            "unknown": [*run.unknown], "warnings": [*run.warnings], "replica": run.replica_batch}


def test_public_files_are_read_as_the_commands_do(opened: Callable[..., Any], whole: Path, tmp_path: Path) -> None:
    files = _files(tmp_path)
    texts = [[path.read_text(encoding="utf-8"), page] for path, page in files.items()]
    answers = dict(zip(files, opened(path=whole).evaluate(READ, texts), strict=True))
    assert sum("given" in answer for answer in answers.values()) >= 20
    assert {path.name: answer for path, answer in answers.items()} == {path.name: _expected(path) for path in files}


@pytest.mark.parametrize(("name", "model"), [("llama3_8b", "llama-3.1-8b"), ("llama3_70b", "llama-3.1-70b")])
def test_a_file_of_torchtitan_is_taken_over(name: str, model: str, opened: Callable[..., Any]) -> None:
    path = DATA / "formats" / f"torchtitan_{name}.toml"
    tab = opened("#num_gpus=64")
    tab.click("#import")
    tab.fill("#pasted", path.read_text(encoding="utf-8"))
    tab.click("#take")
    tab.wait_for_selector("html[data-ready]")
    assert f"settings of torchtitan, with the formulas of {model}." in tab.inner_text("#notice")
    expected = read(path).explain("h100-80gb", num_gpus=64)
    assert tab.inner_text("#tile-memory .figure") == f"{expected.peak.total / 2**30:.2f} GiB"


@pytest.mark.parametrize(("text", "said"), [
    ("[model]\nname = 'llama3'\nflavor = '9B'\n", "model.flavor = '9B': must be one of debugmodel, 8B, 70B, 405B of"),
    ("model_name_or_path: &a b\nper_device_train_batch_size: 4\n", "A file of Hugging Face with what this page does"),
    ('{"zero_optimization": {"stage": 3}, "train_micro_batch_size_per_gpu": 1}', "data_parallel=deepspeed"),
    ("parallelism:\n  tp: 2\n  tp_mode: REDUCE_SCATTER\ntokens:\n  sequence_length: 4096\n", "model.model_config."),
])
def test_what_the_page_does_not_take_changes_nothing(text: str, said: str, opened: Callable[..., Any]) -> None:
    tab = opened()
    before = tab.evaluate("toLink()")
    tab.click("#import")
    tab.fill("#pasted", text)
    tab.click("#take")
    tab.wait_for_selector("html[data-ready]")
    assert said in tab.inner_text("#unread")
    assert tab.evaluate("toLink()") == before
