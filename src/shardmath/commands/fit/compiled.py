"""The compiled inverse of an implementation: that of the package, or one derived for a table and kept."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Sequence
from importlib import import_module
from types import ModuleType

from shardmath.compiler.evaluators import Evaluator
from shardmath.files.cached import cached_module, sources_digest
from shardmath.generated.definitions import IMPLEMENTATIONS

#: What the inverses of the package are solved for, and what goes along.
INVERTED = ("micro_batch_size", ("global_batch_size",))


def inverse_for(evaluator: Evaluator, symbol: str, along: Sequence[str], columns: Collection[str]) -> ModuleType:
    """The module for Numba that gives the peak as a polynomial of ``symbol``, where ``columns`` differ by row."""
    stored = _stored(evaluator) if (symbol, tuple(along)) == INVERTED else None
    if stored is not None and not set(columns) & set(stored.SCALARS):
        return stored
    known = sorted({*columns} & {*evaluator.terms.INPUTS})

    def source() -> str:
        from shardmath.symbolic.compiled import derive_inverse
        from shardmath.symbolic.implementations import IMPLEMENTATIONS as SYMBOLIC

        chosen = SYMBOLIC[evaluator.implementation].with_choices(**evaluator.choices)
        return derive_inverse(chosen, symbol, tuple(along), known)

    from shardmath.compiler.native.kernels import remembered

    asked = json.dumps(["inverse", evaluator.implementation, evaluator.choices, symbol, list(along), known],
                       sort_keys=True)
    key = hashlib.sha256((sources_digest() + asked).encode()).hexdigest()[:16]
    return remembered(cached_module("kernels", key, source))


def _stored(evaluator: Evaluator) -> ModuleType | None:
    """The module of the package, for an implementation as it is."""
    if evaluator.choices != IMPLEMENTATIONS[evaluator.implementation]["choices"]:
        return None
    from shardmath.compiler.native.kernels import remembered

    return remembered(import_module(f"shardmath.generated.{evaluator.implementation}_inverse_kernel"))
