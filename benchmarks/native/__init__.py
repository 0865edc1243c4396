"""C for comparison: source from the same plan and a template, compiled by gcc, called through ctypes."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from benchmarks.contenders import LeftOutError

COMPILER = "gcc"
_BASE = ("-O3", "-march=native")
#: Every operation rounds as IEEE 754 says. ``errno`` and floating point traps are side effects that no expression
#: has, but with them the compiler cannot work on several rows at once.
IEEE = (*_BASE, "-fno-math-errno", "-fno-trapping-math")
#: Fast arithmetic: reciprocals may be less exact, sums and products in another order.
FAST = (*_BASE, "-ffast-math")
_TEMPLATES = Path(__file__).parent


def render(template: str, **data: Any) -> str:
    """C source: the template filled with ``data``."""
    return environment().get_template(f"{template}.jinja").render(**data)


def environment() -> Environment:
    """Where templates of C are found."""
    loader = FileSystemLoader(_TEMPLATES)
    return Environment(loader=loader, undefined=StrictUndefined, keep_trailing_newline=True, autoescape=False)


def build(source: str, flags: Sequence[str]) -> ctypes.CDLL:
    """Return the compiled source, loaded; its functions release the interpreter lock.

    Raises LeftOutError without gcc, CalledProcessError if gcc refuses the source.
    """
    if shutil.which(COMPILER) is None:
        raise LeftOutError(f"C: {COMPILER} is not installed")
    with TemporaryDirectory() as folder:
        written, compiled, library = (Path(folder) / name for name in ("source.c", "source.o", "source.so"))
        written.write_text(source, encoding="utf-8")
        _run(*flags, "-fopenmp", "-fPIC", "-c", "-o", str(compiled), str(written))
        # Linked without the flags: with -ffast-math gcc would link a start-up file that makes the whole process
        # flush small numbers to zero.
        _run("-shared", "-fopenmp", "-o", str(library), str(compiled), "-lm")
        return ctypes.CDLL(str(library))


def _run(*arguments: str) -> None:
    subprocess.run((COMPILER, *arguments), check=True, capture_output=True, text=True)
