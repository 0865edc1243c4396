"""Nothing on the page jumps: while it opens, while it searches, and when a search of another job begins."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from browser_cases import PHONE

import shardmath
from shardmath.models.config_json import FAMILIES

#: Layout shifts as Chromium counts them, from the first picture on.
OBSERVED = """() => new Promise((resolve) => {
  const told = ({ value, sources }) => [value, ...sources.map(({ node }) => node?.outerHTML?.slice(0, 60))];
  const observer = new PerformanceObserver((list) => resolve(list.getEntries().map(told)));
  observer.observe({ type: "layout-shift", buffered: true });
  setTimeout(() => resolve([]), 200); // without an entry it is never called
})"""
LINKS = ("", "#model=llama-3.1-405b&num_gpus=16", "#pipeline_parallel=3", "#implementation=torchtitan&num_gpus=16")


@pytest.mark.parametrize("width", [390, 768, 1280, 1920])
def test_nothing_jumps_while_the_page_opens_and_searches(width: int, opened: Callable[..., Any]) -> None:
    """Counted are shifts of what is in sight; Chromium calls a sum below 0.1 good."""
    for link in LINKS[:2] if width in (768, 1920) else LINKS:
        tab = opened(link, (width, 900))
        tab.wait_for_selector("#best[aria-busy=false]", state="attached")
        shifts = tab.evaluate(OBSERVED)
        assert sum(shift[0] for shift in shifts) < 0.005, (link, shifts)


def test_nothing_that_moves_is_seen_before_all_is(opened: Callable[..., Any]) -> None:
    """A browser may paint a file of which it has read a part: then a row of buttons grows and breaks."""
    tab = opened(size=PHONE)
    seen = """() => [...document.querySelectorAll("body *")].filter((node) =>
      node.checkVisibility({ visibilityProperty: true }) && node.getBoundingClientRect().width > 1
    ).map((node) => node.id || node.localName)"""
    assert {"import", "theme", "peak"} < set(tab.evaluate(seen))
    tab.evaluate("document.documentElement.removeAttribute('data-shown')")
    assert tab.evaluate(seen) == ["header", "div", "h1", "p", "loading"]
    assert tab.evaluate("getComputedStyle(document.getElementById('loading')).position") == "absolute"


def test_rows_stay_in_place_while_another_job_is_searched(opened: Callable[..., Any]) -> None:
    tab = opened()
    tab.wait_for_selector("#best[aria-busy=false] [data-best='0']")
    top = "document.getElementById('stages').getBoundingClientRect().top + scrollY"
    before, rows = tab.evaluate(top), tab.locator("#best tr").count()
    after = tab.evaluate("""async () => {
      pick("global_batch_size", 512);
      await update();
      const ranking = document.getElementById("ranking");
      return [ranking.inert, document.querySelectorAll("#best tr").length, """ + top + "]}")
    assert after == [True, rows, before]
    tab.wait_for_selector("#best[aria-busy=false] [data-best='0']")
    assert tab.evaluate("document.getElementById('ranking').inert") is False


def test_a_search_waits_for_the_job_that_is_shown(opened: Callable[..., Any]) -> None:
    """Another model may be chosen before the search of the job before begins, whose scripts are not there yet."""
    tab = opened()
    tab.evaluate("""async () => {
      pick("global_batch_size", 512);
      await update();
      pick("implementation", "torchtitan");
      await new Promise((resolve) => setTimeout(resolve, 2 * CALM));
      pick("implementation", "megatron");
      await update();
    }""")
    tab.wait_for_selector("#best[aria-busy=false] [data-best='0']")


def test_the_mark_of_the_gauge_is_the_most_that_fits(opened: Callable[..., Any]) -> None:
    """The bar is the memory of the GPU, or the peak where that is more."""
    for link, layout in (("#num_gpus=512", {"tensor_parallel": 8}),
                         ("#gpu=a100-40gb&tensor_parallel=4", {"gpu": "a100-40gb", "tensor_parallel": 4})):
        job: dict[str, Any] = {"gpu": "h100-80gb", "num_gpus": 512, "global_batch_size": 1024, "seq_length": 8192}
        expected = shardmath.explain("llama-3.1-70b", **{**job, "pipeline_parallel": 4, **layout})
        tab = opened(link)
        places = tab.evaluate("""() => [".gauge .track", ".gauge .used", ".gauge .mark"].map((name) =>
          document.querySelector(name).getBoundingClientRect()).map(({ left, right }) => [left, right])""")
        (start, end), (_, used), (mark, _) = places
        share = expected.peak.limit / max(expected.inputs["gpu_memory"], expected.peak.total)
        assert (mark - start) / (end - start) == pytest.approx(share, abs=0.01)
        assert (used <= mark) == (expected.verdict == "fits")
        assert f"Up to {expected.peak.limit / 2**30:.2f} GiB fits" in tab.inner_text("#tile-memory")


def test_size_and_families_are_those_of_the_documentation(whole: Path) -> None:
    size = whole.stat().st_size
    text = (Path(__file__).resolve().parents[2] / "docs" / "page.md").read_text(encoding="utf-8")
    stated = re.search(r"one HTML file of less than ([\d.]+) MB", text)
    assert stated is not None
    assert size < float(stated[1]) * 1e6 <= 1_250_000
    assert f"every family that the commands read ({len(FAMILIES)}," in text
