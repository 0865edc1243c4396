"""How long the page takes: until it can be used, after each step of a slider, and to search; and its size.

Beside the clock stands the processor time of the page's main thread, by Chromium's counters: a busy machine changes it
less.

    python -m benchmarks.page build/page.html
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from statistics import median
from typing import Any

#: Steps of sliders that are measured, at the layout that the page begins with.
SLIDERS = ("tensor_parallel", "pipeline_parallel", "micro_batch_size", "virtual_pipeline", "seq_length", "hidden_size")
REPEATED = 5
#: Milliseconds until everything is shown anew after a slider moved, the layout of the page included.
MOVED = """async (name) => {
  const slider = document.querySelector(`[data-slider=${name}]`);
  const began = performance.now();
  slider.value = Number(slider.value) ? Number(slider.value) - 1 : 1;
  slider.dispatchEvent(new Event("input", { bubbles: true }));
  while (!("ready" in document.documentElement.dataset)) await new Promise((resolve) => setTimeout(resolve));
  document.body.getBoundingClientRect();
  return performance.now() - began;
}"""


def measured(browser: Any, path: Path) -> dict[str, tuple[float, float]]:
    """Milliseconds of the clock and of the main thread by what took them, each the median of some."""
    times: dict[str, list[tuple[float, float]]] = {}
    for _ in range(REPEATED):
        tab = browser.new_page()
        counters = tab.context.new_cdp_session(tab)
        counters.send("Performance.enable", {"timeDomain": "threadTicks"})
        tab.goto(path.resolve().as_uri())
        tab.wait_for_selector("html[data-ready]")
        times.setdefault("ready", []).append((tab.evaluate("readyAfter"), _worked(counters)))
        tab.wait_for_selector("#best[aria-busy=false]", state="attached")
        times.setdefault("searched", []).append((tab.evaluate("performance.now()"), _worked(counters)))
        for name in SLIDERS:
            before = _worked(counters)
            moved = tab.evaluate(MOVED, name)
            times.setdefault(f"slider {name}", []).append((moved, _worked(counters) - before))
        tab.close()
    return {name: (median(clock for clock, _ in both), median(worked for _, worked in both))
            for name, both in times.items()}


def _worked(counters: Any) -> float:
    """Return the milliseconds that the main thread has worked so far."""
    metrics = counters.send("Performance.getMetrics")["metrics"]
    return 1000 * float(next(item["value"] for item in metrics if item["name"] == "TaskDuration"))


def main(path: Path) -> None:
    """Print the figures of one page."""
    from playwright.sync_api import sync_playwright

    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))))
    print(f"size: {path.stat().st_size:,} bytes")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for name, (clock, worked) in measured(browser, path).items():
            print(f"{name}: {clock:.0f} ms, {worked:.0f} ms of the main thread")
        browser.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
