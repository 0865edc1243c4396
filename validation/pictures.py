"""``python -m validation.pictures``: the pictures in docs/plots, by the commands that pages of docs show."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path

from shardmath.cli.main import exit_code

ROOT = Path(__file__).resolve().parents[1]
PAGES = tuple(ROOT / "docs" / name for name in ("plots.md", "systems.md", "concepts.md", "snapshot.md"))
#: A command of a page that draws.
_COMMAND = re.compile(r"^shardmath (.* --plot (docs/plots/\S+))$", re.MULTILINE)


def commands(folder: Path) -> Mapping[str, list[str]]:
    """Return the arguments of every command by the name of its picture, which it writes into ``folder``."""
    by_picture = {}
    for arguments, path in (item for page in PAGES for item in _COMMAND.findall(page.read_text(encoding="utf-8"))):
        name = Path(path).name
        by_picture[name] = [*shlex.split(arguments)[:-1], str(folder / name)]
    return by_picture


def main() -> int:
    """Write every picture; the exit code of the first command that fails."""
    folder = ROOT / "docs" / "plots"
    folder.mkdir(exist_ok=True)
    asked = commands(folder)
    for arguments in asked.values():
        if code := exit_code(arguments):
            return code
    for stale in set(folder.iterdir()) - {folder / name for name in asked}:
        stale.unlink()
    return 0


if __name__ == "__main__":
    sys.exit(main())
