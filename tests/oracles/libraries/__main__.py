"""Count rows of tables again and compare: ``python -m oracles.libraries [TABLE]...``; 1 if one is otherwise."""

from __future__ import annotations

import csv
import sys
import warnings
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

from oracles import libraries

DATA = Path(__file__).resolve().parents[2] / "data"


def main(names: list[str]) -> int:
    """Recount the named tables, all without names."""
    warnings.simplefilter("ignore")
    wrong = 0
    for name in names or [info.name for info in iter_modules(libraries.__path__) if not info.name.startswith("_")]:
        program = import_module(f"oracles.libraries.{name}")
        with (DATA / f"{program.TABLE}.csv").open(newline="") as file:
            rows = [row for row in csv.DictReader(file) if program.has(row)]
        others = []
        for row in rows:
            counted = {column: str(number) for column, number in program.count(row).items()}
            if any(row[column] != number for column, number in counted.items()):
                others.append(f"{row}: counted {counted}")
        print(f"{name}: {len(rows) - len(others)} of {len(rows)} rows of {program.TABLE}.csv as counted")
        print(*others, sep="\n", end="\n" if others else "")
        wrong += len(others)
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
