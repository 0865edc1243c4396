"""The probability of running out of memory: its formula, its limits, and what explain says."""

from __future__ import annotations

import json
import re
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from random import Random

import pytest
from pyarrow import parquet
from sympy import Rational

from shardmath import evaluate, explain, explore, sweep
from shardmath.account.configured import configured
from shardmath.cli.main import exit_code
from shardmath.commands.explain.report import verdict_line
from shardmath.commands.fit.rows import fit_rows
from shardmath.commands.sweep.report import show
from shardmath.compiler.evaluators import terms_at
from shardmath.errors import InputError
from shardmath.generated.definitions import DEFAULTS, IMPLEMENTATIONS, process_parts, run_out_probability
from shardmath.reports.tables import chance
from shardmath.search.spaces.declared import Space
from shardmath.search.spaces.files import plain, space_of
from shardmath.symbolic.run_out import FITS_BELOW, PARTS, process_limit

GIB = 2**30
DOCS = Path(__file__).resolve().parents[2] / "docs"
SIZES = ("tensor_parallel", "context_parallel", "pipeline_parallel", "micro_batch_size", "sequence_parallel",
         "virtual_pipeline", "first_stage_layers", "last_stage_layers", "account_for_embedding", "account_for_loss")


#: The probability as the page has it: two shares of the memory.
WRITTEN = re.compile(r"`exp\(-\((0\.\d+)·(0\.\d+)·M/process\)⁵\)`")


def by_hand(process: int, memory: int) -> float:
    """The probability with the numbers of docs/explain.md: the exponent exact, its exponential in decimals."""
    (shares,) = WRITTEN.findall((DOCS / "explain.md").read_text(encoding="utf-8"))
    scale, offered = map(Fraction, shares)
    exponent = (scale * offered * memory / process) ** 5
    return float((-Decimal(exponent.numerator) / Decimal(exponent.denominator)).exp())


def test_the_formula_is_that_of_the_documentation() -> None:
    draw = Random(18)
    for _ in range(200):
        memory = draw.randint(16, 300) * GIB
        process = draw.randint(memory // 8, memory)
        expected = by_hand(process, memory)
        assert run_out_probability(process, process, memory) == pytest.approx(expected, rel=1e-12)


def test_more_memory_of_a_process_is_never_safer_and_a_larger_gpu_never_worse() -> None:
    draw = Random(19)
    for _ in range(100):
        memory, process = draw.randint(16, 300) * GIB, draw.randint(GIB, 300 * GIB)
        more = process + draw.randint(1, 40 * GIB)
        assert run_out_probability(process, process, memory) <= run_out_probability(more, more, memory)
        assert run_out_probability(process, process, 2 * memory) <= run_out_probability(process, process, memory)


def test_what_is_allocated_above_the_memory_is_certain() -> None:
    assert run_out_probability(80 * GIB, 81 * GIB, 80 * GIB) < 1
    assert run_out_probability(80 * GIB + 1, 80 * GIB + 1, 80 * GIB) == 1


@pytest.mark.parametrize("risk", [0.5, 0.2, 0.05, 0.01, 1e-3, 1e-6])
def test_the_share_of_a_risk_is_where_the_probability_is_the_risk(risk: float) -> None:
    parts = process_parts(risk)
    assert parts == int(PARTS * process_limit(Rational(str(risk))))
    assert run_out_probability(parts, parts, PARTS) <= risk < run_out_probability(parts + 1, parts + 1, PARTS)
    assert (parts == DEFAULTS["process_parts"]) == (Rational(str(risk)) == FITS_BELOW)


@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.slow] * (name in ("torchtitan", "huggingface")))
                                  for name in IMPLEMENTATIONS])
def test_the_limit_of_a_peak_is_the_last_byte_with_which_its_process_fits(name: str) -> None:
    """Unexplained bytes move what is allocated, and nothing else: to the limit, and one byte beyond it."""
    layout = {"pipeline_parallel": 4, "tensor_parallel": 2} if name != "huggingface" else {}
    job, draw = configured("llama-3.2-1b", "h100-80gb", implementation=name, data_parallel=2, **layout).job, Random(20)
    module, ranks = job.evaluator.terms, range(job.values["pipeline_parallel"])
    for _ in range(20):
        values = dict(job.values) | {
            "gpu_memory": draw.randint(8 * GIB, 300 * GIB), "process_parts": draw.randint(1, PARTS),
            "reserved_per_mille": draw.randint(900, 1500), "context_bytes": draw.randint(0, GIB),
            "communicator_bytes": draw.randint(0, GIB), "unexplained_bytes": draw.randint(-GIB // 8, GIB),
        }
        every = [terms_at(module, values | {"pipeline_rank": rank}) for rank in ranks]
        most = Fraction(values["process_parts"] * (values["gpu_memory"] // PARTS))

        def largest(more: Fraction, values: dict[str, int] = values) -> Fraction:
            moved = values | {"unexplained_bytes": values["unexplained_bytes"] + int(more)}
            return max(terms_at(module, moved | {"pipeline_rank": rank})["process.total"] for rank in ranks)

        assert every[0]["process.peak"] == largest(Fraction(0))
        room = every[0]["process.most"] - every[0]["peak"]
        assert largest(room) <= most < largest(room + 1)
        assert room == min(own["process.fits"] - own["stage.total"] for own in every)
        assert every[0]["process.holds"] + values["unexplained_bytes"] == values["gpu_memory"]


@pytest.mark.parametrize(("risk", "verdict"), [(None, "uncertain"), ("6%", "uncertain"), ("7 %", "fits"),
                                               (0.07, "fits"), ("0.06", "uncertain")])
def test_a_risk_says_what_fits(risk: float | str | None, verdict: str) -> None:
    account = explain("llama-3.1-8b", "h100-80gb", tensor_parallel=2, num_gpus=16, global_batch_size=64, risk=risk)
    assert 0.06 < account.run_out_probability < 0.07
    assert account.verdict == verdict
    assert (account.peak.total <= account.peak.limit) == (verdict == "fits")
    asked = 0.01 if risk is None else float(Fraction(str(risk).strip(" %")) / (100 if "%" in str(risk) else 1))
    assert account.risk == pytest.approx(asked, rel=1e-2)


LAYOUT = {"tensor_parallel": 2, "num_gpus": 16, "global_batch_size": 64}


@pytest.mark.slow
@pytest.mark.parametrize(("risk", "verdict"), [(None, "uncertain"), ("7 %", "fits"), (0.06, "uncertain")])
def test_tables_and_spaces_take_a_risk(risk: float | str | None, verdict: str) -> None:
    """The layout of the test above as a row of a table, as a row solved for its micro-batch, and as a space."""
    (row,) = evaluate({"tensor_parallel": [2]}, "llama-3.1-8b", "h100-80gb", num_gpus=16, global_batch_size=64,
                      risk=risk).read_all().to_pylist()
    assert row["verdict"] == verdict
    (solved,) = fit_rows({"tensor_parallel": [2]}, "micro_batch_size", "llama-3.1-8b", "h100-80gb", num_gpus=16,
                         global_batch_size=64, risk=risk).read_all().to_pylist()
    assert solved["micro_batch_size"] == (1 if verdict == "fits" else None)
    space = Space({"tensor_parallel": (2,)}, "llama-3.1-8b", "h100-80gb", risk=risk,
                  fixed={name: size for name, size in LAYOUT.items() if name != "tensor_parallel"})
    assert explore(space, backend="numpy").verdicts == {"fits": 0, "uncertain": 0, "out of memory": 0, verdict: 1}
    assert space_of(plain(space)) == space


@pytest.mark.slow
def test_commands_on_tables_and_spaces_take_a_risk(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table, declared, output = (str(tmp_path / name) for name in ("table.csv", "space.toml", "answers.parquet"))
    Path(table).write_text("tensor_parallel\n2\n")
    Path(declared).write_text('model = "llama-3.1-8b"\ngpu = "h100-80gb"\nrisk = "1%"\n[axes]\ntensor_parallel = [2]\n'
                              "[fixed]\nnum_gpus = 16\nglobal_batch_size = 64\n")
    job = ["--model", "llama-3.1-8b", "--gpu", "h100-80gb", "--set", "num_gpus=16", "--set", "global_batch_size=64"]
    for risk, verdict in (("6%", "uncertain"), ("7%", "fits")):
        assert exit_code(["evaluate", table, *job, "-o", output, "--risk", risk]) == 0
        assert parquet.read_table(output)["verdict"].to_pylist() == [verdict]
        assert exit_code(["fit", "llama-3.1-8b", "--gpu", "h100-80gb", "--gpus", "16", "--gbs", "64", "--table", table,
                          "--solve", "micro_batch_size", "-o", output, "--risk", risk]) == 0
        assert (parquet.read_table(output)["micro_batch_size"].to_pylist() == [1]) == (verdict == "fits")
        capsys.readouterr()
        assert exit_code(["explore", declared, "--backend", "numpy", "--json", "--risk", risk]) == 0
        assert json.loads(capsys.readouterr().out)["verdicts"][verdict] == 1
    assert exit_code(["explore", declared, "--risk", "60%"]) == 2
    assert "risk = '60%'" in capsys.readouterr().err


def test_a_space_has_one_risk() -> None:
    for more in ({"fixed": {"process_parts": 1}}, {"derived": {"process_parts": "num_gpus"}}):
        with pytest.raises(InputError, match=r"risk|process_parts"):
            Space({"tensor_parallel": (2,)}, "llama-3.1-8b", "h100-80gb", risk="2%", **more)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="together with risk"):
        evaluate({"tensor_parallel": [2]}, "llama-3.1-8b", "h100-80gb", risk="2%", process_parts=1)


@pytest.mark.parametrize("risk", ["0%", "51%", "-1%", "much", "nan", "inf", "1e-9999", "%", 0, 1])
def test_another_risk_is_refused(risk: float | str) -> None:
    with pytest.raises(InputError, match=r"^risk = .*must be above 0 % and at most 50 %"):
        explain("llama-3.2-1b", "h100-80gb", risk=risk)
    with pytest.raises(InputError, match="together with risk"):
        explain("llama-3.2-1b", "h100-80gb", risk="1%", process_parts=700_000)


def test_explain_judges_the_process_of_the_fullest_rank() -> None:
    account = explain("llama-3.1-8b", "h100-80gb", tensor_parallel=2, num_gpus=16, global_batch_size=64)
    expected = by_hand(account.process.total, account.gpu.memory_bytes)
    assert account.run_out_probability == pytest.approx(expected, rel=1e-12)
    assert (account.verdict, account.rule_80) == ("uncertain", "fits")  # the 80 % rule stays as published
    assert verdict_line(account) == ("Verdict: uncertain, the process on rank 0 runs out of memory with a probability"
                                     f" of {expected:.1%}. By the 80 % rule: fits.")


def test_a_measured_run_moves_the_probability(tmp_path: Path) -> None:
    run = {"tensor_parallel": 2, "num_gpus": 16, "global_batch_size": 64}
    plain = explain("llama-3.1-8b", "h100-80gb", **run)
    anchor = tmp_path / "run.json"
    anchor.write_text(json.dumps({"run": {"model": "llama-3.1-8b", "gpu": "h100-80gb", **run},
                                  "measured": {"allocated_bytes": plain.peak_bytes + 4 * GIB}}), encoding="utf-8")
    anchored = explain("llama-3.1-8b", "h100-80gb", anchor=anchor, **run)
    assert anchored.process.total > plain.process.total
    assert anchored.run_out_probability == pytest.approx(by_hand(anchored.process.total, 80 * GIB), rel=1e-12)


@pytest.mark.slow
def test_a_sweep_gives_each_layout_the_probability_of_explain(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
) -> None:
    result = sweep("llama-3.1-8b", "h100-80gb", num_gpus=16, global_batch_size=64)
    layouts = [*result.best, *result.best_by_recompute.values()]
    assert any(layout.pipeline_parallel > 1 for layout in layouts)
    for layout in layouts:
        sizes = {name: getattr(layout, name) for name in SIZES}
        account = explain("llama-3.1-8b", "h100-80gb", global_batch_size=64, num_gpus=16, recompute=layout.recompute,
                          **sizes)
        assert account.peak_bytes == layout.peak_bytes
        assert (layout.run_out_probability, layout.verdict, layout.rule_80) == (
            account.run_out_probability, account.verdict, account.rule_80)
    monkeypatch.setenv("COLUMNS", "200")
    show(result)
    rows = [line.split() for line in capsys.readouterr().out.splitlines() if "%" in line and line.split()[0].isdigit()]
    assert [row[-2] for row in rows[:len(layouts)]] == [chance(layout.run_out_probability) for layout in layouts]


@pytest.mark.parametrize(("probability", "text"), [
    (0.0, "<0.1%"), (0.0004, "<0.1%"), (0.047, "4.7%"), (0.9995, ">99.9%"), (1.0, "100.0%"),
])
def test_a_little_is_not_shown_as_nothing(probability: float, text: str) -> None:
    assert chance(probability) == text
