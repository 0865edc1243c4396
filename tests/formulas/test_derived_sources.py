"""The digest of sources covers all that formulas are derived from: no file that it leaves out is read for them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from jinja2 import meta

from shardmath.files import rendering
from shardmath.files.cached import sources

TEMPLATES = Path(__file__).resolve().parents[2] / "templates"
#: Modules outside the digest that a derivation loads: the packages around the others, which derive nothing.
ASIDE = {"", ".files"}
#: Print the modules of the package that a derivation of everything loads, and a digest of what it derives.
DERIVE = """
import hashlib, json, sys
from pathlib import Path
from shardmath.files import rendering
rendering._TEMPLATES = Path(sys.argv[1])
import shardmath.compiler.nesting
from shardmath.symbolic.compiled import derive_inverse, derive_kernel, derive_layouts
from shardmath.symbolic.implementations import IMPLEMENTATIONS
from shardmath.symbolic.plain import derive_formulas, derive_memory, derive_rows, derive_script, derive_time
chosen = IMPLEMENTATIONS["megatron"]
memory = derive_memory(chosen)
texts = [memory, derive_time(chosen), derive_rows(chosen), derive_script(chosen), derive_formulas(chosen),
         derive_layouts(chosen, memory), derive_kernel(chosen, ["peak"], ["seq_length"], memory),
         derive_inverse(chosen, memory, "hidden_size", (), ["seq_length"])]
files = {name: module.__file__ for name, module in sys.modules.items() if name.partition(".")[0] == "shardmath"}
print(json.dumps([files, hashlib.sha256(repr(texts).encode()).hexdigest()]))
"""


def derived(templates: Path) -> tuple[dict[str, str], str]:
    done = subprocess.run([sys.executable, "-c", DERIVE, str(templates)], capture_output=True, text=True, check=True,
                          env={**os.environ, "PYTHONHASHSEED": "0"})
    files, digest = json.loads(done.stdout)
    return files, digest


def counted() -> Iterator[Path]:
    return (path for path in sources() if path.parent == TEMPLATES)


@pytest.mark.process
def test_what_is_left_out_changes_no_formula(tmp_path: Path) -> None:
    """Derived from the templates of the digest alone, and from all of them."""
    for path in counted():
        shutil.copy(path, tmp_path)
    files, digest = derived(tmp_path)
    assert digest == derived(TEMPLATES)[1]
    known = {*map(str, sources())}
    assert {name.removeprefix("shardmath") for name, file in files.items() if file not in known} == ASIDE


def test_templates_of_the_digest_include_no_other() -> None:
    names = {path.name for path in counted()} - {"__init__.py"}
    environment = rendering._environment(latex=False)
    for name in names:
        tree = environment.parse((TEMPLATES / name).read_text(encoding="utf-8"))
        assert {*meta.find_referenced_templates(tree)} <= names, name
    assert {"evaluator.py.jinja", "evaluator.js.jinja", "kernel.py.jinja", "nest.py.jinja", "nest.c.jinja"} <= names


def test_frames_of_documents_and_of_the_page_are_left_out() -> None:
    left = {path.relative_to(TEMPLATES).as_posix() for path in TEMPLATES.rglob("*") if path.is_file()
            and "__pycache__" not in path.parts} - {path.name for path in counted()}
    assert {"page/page.html.jinja", "page/page.css", "page/worker.js", "plot.html.jinja", "appendix.tex.jinja"} <= left
    assert all(name.startswith("page/") or name.endswith((".tex.jinja", ".bib.jinja", ".md.jinja", ".html.jinja",
                                                          ".sh.jinja")) for name in left), left
