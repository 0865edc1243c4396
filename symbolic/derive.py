"""From the ledger to every generated file.

The stages: build the terms of each implementation and of each set of published formulas; simplify
them; print them; fill the templates. ``derive`` is pure: the same source gives the same bytes, on
every run and for every hash seed.
"""

from __future__ import annotations

from .accounts import build
from .compiled import INVERTED, derive_inverse, derive_layouts, derive_nest
from .documents.appendix import appendix
from .documents.definitions import definitions
from .documents.evaluator import evaluator
from .documents.formulas import formulas
from .implementations import IMPLEMENTATIONS, Implementation
from .nests.standard import BY_MEMORY, BY_TIME
from .plain import derive_memory, derive_script, derive_time
from .published import PublishedSet, all_published
from .rendering import COMMAND, rendered
from .simplify import computed
from .timing import is_timed

__all__ = ["COMMAND", "derive", "derive_documents", "derive_implementation", "derive_published"]


def derive() -> dict[str, str]:
    """The text of every generated file, by file name."""
    files = {"__init__.py": rendered("package.py", {}), "definitions.py": rendered("definitions.py", definitions())}
    for implementation in IMPLEMENTATIONS.values():
        files |= derive_implementation(implementation)
        name = implementation.name
        memory, time = files[f"{name}.py"], files[f"{name}_time.py"]
        files[f"{name}_nest.py"] = derive_nest(name, BY_MEMORY, memory, files)
        files[f"{name}_time_nest.py"] = derive_nest(name, BY_TIME, f"{memory}\n{time}", files)
        files[f"{name}.js"] = derive_script(implementation)
        files[f"{name}_inverse_kernel.py"] = derive_inverse(implementation, *INVERTED, source=memory)
    for published in all_published():
        files |= derive_published(published)
    return files | derive_documents()


def derive_documents() -> dict[str, str]:
    """The documents for people: the LaTeX appendix and the Markdown formula tables."""
    return {
        "appendix.tex": rendered("appendix.tex", {"command": COMMAND, **appendix()}),
        "formulas.md": rendered("formulas.md", {"command": COMMAND, **formulas()}),
    }


def derive_implementation(implementation: Implementation) -> dict[str, str]:
    """Derive the files of one implementation, by name: memory; time and layouts where there are formulas of them."""
    name, memory = implementation.name, derive_memory(implementation, simplified=True)
    files = {f"{name}.py": memory}
    if is_timed(implementation):
        files[f"{name}_time.py"] = derive_time(implementation, simplified=True)
    if not build(implementation).as_inputs:  # a list of layers is one configuration: there is nothing to sweep
        files[f"{name}_kernel.py"] = derive_layouts(implementation, memory, simplified=True)
    return files


def derive_published(published: PublishedSet) -> dict[str, str]:
    """The evaluator of one set of published formulas."""
    title = f"Published formulas: {published.title}"
    return {f"{published.name}.py": rendered("evaluator.py", evaluator(title, published.terms, (), form=computed))}
