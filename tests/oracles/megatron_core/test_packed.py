"""Packed documents in Transformers and Megatron-Core: tensors saved, and FLOPs of attention within each document.

Transformers finds the documents from positions, as for ``flash_attn_varlen_func``; ``varlen`` stands in its place.
Megatron-Core, which is handed the bounds (``PackedSeqParams`` in THD format), has it for attention too.
"""

from __future__ import annotations

from random import Random

import pytest
import torch
from counted import MEGATRON_CPU, values
from megatron.core.packed_seq_params import PackedSeqParams
from oracles.hugging_face.huggingface import FAMILIES, causal_lm, random_shape
from oracles.instruments.ledger import ledger
from oracles.instruments.live import Live
from oracles.instruments.saved import Saved
from oracles.instruments.times import work
from oracles.megatron_core.megatron_cpu import Batch, Kernels, config, forward, gpt_model, one_rank
from oracles.megatron_core.megatron_layouts import random_layout, tables
from oracles.megatron_core.varlen import COUNTED, Varlen, VarlenAttention
from transformers import DataCollatorWithFlattening

from shardmath.symbolic.implementations import HUGGINGFACE
from shardmath.symbolic.recompute import MODES

FLASH = HUGGINGFACE.with_choices(attention="flash")
PACKED = FLASH.with_choices(documents="packed")


@pytest.mark.cases(8, 80)
def test_packed_documents(draw: Random) -> None:
    """Documents of equal length: the ledger has half of their pairs of tokens, those that a causal mask leaves."""
    family = draw.choice(list(FAMILIES))
    shape = random_shape(draw) | FAMILIES[family][2]
    length, count = draw.randint(1, 12), draw.randint(2, 6)
    shape |= {"b": 1, "s": length * count, "doc": length}
    model = causal_lm(family, shape, COUNTED)
    batch = DataCollatorWithFlattening()([{"input_ids": [0] * length}] * count)
    Varlen.pairs = 0
    with Saved(model, *batch.values()) as saved:
        output = model(**batch)
    *kept, positions = ledger(PACKED, "stage.activation", "stage.buffer", "documents.input", **shape)
    assert positions == batch["position_ids"].nbytes
    # The labels that count are a view of labels with one more, which the ledger has among those of moments.
    assert saved.now == sum(kept) + 8 * (shape["s"] + 1)
    assert output.loss is not None
    flops, whole = (work(kind, "stage.forward_flops", **shape) for kind in (PACKED, FLASH))
    pairs = shape["s"] ** 2 * shape["L"] - Varlen.pairs
    assert whole[0] - flops[0] == 2 * pairs * shape["a"] * shape["d"]
    model.gradient_checkpointing_enable({"use_reentrant": False})
    with Live(model, *batch.values()) as live:
        output = model(**batch)
        alive = live.now
    moments = ("stage.activation", "stage.buffer", "stage.loss.after_forward")
    assert alive == sum(ledger(PACKED, *moments, **shape, rfull=1))


@pytest.mark.cases(8, 80)
def test_windows_of_packed_documents(draw: Random) -> None:
    """A token attends to the last ones of its own document; what is kept is the same."""
    family = draw.choice(["qwen2", "qwen3"])
    shape = random_shape(draw) | FAMILIES[family][2]
    length, count = draw.randint(1, 12), draw.randint(2, 6)
    shape |= {"b": 1, "s": length * count, "doc": length, "win": draw.randint(1, 14), "wstep": draw.choice([0, 2])}
    model = causal_lm(family, shape, COUNTED)
    for number, layer in enumerate(model.model.layers, 1):
        windowed = not shape["wstep"] or number % shape["wstep"]
        layer.self_attn.sliding_window = shape["win"] if windowed else None
    batch = DataCollatorWithFlattening()([{"input_ids": [0] * length}] * count)
    Varlen.pairs = 0
    with Saved(model, *batch.values()) as saved:
        output = model(**batch)
    chosen = PACKED.with_choices(window="sliding")
    assert saved.now == sum(ledger(chosen, "stage.activation", "stage.buffer", **shape)) + 8 * (shape["s"] + 1)
    assert output.loss is not None
    flops, whole = (work(kind, "stage.forward_flops", **shape) for kind in (chosen, FLASH))
    pairs = shape["s"] ** 2 * shape["L"] - Varlen.pairs
    assert whole[0] - flops[0] == 2 * pairs * shape["a"] * shape["d"]


@pytest.mark.cases(8, 80)
def test_thd_of_megatron(draw: Random) -> None:
    """One stage of any layout, in any mode of recompute: as one sequence, and the bounds beside it."""
    switches = dict.fromkeys(draw.choice(list(MODES.values())), 1)
    shape = random_layout(draw, "fused") | switches | {"c": 1, "b": 1}
    shape["L"] = shape["p"] * draw.randint(1, 2)
    shape["doc"] = draw.choice([size for size in range(1, shape["s"] + 1) if shape["s"] % size == 0])
    bounds = torch.arange(0, shape["s"] + 1, shape["doc"], dtype=torch.int32)
    packed = PackedSeqParams("thd", bounds, bounds, max_seqlen_q=shape["doc"], max_seqlen_kv=shape["doc"])
    with one_rank(shape, draw):
        model = gpt_model(shape, config(shape), Kernels(attention=VarlenAttention))
        batch = Batch.of(shape).with_mask(None)
        with Saved() as saved:
            output = forward(model, shape, batch, packed_seq_params=packed)
        kept = saved.bytes(model, batch.ids, batch.labels, bounds)  # which are there, saved or not
    assert output.requires_grad
    chosen = MEGATRON_CPU.with_choices(documents="packed")
    known = values({}, "", **shape) | {"B": shape["D"]}
    activation, documents = ledger(chosen, "stage.activation", "documents.input", **known)
    assert documents == bounds.nbytes
    assert kept == activation + tables(chosen, switches, known)
