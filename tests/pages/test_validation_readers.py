"""Every row of every table of measurements becomes a case, with what the row, its flags and its source say."""

from __future__ import annotations

import csv
import json
from collections import Counter
from collections.abc import Callable
from itertools import combinations, pairwise
from pathlib import Path
from types import ModuleType

import pytest

from shardmath.account.accounting import explain
from validation.measured.case import FIT, GIB, OUT_OF_MEMORY, PEAK, STEADY, Case
from validation.measured.datasets import DATASETS
from validation.measured.reading import gib, whole, yes
from validation.measured.sets import (
    bridge_cards,
    deepspeed_a800,
    galvatron,
    hagemann,
    iseekyan,
    known_to_run,
    megatron_tests,
    mist,
    nanotron,
    one_h100,
    simumax,
    torchtitan,
    torchtune,
)
from validation.measured.sets.nemotron import nemotron

DATA = Path(__file__).parents[1] / "data"


def table(name: str) -> list[dict[str, str]]:
    with (DATA / name).open(newline="") as file:
        return list(csv.DictReader(file))


def copied(folder: Path, name: str, change: Callable[[dict[str, str]], None]) -> None:
    rows = table(name)
    change(rows[0])
    with (folder / name).open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


@pytest.mark.slow
@pytest.mark.parametrize("module", [
    megatron_tests, nanotron, torchtitan, iseekyan, hagemann, known_to_run, one_h100, deepspeed_a800,
    bridge_cards, galvatron, mist, torchtune])
def test_every_row_is_a_case_once(module: ModuleType) -> None:
    cases = module.read()
    assert len(cases) == len(table(module.TABLE))
    assert len({case.id for case in cases}) == len(cases)


#: Beginnings of sources: an address, a paper that is not at one, or the machine of our own measurements.
SOURCES = ("http", "The Llama 3 Herd of Models", "measured on one H100")


def test_every_dataset_reads_its_table() -> None:
    for dataset in DATASETS:
        cases = dataset.read()
        quantities = {measured.quantity for case in cases for measured in case.measured}
        assert quantities == set(dataset.quantities)
        assert all(case.model is not None or case.refusal for case in cases)
        assert all(case.source.startswith(SOURCES) for case in cases)


def test_cells() -> None:
    assert (whole("8.0"), whole("8"), whole("", 3), gib("1.5")) == (8, 8, 3, 3 * GIB // 2)
    assert [yes(cell) for cell in ("True", "1", "0.0", "false")] == [True, True, False, False]
    for bad in ("8.5", ""):
        with pytest.raises(ValueError, match=r"whole|blank"):
            whole(bad)
    with pytest.raises(ValueError, match="neither"):
        yes("maybe")


def test_simumax_stages_are_those_of_the_table_with_gib() -> None:
    """The same measurements, once to the byte by stage and once in GiB by GPU."""
    cases = {case.id: case for case in simumax.read()}
    assert len(cases) == 19
    assert sum(len(case.measured) for case in cases.values()) == 23
    beside = [row for row in table("simumax_b200_llama3_70b_l12.csv") if row["id"].endswith("mbc4_cef")]
    assert len(beside) == 4
    for row in beside:
        case = cases[row["id"].removeprefix("simumax-b200/")]
        by_gpu = [peak for peak, _ in json.loads(row["per_rank_gib"]).values()]
        stages = len(case.measured)
        for measured in case.measured:
            gpus = by_gpu[measured.rank * len(by_gpu) // stages:][: len(by_gpu) // stages]
            assert measured.bytes / GIB == pytest.approx(max(gpus), abs=1e-4)
            assert measured.bytes % 512 == 0
        assert case.arguments["global_batch_size"] == whole(row["gbs"])
        assert case.model is not None
        assert (case.model.num_layers, case.model.vocab_size) == (whole(row["layers"]), whole(row["vocab"]) + 1)


def test_simumax_without_all_stages_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    first = table(simumax.TABLE)[:1]
    monkeypatch.setattr(simumax, "rows", lambda name: first)
    with pytest.raises(ValueError, match="not every stage"):
        simumax.read()


def test_exact_bytes_of_functional_tests_are_those_of_the_table() -> None:
    by_id = {row["id"].removeprefix("megatron-golden/"): row for row in table(megatron_tests.TABLE)}
    for case in megatron_tests.read():
        row = by_id[case.id]
        bytes_of = {measured.quantity: measured.bytes for measured in case.measured}
        assert bytes_of[PEAK] / GIB == pytest.approx(float(row["peak_alloc_gib"]), rel=1e-9)
        assert bytes_of[STEADY] / GIB == pytest.approx(float(row["steady_alloc_gib"]), rel=1e-9)
        assert {measured.rank for measured in case.measured} == {whole(row["pp"]) - 1}


@pytest.mark.slow
def test_groups_of_functional_tests() -> None:
    cases = megatron_tests.read()
    counts = Counter(case.group for case in cases)
    assert counts == {megatron_tests.DENSE: 78, megatron_tests.CONTAINER: 16, megatron_tests.EXPERTS: 21,
                      megatron_tests.ENCODER: 7}
    alone = [case for case in cases if case.group == megatron_tests.CONTAINER]
    assert all("dracooci" in case.id for case in alone)
    for case in alone:  # unfused as the page judges them; by the flags FlashAttention, which is the ledger's own
        assert case.arguments["kernels"]["attention"] == "te_unfused"
        assert explain(case.model, case.gpu, **case.others["flash attention"]).choices["attention"] == "flash"


@pytest.mark.parametrize("column", ["sp", "zero", "recompute", "ce_fusion", "tied"])
def test_flags_that_contradict_the_table_are_refused(column: str, monkeypatch: pytest.MonkeyPatch) -> None:
    tables = {name: table(name) for name in (megatron_tests.TABLE, megatron_tests.FLAGS)}
    row = tables[megatron_tests.TABLE][0]
    other = {"0": "1", "1": "0", "none": "full", "True": "False", "False": "True"}
    row[column] = other[row[column]]
    monkeypatch.setattr(megatron_tests, "rows", tables.__getitem__)
    with pytest.raises(ValueError, match=f"differ in {column}"):
        megatron_tests.read()


def test_nanotron_shares_out_computation() -> None:
    """1B: the head costs as much as four of the sixteen layers, so the first half of the work is ten layers."""
    small = nanotron.model("1B")
    layer = 4 * 2048**2 + 3 * 2048 * 8192
    assert 4 * layer == 2048 * 131072
    assert nanotron.stage_layers(small, 1) == (16,)
    assert nanotron.stage_layers(small, 2) == (10, 6)
    assert nanotron.stage_layers(small, 4) == (5, 5, 5, 1)
    for stages in (2, 3, 8, 16):
        layers = nanotron.stage_layers(nanotron.model("3B"), stages)
        assert (len(layers), sum(layers)) == (stages, 28)


def test_nanotron_cases() -> None:
    cases = nanotron.read()
    assert Counter(case.status for case in cases) == {FIT: 1127, OUT_OF_MEMORY: 522}
    assert all(bool(case.measured) == (case.status == FIT) for case in cases)
    assert all(bool(case.others) == (case.group != "TP 1") for case in cases)
    other = [row for row, case in zip(table(nanotron.TABLE), cases, strict=True)
             if case.arguments["global_batch_size"] != whole(row["gbs"])]
    assert len(other) == 17


def test_vocabulary_and_batch_of_hagemann_follow_from_the_table() -> None:
    """MFU times peak times GPUs times seconds is 6 P + 12 L h s FLOP for each of B s tokens (arXiv 2311.05610).

    The seconds are averages with slow steps among them, so the least vocabulary of each length is the true one.
    """
    model = hagemann.MODEL
    h, f, L = model.hidden_size, model.ffn_hidden_size, model.num_layers
    found: dict[int, list[float]] = {s: [] for s in hagemann.BATCHES}
    for row in table(hagemann.TABLE):
        if row["mfu"]:
            s, gpus = whole(row["seq_length"]), whole(row["num_gpus"])
            per_token = float(row["mfu"]) * 312e12 * gpus * float(row["step_seconds"]) / (hagemann.BATCHES[s] * s)
            parameters = (per_token - 12 * L * h * s) / 6
            found[s].append((parameters - L * (4 * h * h + 3 * h * f)) / (2 * h))
    assert {s: len(sizes) for s, sizes in found.items()} == {2048: 90, 8192: 75}
    for sizes in found.values():
        assert min(sizes) == pytest.approx(model.vocab_size, rel=1e-4)
        assert sorted(sizes)[len(sizes) // 2] == pytest.approx(model.vocab_size, rel=0.005)


def test_stages_of_hagemann_have_the_least_heaviest_one() -> None:
    """Against every way to cut the modules into four stages, and into two."""
    model = hagemann.MODEL
    h = model.hidden_size
    layer = 4 * h * h + 3 * h * model.ffn_hidden_size + 2 * h

    def heaviest(layers: tuple[int, ...]) -> int:
        ends = {0: model.vocab_size * h, len(layers) - 1: model.vocab_size * h + h}
        return max(layer * number + ends.get(place, 0) for place, number in enumerate(layers))

    cuts = {stages: [(0, *inner, model.num_layers) for inner in combinations(range(1, model.num_layers), stages - 1)]
            for stages in (2, 4)}
    for stages, ways in cuts.items():
        own = hagemann.stage_layers(stages)
        assert (len(own), sum(own)) == (stages, model.num_layers)
        assert heaviest(own) == min(heaviest(tuple(last - first for first, last in pairwise(way))) for way in ways)
    assert [hagemann.stage_layers(stages) for stages in (1, 2, 4)] == [(40,), (20, 20), (9, 11, 11, 9)]


def test_known_layouts() -> None:
    cases = known_to_run.read()
    counts = Counter(case.group for case in cases)
    assert counts.total() == 133
    assert counts[known_to_run.OTHER_TASK] + counts[known_to_run.NO_MODEL] == sum(
        bool(case.refusal) for case in cases if case.group != known_to_run.COVERED)
    tasks = Counter(row["task"] for row in table(known_to_run.TABLE)
                    if row["model"] in known_to_run.MODELS or nemotron(row["model"]))
    assert counts[known_to_run.COVERED] == sum(tasks[task] for task in known_to_run.PRE_TRAINING)


def test_recipes_in_fp8_and_their_other_reading() -> None:
    cases = {case.id: case for case in known_to_run.read()}
    dense, experts = cases["nemo-rec/gb200-9"], cases["nemo-rec/gb200-15"]
    for case in (dense, experts):
        assert (case.arguments["kernels"]["fp8"], case.arguments["kernels"]["peak"]) == ("delayed", "megatron_te")
        assert "fp8" not in case.others[known_to_run.AS_BF16]["kernels"]
        assert case.arguments["gradients"] == "bf16"
    for name in ("nemo-rec/h100-6", "nemo-rec/h100-32"):  # GELU, and an MLP that is recomputed
        assert "fp8" not in cases[name].arguments["kernels"]
    fsdp = [case for case in cases.values() if case.arguments.get("zero_stage") == 3]
    assert [case.id for case in fsdp if case.group == known_to_run.COVERED and case.refusal] == []
    assert len(fsdp) == 5
    assert cases["nemo-rec/gb200-13"].arguments["cpu_offloading_num_layers"] == 95
    assert cases["nemo-rec/h100-31"].arguments["recompute"] == "mla_up_proj+mlp+moe"


def test_parameters_of_nemotron_are_those_of_its_report() -> None:
    """Nemotron-4 15B: 3.2 thousand million parameters in both vocabulary matrices, 12.5 in the rest (2402.16819)."""
    model = nemotron("nemotron4 15b")
    assert model is not None
    h, d = model.hidden_size, model.head_dim
    attention = 2 * h * d * (model.num_attention_heads + model.num_kv_heads)
    rest = model.num_layers * (attention + 2 * h * model.ffn_hidden_size + 4 * h) + 2 * h
    assert round(2 * h * model.vocab_size / 1e9, 1) == 3.1
    assert round(rest / 1e9, 1) == 12.5
    assert nemotron("llama3 8b") is None


@pytest.mark.parametrize(("module", "column", "bad"), [
    (nanotron, "status", "late"), (hagemann, "recompute", "half"), (hagemann, "status", "late"),
    (torchtitan, "hidden", "1"), (iseekyan, "layers", "5"),
])
def test_rows_of_other_runs_are_refused(
    module: ModuleType, column: str, bad: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copied(tmp_path, module.TABLE, lambda row: row.update({column: bad}))
    with (tmp_path / module.TABLE).open(newline="") as file:
        changed = list(csv.DictReader(file))
    monkeypatch.setattr(module, "rows", lambda name: changed)
    with pytest.raises(ValueError, match=r"unexpected|not"):
        module.read()


def test_layout_in_words() -> None:
    case: Case = next(case for case in simumax.read() if "tp2_cp4" in case.id)
    assert case.layout == "TP 2, CP 4"
