"""Settings of the page that few people change: its numbers with them are those of the commands."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import pytest
from browser_answers import ACCOUNTS, SEARCH, beyond_doubles, compare_times, explained, link_of
from browser_cases import MODELS, jobs, states, written_link
from oracles.extent import FULL, SEED

import shardmath
from shardmath.commands.page import page
from shardmath.commands.page.settings import setting_data
from shardmath.commands.recommend.asking import Asked
from shardmath.configuration.settings import GRADIENT_BYTES
from shardmath.errors import InputError
from shardmath.input.parameters import limits
from shardmath.search.offered import offered

CASES = 1000 if FULL else 40
WORDS = {number: word for word, number in GRADIENT_BYTES.items()}
TAKEN = """(link) => {
  fromLink(link);
  return [DATA.evaluators[evaluatorName(state)].settings, valuesOf({ ...state, settings: {} })];
}"""


def drawn(random: Random, names: list[str], usual: dict[str, int]) -> dict[str, int]:
    """Draw values of up to three settings, near the usual ones."""
    chosen = {}
    for name in random.sample(names, min(len(names), 3)):
        least, most = limits(name)
        if name == "gradient_bytes":
            chosen[name] = random.choice((2, 4))
        elif (least, most) == (0, 1):
            chosen[name] = random.choice((0, 1))
        elif name == "data_parallel_replicas":
            chosen[name] = random.choice((1, 2))
        else:
            chosen[name] = max(least, min(most, int(usual[name] * random.choice((0.5, 0.9, 1.1, 1.5))) + 1))
    return chosen


def as_asked(settings: dict[str, int]) -> dict[str, Any]:
    """Return settings as arguments of the functions."""
    asked: dict[str, Any] = dict(settings)
    if "gradient_bytes" in asked:
        asked["gradients"] = WORDS[asked.pop("gradient_bytes")]
    return asked


def test_numbers_with_settings_are_those_of_explain(opened: Callable[..., Any], record_property: Any) -> None:
    tab, random = opened(), Random(SEED)
    legal, used = 0, set()
    for state in states(random, CASES):
        names, usual = tab.evaluate(TAKEN, link_of(state))
        settings = drawn(random, names, usual)
        (broken, accounts, time, outlook), = tab.evaluate(ACCOUNTS, [link_of({**state, **settings})])
        expected = explained({**state, **as_asked(settings)})
        if beyond_doubles(broken, expected):
            continue
        assert (broken is None) == (expected is not None), (state, settings, broken)
        if expected is None:
            continue
        legal += 1
        used |= settings.keys()
        assert [account["total"] for account in accounts] == [rank.total for rank in expected.ranks], (state, settings)
        compare_times(time, expected, {**state, **settings})
        assert outlook == pytest.approx(expected.run_out_probability, rel=1e-9), (state, settings)
    assert legal > CASES // 8
    assert len(used) > 15
    record_property("settings", len(used))


def test_numbers_with_other_kernels_are_those_of_explain(opened: Callable[..., Any], record_property: Any) -> None:
    tab, random = opened(), Random(SEED)
    used: set[str] = set()
    for state in states(random, 2 * CASES):
        keys = tab.evaluate("(link) => { fromLink(link); return kernelKeys(state) }", link_of(state))
        unused = [key for key in keys if key not in used] or keys
        if not unused:
            continue
        key = random.choice(unused)
        names, usual = tab.evaluate(TAKEN, link_of({**state, "kernel": key}))
        settings = drawn(random, names, usual)
        if "adapters" in key:
            settings["lora_rank"] = random.choice((1, 8, 24))
        (broken, accounts, time, _), = tab.evaluate(ACCOUNTS, [link_of({**state, **settings, "kernel": key})])
        kernels = dict(pair.split("=") for pair in key.split(","))
        expected = explained({**state, **as_asked(settings), "kernels": kernels})
        if beyond_doubles(broken, expected):
            continue
        assert (broken is None) == (expected is not None), (state, key, settings, broken)
        if expected is None:
            continue
        used.add(key)
        totals = [account["total"] for account in accounts]
        assert totals == [rank.total for rank in expected.ranks], (state, key, settings)
        compare_times(time, expected, {**state, **settings, "kernel": key})
    assert len(used) > 20
    record_property("kernels", len(used))


@pytest.mark.parametrize("implementation", ["huggingface", "megatron"])
def test_adapters_have_the_numbers_of_explain(implementation: str, opened: Callable[..., Any]) -> None:
    """Each combination with adapters that the page has, for every set of formulas that has it."""
    tab, random, seen = opened(), Random(SEED), set()
    for model in MODELS:
        usual = {"model": model, "gpu": "h100-80gb", "implementation": implementation, "num_gpus": 8,
                 "global_batch_size": 32, "seq_length": 2048, "pipeline_parallel": 1}
        keys = tab.evaluate("(link) => { fromLink(link); return kernelKeys(state) }", link_of(usual))
        for key in (key for key in keys if "adapters=" in key):
            evaluator = tab.evaluate("(link) => { fromLink(link); return evaluatorName(state) }",
                                     link_of({**usual, "kernel": key}))
            if evaluator in seen:
                continue
            seen.add(evaluator)
            state = {**usual, "lora_rank": random.choice((4, 16, 64)), "recompute": random.choice(("none", "full"))}
            if implementation == "megatron":
                state |= {"tensor_parallel": random.choice((1, 2)), "pipeline_parallel": random.choice((1, 2))}
            (broken, accounts, time, outlook), = tab.evaluate(ACCOUNTS, [link_of({**state, "kernel": key})])
            kernels = dict(pair.split("=") for pair in key.split(","))
            expected = explained({**state, "kernels": kernels})
            assert broken is None, (state, key)
            assert [item["total"] for item in accounts] == [rank.total for rank in expected.ranks], (state, key)
            compare_times(time, expected, {**state, "kernel": key})
            assert outlook == pytest.approx(expected.run_out_probability, rel=1e-9), (state, key)
    assert len(seen) > (12 if implementation == "huggingface" else 2)


def test_adapters_are_chosen_with_their_weights_in_4_bits(opened: Callable[..., Any]) -> None:
    job = {"num_gpus": 2, "global_batch_size": 4, "seq_length": 2048, "implementation": "huggingface"}
    tab = opened(link_of({"model": "llama-3.1-8b", "pipeline_parallel": 1, "tensor_parallel": 1, **job}))
    tab.click("#settings summary")
    tab.select_option("#kernel-base_weights", "nf4")
    tab.wait_for_selector("html[data-ready]")
    assert tab.inner_text("#notice") == "adapters = all_linear came with it."
    assert tab.input_value("#set-lora_rank") == "16"
    expected = shardmath.explain("llama-3.1-8b", "h100-80gb", lora_rank=16, kernels={"base_weights": "nf4"}, **job)
    assert tab.inner_text("#tile-memory .figure") == f"{expected.peak.total / 2**30:.2f} GiB"
    asked = tab.evaluate("commandOf(state)")
    assert {("--lora-rank", "16"), ("--kernel", "base_weights=nf4")} <= {*pairwise(shlex.split(asked))}
    assert opened(written_link(tab)).inner_text("#headline") == tab.inner_text("#headline")
    without_rank = opened(written_link(tab).replace("lora_rank=16", ""))
    assert without_rank.evaluate("state.settings") == {"lora_rank": 16}
    assert without_rank.inner_text("#headline") == tab.inner_text("#headline")
    tab.fill("#set-lora_rank", "")
    tab.wait_for_selector("html[data-ready]")
    assert "lora_rank = 0: must be 1 or more with adapters" in tab.inner_text("#headline")
    tab.select_option("#kernel-adapters", "")
    tab.wait_for_selector("html[data-ready]")
    assert tab.evaluate("[state.kernels, state.settings]") == [{}, {}]


def test_best_layouts_with_settings_are_those_of_recommend(opened: Callable[..., Any]) -> None:
    tab, random = opened(), Random(SEED)
    for job in jobs(random, CASES // 10):
        names, usual = tab.evaluate(TAKEN, link_of(job))
        settings = drawn(random, [name for name in names if name != "data_parallel_replicas"], usual)
        answers = tab.evaluate(SEARCH, link_of({**job, **settings}))
        asked = {**job, **as_asked(settings)}
        expected = Asked(lambda times, asked=asked: offered(rank_by="time", **asked)).answers
        assert answers["legal"] == expected.legal, asked
        assert answers["verdicts"] == expected.verdicts.tolist(), asked
        best = expected.first()
        if best is not None:
            assert answers["choices"][0]["seconds"] == pytest.approx(best.keys["step.time"], rel=1e-9), asked


def test_a_setting_is_chosen_shared_and_taken_back(opened: Callable[..., Any]) -> None:
    tab = opened("#model=llama-3.1-8b&num_gpus=16&global_batch_size=64&tensor_parallel=4&pipeline_parallel=1")
    before = tab.inner_text("#tile-memory .figure")
    tab.click("#settings summary")
    tab.select_option("#set-gradient_bytes", label="bf16")
    tab.fill("#set-matmul_per_mille", "500")
    tab.wait_for_selector("html[data-ready]")
    assert tab.inner_text("#settings-count") == " (2 changed)"
    after = tab.inner_text("#tile-memory .figure")
    assert after != before
    again = opened(written_link(tab))
    assert again.inner_text("#headline") == tab.inner_text("#headline")
    asked = shlex.split(tab.evaluate("commandOf(state)"))
    assert asked[asked.index("--gradients") + 1] == "bf16"
    assert asked[asked.index("--matmul-per-mille") + 1] == "500"
    tab.fill("#set-matmul_per_mille", "2000")
    assert "must be an integer from 1 to 1000" in tab.inner_text("#notice")
    tab.fill("#set-matmul_per_mille", "")
    tab.select_option("#set-gradient_bytes", value="")
    tab.wait_for_selector("html[data-ready]")
    assert tab.inner_text("#tile-memory .figure") == before
    assert tab.inner_text("#settings-count") == ""
    assert "gradient_bytes" not in written_link(tab)


def test_every_setting_has_a_group() -> None:
    training, process, machine = setting_data()["groups"].values()
    assert "gradient_bytes" in training
    assert "context_bytes" in process
    assert "matmul_per_mille" in machine


def test_a_kernel_is_chosen_and_another_one_takes_its_place(opened: Callable[..., Any]) -> None:
    tab = opened("#model=llama-3.1-8b&num_gpus=16&global_batch_size=64&tensor_parallel=4&pipeline_parallel=1")
    before = tab.inner_text("#tile-memory .figure")
    tab.click("#settings summary")
    tab.select_option("#kernel-loss", "te_fused")
    tab.wait_for_selector("html[data-ready]")
    with_loss = tab.inner_text("#tile-memory .figure")
    assert with_loss != before
    assert opened(written_link(tab)).inner_text("#tile-memory .figure") == with_loss
    assert "--kernel loss=te_fused" in tab.evaluate("commandOf(state)")
    tab.select_option("#kernel-optimizer", "sgd")
    assert "loss is usual again: this page has no formulas of both." in tab.inner_text("#notice")
    tab.wait_for_selector("html[data-ready]")
    assert tab.input_value("#kernel-loss") == ""
    tab.select_option("#kernel-optimizer", "")
    tab.wait_for_selector("html[data-ready]")
    assert tab.inner_text("#tile-memory .figure") == before
    tab.select_option("select[data-name=gpu]", "a100-80gb")
    tab.select_option("#kernel-fp8", "delayed")
    tab.wait_for_selector("html[data-ready]")
    expected = shardmath.explain("llama-3.1-8b", "a100-80gb", num_gpus=16, global_batch_size=64, tensor_parallel=4,
                                 kernels={"fp8": "delayed"})
    assert f"Step time is not computed: {expected.time_unknown}." in tab.inner_text("#tile-time")


def test_kernels_that_are_asked_for_are_there_in_all_combinations(opened: Callable[..., Any], tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    path.write_text(page(["llama-3.2-1b"], only=True, kernels={"loss": "te_fused", "precision": ("bf16", "fp16")}),
                    encoding="utf-8")
    tab = opened("#implementation=megatron&num_gpus=8&global_batch_size=64&tensor_parallel=2&pipeline_parallel=1"
                 "&kernel=loss=te_fused,precision=bf16", path=path)
    expected = shardmath.explain("llama-3.2-1b", "h100-80gb", num_gpus=8, global_batch_size=64, tensor_parallel=2,
                                 seq_length=8192, kernels={"loss": "te_fused", "precision": "bf16"})
    assert tab.inner_text("#tile-memory .figure").startswith(f"{expected.peak.total / 2**30:.2f}")
    with pytest.raises(InputError, match="los"):
        page(["llama-3.2-1b"], only=True, kernels={"los": "te_fused"})
