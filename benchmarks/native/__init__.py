"""C for comparison: source from the same terms and a template, compiled by gcc, called through ctypes."""

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
#: What -ffast-math allows, but for reciprocals: under a ceiling a product with a rounded one would be wrong, and
#: with -ffast-math -fno-reciprocal-math gcc 12 still divides once and multiplies in a loop over one divisor.
DIVISIONS_KEPT = (*IEEE, "-fno-signed-zeros", "-ffinite-math-only", "-fassociative-math")
#: Fast arithmetic with rounded reciprocals: exact only where divisors are powers of two.
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
    """The compiled source, loaded; its functions release the interpreter lock.

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
