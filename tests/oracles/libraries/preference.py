"""Bytes that losses of preference training leave alive and write, in the trainers that compute them.

Rows are of the library and release that are installed: TRL 1.16.0, 1.9.0 or 0.29.1, LLaMA-Factory 0.9.5 beside TRL
0.24.0, ms-swift 4.6.0 beside TRL 0.29.1. A trainer is made without its data and its optimizer; its own functions
compute the loss. Modules for pictures, sound and servers, which they import and never call here, may be absent.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from importlib import import_module
from importlib.machinery import ModuleSpec
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import torch
from oracles.hugging_face.huggingface import causal_lm
from oracles.instruments.allocator import AllocatorLog
from oracles.instruments.live import Live
from torch import Tensor

TABLE = "preference"
os.environ["DISABLE_VERSION_CHECK"] = "1"
#: Imported and not called.
BESIDE = ("weave weave.trace weave.trace.context joblib wandb mergekit mergekit.config mergekit.merge llm_blender"
          " torchaudio omegaconf tyro av librosa soundfile matplotlib matplotlib.pyplot fire uvicorn fastapi einops"
          " dacite zstandard binpacking rouge nltk jieba gradio cv2 oss2 openai qwen_vl_utils")
#: By library: the distribution that has the release.
RELEASES = {"trl": "trl", "llamafactory": "llamafactory", "swift": "ms-swift"}
#: By library and loss: module and class of the trainer, and attributes that it gets from its settings.
TRAINERS: dict[tuple[str, str], tuple[str, str, dict[str, Any]]] = {
    ("trl", "kto"): ("trl.trainer.kto_trainer", "KTOTrainer", {}),
    ("trl", "orpo"): ("trl.experimental.orpo", "ORPOTrainer", {}),
    ("trl", "cpo"): ("trl.experimental.cpo", "CPOTrainer", {"loss_type": "sigmoid", "cpo_alpha": 1.0}),
    ("trl", "simpo"): ("trl.experimental.cpo", "CPOTrainer", {"loss_type": "simpo", "cpo_alpha": 0.0}),
    ("llamafactory", "kto"): ("llamafactory.train.kto.trainer", "CustomKTOTrainer", {}),
    ("llamafactory", "orpo"): ("llamafactory.train.dpo.trainer", "CustomDPOTrainer", {"loss_type": "orpo"}),
    ("llamafactory", "simpo"): ("llamafactory.train.dpo.trainer", "CustomDPOTrainer", {"loss_type": "simpo"}),
    ("swift", "kto"): ("swift.rlhf_trainers.kto_trainer", "KTOTrainer", {}),
    ("swift", "orpo"): ("swift.rlhf_trainers.orpo_trainer", "ORPOTrainer", {}),
    ("swift", "cpo"): ("swift.rlhf_trainers.cpo_trainer", "CPOTrainer", {"loss_type": "sigmoid", "cpo_alpha": 1.0}),
    ("swift", "simpo"): ("swift.rlhf_trainers.cpo_trainer", "CPOTrainer", {"loss_type": "simpo", "cpo_alpha": 1.0}),
}
#: Attributes of all trainers, each read by some.
COMMON: dict[str, Any] = {
    "beta": 0.1, "label_smoothing": 0.0, "simpo_gamma": 0.5, "alpha": 0.0, "ld_alpha": None, "ftx_gamma": 0.0,
    "bco_gemma": 0.0, "reference_free": False, "desirable_weight": 1.0, "undesirable_weight": 1.0, "loss_type": "kto",
    "calculate_KL": True, "aux_loss_enabled": False, "is_encoder_decoder": False, "label_pad_token_id": -100,
    "padding_value": 0, "pad_token_id": 0, "precompute_ref_logps": False, "use_liger_kernel": False,
    "ref_adapter_name": None, "_total_train_tokens": 0, "_tp_size": 1, "_peft_has_been_casted_to_bf16": False,
}


class _HeadError(Exception):
    """The gradient of the logits is there."""


def has(row: Mapping[str, str]) -> bool:
    """True for the rows of the installed release."""
    try:
        return version(RELEASES[row["library"]]) == row["release"]
    except PackageNotFoundError:
        return False


def count(row: Mapping[str, str]) -> dict[str, int]:
    """Count what is alive behind the loss, and the most while it is computed and until the logits have a gradient.

    Single operations on fp32 numbers write copies that only PyTorch's allocator sees; of 16-bit numbers a CPU makes
    fp32 copies, which GPUs do not, so results of operations are counted there.
    """
    shape = {letter: int(row[letter]) for letter in ("h", "a", "k", "d", "f", "u", "L", "tied", "s", "b")}
    model = model_of(row, shape)
    model.lm_head.register_full_backward_pre_hook(_stop)
    reference = model_of(row, shape) if row["reference"] == "copy" else None
    batch = batch_of(row, shape)
    loss_of = trainer_loss(row, model, reference)
    known = [tensor for tensor in batch.values() if isinstance(tensor, Tensor)]
    with Live(model, *([] if reference is None else [reference]), *known) as live:
        loss = loss_of(batch)
        after, forward = live.now, live.peak
        live.restart()
        _until_the_head(loss)
        backward = live.peak
    if row["logits"] == "fp32":
        del loss
        with AllocatorLog():
            loss = loss_of(batch_of(row, shape))
        with AllocatorLog() as allocated:
            _until_the_head(loss)
        backward = after + allocated.peak
    return {"after": after, "forward": forward, "backward": backward}


def model_of(row: Mapping[str, str], shape: dict[str, int]) -> Any:
    """Make the model; logits become fp32 as Accelerate makes them."""
    model: Any = causal_lm("llama", shape, "sdpa")
    if row["logits"] == "fp32":
        model.forward = import_module("accelerate.utils.operations").convert_outputs_to_fp32(model.forward)
    if row["library"] == "swift":
        model.model_info = SimpleNamespace(is_moe_model=False)
    return model


def trainer_loss(row: Mapping[str, str], model: Any, reference: Any) -> Callable[[dict[str, Any]], Tensor]:
    """Return the loss of a trainer that has nothing but what the loss reads."""
    import_module("transformers"), import_module("peft"), import_module("trl")
    absent = [name for name in BESIDE.split() if name not in sys.modules and find_spec(name.partition(".")[0]) is None]
    for name in absent:
        sys.modules[name] = MagicMock(name=name)
        sys.modules[name].__spec__, sys.modules[name].__path__ = ModuleSpec(name, None), []
    module, name, settings = TRAINERS[row["library"], row["trainer"]]
    kind: Any = getattr(import_module(module), name)
    kind = type(name, (kind,), {})  # ms-swift asks for the name
    trainer: Any = kind.__new__(kind)
    for each, value in {**COMMON, **settings, "model": model, "ref_model": reference}.items():
        setattr(trainer, each, value)
    trainer.accelerator = SimpleNamespace(
        device=torch.device("cpu"), gather_for_metrics=lambda value: value, unwrap_model=lambda given: given)
    trainer.args = SimpleNamespace(
        device=torch.device("cpu"), use_liger_kernel=False, gradient_checkpointing_kwargs=None, rpo_alpha=None)
    trainer.template = SimpleNamespace(sequence_parallel_size=1, padding_free=False, packing=False)
    trainer.finetuning_args = SimpleNamespace(use_ref_model=reference is not None)
    trainer._metrics = {mode: _Numbers() for mode in ("train", "eval")}
    trainer.get_use_logits_to_keep = lambda _: False
    trainer.null_ref_context = nullcontext

    def loss(batch: dict[str, Any]) -> Tensor:
        if hasattr(kind, "get_batch_loss_metrics"):
            found: Tensor = trainer.get_batch_loss_metrics(model, batch)[0]
        else:
            found = trainer._compute_loss(model, batch, False)
        return found

    return loss


class _Numbers(dict[str, list[float]]):
    """Numbers by name, which are logged."""

    def __missing__(self, name: str) -> list[float]:
        return self.setdefault(name, [])


def batch_of(row: Mapping[str, str], shape: dict[str, int]) -> dict[str, Any]:
    """Make what a collator hands out: all labels count, and all answers of KTO are of one kind."""
    b, s = shape["b"], shape["s"]

    def of(prefix: str, rows: int) -> dict[str, Any]:
        names = {"input_ids": 0, "attention_mask": 1, "labels": 0, "completion_mask": 1}
        return {f"{prefix}{name}": torch.full((rows, s), value) for name, value in names.items()}

    if row["trainer"] != "kto":
        if row["library"] == "trl":
            return {**of("chosen_", b // 2), **of("rejected_", b // 2), **of("prompt_", b // 2)}
        found = of("", b)
        del found["completion_mask"]
        return found
    if row["library"] == "llamafactory":
        return {**of("", b), **of("kl_", b), "kto_tags": torch.ones(b, dtype=torch.bool)}
    if row["library"] == "swift":
        found = {**of("completion_", b), **of("KL_completion_", b)}
        found = {name: value for name, value in found.items() if not name.endswith("completion_mask")}
        return {**found, "label": [True] * b}
    found = {**of("", b), **of("KL_", b), "label": torch.ones(b, dtype=torch.bool)}
    return {name: value for name, value in found.items() if name not in ("labels", "KL_labels")}


def _stop(*_: object) -> None:
    raise _HeadError


def _until_the_head(loss: Tensor) -> None:
    """Run the backward pass of the loss alone."""
    try:
        loss.backward()
    except _HeadError:
        return
    raise ValueError("the gradient of the logits never came")
