"""The parallel dimensions inside a pipeline stage, one file each. A new file with ``RULE`` is a new dimension."""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

from ..rules import ParallelRule, refuse_unknown

#: Every dimension, in the order in which people name them.
SHAPE_RULES: tuple[ParallelRule, ...] = tuple(sorted(
    (import_module(f"{__name__}.{info.name}").RULE for info in iter_modules(__path__)), key=lambda rule: rule.order
))
refuse_unknown(SHAPE_RULES)
