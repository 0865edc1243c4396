"""From the ledger to every generated file.

The stages: build the terms of each implementation and of each set of published formulas; simplify
them; print them; fill the templates. ``derive`` is pure: the same source gives the same bytes, on
every run and for every hash seed.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from .accounts import build
from .documents.appendix import appendix
from .documents.definitions import definitions
from .documents.evaluator import Form, as_written, evaluator, script
from .documents.formulas import formulas
from .documents.inverse_kernel import inverse_kernel
from .documents.kernel import kernel
from .implementations import IMPLEMENTATIONS, Implementation
from .nesting import nest_of
from .nests.formulas import function_source
from .nests.standard import BY_MEMORY, BY_TIME, standard
from .parallel.legality import rules_for
from .parameters import BY_LETTER, PARAMETERS
from .published import PublishedSet, all_published
from .recompute import REGIONS
from .rendering import COMMAND, HEADER, rendered
from .simplify import computed
from .timing import build_times, is_timed

__all__ = ["COMMAND", "derive", "derive_documents", "derive_implementation", "derive_published"]


#: The symbol that the inverses of the package are solved for, with what goes along; others are derived when asked for.
INVERTED = ("micro_batch_size", ("global_batch_size",))


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
    if not build(implementation).given:  # an explicit list of layers is one configuration: there is nothing to sweep
        files[f"{name}_kernel.py"] = derive_layouts(implementation, memory)
    return files


def derive_memory(implementation: Implementation, *, simplified: bool = False) -> str:
    """Derive the plain evaluator of an implementation's memory and rules.

    Its terms are printed as written, or ``simplified`` for people who read them.
    """
    title = f"Memory of sharded training: {implementation.title}"
    data = evaluator(title, build(implementation), rules_for(implementation), form=_form(simplified))
    return rendered("evaluator.py", data)


def derive_time(implementation: Implementation, *, simplified: bool = False) -> str:
    """Derive the plain evaluator of the time of a step; see ``derive_memory``.

    Seconds are computed in floats, which another form would round otherwise: all that is asked of one implementation
    is computed with one form.
    """
    title = f"Time of sharded training: {implementation.title}"
    return rendered("evaluator.py", evaluator(title, build_times(implementation), (), form=_form(simplified)))


def _form(simplified: bool) -> Form:
    return computed if simplified else as_written


def derive_layouts(implementation: Implementation, memory: str) -> str:
    """Derive the compiled evaluator of rules and peak for columns of layouts, from the text of the plain one."""
    return rendered("kernel.py", kernel(f"Memory of sharded training: {implementation.title}", memory))


def derive_nest(name: str, ranking: tuple[str, ...], evaluators: str, files: Mapping[str, str]) -> str:
    """The nest of the standard space of layouts over ``evaluators``, with the verdict that is among ``files``."""
    switches = [BY_LETTER[region.switch].name for region in REGIONS]
    symbols = {parameter.name: (parameter.minimum, parameter.maximum) for parameter in PARAMETERS}
    verdict = function_source(files["definitions.py"], "verdict")
    title = f"Sharded training: every layout with {name}"
    return nest_of(title, standard(symbols, switches, ranking), evaluators, verdict, HEADER)


def derive_kernel(
    implementation: Implementation, outputs: Sequence[str], columns: Collection[str], source: str,
) -> str:
    """Derive the compiled evaluator of chosen terms, for tables in which the parameters ``columns`` differ by row.

    ``source`` is the text of the plain evaluators that have these terms, one after the other.
    """
    title = f"Sharded training: {implementation.title}"
    return rendered("kernel.py", kernel(title, source, outputs, columns))


def derive_inverse(
    implementation: Implementation, symbol: str, along: Sequence[str], columns: Collection[str] | None = None, *,
    source: str | None = None,
) -> str:
    """The compiled inverse of an implementation: the estimate as a polynomial of ``symbol``, for columns of layouts.

    ``along`` are parameters that grow with it, ``columns`` those that differ from row to row, by default of layouts;
    ``source`` is the text of the plain evaluator, where it is there already.
    """
    title = f"Sharded training solved for {symbol}: {implementation.title}"
    source = source or derive_memory(implementation)
    return rendered("kernel.py", inverse_kernel(title, source, symbol, along, columns))


def derive_script(implementation: Implementation) -> str:
    """The evaluator of one implementation in JavaScript."""
    title = f"Memory of sharded training: {implementation.title}"
    data = script(implementation.name, title, build(implementation), rules_for(implementation))
    return rendered("evaluator.js", data)


def derive_published(published: PublishedSet) -> dict[str, str]:
    """The evaluator of one set of published formulas."""
    title = f"Published formulas: {published.title}"
    return {f"{published.name}.py": rendered("evaluator.py", evaluator(title, published.terms, (), form=computed))}
