"""From the ledger to every generated file.

The stages: build the terms of each implementation and of each set of published formulas; simplify
them; print them; fill the templates. ``derive`` is pure: the same source gives the same bytes, on
every run and for every hash seed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from shardmath.files.rendering import COMMAND, rendered

from .accounts import build
from .compiled import derive_layouts
from .documents.appendix import appendix
from .documents.bibtex import cited
from .documents.definitions import definitions
from .documents.evaluator import evaluator
from .documents.formulas import formulas
from .documents.planned import functions
from .documents.records import records
from .documents.supplement import SUPPLEMENT, of_examples, of_terms, of_work
from .documents.systems import systems
from .documents.totals import bibliography
from .implementations import IMPLEMENTATIONS, Implementation
from .plain import derive_memory, derive_rows, derive_time
from .published import PublishedSet, all_published
from .simplify import computed
from .timing import is_timed

__all__ = ["COMMAND", "derive", "derive_documents", "derive_implementation", "derive_published"]


#: Files by name, and data for the supplement.
Part: TypeAlias = tuple[Mapping[str, str], Mapping[str, Any]]
Each: TypeAlias = Callable[[Callable[[int], Part], Sequence[int]], Iterable[Part]]


def derive(each: Each = map) -> dict[str, str]:
    """Return the text of every generated file, by file name: what people read, and what must be there at once.

    Nests, inverses, scripts and evaluators for other kernel choices are derived when they are used, and kept. ``each``
    calls a function with every number of a range, as ``map`` does, or several at a time.
    """
    files = {"__init__.py": rendered("package.py", {}), "definitions.py": rendered("definitions.py", definitions()),
             "plan.py": rendered("plan.py", functions())}
    sections: dict[str, Any] = {"command": COMMAND}
    for texts, data in each(_part, range(len(_PARTS))):
        files |= texts
        sections |= data
    return files | {"supplement.tex": rendered("supplement.tex", sections)}


def _part(number: int) -> Part:
    return _PARTS[number]()


def derive_documents() -> dict[str, str]:
    """Return the documents for people: the LaTeX appendix, its supplement and the Markdown formula tables."""
    sections = {name: value for part in SUPPLEMENT for name, value in part().items()}
    return {"supplement.tex": rendered("supplement.tex", {"command": COMMAND, **sections}), **_appendix(), **_tables()}


def _appendix() -> dict[str, str]:
    sections = {"command": COMMAND, **appendix()}
    keys = cited(rendered("appendix.tex", {**sections, **bibliography(())}))
    return {"appendix.tex": rendered("appendix.tex", {**sections, **bibliography(keys)})}


def _tables() -> dict[str, str]:
    return {"formulas.md": rendered("formulas.md", {"command": COMMAND, **formulas()})}


def derive_implementation(implementation: Implementation) -> dict[str, str]:
    """Derive the files of one implementation, by name: memory; time and layouts where there are formulas of them."""
    name, memory = implementation.name, derive_memory(implementation, simplified=True)
    files = {f"{name}.py": memory, f"{name}_rows.py": derive_rows(implementation)}
    if is_timed(implementation):
        files[f"{name}_time.py"] = derive_time(implementation, simplified=True)
    if not build(implementation).as_inputs:  # a list of layers is one configuration: there is nothing to sweep
        files[f"{name}_kernel.py"] = derive_layouts(implementation, memory, simplified=True)
    return files


def derive_published(published: PublishedSet) -> dict[str, str]:
    """Return the evaluator of one set of published formulas."""
    title = f"Published formulas: {published.title}"
    return {f"{published.name}.py": rendered("evaluator.py", evaluator(title, published.terms, (), form=computed))}


#: Independent parts of a derivation, the longest first: files by name, and sections of the supplement.
_PARTS: tuple[Callable[[], Part], ...] = (
    lambda: ({}, systems()),
    lambda: ({**_tables(), "formulas.jsonl": records()}, {**of_terms(), **of_work()}),  # which have the same forms
    lambda: (_appendix(), {}),
    lambda: ({}, of_examples()),
    *(lambda item=item: (derive_implementation(item), {}) for item in IMPLEMENTATIONS.values()),
    *(lambda item=item: (derive_published(item), {}) for item in all_published()),
)
