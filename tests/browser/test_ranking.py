"""The best layouts of the page in Chromium: those of ``shardmath recommend``, for the same jobs."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from random import Random
from typing import Any
from urllib.parse import urlencode

import pytest
from browser_answers import SEARCH
from browser_cases import jobs, written_link
from oracles.extent import FULL, SEED

import shardmath
from shardmath.account.time import EQUAL
from shardmath.commands.recommend.asking import Asked
from shardmath.commands.recommend.run import by_rule_80
from shardmath.machines import Cluster
from shardmath.reports.tables import chance
from shardmath.search.choosing import choose
from shardmath.search.offered import offered
from shardmath.search.sizes import AXES, FOLLOWING, sizes_of

JOBS = 400 if FULL else 50


def apart(front: Sequence[Sequence[float]]) -> list[Sequence[float]]:
    """Drop layouts that are faster than the next, smaller one by rounding alone."""
    return [item for item, after in zip(front, [*front[1:], None], strict=True)
            if after is None or after[0] - item[0] > 1e-9 * item[0]]


def test_layouts_are_those_of_recommend(opened: Callable[..., Any], record_property: Any) -> None:
    tab = opened()
    tab.wait_for_selector("html[data-ready]")
    tried = compared = faster = passed = 0
    for job in jobs(Random(SEED), JOBS):
        found = tab.evaluate(SEARCH, "#" + urlencode(job))
        expected = Asked(lambda times, job=job: offered(rank_by="time", **job)).answers
        assert found["refused"] == 0
        # Layouts of huge spaces are passed over by their time alone; with that the answers are the same.
        assert found["sooner"] == found["whole"], job
        assert found["counted"] == found["legal"], job
        passed += found["passed"]
        assert found["legal"] == expected.legal, job
        assert found["verdicts"] == expected.verdicts.tolist(), job
        front = [(item.keys["step.time"], int(item.keys["peak"])) for item in expected.front("legal")]
        ours, theirs = apart(found["front"]), apart(front)
        assert [peak for _, peak in ours] == [peak for _, peak in theirs], job
        assert [time for time, _ in ours] == pytest.approx([time for time, _ in theirs], rel=1e-9)
        tried += found["legal"]
        chosen, first = choose(expected), expected.first()
        other = None
        if first is not None:
            other = by_rule_80(expected, first, Cluster.named(job["gpu"], job["network"]).error(False) or EQUAL)
        assert (found["by_rule_80"] is None) == (other is None), job
        if other is not None:
            faster += 1
            assert found["by_rule_80"]["peak"] == other.peak_bytes, job
            assert found["by_rule_80"]["seconds"] == pytest.approx(other.seconds, rel=1e-9), job
        if len(theirs) < len(front) or len(ours) < len(found["front"]):
            # Equal times whose sums of floats differ in the last digit: which of them comes first is not decided.
            assert found["choices"][0]["seconds"] == pytest.approx(chosen[0].configuration.keys["step.time"], rel=1e-9)
            continue
        compared += 1
        assert [item["role"] for item in found["choices"]] == [item.role for item in chosen], job
        for item, choice in zip(found["choices"], chosen, strict=True):
            sizes = sizes_of(choice.configuration)
            assert {name: item["sizes"].get(name, 1) for name in AXES} == {name: sizes[name] for name in AXES}, job
            assert item["peak"] == int(choice.configuration.keys["peak"])
    assert compared > JOBS // 2
    assert faster
    assert passed > tried // 10
    record_property("layouts", tried)
    assert FOLLOWING


def test_a_huge_search_is_that_of_recommend(opened: Callable[..., Any]) -> None:
    """With experts most layouts are too slow to be shown, and the page says how many."""
    job = {"num_gpus": 64, "global_batch_size": 256, "seq_length": 4096}
    advice = shardmath.recommend("mixtral-8x7b-v0.1", "h100-80gb", **job)
    tab = opened("#" + urlencode({"model": "mixtral-8x7b-v0.1", **job}))
    tab.wait_for_selector("#best[aria-busy=false] [data-best='0']")
    said = tab.inner_text("#best-count")
    legal, slow = re.findall(r"[\d,]+(?= legal layouts| of them slower than all of these)", said)
    assert legal == f"{advice.legal:,}"
    assert 0 < int(slow.replace(",", "")) < advice.legal
    seconds = tab.locator("#best [data-rows=choices] .strong").all_inner_texts()
    assert [*map(float, seconds)] == [pytest.approx(item.time.seconds, rel=5e-3) for item in advice.choices]


def test_costs_and_the_rule_are_those_of_recommend(opened: Callable[..., Any]) -> None:
    """The price is that of the command line; links of older pages have it in hundredths."""
    job = {"num_gpus": 64, "global_batch_size": 256}
    advice = shardmath.recommend("llama-3.1-8b", "h100-80gb", **job, price="2.1")
    tab = opened("#" + urlencode({"model": "llama-3.1-8b", **job, "cents_per_gpu_hour": 210}))
    assert written_link(tab).endswith("&price=2.1")
    assert tab.input_value("#number-cents_per_gpu_hour") == "2.1"
    tab.wait_for_selector("#best[aria-busy=false] [data-best='0']")
    assert "cost per M tokens" in tab.inner_text("#best thead").replace("\n", " ")
    costs = tab.locator("#best [data-rows=choices] [data-label='cost per M tokens']").all_inner_texts()
    assert [*map(float, costs)] == [float(f"{1e6 * item.time.cost_per_token:.3g}") for item in advice.choices]
    other = advice.by_rule_80
    assert other is not None
    said, less = tab.inner_text("#by-rule-80"), 1 - other.seconds / advice.choices[0].time.seconds
    assert said.startswith("By the published 80 % rule: TP")
    assert said.endswith(f"{less:.1%} less, {other.peak_bytes / 2**30:.2f} GiB at the peak, "
                         f"runs out with a probability of {chance(other.run_out_probability)}.")
    tab.fill("#number-cents_per_gpu_hour", "2.123")
    assert tab.inner_text("#notice").startswith("price = 2.123: must be a number with at most two decimals from 0 to ")
    tab.fill("#number-cents_per_gpu_hour", "3.55")
    assert written_link(tab).endswith("&price=3.55")
    assert "--price 3.55" in tab.evaluate("commandOf(state)")
    tab.fill("#number-cents_per_gpu_hour", "0")
    assert "price" not in written_link(tab)
    rule = "must be a number with at most two decimals from 0 to "
    for price, ignored in (("2,1", f"price = 2,1: {rule}"), ("-1", f"price = -1: {rule}"), ("$2.50", "")):
        assert ignored in opened(f"#price={price}").inner_text("body"), price
    assert "Cost" in opened("#price=$2.50").inner_text("#headline")


def test_a_layout_that_is_named_is_not_named_again(opened: Callable[..., Any]) -> None:
    """The layout that memory excludes may be that of the 80 % rule, or one of those worth trying."""
    job = {"num_gpus": 64, "global_batch_size": 64, "tensor_parallel": 2, "pipeline_parallel": 1}
    sharded = {"model": "llama-3.1-8b", "implementation": "torchtitan", **job}
    for asked, rule, excluded in (({}, "", "The next better one "), (sharded, "By the published 80 % rule: ", "")):
        tab = opened("#" + urlencode(asked))
        tab.wait_for_selector("#best[aria-busy=false] [data-best='0']")
        for place, start in (("#by-rule-80", rule), ("#excluded", excluded)):
            said = tab.text_content(place)
            assert said[:len(start) or None] == start, place
