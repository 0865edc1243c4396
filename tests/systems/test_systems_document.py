"""The tables of docs/systems.md: what the search finds with and without each system, and figures of papers."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from contextlib import redirect_stdout
from functools import cache
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from shardmath.cli.main import exit_code
from shardmath.generated.definitions import PARAMETERS
from shardmath.symbolic.exact import evaluate
from shardmath.symbolic.published import published_set

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGE = (DOCS / "systems.md").read_text(encoding="utf-8")
GIB = 2**30

LLAMA = "llama-3.1-8b --gpu h100-80gb --top 1"
OVERLAP = "--overlap-param-gather --overlap-grad-reduce"
AXONN = ("docs/spaces/gpt-80b.json --gpu a100-80gb --network slingshot-200 --node-size 4 --num-gpus 1024"
         f" --seq-length 2048 --recompute full {OVERLAP} --risk 50%")
LONG = ("llama-3.1-70b --gpu h100-80gb --network ethernet-100 --num-gpus 256 --seq-length 131072 --global-batch-size 8"
        " --micro-batch-size 1 --top 1")
MIXED = "llama-3.1-8b --global-batch-size 64 --cp 1 --recompute none,full --top 1"
#: A cluster of two kinds.
BOTH = "docs/systems/mixed_gpus.toml"
P3 = ("docs/systems/gpt-175b.json --gpu docs/systems/p3.toml --num-gpus 384 --global-batch-size 2 --seq-length 2048"
      " --no-sequence-parallel --kernel precision=fp16 --kernel slices=tokens")
SEQ1F1B = ("docs/systems/gpt-30b.json --gpu a100-80gb --num-gpus 64 --tp 8 --pp 8 --global-batch-size 16"
           " --seq-length 65536")
FOUR_GPUS = ("docs/systems/llama-13b.json --gpu docs/systems/four_a100.toml --num-gpus 4 --global-batch-size 4"
             " --seq-length 2048 --recompute full")
ONE_GPU = "llama-2-7b --gpu h100-80gb --num-gpus 1 --global-batch-size 1 --seq-length 2048 --recompute full"
LLAMA_3 = ("explain llama-3.1-405b --gpu h100-80gb --tp 8 --pp 16 --vpp 8"
           f" --pipeline-layout {','.join(['0', *126 * '1', '0'])} {OVERLAP}")


class Asked:
    """Answers of commands, each asked once; some are about cluster files that are others turned around or made even."""

    def __init__(self, folder: Path) -> None:
        self.answer = cache(self._answer)
        self._folder, self._files = folder, 0

    def changed(self, file: str, change: Callable[[str], str]) -> Path:
        """The path of a cluster file with its text changed."""
        self._files += 1
        path = self._folder / f"{self._files}_{Path(file).name}"
        path.write_text(change((ROOT / file).read_text(encoding="utf-8")), encoding="utf-8")
        return path

    def _answer(self, command: str) -> Mapping[str, Any]:
        with redirect_stdout(StringIO()) as printed:
            code = exit_code([*shlex.split(command), "--json"])
        assert code == 0, command
        answer: Mapping[str, Any] = json.loads(printed.getvalue())
        return answer

    def swept(self, command: str) -> float:
        """Seconds of the fastest layout that fits; infinity where none does."""
        best = self.answer(f"sweep {command}")["best"]
        return float(best[0]["step_seconds"]) if best else float("inf")

    def explained(self, command: str) -> float:
        return float(self.answer(f"explain {command}")["time"]["seconds"])

    def explored(self, space: str) -> Iterator[Mapping[str, Any]]:
        """The fastest configurations of the groups of the space's first question."""
        answers = self.answer(f"explore docs/systems/{space}.toml")["answers"]
        yield from (group["configurations"][0] for group in next(iter(answers.values()))["groups"])

    def peak(self, command: str) -> float:
        return float(self.answer(f"explain {command}")["peak_bytes"]) / GIB


def rows(heading: str) -> list[list[str]]:
    """The cells of the table under a heading, without its first two lines."""
    section = PAGE.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("| ")][2:]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


def turned(cluster: str) -> str:
    """A cluster file with its kinds in the other order."""
    first, *kinds = re.split(r"(?m)^(?=\[\[kinds\]\])", cluster)
    return first + "\n".join(reversed(kinds))


def wins(asked: Asked) -> Iterator[tuple[str, float, float]]:
    """A word of each row, and seconds or hours without and with the system."""
    batch = f"{LLAMA} --num-gpus 64 --global-batch-size 256 {OVERLAP}"
    yield "AxoNN", asked.swept(batch), asked.swept(f"{batch} --kernel tensor_axes=three")
    slices = "--kernel slices=tokens --sequence-slices 8,16,32,64 --vpp 1 --cp 1"
    yield "TeraPipe", asked.swept(f"{LONG} --kernel peak=saved"), asked.swept(f"{LONG} {slices}")
    steps = {row["inner_steps"]: row["keys"]["step.time"] for row in asked.explored("local_updates")}
    yield "Local updates", steps[1], steps[30]
    swapped = asked.swept(f"{LLAMA} --num-gpus 8 --global-batch-size 64 --seq 32k --kernel peak=saved")
    yield "KARMA", swapped, min(row["keys"]["step.time"] for row in asked.explored("karma"))
    two = asked.swept(f"{LLAMA} --num-gpus 2 --global-batch-size 64")
    yield "Deep Optimizer States", two, min(
        row["keys"]["step.time"] for row in asked.explored("deep_optimizer_states"))
    links = "explain llama-3.1-8b --gpu docs/clusters/measured.toml --num-gpus 64 --tp 2 --global-batch-size 64"
    placed = asked.answer(links)["placement"]
    yield "Measured links", placed["file_order_seconds"], placed["seconds"]
    alone = asked.swept(f"{MIXED} --gpu h100-80gb --num-gpus 8")
    yield "Mixed GPUs", alone, asked.swept(f"{MIXED} --gpu docs/systems/mixed_gpus.toml --num-gpus 16")
    plan = asked.answer("phases docs/systems/phases.toml")
    kept = min(other["seconds"] for other in plan["kept"] if other["seconds"])
    yield "Phases", kept / 3600, plan["seconds"] / 3600


def written(value: float, like: str) -> str:
    """A number with as many places as the number of a cell, and what stands around that."""
    number = re.search(r"\d[\d,]*(\.\d+)?", like)
    assert number is not None, like
    places = len(number[1] or ".") - 1
    return like.replace(number[0], f"{value:,.{places}f}")


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Asked]:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(ROOT)
        yield Asked(tmp_path_factory.mktemp("clusters"))


def test_files_that_name_each_system() -> None:
    """The counts of docs/extending.md: own files with published sets, the list, and others with a word or a letter."""
    own = {"AxoNN": "tensor_axes tensor_y tensor_z singh2023",
           "Slices": "sequence_slices slices slicing sliced_keys li2021 sun2024",
           "Local updates": "local_updates douillard2023 douillard2025", "KARMA": "activation_offload wahib2020",
           "Deep Optimizer States": "optimizer_offload interleaving maurya2024"}
    page = (DOCS / "extending.md").read_text(encoding="utf-8")
    texts = {path: path.read_text(encoding="utf-8")
             for room in ("symbolic", "src") for path in (ROOT / room).rglob("*.py")}
    for name, stems in own.items():
        row = next(line for line in page.splitlines() if line.startswith(f"| {name} | `"))
        words, counts = re.findall(r"`(\w+)`", row), [int(number) for number in re.findall(r"\| (\d+)(?= \|)", row)]
        mine = [path for path in texts if path.stem in stems.split()]
        letters = [rf'symbols?\("[^"]*\b{PARAMETERS[word][0]}\b' for word in words if word in PARAMETERS]
        words = [rf'"{word}"' if word == "slices" else rf"\b{word}\b" for word in words]  # a plain word besides
        named = [path.stem for path, text in texts.items()
                 if path not in mine and re.search("|".join([*words, *letters]), text)]
        listed = named.count("parameters")
        assert counts == [len(mine), listed, len(named) - listed], (mine, named)


#: Words of machines that are no parallel dimension, their own files (with published sets), and lists that choose them.
MACHINES = {
    "Mixed GPUs": (
        r"several kinds of GPUs|\.kinds\b|[Ff]leet|kernels_on|mixed_gpus",
        "systems/mixed_gpus machines/kinds machines/cluster machines/files account/kinds account/mixed"
        " account/pipelines account/stage_links spaces/kinds published/um2024", "account/hardware spaces/sharing"),
    "Measured links": (
        r'measured_links|\.links\b(?!\()|\["links"\]|"links": |\bPlacement\b|placed_layouts|placed_stages',
        "systems/measured_links machines/links machines/cluster machines/files account/placement account/arrangements"
        " account/stage_links reports/placement sweep/placing published/yim2024", "machines/__init__"),
    "Phases": (r"resharding|commands\.phases|timing\.phases",
               "parallel/resharding timing/phases documents/changes phases/__init__ phases/answers phases/change"
               " phases/plan phases/plot phases/report phases/run cli/phases published/llama3",
               "shardmath/__init__ schemas/documents"),
}


def test_files_that_name_machines_and_phases() -> None:
    """The counts of docs/extending.md of what is no axis of the ledger, as above."""
    page = (DOCS / "extending.md").read_text(encoding="utf-8")
    texts = {path.with_suffix("").as_posix(): path.read_text(encoding="utf-8")
             for room in ("symbolic", "src") for path in (ROOT / room).rglob("*.py")}
    for name, (words, own, lists) in MACHINES.items():
        mine, listed = ([path for path in texts if path.endswith(tuple(f"/{end}" for end in ends.split()))]
                        for ends in (own, lists))
        others = [path for path, text in texts.items() if re.search(words, text) and path not in (*mine, *listed)]
        row = next(line for line in page.splitlines() if line.startswith(f"| {name} | ") and line.count("|") == 6)
        counts = [int(number) for number in re.findall(r"\| (\d+)(?= \|)", row)]
        assert counts == [len(mine), len([path for path in listed if re.search(words, texts[path])]), len(others)], (
            mine, listed, others)


@pytest.mark.slow
def test_when_each_wins(asked: Asked) -> None:
    table = rows("When each wins")
    every = [*wins(asked)]
    assert len(table) == len(every)
    for (name, plain, with_it), (link, _, was, now, *less) in zip(every, table, strict=True):
        assert link.startswith(f"[{name}")
        assert with_it < plain
        assert written(with_it, now) == now
        if plain == float("inf"):
            assert (was, *less) == ("nothing fits", "")
            continue
        assert written(plain, was) == was
        assert less == [f"{round(100 * (1 - with_it / plain))} %"]


def figures(asked: Asked) -> Iterator[tuple[str, str, float]]:
    """Source and printed number of a row that a command computes, and ours."""
    layouts = {1024: "--tp 8 --tpz 16", 8192: "--tp 1 --tpz 128"}
    three = f"{AXONN} --kernel tensor_axes=three"
    for batch, layout in layouts.items():
        chosen = f"{three} --global-batch-size {batch} {layout} --micro-batch-size 8"
        fastest = asked.swept(f"{three} --global-batch-size {batch} --top 1")
        assert asked.explained(f"{chosen} --no-sequence-parallel") == pytest.approx(fastest)
        hfu = asked.answer(f"explain {chosen} --no-sequence-parallel")["time"]["hfu"]
        yield "AxoNN, abstract", "57 %", 100 * hfu
    many, few = (asked.swept(f"{AXONN} --global-batch-size {batch} --top 1")
                 / asked.swept(f"{three} --global-batch-size {batch} --top 1") for batch in (8192, 1024))
    yield "AxoNN, abstract", "26 %", 100 * (many - 1)
    assert few < 1
    for grid, printed in (("--tp 8 --pp 48", "5.0"), ("--tp 4 --pp 96", "6.75")):
        whole, *sliced = (asked.explained(f"{P3} {grid} --sequence-slices {count}") for count in (1, 16, 32, 64))
        assert min(sliced) == sliced[1]
        yield "TeraPipe", printed, whole / sliced[1]
    yield "Seq1F1B, abstract", "fits", asked.peak(f"{SEQ1F1B} --sequence-slices 4")
    plain = asked.swept(f"{LLAMA} --num-gpus 8 --global-batch-size 64 --seq 32k --kernel peak=saved")
    swapped = min(row["keys"]["step.time"] for row in asked.explored("karma"))
    yield "KARMA, abstract", "yes", 100 * (1 - swapped / plain)
    yield "Deep Optimizer States, logs", "1.39", (
        asked.explained(f"{ONE_GPU} --optimizer-offload-percent 100")
        / asked.explained(f"{ONE_GPU} --gpu-update-stride 2 --sub-group-size 206045184"))
    host, both = (asked.answer(f"explain {FOUR_GPUS} {more}")["time"] for more in
                  ("--optimizer-offload-percent 100", "--gpu-update-stride 2 --sub-group-size 25000000"))
    yield "Deep Optimizer States, logs", "1.58", host["seconds"] / both["seconds"]
    yield "Deep Optimizer States, logs", "2.61", both["spent"]["host"]
    yield "Deep Optimizer States, logs", "3.78", host["spent"]["host"]
    for name, where in (("yim2024", "Pipette, program"), ("um2024", "Metis, printed results")):
        item = published_set(name)
        assert item is not None
        figure = [one for one in item.figures if one.term == f"{name}.step"][-1]
        value = evaluate(item.terms.closure([figure.term]), figure.values)[figure.term]
        yield where, {"yim2024": "2,647.846", "um2024": "5,108.219"}[name], float(value / figure.size)
    mixed = asked.answer(f"sweep {MIXED} --gpu docs/systems/mixed_gpus.toml --num-gpus 16")["best"][0]
    yield "HexiScale, abstract", "the same", 100 * mixed["mfu"]
    larger = MIXED.replace("--global-batch-size 64", "--global-batch-size 256")
    rates = [1 / asked.swept(f"{larger} --gpu {kind} --num-gpus 8") for kind in ("h100-80gb", "a100-80gb")]
    together = 1 / asked.swept(f"{larger} --gpu {asked.changed(BOTH, turned)} --num-gpus 16")
    yield "H2, abstract", "16.37 %", 100 * (together / sum(rates) - 1)
    fewer = asked.answer(f"{LLAMA_3} --num-gpus 8192 --global-batch-size 2048")
    yield "Llama 3, table 4", "43 %", 100 * fewer["time"]["mfu"]
    plan = asked.answer("phases docs/systems/phases_llama3.toml")
    for phase, printed in zip(plan["phases"], ("41 %", "38 %"), strict=True):
        yield "Llama 3, table 4", printed, 100 * phase["mfu"]
    yield "Llama 3, section 3.3", "1 MB to 4 GB", plan["changes"][0]["written_bytes"] / plan["num_gpus"] / 10**9


@pytest.mark.slow
def test_figures_of_papers(asked: Asked) -> None:
    left = rows("Figures of the papers beside ours")
    for source, printed, ours in figures(asked):
        row = next(row for row in left if row[0].startswith(source) and row[2] == printed)
        left.remove(row)
        assert written(ours, row[3]) == row[3], row
        error = re.fullmatch(r"([+-]\d+) %", row[4])
        if error:
            number = float(printed.removesuffix(" %"))
            assert f"{100 * (ours / number - 1):+.0f}" == error[1], row
    # What is left is the source's number itself, tested with its set or system, or says that it is not compared.
    for row in left:
        assert row[4] == "0" or "not compared" in row[3], row
