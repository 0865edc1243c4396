"""Tell whether anything changed since generated/ was derived: its sources, its files, Python and the libraries."""

from __future__ import annotations

import hashlib
import sys
from importlib.metadata import version
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
#: Folders of what is derived from, and of what is derived.
_FOLDERS = ("catalogue", "generated", "src/shardmath/compiler", "symbolic", "templates")
_LIBRARIES = ("jinja2", "sympy")


def digest(root: Path = ROOT) -> str:
    """Return the digest of names and contents of all files, and of the versions that derive."""
    content = hashlib.sha256(repr((sys.version, [(name, version(name)) for name in _LIBRARIES])).encode())
    for path in sorted(path for folder in _FOLDERS for path in (root / folder).rglob("*") if path.is_file()):
        if "__pycache__" not in path.parts:
            own = hashlib.sha256(path.read_bytes()).hexdigest()
            content.update(f"{path.relative_to(root).as_posix()}\n{own}\n".encode())
    return content.hexdigest()


def is_unchanged(root: Path = ROOT) -> bool:
    """Return True if nothing changed since ``keep``."""
    kept = root / ".cache" / "derived.txt"
    return kept.is_file() and kept.read_text(encoding="utf-8") == digest(root)


def keep(root: Path = ROOT) -> None:
    """Keep the digest of what was just derived."""
    folder = root / ".cache"
    folder.mkdir(exist_ok=True)
    (folder / "derived.txt").write_text(digest(root), encoding="utf-8")


def main(arguments: list[str]) -> int:
    """Without an argument, the exit code is 0 if nothing changed; ``--keep`` keeps the digest."""
    if arguments not in ([], ["--keep"]):
        sys.stderr.write("usage: python -m shardmath.symbolic.unchanged [--keep]\n")
        return 2
    if arguments:
        keep()
        return 0
    if not is_unchanged():
        return 1
    print("generated/ was up to date")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
