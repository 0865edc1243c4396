"""From the text of plain evaluators to what is compiled: kernels for columns, inverses, and loop nests."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from .documents.inverse_kernel import inverse_kernel
from .documents.kernel import kernel
from .implementations import Implementation
from .nesting import nest_of
from .nests.formulas import function_source
from .nests.standard import standard
from .parameters import BY_LETTER, PARAMETERS
from .plain import derive_memory
from .recompute import REGIONS
from .rendering import HEADER, rendered

#: The symbol that the inverses of the package are solved for, with what goes along; others are derived when asked for.
INVERTED = ("micro_batch_size", ("global_batch_size",))


def derive_layouts(implementation: Implementation, memory: str, *, simplified: bool = False) -> str:
    """Derive the compiled evaluator of rules and peak for columns of layouts, from the text of the plain one.

    The estimate is as written, or ``simplified`` where it is derived once for all.
    """
    title = f"Memory of sharded training: {implementation.title}"
    return rendered("kernel.py", kernel(title, memory, simplified=simplified))


def derive_nest(name: str, ranking: tuple[str, ...], evaluators: str, files: Mapping[str, str]) -> str:
    """The nest of the standard space of layouts over ``evaluators``, with the verdict that is among ``files``."""
    switches = [BY_LETTER[region.switch].name for region in REGIONS]
    symbols = {parameter.name: (parameter.minimum, parameter.maximum) for parameter in PARAMETERS}
    verdict = function_source(files["definitions.py"], "verdict")
    title = f"Sharded training: every layout with {name}"
    return nest_of(title, standard(symbols, switches, ranking), evaluators, verdict, HEADER, proving=True)


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
