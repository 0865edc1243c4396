"""Most bytes in both passes of losses that never have all logits: Liger's, TRL's fused head, cut cross entropy.

Their kernels, which allocate nothing, do not run. Sums of products are written where GPUs write them: in place.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType, SimpleNamespace
from typing import Any

from oracles.hugging_face.huggingface import causal_lm, token_ids
from oracles.instruments.live import Live
from oracles.libraries.cut_cross_entropy import Idle
from torch import Tensor

TABLE = "fused_head_moments"
#: By loss, the package that has it.
PACKAGES = {"liger": "liger_kernel", "trl": "trl", "cut": "cut_cross_entropy"}
os.environ["TORCHDYNAMO_DISABLE"] = "1"


class _HeadError(Exception):
    """The gradient of the hidden states is there."""


def has(row: Mapping[str, str]) -> bool:
    """True for the rows of installed packages."""
    return find_spec(PACKAGES[row["loss"]]) is not None


def count(row: Mapping[str, str]) -> dict[str, int]:
    """Count what is alive behind the loss, the most while it is computed, and until the hidden states have a gradient.

    All is beside weights, ids and labels; the model holds the hidden states while the loss runs.
    """
    shape = {letter: int(row[letter]) for letter in ("h", "a", "k", "d", "f", "u", "L", "tied", "s", "b")}
    model: Any = causal_lm(row["family"], shape, "sdpa")
    model.lm_head.weight.requires_grad_(row["head"] == "trained")
    ids, labels = token_ids(shape), token_ids(shape)
    loss_of = {"liger": _liger, "trl": _trl, "cut": _cut}[row["loss"]](model)
    with Live(model, ids, labels) as live:
        hidden = model.model(input_ids=ids).last_hidden_state
        live.restart()
        loss = loss_of(hidden, labels)
        forward = live.peak
        hidden.register_hook(_stop)
        del hidden
        kept = live.now
        live.restart()
        try:
            loss.backward()
        except _HeadError:
            return {"kept": kept, "forward": forward, "backward": live.peak}
    raise ValueError("the gradient of the hidden states never came")


def _stop(_: Tensor) -> None:
    raise _HeadError


def _idle(module: ModuleType) -> None:
    """Replace the kernels of a module."""
    for kernel in [each for each in vars(module) if each.endswith("_kernel") and hasattr(vars(module)[each], "run")]:
        setattr(module, kernel, Idle())


def _liger(model: Any) -> Callable[[Tensor, Tensor], Tensor]:
    module: Any = import_module("liger_kernel.ops.fused_linear_cross_entropy")
    _idle(module)
    module._can_use_mm_out = lambda *_: True
    loss = import_module("liger_kernel.transformers.model.loss_utils").LigerForCausalLMLoss
    return lambda hidden, labels: loss(
        hidden_states=hidden, lm_head_weight=model.lm_head.weight, labels=labels, hidden_size=hidden.shape[-1])


def _trl(model: Any) -> Callable[[Tensor, Tensor], Tensor]:
    module: Any = import_module("trl.kernels.chunked_logprob")
    _idle(module)
    utilities: Any = import_module("trl.trainer.utils")
    module._use_triton = utilities._use_triton = lambda _: True
    module._addmm_fp32 = lambda *_: None
    utilities.add_fused_lm_head(model, outputs=("log_probs", "entropy", "is_top1"))  # as SFTTrainer
    return lambda hidden, labels: _head_alone(model, hidden, labels)


def _head_alone(model: Any, hidden: Tensor, labels: Tensor) -> Tensor:
    """Run TRL's forward pass on hidden states that are there already."""
    model.model.forward = lambda **_: SimpleNamespace(last_hidden_state=hidden)
    loss: Tensor = model(labels=labels, fused_lm_head=True).loss
    del model.model.forward
    return loss


def _cut(model: Any) -> Callable[[Tensor, Tensor], Tensor]:
    for name in ("cce_lse_forward", "cce_backward", "indexed_dot"):
        _idle(import_module(f"cut_cross_entropy.{name}"))
    loss = import_module("cut_cross_entropy").linear_cross_entropy
    return lambda hidden, labels: loss(hidden, model.lm_head.weight, labels, shift=True, impl="cce")
