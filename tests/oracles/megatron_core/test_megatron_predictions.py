"""Multi-token prediction with each of Megatron-Core's losses, by dense layers, and beside FP4: what it keeps.

Megatron-Core's own model runs, and says which of its layers work in FP4. Transformer Engine's cross entropy is a
stand-in that keeps what the real one keeps: the logits, which their gradient overwrites, or an fp32 gradient of its
own. All predictions have the same kind of loss.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random
from typing import Any

import pytest
import torch
from counted import DEFAULTS, MEGATRON_CPU
from megatron.core.models.common.language_module import language_module
from megatron.core.tensor_parallel import ColumnParallelLinear, RowParallelLinear
from megatron.core.transformer.moe import token_dispatcher
from megatron.core.transformer.multi_token_prediction import MTPLossLoggingHelper
from oracles.instruments.ledger import ledger
from oracles.instruments.saved import Saved
from oracles.instruments.traced import summed_rows
from oracles.megatron_core.megatron_cpu import Batch, forward, one_rank
from oracles.megatron_core.megatron_experts import Nothing, model_of, on_host, settings_of
from oracles.megatron_core.megatron_lora import adapt
from torch import Tensor

from shardmath.formats.megatron.model import model_of as model_of_flags
from shardmath.formats.options import Options
from shardmath.symbolic.implementations import MEGATRON

#: Losses by what Megatron-Core calls them.
LOSSES = {"vocab_parallel": "", "native_fused": "native", "te_fused": "te", "te_fused_fp32": "te"}


class Overwritten(torch.autograd.Function):
    """Transformer Engine's cross entropy: it keeps the logits, which hold their gradient after the forward pass."""

    @staticmethod
    def forward(context: Any, logits: Tensor) -> Tensor:
        """Return a loss for every token."""
        context.save_for_backward(logits.detach())
        return torch.zeros(logits.shape[:2])

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> Tensor:
        """Return the gradient that was kept."""
        return context.saved_tensors[0]


class Beside(Overwritten):
    """The later one, which makes an fp32 gradient beside the logits."""

    @staticmethod
    def forward(context: Any, logits: Tensor) -> Tensor:
        """Return a loss for every token."""
        context.save_for_backward(logits.float())
        return torch.zeros(logits.shape[:2])


def shape_of(draw: Random) -> dict[str, int]:
    """Draw sizes of a small model with experts, by letter."""
    return {
        "t": 1, "c": 1, "D": 1, "e": 1, "et": 1, "p": 1, "r": 0, "sp": 0, "k": 1, "a": draw.randint(1, 2),
        "d": 2 * draw.randint(2, 5), "h": 2 * draw.randint(2, 10), "f": draw.randint(1, 20), "L": draw.randint(1, 2),
        "ld": 0, "E": 2, "q": 2, "fe": draw.randint(1, 12), "fs": 0, "sgate": 0, "s": 4 * draw.randint(1, 6),
        "b": draw.randint(1, 2), "u": draw.randint(4, 30), "tied": draw.randint(0, 1), "mtp": draw.randint(1, 2),
        "lk": 0, "lq": 0, "dr": 0, "dv": 0,
    }


@pytest.fixture(autouse=True)
def _on_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    for module, name, stand_in in (
        (torch.cuda, "Stream", Nothing), (torch.cuda, "current_stream", Nothing),
        (torch.cuda, "stream", lambda _: Nothing()), (token_dispatcher, "maybe_move_tensor_to_cpu", on_host),
        (MTPLossLoggingHelper, "tracker", {}),
    ):
        monkeypatch.setattr(module, name, stand_in)


@pytest.mark.cases(6, 60)
def test_kept_by_dense_layers(draw: Random) -> None:
    """Further predictions by layers with a dense MLP in a model with experts, beside the same model without them.

    Nobody gives a mask of the tokens that count, so Megatron-Core makes one of int64, and an int64 sum of it.
    """
    shape, implementation = shape_of(draw), MEGATRON_CPU.with_choices(
        layers="experts", predictions="dense", permute="unfused", peak="saved")
    beside = set()
    for further in (0, shape["mtp"]):
        known = {**shape, "mtp": further}
        with one_rank(known, draw):
            model = model_of(known, settings_of(known, "alltoall"), predictions="dense")
            with Saved(model) as saved:
                output = forward(model, known, Batch.of(known).with_mask(None))
            kept, parameters = saved.bytes(model), sum(each.numel() for each in model.parameters())
        whole, ours = ledger(implementation, "stage.activation", "model.all_parameters", **known, B=known["b"])
        assert (ours, output.shape) == (parameters, (known["b"], known["s"])), known
        beside.add(kept - whole - (8 - 4) * further * (known["s"] * known["b"] + 1))
    assert len(beside) == 1, (shape, beside)


@pytest.mark.cases(3, 30)
def test_layers_are_as_the_last_of_the_model(draw: Random) -> None:
    """Further predictions have a dense MLP where the last layer has one, as is read from flags: parameters agree."""
    shape = {**shape_of(draw), "L": draw.randint(4, 7), "step": 2}
    with one_rank(shape, draw):
        settings = settings_of(shape, "alltoall")
        parameters = sum(each.numel() for each in model_of(shape, settings).parameters())
    flags = {"num-layers": [str(shape["L"])], "hidden-size": ["64"], "num-attention-heads": ["2"], "vocab-size": ["64"],
             "max-position-embeddings": ["64"], "swiglu": [], "disable-bias-linear": [], "num-experts": ["2"],
             "moe-layer-freq": [str(settings.moe_layer_freq)], "mtp-num-layers": [str(shape["mtp"])]}
    model = model_of_flags(Options(flags), "drawn")
    assert model.dense_mtp_layers == (shape["L"] % 2 == 1)
    implementation = MEGATRON_CPU.with_choices(
        layers="experts", predictions=model.architecture["predictions"], peak="saved")
    assert ledger(implementation, "model.all_parameters", **shape, B=shape["b"]) == (parameters,), shape


@pytest.mark.cases(6, 60)
def test_kept_with_each_loss(draw: Random, monkeypatch: pytest.MonkeyPatch) -> None:
    shape = shape_of(draw)
    beside_the_losses = {}
    for loss, kind in LOSSES.items():
        kernel, held = Beside if loss.endswith("fp32") else Overwritten, [0]

        def run(logits: Tensor, *_: Any, kernel: Any = kernel, held: list[int] = held) -> Tensor:
            held.append(logits.untyped_storage().nbytes())
            return kernel.apply(logits)

        monkeypatch.setattr(language_module, "te_parallel_cross_entropy", run)
        with one_rank(shape, draw):
            settings = settings_of(shape, "alltoall")
            settings.cross_entropy_loss_fusion = bool(kind)
            settings.cross_entropy_fusion_impl = kind or "native"
            model = model_of(shape, settings)
            with Saved(model) as saved:
                output = forward(model, shape, Batch.of(shape).with_mask(None))
            kept = saved.bytes(model)
            assert output.shape == (shape["b"], shape["s"])
        implementation = MEGATRON_CPU.with_choices(layers="experts", permute="unfused", peak="saved", loss=loss)
        of_last, of_further = ledger(implementation, "loss.saved", "mtp.saved", **shape, B=1)
        beside_the_losses[loss] = kept - of_last - shape["mtp"] * of_further
        if kernel is Beside:
            known = {**DEFAULTS, **shape, "v": shape["u"]}
            assert summed_rows(implementation, ["loss.held_logits_bf16"], known) == held[-1]
    assert len({*beside_the_losses.values()}) == 1, (shape, beside_the_losses)


@pytest.mark.cases(3, 30)
def test_layers_in_fp4(draw: Random, monkeypatch: pytest.MonkeyPatch) -> None:
    """Quantised copies are kept of the linear layers that Megatron-Core runs in its context of FP4, and of no others.

    A copy has half a byte for an element, by rows and by columns, a scale for 16 of them, and an fp32 magnitude.
    """
    inside: list[None] = []

    @contextmanager
    def in_fp4(*_: Any, **__: Any) -> Iterator[None]:
        inside.append(None)
        yield
        inside.pop()

    for module in [item for name, item in sys.modules.items() if name.startswith("megatron.core")]:
        if hasattr(module, "get_fp4_context"):
            monkeypatch.setattr(module, "get_fp4_context", in_fp4)
    shape = {**shape_of(draw), "a": 1, "d": 128, "h": 128 * draw.randint(1, 2), "fe": 128 * draw.randint(1, 2),
             "f": 128 * draw.randint(1, 2), "L": 2, "ld": draw.randint(0, 1), "fs": draw.choice((0, 128)), "tied": 0}
    with one_rank(shape, draw):
        settings = settings_of(shape, "alltoall")
        model = model_of(shape, settings)
        settings.fp4 = "e2m1"  # layers that are made with it ask for Transformer Engine
        weights, seen = {}, set()

        def note(layer: Any, *_: Any) -> None:
            seen.add(layer.weight)
            if inside:
                weights[layer.weight] = layer.weight.numel()

        for layer in model.modules():
            if isinstance(layer, (ColumnParallelLinear, RowParallelLinear)):
                layer.register_forward_pre_hook(note)
        forward(model, shape, Batch.of(shape))
        parameters = sum(each.numel() for each in model.parameters())
    assert len(seen) > len(weights) > 0
    implementation = MEGATRON.with_choices(layers="experts", fp8="nvfp4", peak="saved")
    kept, ours = ledger(implementation, "stage.weight", "model.all_parameters", **shape, B=shape["b"])
    copies = sum(2 * size // 2 + 2 * size // 16 + 2 * 4 for size in weights.values())
    assert (ours, kept) == (parameters, 2 * parameters + copies), shape


@pytest.mark.cases(4, 40)
@pytest.mark.parametrize("predictions", ["experts", "dense"])
def test_beside_adapters(draw: Random, predictions: str) -> None:
    """Frozen further predictions with adapters of attention: parameters, and what modules add to saved tensors."""
    shape = {**shape_of(draw), "rl": draw.randint(1, 5)}
    implementation = MEGATRON_CPU.with_choices(
        layers="experts", predictions=predictions, permute="unfused", peak="saved", adapters="attention",
        expert_adapters="none")
    beside = set()
    for further in (0, shape["mtp"]):
        known = {**shape, "mtp": further}
        with one_rank(known, draw):
            model = model_of(known, settings_of(known, "alltoall"), predictions=predictions)
            adapt(model, shape["rl"], "attention", apart=False)
            with Saved(model) as saved:
                output = forward(model, known, Batch.of(known).with_mask(None))
            kept, parameters = saved.bytes(model), [
                sum(each.numel() for each in model.parameters() if each.requires_grad == trained)
                for trained in (True, False)]
        whole, *ours = ledger(implementation, "stage.activation", "stage.parameters", "stage.frozen_parameters",
                              "stage.expert_frozen_parameters", **known, B=known["b"])
        assert (parameters, output.shape) == ([ours[0], sum(ours[1:])], (known["b"], known["s"])), known
        beside.add(kept - whole - (8 - 4) * further * (known["s"] * known["b"] + 1))
    assert len(beside) == 1, (shape, beside)
