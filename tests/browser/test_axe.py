"""Accessibility by axe-core: no violation in any state of the page, in light and dark, on a phone and on a screen."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from browser_cases import PHONE, SCREEN, TABLET, WIDE

#: Where `make page` puts it; nothing of it is in the repository.
AXE = Path(__file__).resolve().parents[2] / ".cache" / "npm" / "node_modules" / "axe-core" / "axe.min.js"
pytestmark = pytest.mark.skipif(not AXE.exists(), reason="axe-core is not installed; `make page` installs it with npm")

#: What is done to reach a state, from the one before.
STATES = {
    "page": "",
    "comparison, with all that opens": """
      document.getElementById("keep").click();
      for (const id of ["shape", "uneven", "exports"]) document.getElementById(id).open = true;""",
    "formula": "openFormula('step.time')",
    "all that is rarely changed": "drawer.close(); document.getElementById('settings').open = true",
    "import": "importer.showModal(); pasted.value = 'nothing'; take.click()",
}

#: A small job of Hugging Face's trainers.
TUNED = "#implementation=huggingface&num_gpus=8&global_batch_size=16&seq_length=2048"
#: Links to states that no button leads to.
LINKS = {
    "out of memory, with a price, beside another layout": "#model=llama-3.1-405b&num_gpus=64&global_batch_size=64"
    "&pipeline_parallel=2&price=2.1&against=model%3Dllama-3.1-405b%26num_gpus%3D64",
    "no layout": "#pipeline_parallel=3", "unknown names": "#model=gpt-9&gpu=h9&colour=red",
    "no time": "#model=llama-3.1-8b&gpu=v100-32gb&num_gpus=64",
    "no legal layout": "#num_gpus=1040", "many ranks": "#num_gpus=1040&global_batch_size=1040&pipeline_parallel=80"
    "&tensor_parallel=1", "experts": "#model=mixtral-8x7b-v0.1&num_gpus=64&global_batch_size=256&seq_length=4096",
    "Hugging Face": "#model=qwen2.5-7b&implementation=huggingface&num_gpus=8&global_batch_size=64",
    "torchtitan": "#model=llama-3.1-8b&implementation=torchtitan&num_gpus=64&pipeline_parallel=2",
    "LoRA": f"{TUNED}&model=llama-3.1-8b&kernel=adapters%3Dall_linear&lora_rank=16",
    "QLoRA, out of memory": f"{TUNED}&model=llama-3.1-70b&kernel=adapters%3Dall_linear%2Cbase_weights%3Dnf4",
    "LoRA beside experts": f"{TUNED}&model=mixtral-8x7b-v0.1&kernel=adapters%3Dall_linear",
    "LoRA in four stages": "#model=llama-3.1-70b&num_gpus=64&pipeline_parallel=4&kernel=adapters%3Dall_linear",
}
SCHEMES = pytest.mark.parametrize("scheme", ["light", "dark"])


@SCHEMES
def test_axe_finds_no_violation(scheme: str, opened: Callable[..., Any]) -> None:
    for size in (PHONE, TABLET, SCREEN, WIDE):
        tab = opened("#global_batch_size=1023" if size == PHONE else "", size, scheme)
        tab.wait_for_selector("#best[aria-busy=false]", state="attached")
        have_axe(tab)
        for state, done in STATES.items():
            tab.evaluate(done)
            assert_nothing_found(tab, state)


@SCHEMES
def test_axe_finds_no_violation_behind_a_link(scheme: str, opened: Callable[..., Any]) -> None:
    for state, link in LINKS.items():
        for size in (PHONE, SCREEN):
            tab = opened(link, size, scheme)
            tab.wait_for_selector("#best[aria-busy=false]", state="attached")
            assert tab.evaluate("state.kernels.adapters") == ("all_linear" if "adapters" in link else None)
            have_axe(tab)
            assert_nothing_found(tab, state)
            if "adapters" in link:  # whose settings stand among the rarely changed ones
                tab.evaluate("document.getElementById('settings').open = true")
                assert_nothing_found(tab, f"{state}, settings")
        tab.emulate_media(media="print", color_scheme=scheme)
        assert_nothing_found(tab, f"{state}, on paper")


def have_axe(tab: Any) -> None:
    """Load axe, and lay out all sections: else it sees those far below the screen on top of each other."""
    tab.evaluate(AXE.read_text(encoding="utf-8"))
    tab.evaluate("for (const { style } of document.querySelectorAll('section')) style.contentVisibility = 'visible'")


def assert_nothing_found(tab: Any, state: str) -> None:
    result = tab.evaluate("axe.run(document, { resultTypes: ['violations'] })")
    violations = [(item["id"], [node["html"] for node in item["nodes"]]) for item in result["violations"]]
    assert violations == [], state
    assert len(result["passes"]) > 15
