"""FLOPs and traffic of Megatron-Core with experts, latent attention and MTP in real processes, against the ledger.

Every expert gets as many tokens; of all groups together passes and bytes are compared, forward and backward apart.
"""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from counted import MEGATRON_CPU
from oracles.instruments.processes import on_ranks
from oracles.instruments.times import timed
from oracles.megatron_core.megatron_experts import run_all

#: Groups of the ledger, and how many ranks each has.
GROUPS = {"tensor": ("t",), "expert": ("e",), "expert_tensor": ("et",), "expert_all": ("e", "et")}


@pytest.mark.cases(6, 60)
@pytest.mark.parametrize("ranks", [2, 4])
def test_work_and_traffic_of_a_micro_batch(draws: list[Random], ranks: int, tmp_path: Path) -> None:
    cases = [shape_for(draw, ranks) for draw in draws]
    for (shape, dispatch, predictions), found in zip(cases, on_ranks(run_all, ranks, tmp_path, cases)[0], strict=True):
        implementation = MEGATRON_CPU.with_choices(
            layers="experts", dispatch=dispatch, permute="unfused", heads="latent" if shape["lk"] else "grouped",
            predictions=predictions,
        )
        terms = timed(implementation, **shape)
        # Core attention is a stand-in: both of its products without what a causal mask hides.
        widths = shape["d"] + (shape["dv"] or shape["d"])
        heads = shape["a"] // shape["t"]
        core = (shape["L"] + shape["mtp"]) * shape["s"] // shape["c"] * shape["s"] * shape["b"] * heads * widths
        once = terms["stage.forward_flops"] - core
        for way, flops, kinds in (("forward", once, ("forward",)), ("backward", 2 * once, ("backward", "hidden"))):
            several = [name for name, letters in GROUPS.items() if any(shape[letter] > 1 for letter in letters)]
            traffic = [
                sum(int(terms.get(f"stage.{group}_{kind}_{unit}", 0)) for group in several for kind in kinds)
                for unit in ("passes", "bytes")
            ]
            assert found[way] == [flops, *traffic], (way, shape, dispatch, predictions)


def shape_for(draw: Random, ranks: int) -> list:
    """Draw sizes and degrees: tensor parallelism, or data parallelism, with the same ranks shared out by experts."""
    t = draw.choice([degree for degree in (1, 2, 4) if degree <= ranks])
    c = 1
    D = ranks // t
    et = draw.choice([degree for degree in (1, 2) if degree <= t])
    e = draw.choice([degree for degree in (1, 2, 4) if ranks % (degree * et) == 0])
    k = t * draw.randint(1, 2)
    E = e * draw.choice((1, 2, 4)) if e > 1 else draw.choice((2, 4))
    L = draw.randint(1, 2)
    shape = {
        "t": t, "c": c, "D": D, "e": e, "et": et, "p": 1, "r": 0, "sp": int(t > 1), "k": k, "a": k * draw.randint(1, 2),
        "d": 2 * draw.randint(2, 5), "h": 2 * t * draw.randint(2, 10), "f": t * draw.randint(1, 20), "L": L,
        "ld": draw.randint(0, L - 1), "E": E, "q": draw.choice([q for q in (2, 3) if q <= E]),
        "fe": et * draw.randint(1, 12), "fs": draw.choice((0, t * draw.randint(1, 12))), "sgate": draw.randint(0, 1),
        "s": 4 * t * draw.randint(1, 3) * 2, "b": draw.randint(1, 2), "u": t * draw.randint(4, 30), "tied": 0,
        "mtp": draw.choice((0, 0, 1)), "lk": 0, "lq": 0, "dr": 0, "dv": 0,
    }
    # The experts that tokens are sent to go round: as many tokens for each.
    if shape["s"] // t * shape["b"] * shape["q"] % E:
        shape["q"] = E
    if draw.randint(0, 1):
        rotary = 2 * draw.randint(1, 3)
        shape |= {"k": shape["a"], "dr": rotary, "d": rotary + draw.randint(1, 6), "dv": draw.randint(1, 6),
                  "lk": draw.randint(1, 9), "lq": draw.choice((0, draw.randint(1, 9)))}
    return [shape, draw.choice(("alltoall", "allgather")), draw.choice(("experts", "dense"))]
