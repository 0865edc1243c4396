"""The compiled inverse of an implementation, derived for a table and kept."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from types import ModuleType

from shardmath.compiler.evaluators import Evaluator, in_ledger
from shardmath.files.cached import cached_module, key_of, source_of, sources_digest


def inverse_for(evaluator: Evaluator, symbol: str, along: Sequence[str], columns: Collection[str]) -> ModuleType:
    """Get the module for Numba that gives the peak as a polynomial of ``symbol``, where ``columns`` differ by row."""
    known = sorted({*columns} & {*evaluator.terms.INPUTS})

    def source() -> str:
        from shardmath.symbolic.compiled import derive_inverse

        chosen = in_ledger(evaluator.implementation, evaluator.choices)
        return derive_inverse(chosen, source_of(evaluator.terms), symbol, tuple(along), known)

    from shardmath.compiler.native.kernels import remembered

    asked = sorted(evaluator.choices.items()), symbol, tuple(along), known
    key = key_of(sources_digest(), "inverse", evaluator.implementation, *asked)
    return remembered(cached_module("kernels", key, source))
