"""How long the page takes: until it can be used, after each step of a slider, and to search; and its size.

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


def measured(browser: Any, path: Path) -> dict[str, float]:
    """Milliseconds by what took them, each the median of some."""
    opening, searching, moving = [], [], dict[str, list[float]]()
    for _ in range(REPEATED):
        tab = browser.new_page()
        tab.goto(path.resolve().as_uri())
        tab.wait_for_selector("html[data-ready]")
        opening.append(tab.evaluate("readyAfter"))
        tab.wait_for_selector("#best[aria-busy=false]", state="attached")
        searching.append(tab.evaluate("performance.now()"))
        for name in SLIDERS:
            moving.setdefault(name, []).append(tab.evaluate(MOVED, name))
        tab.close()
    return {"ready": median(opening), "searched": median(searching),
            **{f"slider {name}": median(values) for name, values in moving.items()}}


def main(path: Path) -> None:
    """Print the figures of one page."""
    from playwright.sync_api import sync_playwright

    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))))
    print(f"size: {path.stat().st_size:,} bytes")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for name, value in measured(browser, path).items():
            print(f"{name}: {value:.0f} ms")
        browser.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
