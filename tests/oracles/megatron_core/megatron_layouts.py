"""Random layouts of Megatron-Core's model on one rank of a fake job, and the layers that its rank gets."""

from __future__ import annotations

from random import Random
from typing import Any

from counted import MEGATRON_CPU, MEGATRON_VARIANTS, saved_tables, total, value
from oracles.megatron_core.megatron_cpu import AFTER, BEHIND, FUSED, FUSED_VIEW, LOCAL, WHOLE, Kernels

from shardmath.symbolic.implementations import Implementation

VARIANTS: dict[str, tuple[Kernels, Implementation]] = {
    "fused": (FUSED, MEGATRON_CPU),
    "view": (FUSED_VIEW, MEGATRON_VARIANTS["fused,v view"][0]),
    "local": (LOCAL, MEGATRON_VARIANTS["local spec (unfused attn, torch RMSNorm)"][0]),
    "behind": (BEHIND, MEGATRON_CPU.with_choices(value="view", norms="both")),
    "after": (AFTER, MEGATRON_CPU.with_choices(value="view", norms="post")),
    "whole": (WHOLE, MEGATRON_CPU.with_choices(qk_norms="width")),
}


def random_layout(draw: Random, variant: str) -> dict[str, int]:
    """Draw sizes and degrees by letter, as legal as Megatron-Core wants them; ranks may outnumber key heads."""
    t, p = draw.choice((1, 1, 2, 3, 4, 8)) if variant != "whole" else 1, draw.choice((1, 1, 2, 3))
    c = draw.choice((1, 1, 2, 3)) if variant != "local" else 1
    k = draw.choice((1, 2, 3, t, 2 * t))
    if k % t and t % k:
        k = t
    a = k * draw.randint(1, 3) if variant != "whole" else k
    a *= 1 if a % t == 0 else t
    sp = draw.randint(0, 1) if t > 1 and variant != "local" else 0
    d = 2 * draw.randint(1, 12)
    d *= 1 if 2 * k * d % t == 0 else t
    return {
        "t": t, "c": c, "p": p, "r": draw.randrange(p), "D": draw.choice((1, 1, 2)), "sp": sp, "k": k, "a": a, "d": d,
        "h": t * draw.randint(1, 40), "f": t * draw.randint(1, 40), "s": 2 * c * t * draw.randint(1, 6),
        "b": draw.randint(1, 3), "u": t * draw.randint(4, 60), "tied": draw.randint(0, 1),
        "bias": draw.randint(0, 1), "qkn": draw.randint(0, 1) if variant != "whole" else 1,
    }


def random_stages(draw: Random, p: int) -> tuple[str, dict[str, int]]:
    """Draw the layers of the model: the ledger's choice ``stages`` and the letters that go with it."""
    each = draw.randint(1, 3)
    kind = draw.choice(("even", "ends", "ends", "accounted")) if p > 1 else "even"
    if kind == "ends":
        first, last = draw.randint(1, 3), draw.choice((0, 1, 2, 4)) if p > 2 else draw.randint(1, 4)
        return "uneven", {"Lf": first, "Ll": last, "L": first + last + each * (p - 2 if last else p - 1)}
    if kind == "accounted":
        embedding, loss = draw.choice(((0, 1), (1, 0), (1, 1)))
        return "uneven", {"eemb": embedding, "eloss": loss, "L": (each + 1) * p - embedding - loss}
    return "even", {"L": each * p}


def tables(implementation: Implementation, switches: dict[str, int], known: dict[str, Any]) -> int:
    """Tables of the stage that autograd saves too, once: the mask, and with full recompute the angles."""
    return int(value(total(implementation, saved_tables(implementation, switches), switches), known))
