"""FLOPs of a step against what Megatron-LM's training loop logs, with experts, MTP and latent attention too.

Megatron-LM counts norms of compressed tokens and of MTP, but neither routers nor gates of shared experts; padding of
the vocabulary, and attention without its masked half, are the same. Its dense path is a published set.
"""

from __future__ import annotations

from random import Random

import pytest
from oracles.instruments.ledger import ledger
from oracles.instruments.times import work

from shardmath.symbolic.implementations import MEGATRON

pytestmark = pytest.mark.slow

Shape = dict[str, int]


def random_shape(draw: Random) -> Shape:
    """Draw sizes of a model and of its batch; a layout does not matter to what the model needs."""
    k, t = draw.randint(1, 8), draw.choice((1, 2, 4))
    return {
        "k": k * t, "a": k * t * draw.randint(1, 8), "d": 2 * draw.randint(1, 128), "h": draw.randint(1, 9000),
        "f": t * draw.randint(1, 9000), "L": draw.randint(1, 90), "u": draw.randint(1, 200_000),
        "g": draw.choice((1, 128)), "s": 2 * t * draw.randint(1, 9000), "b": draw.randint(1, 4), "t": t,
        "D": draw.randint(1, 4), "sp": draw.randint(0, 1) if t > 1 else 0,
    }


def model_flops(implementation: object, shape: Shape) -> int:
    """The ledger's FLOPs of a step of the whole model, with one micro-batch on every rank."""
    found, = work(implementation, "step.model_flops", **shape)  # type: ignore[arg-type]
    return found


@pytest.mark.parametrize("case", range(20))
def test_megatron_lm(case: int) -> None:
    """Dense models, and those with experts and MTP; with grouped queries, and with latent attention."""
    draw = Random(case)
    shape = random_shape(draw) | {
        "E": 8 * draw.randint(1, 8), "q": draw.randint(1, 8), "fe": draw.randint(1, 4000), "ld": draw.randint(0, 3),
        "fs": draw.choice((0, 4 * draw.randint(1, 2000))), "mtp": draw.randint(0, 1), "sgate": draw.randint(0, 1),
    }
    shape["L"] += shape["ld"]
    latent = draw.randint(0, 1)
    if latent:
        shape |= {"k": shape["a"], "dr": 2 * draw.randint(1, 32), "dv": draw.randint(1, 256),
                  "lq": draw.choice((0, draw.randint(1, 2000))), "lk": draw.randint(1, 1000)}
        shape["d"] += shape["dr"]
    implementation = MEGATRON.with_choices(layers="experts", heads="latent" if latent else "grouped")
    tokens = shape["s"] * shape["b"] * shape["D"]
    h, E, mtp, L, ld = (shape[letter] for letter in ("h", "E", "mtp", "L", "ld"))
    experts = L - ld + mtp
    router = E + shape["sgate"] * (shape["fs"] > 0)
    norms = mtp * 3 * h + (L + mtp) * (shape.get("lq", 0) + shape.get("lk", 0))
    explained = 6 * tokens * (h * router * experts - norms)
    vocabulary, = ledger(MEGATRON, "padded_vocab_size", **{**shape, "t": 1, "sp": 0})
    assert model_flops(implementation, shape) == megatron_lm(shape, vocabulary, latent) + explained


def megatron_lm(shape: Shape, vocabulary: int, latent: int) -> int:
    """The formula of ``num_floating_point_operations`` (megatron/training/training.py), with SwiGLU."""
    h, a, d, k, s, L, mtp = (shape[letter] for letter in ("h", "a", "d", "k", "s", "L", "mtp"))
    dense, experts = shape["ld"], L - shape["ld"] + mtp
    if latent:
        lq, lk, dr, dv = (shape[letter] for letter in ("lq", "lk", "dr", "dv"))
        query = lq * (h + a * d + 1) if lq else h * a * d
        attention = query + lk * (h + a * (d - dr + dv) + 1) + h * dr + a * dv * h
        core = a * d + a * dv
    else:
        attention, core = h * (a + 2 * k) * d + a * d * h, 2 * a * d
    each = 3 * h * (shape["f"] * dense + (shape["fe"] * shape["q"] + shape["fs"]) * experts)
    each += attention * (L + mtp) + mtp * (3 * h + 2 * h * h) + h * vocabulary * (mtp + 1)
    sequences = shape["b"] * shape["D"]
    return 6 * sequences * s * each + 6 * sequences * s * s * core * (L + mtp) // 2
