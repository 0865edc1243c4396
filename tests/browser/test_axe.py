"""Accessibility by axe-core: no violation in any state of the page, in light and dark, on a phone and on a screen."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from browser_cases import PHONE, SCREEN

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
    "import": "drawer.close(); importer.showModal(); pasted.value = 'nothing'; take.click()",
}


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_no_violation(scheme: str, opened: Callable[..., Any]) -> None:
    for size in (PHONE, SCREEN):
        tab = opened("#global_batch_size=1023" if size == PHONE else "", size, scheme)
        tab.wait_for_selector("#best[aria-busy=false]", state="attached")
        tab.evaluate(AXE.read_text(encoding="utf-8"))
        for state, done in STATES.items():
            tab.evaluate(done)
            result = tab.evaluate("axe.run(document, { resultTypes: ['violations'] })")
            violations = [(item["id"], [node["html"] for node in item["nodes"]]) for item in result["violations"]]
            assert violations == [], state
            assert len(result["passes"]) > 15
