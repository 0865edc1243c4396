"""Tables that Megatron-Core makes once for all layers: rotary angles, causal masks, and masks of a data loader."""

from __future__ import annotations

from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from counted import DEFAULTS, MEGATRON_CPU
from megatron.core.datasets.gpt_dataset import _get_ltor_masks_and_position_ids
from megatron.core.models.common.embeddings.rotary_pos_embedding import RotaryEmbedding
from megatron.core.packed_seq_params import PackedSeqParams
from megatron.core.transformer import utils
from oracles.instruments.traced import summed_rows
from torch import Tensor

from shardmath.symbolic.implementations import MEGATRON


@pytest.fixture(autouse=True)
def on_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make on a CPU what asks for a GPU."""
    ones = torch.ones
    monkeypatch.setattr(torch.cuda, "current_device", lambda: "cpu")
    monkeypatch.setattr(utils.torch, "ones", lambda *sizes, **more: ones(*sizes, **more | {"device": "cpu"}))


def angles(letters: dict[str, int], part: float, documents: str) -> Tensor:
    """Return the angles of a stage without parallelism, as a model asks for them."""
    table = RotaryEmbedding(letters["d"], rotary_percent=part, use_cpu_initialization=True)
    length = letters["doc"]
    packed = PackedSeqParams("thd", max_seqlen_q=length, max_seqlen_kv=length) if documents == "packed" else None
    given: Any = torch.zeros(letters["s"], 1)
    config: Any = SimpleNamespace(sequence_parallel=False, context_parallel_size=1)
    nothing: Any = None
    made: Tensor = table(table.get_rotary_seq_len(nothing, nothing, given, config, packed))
    return made


@pytest.mark.cases(2, 20)
@pytest.mark.parametrize("documents", ["one", "packed"])
@pytest.mark.parametrize("positions", ["rotary", "partial"])
@pytest.mark.parametrize("rope", ["unfused", "unfused_twice"])
def test_rotary_angles(draw: Random, rope: str, positions: str, documents: str) -> None:
    """Angles of half a head or all of it, of a sequence or its longest document; windows have some of their own."""
    d, doc = 4 * draw.randint(1, 16), draw.randint(2, 20)
    letters = {**DEFAULTS, "d": d, "dr": d // 2, "doc": doc, "s": doc * draw.randint(2, 4)} | {"win": 4, "wstep": 2}
    window = {"window": "sliding"} if rope == "unfused_twice" else {}
    chosen = MEGATRON_CPU.with_choices(rope=rope, positions=positions, documents=documents, **window)
    end = f"{'_document' if documents == 'packed' else ''}{'_part' if positions == 'partial' else ''}"
    for layers in ("", "_windowed") if window else ("",):
        made = angles(letters, 0.5 if positions == "partial" else 1.0, documents)
        assert summed_rows(chosen, [f"tables.rope.frequencies{layers}{end}"], letters) == made.nbytes


@pytest.mark.cases(2, 20)
def test_angles_of_all_slices(draw: Random) -> None:
    """Of a sequence in slices there are the angles of one slice and those of the others."""
    count, each = draw.randint(2, 5), draw.randint(2, 20)
    letters = {**DEFAULTS, "d": 2 * draw.randint(1, 20), "s": count * each, "sn": count}
    chosen = MEGATRON.with_choices(slices="1f1b", rope="unfused", peak="saved")
    rows = ("tables.rope.frequencies", "sliced_tables.rope.frequencies")
    assert summed_rows(chosen, rows, letters) == angles(letters, 1.0, "one").nbytes


@pytest.mark.cases(2, 20)
def test_causal_masks(draw: Random) -> None:
    """Unfused attention has one mask for all layers; a data loader makes one for each sequence."""
    letters = {**DEFAULTS, "s": draw.randint(2, 40), "b": draw.randint(1, 4), "rfull": 1}
    mask = utils.get_default_causal_mask(letters["s"])
    assert summed_rows(MEGATRON_CPU.with_choices(attention="unfused"), ["tables.mask"], letters) == mask.nbytes
    loaded, *_ = _get_ltor_masks_and_position_ids(torch.zeros(letters["s"], dtype=torch.long), 0, False, False, False,
                                                  True)
    chosen = MEGATRON.with_choices(mask="dataloader", peak="megatron_local")
    batch = torch.stack([loaded] * letters["b"])
    assert summed_rows(chosen, ["mask_argument.attention_mask"], letters) == batch.nbytes
