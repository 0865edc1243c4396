"""The published 80 % rule on many configurations of a part."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from shardmath.compiler.columns import branch_column
from shardmath.generated.definitions import RULE_80, rule_80
from shardmath.search.nests.configurations import Configuration
from shardmath.search.spaces import Part
from shardmath.search.spaces.rows import constrained

#: Names of its verdicts.
NAMES = tuple(name for name, _ in RULE_80)


def rules_of(part: Part, numbers: NDArray[np.int64], peaks: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the place of the rule's verdict among ``NAMES`` for legal configurations and their peaks in bytes."""
    if part.fleet is not None:
        verdicts = [NAMES.index(Configuration(part, number, {}).rule_80) for number in numbers.tolist()]
        return np.array(verdicts, np.int64)
    own = part.fixed.get("gpu_memory")
    memory = constrained(part, numbers).column("gpu_memory") if own is None else own
    return branch_column(rule_80, {"estimate": peaks, "gpu_memory": memory}, len(numbers))
