"""From the text of plain evaluators to what is compiled for columns: kernels and inverses."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from shardmath.files.rendering import rendered

from .documents.inverse_kernel import inverse_kernel
from .documents.kernel import kernel
from .implementations import Implementation


def derive_layouts(implementation: Implementation, memory: str, *, simplified: bool = False) -> str:
    """Derive the compiled evaluator of rules and peak for columns of layouts, from the text of the plain one.

    The estimate is as written, or ``simplified`` where it is derived once for all.
    """
    title = f"Memory of sharded training: {implementation.title}"
    return rendered("kernel.py", kernel(title, memory, simplified=simplified))


def derive_kernel(
    implementation: Implementation, outputs: Sequence[str], columns: Collection[str], source: str,
) -> str:
    """Derive the compiled evaluator of chosen terms, for tables in which the parameters ``columns`` differ by row.

    ``source`` is the text of the plain evaluators that have these terms, one after the other.
    """
    title = f"Sharded training: {implementation.title}"
    return rendered("kernel.py", kernel(title, source, outputs, columns))


def derive_inverse(
    implementation: Implementation, source: str, symbol: str, along: Sequence[str], columns: Collection[str],
) -> str:
    """Return the compiled inverse of an implementation: the estimate as a polynomial of ``symbol``, for tables.

    ``source`` is the text of the plain evaluator; ``along`` are parameters that grow with the symbol, ``columns`` those
    that differ from row to row.
    """
    title = f"Sharded training solved for {symbol}: {implementation.title}"
    return rendered("kernel.py", inverse_kernel(title, source, symbol, along, columns))
