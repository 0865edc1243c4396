"""Write the generated files, or show how the ones on disk differ from fresh ones."""

from __future__ import annotations

import difflib
import gc
import os
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_all_start_methods, get_context
from pathlib import Path

from .derive import COMMAND, Each, Part, derive
from .implementations import IMPLEMENTATIONS
from .stored import restore
from .stored import stored as results
from .timing import build_times

_ROOT = Path(__file__).resolve().parents[1]
GENERATED = _ROOT / "generated"
#: Where results of earlier derivations are kept.
KEPT = _ROOT / ".cache" / "derived"


def stored(folder: Path = GENERATED) -> dict[str, str]:
    """Return the text of every file in the folder, by file name; caches of Python are left out."""
    return {
        path.name: path.read_bytes().decode("utf-8", "backslashreplace")
        for path in sorted(folder.iterdir()) if path.is_file()
    }


def write(folder: Path = GENERATED) -> list[str]:
    """Bring the folder up to date; return the names of files that changed or went."""
    fresh, old = derived(KEPT), stored(folder)
    for name in sorted(old.keys() - fresh.keys()):
        (folder / name).unlink()
    for name, text in fresh.items():
        if old.get(name) != text:
            _replace(folder / name, text)
    return sorted(name for name in fresh.keys() | old.keys() if fresh.get(name) != old.get(name))


def difference(folder: Path = GENERATED) -> str:
    """Return a unified diff from the stored files to fresh ones; empty if they are the same."""
    fresh, old = derived(), stored(folder)
    lines: list[str] = []
    for name in sorted(fresh.keys() | old.keys()):
        if (name in fresh) != (name in old):
            lines.append(f"generated/{name}: {'missing' if name in fresh else 'not generated'}\n")
        lines += difflib.unified_diff(
            old.get(name, "").splitlines(keepends=True), fresh.get(name, "").splitlines(keepends=True),
            f"generated/{name} (stored)", f"generated/{name} (fresh)",
        )
    return "".join(lines)


def derived(kept: Path | None = None) -> dict[str, str]:
    """Derive all files, on two processors if there are as many; what they have in common is built once, before.

    Results of simplification are taken from the folder ``kept`` and left there. Without it everything is derived anew.
    """
    if kept is not None:
        kept.mkdir(parents=True, exist_ok=True)
    if "fork" not in get_all_start_methods() or (os.cpu_count() or 1) == 1:
        return derive(partial(_each, kept, map))
    for implementation in IMPLEMENTATIONS.values():
        build_times(implementation)
    with ProcessPoolExecutor(2, get_context("fork")) as pool:
        return derive(partial(_each, kept, pool.map))


def _each(kept: Path | None, each: Each, part: Callable[[int], Part], numbers: Sequence[int]) -> Iterable[Part]:
    return each(part if kept is None else partial(_with_results, kept, part), numbers)


def _with_results(kept: Path, part: Callable[[int], Part], number: int) -> Part:
    """Derive a part with the results that were kept of it, and keep those that it used if they are others."""
    path = kept / f"{number}.json"
    old = path.read_text(encoding="utf-8") if path.is_file() else ""
    restore(old)
    derived_part = part(number)
    if (new := results()) != old:
        _replace(path, new)
    return derived_part


def _replace(path: Path, text: str) -> None:
    with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False, encoding="utf-8", newline="\n") as file:
        file.write(text)
    os.chmod(file.name, 0o644)
    os.replace(file.name, path)


def main(arguments: list[str]) -> int:
    """Write without an argument, compare with ``--check``; the exit code says whether all went well."""
    if arguments not in ([], ["--check"]):
        sys.stderr.write("usage: python -m shardmath.symbolic.write [--check]\n")
        return 2
    if arguments:
        diff = difference()
        if diff:
            sys.stdout.write(diff)
            sys.stderr.write(f"generated/ is stale or was edited by hand; run: {COMMAND}\n")
            return 1
        print("generated/ is up to date")
        return 0
    changed = write()
    print(f"generated/: {', '.join(changed)}" if changed else "generated/ was up to date")
    return 0


if __name__ == "__main__":
    gc.disable()  # looking for circles costs a tenth of the time, and 200 MB suffice without
    sys.exit(main(sys.argv[1:]))
