"""The mathematics of shardmath: symbols, the ledger of tensors, its sums, and how they are printed.

Imports point one way: parameters, ledger, components, parallel, terms, simplify, printers, derive.
Nothing here imports numba or anything that was generated.
"""

import os

# SymPy keeps a thousand results of each of its functions, unless it is told before its import to keep more.
os.environ.setdefault("SYMPY_CACHE_SIZE", "20000")
