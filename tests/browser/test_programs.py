"""Settings of other programs: the page reads them as the commands do, and says the same of what it does not."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from random import Random
from typing import Any

import pytest
import yaml
from nested_settings import nested

from shardmath.commands.page.catalogue import model_data, models
from shardmath.errors import InputError
from shardmath.formats import read
from shardmath.formats.described import format_of, read_settings, words_of
from shardmath.formats.table import Table

DATA = Path(__file__).parents[1] / "data"
#: Formats of the public files, by the name of the file of these.
NAMES = ("accelerate", "axolotl", "deepspeed", "llamafactory", "nanotron", "swift", "torchtune", "trl")
#: Settings of the page for a file that is silent, and the names that they have in the vocabulary of the tables.
ON_PAGE = {"model": "llama-3.1-8b", "seq_length": 1024, "micro_batch_size": 3}
MEANT = {"model": "model_name_or_path", "seq_length": "max_length", "micro_batch_size": "per_device_train_batch_size"}
_MICRO = MEANT["micro_batch_size"]
#: Values that keys of random files have, in YAML and in TOML.
WORDS = ("0", "1", "2", "-1", "1.5", "1e3", "1.0e+3", "true", "No", "on", "yEs", "null", "~", "", "auto", "none", "abc",
         "'q'", '"q q"', "'it''s'", "[]", "[q_proj, v_proj]", "{a: 1}", "0x10", "1_000", "1:30", "2024-01-01", ".5",
         "1.0e-5", "&a b", "|", "a: b", "a #b", "don't", "[a, [b, c]]", "[,a]", "bf16", "float32", "16", "cpu")
WORDS_OF_TOML = ("0", "2", "-1", "1.5", "1e3", "true", "True", "'q'", '"q q"', "[]", '["a", "b",]', "{a = 1}", "010",
                 "1_000", ".5", "1.", '"full"', '"none"', '"405B"', '"GPipe"', '"always"', '"a\\"b"', '"a#b"', "", "4")
#: Lines that random scripts have more.
LINES = ("A=1", "A=(--a 1 'b c')", 'A="$A \\\n  $N"', "A+=(--lr 1)", "X=${Y:-8}", 'X="${Y:-a b}"', "export Q=1 R=2",
         "N=$((8*2))",
         'if [ "$X" = 8 ]; then A=2; elif [ -n "$Y" ]; then A=3; else A=4; fi', '[ -z "$Y" ] && A=5', "N=$(($X/3+1))",
         "[[ $X == 8 ]] || A=6", "N=$(date)", "unset X", "source x.sh", 'eval "$A"', "for i in 1 2; do A=1; done",
         "case $X in 8) A=1;; esac", "f() { A=1; }", "ls | tee x", "A=$A:$X", "if [ -f x ]; then A=1; fi", "A[0]=1",
         "python x.py --foo", "N=128", "echo ${#A[@]} ${A%x}", "true && A=9", "B=${A[0]}", 'B="${A[@]}"', "C=${A:+x}")
#: Runs of files by the page, with all models of the catalogue and its own sizes where a file is silent, or its refusal.
READ = """async ([files, catalogue, page]) => {
  await loadReaders();
  for (const model of catalogue) if (!MODELS.has(model.name)) MODELS.set(model.name, model);
  const { readProgram, InputError, Unwritten } = shardmath.readers;
  const ofMap = (map) => Object.fromEntries([...map].map(([key, item]) => [key, plainOf(item)]));
  const plainOf = (value) => value instanceof Map ? ofMap(value)
    : Array.isArray(value) ? value.map(plainOf) : value instanceof Number ? value.valueOf() : value;
  return files.map((text) => {
    try {
      const run = readProgram(text, page);
      if (!run) return { unwritten: "no program" };
      const { format, model, understood, unknown, warnings, lacks } = run;
      return { format, model: plainOf(model.model_dump()), given: plainOf(run.arguments), understood, unknown, warnings,
        lacks, idle: run.without_effect, replica: run.replica_batch };
    } catch (error) {
      if (error instanceof Unwritten) return { unwritten: error.message };
      if (!(error instanceof InputError)) throw error;
      return { refused: error.message.split("; nearest legal: ")[0] };
    }
  });
}"""


def _public() -> dict[str, str]:
    """Return public files in each format that they may be in, those with what a command line adds too."""
    paths = [*sorted((DATA / "formats").iterdir()), DATA / "reports" / "torchtitan_1558.toml",
             DATA / "reports" / "megatron_525.args", DATA / "launched" / "axolotl_llama3_8b.yaml"]
    files = {path.name: path.read_text(encoding="utf-8") for path in paths}
    for name in NAMES:
        for number, row in enumerate(json.loads((DATA / "launched" / f"{name}.json").read_text(encoding="utf-8"))):
            if "script" in row:
                files[f"{name}_{number}.sh"] = row["script"]
                continue
            for end, settings in (("", row["settings"]), ("_given", {**row["settings"], **row["given"]})):
                data = nested(settings)
                files[f"{name}_{number}{end}.json"] = json.dumps(data)
                files[f"{name}_{number}{end}.yaml"] = yaml.safe_dump(data, sort_keys=False)
    return files


def _changed(random: Random, text: str, kind: str) -> str:
    """Return a file of which some lines are others: other values, indents, signs, lines twice, away or more."""
    lines = text.split("\n")
    between, words = {".toml": (" = ", WORDS_OF_TOML), ".yaml": (": ", WORDS)}.get(kind, (" ", ("$X", "${Y}", "1.5")))
    for _ in range(random.choice((1, 1, 2, 3))):
        place, chance = random.randrange(len(lines)), random.random()
        line = lines[place]
        if chance < 0.7 and kind in (".sh", ".args"):
            lines.insert(place, random.choice(LINES))
        elif chance < 0.7 and (between in line or line.endswith(":")):
            lines[place] = line.partition(between)[0].rstrip(":") + between + random.choice(words)
        elif chance < 0.8:
            lines[place:place + 1] = random.choice(((), (line, line)))
        elif chance < 0.9:
            lines[place] = random.choice((f"  {line}", line.lstrip(), f"{line} # comment", "# comment", "\t", "- x"))
        elif line:
            lines[place] = line.replace(random.choice(line), random.choice("\"'#:- [}"), 1)
        lines = lines or [""]
    return "\n".join(lines)


def _lacking(path: Path) -> tuple[Table | None, dict[str, tuple[str, ...]], list[str]]:
    """Return the format of a file of settings, its words but for sizes that are automatic, and settings of the page."""
    if path.suffix in (".sh", ".args"):
        return None, {}, []
    words = words_of(str(path), path.suffix, [])
    format = format_of(words)
    if format is None or format.vocabulary not in ("transformers", "torchtune"):
        return None, {}, []
    names = MEANT if format.vocabulary == "transformers" else {"seq_length": MEANT["seq_length"]}
    micro = [said for key, said in words.items() if format.means.get(key, key) == _MICRO]
    if all(said == ("auto",) for said in micro) and "micro_batch_size" in names:
        words = {key: said for key, said in words.items() if format.means.get(key, key) != _MICRO}
    stated = {*format.defaults, *(format.means.get(key, key) for key in words)}
    if "tokenizer.max_seq_len" in words:
        stated.add(MEANT["seq_length"])
    return format, words, [meant for meant in names.values() if meant not in stated]


def _expected(path: Path) -> dict[str, Any]:
    """Return what the commands read, with the settings of the page for those that the file lacks."""
    try:
        format, words, lacks = _lacking(path)
        if format is None or not lacks:
            run = read(path)
        else:
            with pytest.raises(InputError):
                read(path)
            around = {meant: (str(ON_PAGE[name]),) for name, meant in MEANT.items() if meant in lacks}
            run = read_settings(format, str(path), words, launcher=around)
    except InputError as error:
        value = "this text" if error.value == str(path) else error.value
        return {"refused": str(InputError(error.field, value, error.rule))}
    arguments = {name: list(value) if isinstance(value, tuple) else value for name, value in run.arguments.items()}
    return {"format": run.format, "model": _model(run.model.model_dump()), "given": arguments,
            "understood": [*run.understood], "idle": [*run.without_effect], "unknown": [*run.unknown],
            "warnings": [*run.warnings], "replica": run.replica_batch, "lacks": lacks}


def _model(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a model but where it is from; figures of the rotary embedding that are 0 are not there."""
    figures = {name: figure for name, figure in (fields["rope_scaling"] or {}).items() if figure}
    return {**fields, "source": "", "rope_scaling": figures or None}


def _compared(files: Mapping[str, str], tab: Any, folder: Path) -> dict[str, str]:
    """Compare what the page reads with what the commands do; return the outcome of each file."""
    catalogue = [model_data(model) for model in models(())]
    answers = tab.evaluate(READ, [[*files.values()], catalogue, ON_PAGE])
    outcomes = {}
    for (name, text), answer in zip(files.items(), answers, strict=True):
        path = folder / name / f"pasted{Path(name).suffix}"
        path.parent.mkdir()
        path.write_text(text, encoding="utf-8")
        if "model" in answer:
            answer["model"] = _model(answer["model"])
        outcomes[name] = next(iter(answer))
        if outcomes[name] != "unwritten" and "a model of this page" not in answer.get("refused", ""):
            assert (name, answer) == (name, _expected(path))
    return outcomes


def test_public_files_are_read_as_the_commands_do(opened: Callable[..., Any], tmp_path: Path) -> None:
    outcomes = _compared(_public(), opened(), tmp_path)
    assert set(outcomes.values()) == {"format", "refused"}
    assert sum(outcome == "format" for outcome in outcomes.values()) > 150


def test_changed_files_are_read_as_the_commands_do_or_not_at_all(opened: Callable[..., Any], tmp_path: Path) -> None:
    random = Random(20)
    public = [(name, text) for name, text in _public().items() if not name.endswith(".json")]
    some = [item for item in public if item[0].endswith((".toml", ".sh", ".args"))]
    files = {}
    for number in range(1000):
        name, text = random.choice(random.choice((public, some)))
        files[f"{number}_{name}"] = _changed(random, text, Path(name).suffix)
    outcomes = [*_compared(files, opened(), tmp_path).values()]
    assert min(outcomes.count(outcome) for outcome in ("format", "refused", "unwritten")) > 60


#: State, remarks and memory of the page after each file is taken over, or why it is not.
TAKE = """async (files) => {
  const before = structuredClone(state);
  const answers = [];
  for (const text of files) {
    state = structuredClone(before);
    byId("unread").textContent = "";
    byId("importer").showModal();
    byId("pasted").value = text;
    await takePasted();
    byId("importer").close();
    answers.push({ refused: byId("unread").textContent, notes: byId("notice").textContent,
      numbers: { ...state.numbers },
      memory: document.querySelector("#tile-memory .figure")?.textContent ?? "no layout" });
  }
  return answers;
}"""


def test_files_taken_over_have_the_memory_of_the_commands(opened: Callable[..., Any], tmp_path: Path) -> None:
    """Files with arguments that the page has not say so; those with kernels or models that it has not are refused."""
    files = {name: text for name, text in _public().items() if "_given.json" in name or name.endswith((".toml", ".sh"))}
    taken = 0
    for (name, text), answer in zip(files.items(), opened().evaluate(TAKE, [*files.values()]), strict=True):
        if answer["refused"]:
            assert "must" in answer["refused"], name
        elif "Ignored: read by" not in answer["notes"]:
            (tmp_path / name).write_text(text, encoding="utf-8")
            run = read(tmp_path / name)
            left = {"num_gpus", "global_batch_size"} - {*run.arguments} - (
                {"num_gpus"} if "data_parallel" in run.arguments else set())
            try:
                account = run.explain("h100-80gb", **{of: answer["numbers"][of] for of in left})
                expected = f"{account.peak.total / 2**30:.2f} GiB"
            except InputError:
                expected = "no layout"
            assert (name, answer["memory"]) == (name, expected)
            taken += expected != "no layout"
    assert taken > 20


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
    ("[model]\nname = 'llama3'\nflavor = '9B'\n",
     "model.flavor = '9B': must be one of debugmodel, 8B, 70B, 405B, 1B, 3B of"),
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
