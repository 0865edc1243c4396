"""Every number with a unit or a point on the pages of systems: a command of its page prints it, or it is read here."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from itertools import groupby, islice
from pathlib import Path
from typing import NamedTuple

import pytest
from consoles import shown
from oracles.extent import FULL
from sympy import Integer
from systems.test_interleaved_optimizer import LOGS, logged_updates
from systems.test_systems_document import (
    BOTH,
    DOCS,
    FOUR_GPUS,
    LLAMA,
    LLAMA_3,
    LONG,
    MIXED,
    OVERLAP,
    ROOT,
    SEQ1F1B,
    Asked,
    turned,
    written,
)

from shardmath.configuration.settings import as_gpu
from shardmath.symbolic.exact import evaluate
from shardmath.symbolic.published import published_set

PAGES = (DOCS / "systems.md", *sorted((DOCS / "systems").glob("*.md")))
#: Tables of docs/systems.md whose columns, but for the last one, test_systems_document.py reads.
TABLES = ("When each wins", "Figures of the papers beside ours")
NUMBER = re.compile(r"(?<![\w.,])(\d[\d,]*\.\d+)(?![\d.])|(?<![\w.,])(\d[\d,]*)"
                    r"(?= ?%| (?:ms|s|h|hours|GiB|TiB|GB|MB|TB|GB/s|TB/s|times)\b)")
#: A cluster of measured links.
MEASURED = "docs/clusters/measured.toml"
#: The shares of memory at which a verdict changes, and names.
NOT_NUMBERS = re.compile(r"\b(?:80|100) %(?= rule| and 100 %)|(?<=Llama)[- ]3\.1")


class Read(NamedTuple):
    """A sentence of a page, with its numbers in groups, and what computes them."""

    page: str
    sentence: str
    numbers: Callable[[Asked], Iterator[float]]


def searches(*commands: str) -> Callable[[Asked], Iterator[float]]:
    """Seconds of the fastest layouts that searches find."""
    return lambda asked: (asked.swept(command) for command in commands)


def three_axes(batch: int, model: str = f"{LLAMA} --num-gpus 64") -> Callable[[Asked], Iterator[float]]:
    """Seconds with AxoNN's axes, and without."""
    plain = f"{model} --global-batch-size {batch} {OVERLAP}"
    return searches(f"{plain} --kernel tensor_axes=three", plain)


def placed(asked: Asked, layout: str) -> float:
    """How much faster a layout is on nodes that are placed by measured links than in the order of the file."""
    links = f"llama-3.1-8b --gpu {MEASURED} --num-gpus 64 {layout} --global-batch-size 64"
    placement = asked.answer(f"explain {links}")["placement"]
    return float(placement["file_order_seconds"] / placement["seconds"])


def counted_traffic(_: Asked) -> Iterator[float]:
    """By how much AxoNN's model of traffic exceeds the counted one, over its own, in per cent: of x, y and z."""
    item = published_set("singh2023")
    assert item is not None
    known = {"t": 2, "ty": 2, "tz": 2, "D": 2, "B": 64, "b": 1, "s": 2048, "h": 4096, "L": 24, "a": 32, "g": 1,
             "u": 50304}
    letters = {letter: Integer(value) for letter, value in known.items()}
    for name in ("rows", "columns", "depth"):
        pair = next(pair for pair in item.correspondence if pair.term == f"singh2023.{name}")
        theirs = evaluate(item.terms.closure([pair.term]), known)[pair.term]
        assert pair.difference is not None
        yield float(100 * pair.difference.subs({part: letters[part.name] for part in pair.difference.free_symbols})
                    / theirs)


def logged(row: str) -> Mapping[str, float]:
    """Seconds and bytes that a log of the authors of Deep Optimizer States has, of 13B on four GPUs or 7B on one."""
    gpus, hidden, stride = row.split()
    return next({name: float(value) for name, value in found.items() if value} for found in LOGS
                if (found["gpus"], found["h"], found["stride"]) == (gpus, hidden, stride))


def one_gpu(_: Asked) -> Iterator[float]:
    host, both = (logged(f"1 4096 {stride}") for stride in (0, 2))
    yield from (one[name] / 1000 for one in (host, both) for name in ("iteration_ms", "update_ms"))
    yield (host["backward_ms"] - both["backward_ms"]) / 1000


def four_gpus(asked: Asked) -> Iterator[float]:
    host, both = (logged(f"4 5120 {stride}")["iteration_ms"] for stride in (0, 2))
    yield host / both
    ours = [asked.explained(f"{FOUR_GPUS} {more}") for more in
            ("--optimizer-offload-percent 100", "--gpu-update-stride 2 --sub-group-size 25000000")]
    yield ours[0] / ours[1]


def errors(_: Asked) -> Iterator[float]:
    """Per cent that ours update faster than the logs, least and most: with subgroups of the GPU, and without."""
    for of_host in (False, True):
        less = [100 * (1 - ours / theirs) for stride, ours, theirs in logged_updates() if (stride == 0) == of_host]
        yield from (min(less), max(less))


def gain(asked: Asked) -> Iterator[float]:
    """Per cent that KARMA saves, and that more swapped layers cost than the link keeps up with."""
    plain = asked.swept(f"{LLAMA} --num-gpus 8 --global-batch-size 64 --seq 32k --kernel peak=saved")
    every = [*asked.explored("karma")]
    yield 100 * (1 - min(row["keys"]["step.time"] for row in every) / plain)
    alone = {row["cpu_offloading_num_layers"]: row["keys"]["step.time"] for row in every
             if row["context_parallel"] == 1}
    yield 100 * (alone[24] / alone[20] - 1)


def mixed_row(batch: int) -> Callable[[Asked], Iterator[float]]:
    """A row of the table of mixed GPUs: each kind alone, both orders, and the sum of both rates."""
    def row(asked: Asked) -> Iterator[float]:
        search = MIXED.replace("--global-batch-size 64", f"--global-batch-size {batch}")
        alone = [asked.swept(f"{search} --gpu {kind} --num-gpus 8") for kind in ("h100-80gb", "a100-80gb")]
        yield from alone
        yield asked.swept(f"{search} --gpu {BOTH} --num-gpus 16")
        yield asked.swept(f"{search} --gpu {asked.changed(BOTH, turned)} --num-gpus 16")
        yield 1 / sum(1 / seconds for seconds in alone)
    return row


def gains_of_mixed(asked: Asked) -> Iterator[float]:
    for batch in (64, 8):
        search = MIXED.replace("--global-batch-size 64", f"--global-batch-size {batch}")
        both = asked.swept(f"{search} --gpu {BOTH} --num-gpus 16")
        yield 100 * (1 - both / asked.swept(f"{search} --gpu h100-80gb --num-gpus 8"))


def fastest_links(asked: Asked) -> Iterator[float]:
    """Per cent that placed nodes lose to links that all are as fast as the fastest one."""
    fastest = max(int(number) for number in re.findall(r"\b\d{5,6}\b(?=[,\] ])", (ROOT / MEASURED).read_text("utf-8")))
    even = asked.changed(MEASURED, lambda text: re.sub(r"\b\d{5,6}\b(?=[,\]])", str(fastest), text))
    seconds = [asked.explained(f"llama-3.1-8b --gpu {gpus} --num-gpus 64 --tp 2 --global-batch-size 64")
               for gpus in (MEASURED, even)]
    yield 100 * (seconds[0] / seconds[1] - 1)


def longer_rounds(asked: Asked) -> Iterator[float]:
    """Per cent that the longest rounds of local updates save beside ten inner steps."""
    steps = {row["inner_steps"]: row["keys"]["step.time"] for row in asked.explored("local_updates")}
    yield 100 * (1 - min(steps.values()) / steps[10])


def one_layout(asked: Asked) -> Iterator[float]:
    """Per cent that one layout for both phases takes longer than two."""
    plan = asked.answer("phases docs/systems/phases.toml")
    yield 100 * (min(other["seconds"] for other in plan["kept"] if other["seconds"]) / plan["seconds"] - 1)


def attention_share(asked: Asked) -> Iterator[float]:
    """Per cent of the FLOPs of Llama 3.1 405B at 128k tokens that are attention: those that grow with the sequence."""
    layout = "llama-3.1-405b --gpu h100-80gb --num-gpus 1792 --tp 8 --cp 16 --pp 14 --global-batch-size 16"
    work = []
    for tokens in (8192, 131072):
        time = asked.answer(f"explain {layout} --seq-length {tokens}")["time"]
        work.append(time["mfu"] * time["seconds"] / tokens)
    yield 100 * (work[1] - work[0]) / work[1] * 131072 / (131072 - 8192)


def herd(gpus: int, context: int, data: int, length: int) -> Read:
    """A row of table 4: TFLOP/s of a GPU and MFU, those of the published set and ours for the layout of the plan."""
    def numbers(asked: Asked) -> Iterator[float]:
        figures = [item for item in llama.figures if item.term == "llama3.mfu"]
        row = [(8192, 1), (16384, 1), (16384, 16)].index((gpus, context))
        mfu = asked.answer(f"{LLAMA_3} --num-gpus {gpus} --cp {context}"
                           f" --seq-length {length} --global-batch-size {2**24 // length}")["time"]["mfu"]
        peak = as_gpu("h100-80gb").bf16_gflops
        assert peak is not None
        yield from (float(figures[row].values["X"]) / 10**12, mfu * peak / 1000, float(figures[row].printed), 100 * mfu)

    llama = published_set("llama3")
    assert llama is not None
    return Read("systems/phases.md", rf"\| {gpus:,} \| {context} \| {data} \| {length:,} \| (\S+) \| (\S+) \|"
                r" (\S+) % \| (\S+) % \|", numbers)


def lost(_: Asked) -> Iterator[float]:
    """Per cent of a step's work that pipelines of 32 and 16 sequences are idle, and the speed that the second loses."""
    llama = published_set("llama3")
    assert llama is not None
    first, second = (float(evaluate(llama.terms.closure(["llama3.bubble"]), {
        "p": 16, "V": 8, "B": 2048, "b": 1, "D": ranks})["llama3.bubble"]) for ranks in (64, 128))
    yield from (100 * first, 100 * second, 100 * (1 - (1 + first) / (1 + second)))


def slower(row: int) -> Callable[[Asked], Iterator[float]]:
    """Per cent of the speed of a row of table 4 that the next one loses: the paper's and ours."""
    def numbers(asked: Asked) -> Iterator[float]:
        before, after = ([*item.numbers(asked)] for item in HERD[row:row + 2])
        yield from (100 * (1 - after[place] / before[place]) for place in (0, 1))

    return numbers


def host(_: Asked) -> Iterator[float]:
    gpu = as_gpu("h100-80gb")
    assert gpu.host_mb_per_s is not None
    assert gpu.host_memory_gib is not None
    yield from (gpu.host_mb_per_s / 1000, gpu.host_mb_per_s / 8000, gpu.host_memory_gib / 1024)


def storage(_: Asked) -> Iterator[float]:
    plan = tomllib.loads((DOCS / "systems" / "phases_llama3.toml").read_text(encoding="utf-8"))
    yield min(value for value in plan["storage"].values()) / 10**12


def large(asked: Asked) -> Iterator[float]:
    """Seconds of a model that one kind of GPU alone has no room for; at full extent the fastest."""
    twice = asked.changed(BOTH, lambda text: text.replace("gpus = 8", "gpus = 16"))
    job = f"llama-3.1-70b --gpu {twice} --num-gpus 32 --global-batch-size 64"
    yield asked.explained(f"{job} --tp 4 --pp 8 --recompute full")
    if FULL:
        assert asked.explained(f"{job} --tp 4 --pp 8 --recompute full") == pytest.approx(
            asked.swept(f"{job} --cp 1 --recompute none,full --top 1"))


HERD = (herd(8192, 1, 64, 8192), herd(16384, 1, 128, 8192), herd(16384, 16, 8, 131_072))
READ = (
    Read("systems.md", r"as much \((\S+) s against (\S+) s\)", three_axes(64)),
    Read("systems.md", r"accepted risk of (\S+) % .*? and take (\S+) s: then", lambda asked: iter([2.0, asked.swept(
        f"{LLAMA} --num-gpus 64 --global-batch-size 256 {OVERLAP} --risk 2%")])),
    Read("systems.md", r"its all-reduces \((\S+) s against (\S+) s\)", three_axes(16)),
    Read("systems.md", r"sequences loses too \((\S+) s against (\S+) s\)",
         three_axes(256, "llama-3.1-70b --gpu h100-80gb --num-gpus 256 --top 1")),
    Read("systems.md", r"\| x \| \+(\S+) % .*? \| y \| -(\S+) % .*? \| z \| -(\S+) %", lambda asked: (
        sign * share for sign, share in zip((1, -1, -1), counted_traffic(asked), strict=True))),
    Read("systems.md", r"(\S+) GiB with whole sequences", lambda asked: iter([
        asked.peak(f"{SEQ1F1B} --kernel peak=saved")])),
    Read("systems.md", r"placed nodes are (\S+) times", lambda asked: iter([placed(asked, "--tp 2")])),
    Read("systems.md", r"V100 are not public; (\S+) above", lambda asked: iter([
        asked.swept(f"{MIXED} --gpu h100-80gb --num-gpus 8") / asked.swept(f"{MIXED} --gpu {BOTH} --num-gpus 16")])),
    Read("systems.md", r"(\S+) % on H100 alone", lambda asked: iter([
        100 * asked.answer(f"sweep {MIXED} --gpu h100-80gb --num-gpus 8")["best"][0]["mfu"]])),
    Read("systems.md", r"other updates are (\d+) % to (\d+) % less", lambda asked: islice(errors(asked), 2)),
    Read("systems.md", r"logs have (\S+) at most", lambda _: iter([
        max(host["iteration_ms"] / both["iteration_ms"] for host, both in pairs_of_logs())])),
    Read("systems/deep_optimizer_states.md", r"update in (\S+) % to (\S+) % less .*? take (\S+) % to (\S+) %",
         errors),
    Read("systems/deep_optimizer_states.md", r"13B is (\S+) times .*? and (\S+) times here", four_gpus),
    Read("systems/deep_optimizer_states.md", r"takes (\S+) s, of which (\S+) s are the update, and (\S+) s with k ="
         r" 2, of which (\S+) s are\. .*? pass, (\S+) s shorter", one_gpu),
    Read("systems/deep_optimizer_states.md", r"step takes (\S+) s against (\S+) s with the same", searches(*(
        f"{LLAMA} --num-gpus 4 --global-batch-size 64 {more}" for more in ("", "--gpu-update-stride 2")))),
    Read("systems/karma.md", r"takes (\S+) % less than that, .*? which takes (\S+) % longer", gain),
    Read("systems/host.md", r"each: (\S+) GB/s for eight GPUs, (\S+) GB/s for one, and (\S+) TiB", host),
    Read("systems/local_updates.md", r"gain less than (\S+) % here", lambda asked: (
        float(share > 0) for share in longer_rounds(asked) if share < 1)),
    Read("systems/measured_links.md", r"GPUs is (\S+) times .*?, (\S+) times .*?, (\S+) times .*? and (\S+) times",
         lambda asked: (placed(asked, layout) for layout in ("--tp 2", "--tp 8", "--tp 4 --pp 2", "--tp 8 --pp 4"))),
    Read("systems/measured_links.md", r"is within (\S+) % of", lambda asked: (
        2.0 for share in fastest_links(asked) if 0 <= share < 2)),
    Read("systems/phases.md", r"and takes (\S+) % longer", one_layout),
    Read("systems/phases.md", r"about (\S+) % of the FLOPs", attention_share),
    Read("systems/phases.md", r"paper's (\S+) TB/s", storage),
    *HERD,
    Read("systems/phases.md", r"from (\S+) % to (\S+) % of the work, which takes (\S+) % of the speed", lost),
    Read("systems/phases.md", r"the paper lost (\S+) %\. Ours loses (\S+) %", slower(0)),
    Read("systems/phases.md", r"the paper lost (\S+) %, and ours loses (\S+) %", slower(1)),
    Read("systems/sequence_slices.md", r"parallelism takes (\S+) s and slices (\S+) s:", searches(*(
        f"{LONG.replace('--network ethernet-100 ', '')} {more}" for more in
        ("--kernel peak=saved", "--sequence-slices 8,16,32,64 --vpp 1 --cp 1")))),
    Read("systems/sequence_slices.md", r"from: (\S+) where (\S+) was measured", lambda _: (
        value for item in [published_set("li2021")] if item is not None
        for value in (float(evaluate(item.terms.closure(["li2021.speedup"]), item.figures[0].values)["li2021.speedup"]),
                      float(item.figures[0].printed)))),
    *(Read("systems/mixed_gpus.md", rf"\| {batch} \|" + 5 * r" (\S+) s \|", mixed_row(batch)) for batch in
      ((8, 16, 64, 256) if FULL else (64,))),
    Read("systems/mixed_gpus.md", r"takes (\S+) % less than H100 alone, with 8 only (\S+) %,", gains_of_mixed),
    Read("systems/mixed_gpus.md", r"64 sequences take (\S+) s\. The", lambda asked: iter([asked.swept(
        f"{MIXED} --gpu {asked.changed(BOTH, lambda text: text.replace('ndr-400', 'ethernet-100'))} --num-gpus 16")])),
    Read("systems/mixed_gpus.md", r"layout of takes (\S+) s with and (\S+) s without, .*? (\S+) s and (\S+) s,",
         searches(*(
            f"{MIXED.replace('64', str(batch), 1)} --gpu {BOTH} --num-gpus 16 --vpp {chunks}"
            for batch in (16, 64) for chunks in ("2,4,8", "1")))),
    Read("systems/mixed_gpus.md", r"step of 64 sequences takes (\S+) s\.", large),
)
#: Sentences whose numbers other tests read, of the play of a pipeline, and rows that are many searches: at full extent.
ELSEWHERE = (
    ("systems/mixed_gpus.md", r"differ by less than (1) %"),
    ("systems/mixed_gpus.md", r"at most (6) % shorter than the formula, and never (0.2) % longer"),
    *(("systems/mixed_gpus.md", rf"\| {batch} \|" + 5 * r" (\S+) s \|") for batch in (8, 16, 256)),
)


def pairs_of_logs() -> Iterator[tuple[Mapping[str, float], Mapping[str, float]]]:
    """The log of each model on four GPUs with all states on the host, and with two subgroups in a round."""
    for _, rows in groupby(LOGS[2:], key=lambda row: row["elements"]):
        seconds = {(row["flush"], row["stride"]): {"iteration_ms": float(row["iteration_ms"])} for row in rows}
        yield seconds["0", "0"], seconds["1", "2"]


def sentences(page: str) -> str:
    """The words of a page on one line: without output, code, targets of links, and tables read elsewhere."""
    text = (DOCS / page).read_text(encoding="utf-8")
    for heading in TABLES if page == "systems.md" else ():
        table = text.split(f"\n## {heading}\n")[1].split("\n## ")[0]
        last = [line.rstrip("| ").rpartition(" | ")[2] for line in table.splitlines() if line.startswith("| ")]
        text = text.replace(table, "\n".join(last if heading == TABLES[1] else ()))
    text = re.sub(r"```.*?```|`[^`]*`", "", text, flags=re.DOTALL)
    return NOT_NUMBERS.sub("", " ".join(re.sub(r"\]\([^)]*\)", "]", text).split()))


def plain(number: str) -> str:
    """A number without commas and trailing zeros."""
    digits = number.replace(",", "")
    return digits.rstrip("0").rstrip(".") if "." in digits else digits


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_every_number_is_read(path: Path) -> None:
    """A command that prints a number of one or two digits without a point is no evidence: they are everywhere."""
    page = str(path.relative_to(DOCS))
    text = sentences(page)
    spans = {found.span(group) for where, sentence in (*((item.page, item.sentence) for item in READ), *ELSEWHERE)
             if where == page for found in re.finditer(sentence, text) for group in range(1, len(found.groups()) + 1)}
    output = "".join(example.output for example in shown(path))
    printed = {plain(number) for number in re.findall(r"\d[\d,]*(?:\.\d+)?", output)}
    for found in NUMBER.finditer(text):
        number = plain(found[0])
        is_printed = number in printed and (found[1] is not None or len(number) > 2)
        assert is_printed or any(start <= found.start() and found.end() <= end for start, end in spans), (
            f"{page}: nothing reads {found[0]}: ...{text[found.start() - 60:found.end() + 20]}...")


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Asked]:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(ROOT)
        yield Asked(tmp_path_factory.mktemp("clusters"))


@pytest.mark.slow
@pytest.mark.parametrize("item", READ, ids=lambda item: item.sentence[:40])
def test_numbers_of_sentences(item: Read, asked: Asked) -> None:
    sentence = re.search(item.sentence, sentences(item.page))
    assert sentence is not None
    numbers = [*item.numbers(asked)]
    said = [*sentence.groups()]
    assert [written(value, text) for value, text in zip(numbers, said, strict=True)] == said
