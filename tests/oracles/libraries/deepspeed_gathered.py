"""The order in which steps of DeepSpeed's stage 3 allocate, and their peak, on the first of several ranks.

As ``deepspeed_orders.py`` has those of stages 1 and 2, but of the third step: the first two passes of the model are
those in which DeepSpeed learns its order. ``cd tests && python -m oracles.libraries.deepspeed_gathered`` prints rows
that are drawn.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from random import Random
from typing import Any

from oracles.libraries import deepspeed_orders
from oracles.libraries.deepspeed_orders import SHAPE, print_rows

TABLE = "deepspeed_gathered"
#: Limits of a row, as DeepSpeed calls them.
LIMITS = {
    "threshold": "stage3_param_persistence_threshold", "prefetch": "stage3_prefetch_bucket_size",
    "live": "stage3_max_live_parameters", "reuse": "stage3_max_reuse_distance", "subgroup": "sub_group_size",
}
#: DeepSpeed's own limits, with which all parameters of a small model stay gathered.
USUAL = {"threshold": 0, "prefetch": 5 * 10**7, "live": 10**9, "reuse": 10**9, "subgroup": 10**9}


def has(row: Mapping[str, str]) -> bool:
    """True for every row."""
    return True


def count(row: Mapping[str, str]) -> dict[str, Any]:
    """Train three steps of AdamW on the first rank, in a process of its own."""
    return deepspeed_orders.count({**row, "stage": "3"}, 3, {
        setting: int(row[name]) for name, setting in LIMITS.items()})


def cases() -> list[dict[str, str]]:
    """Draw models and limits: those that Transformers fills in for ``auto``, none, all, and some that are reached.

    First Llamas, then models with norms of queries and keys, and with biases.
    """
    draw = Random(13)
    drawn = [_drawn(draw, "llama", *kind) for kind in product((0, 1), (0, 1), _KINDS)]
    draw = Random(17)
    others = product(_KINDS, ("qwen3", "qwen2"))
    return drawn + [_drawn(draw, family, draw.randrange(2), draw.randrange(2), kind) for kind, family in others]


_KINDS = ("auto", "alone", "all", "limits", "buckets")


def _drawn(draw: Random, family: str, full: int, tied: int, kind: str) -> dict[str, str]:
    k, each = draw.choice((1, 2, 4)), draw.choice((1, 2, 4))
    hidden = k * each * draw.choice((32, 64, 96))
    layers, inner = draw.randint(2, 5), 32 * draw.randint(4, 60)
    sizes = (k, k * each, draw.choice((32, 64)), hidden, inner, draw.choice((1, 2)), 512 * draw.choice((1, 2)),
             draw.choice((1, 2, 16, 64)) * hidden // 2, layers, tied)
    square = hidden * hidden
    limits = {
        "auto": {"threshold": 10 * hidden, "prefetch": square * 9 // 10},
        "alone": {"prefetch": 0, "reuse": 0}, "all": {},
        "limits": {"prefetch": draw.randrange(1, 3 * square), "live": draw.randrange(1, 9 * square),
                   "reuse": draw.randrange(1, 9 * square), "threshold": draw.choice((0, hidden, 3 * square))},
        "buckets": {"prefetch": draw.randrange(1, 3 * square), "reuse": 0, "subgroup": 2 * hidden * inner},
    }[kind]
    bucket = 10**7 if kind in ("alone", "all") else draw.choice((square, hidden * inner, 3 * square))
    batches = draw.choice((1, 1, 2))
    return {
        "family": family, "recompute": "full" if full else "none", "overlap": str(draw.randrange(2)),
        "holds": str(draw.randrange(2)), "ranks": str(draw.choice((2, 3, 4))), "microbatches": str(batches),
        "bucket": str(bucket), **{name: str(size) for name, size in {**USUAL, **limits}.items()},
        **{letter: str(size) for letter, size in zip(SHAPE, sizes, strict=True)}}


def main() -> None:
    """Print the table."""
    print_rows(cases(), count)


if __name__ == "__main__":
    main()
