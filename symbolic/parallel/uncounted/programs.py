"""Pipelines, optimizers and ways to share out states that are not counted with others."""

from __future__ import annotations

from collections.abc import Mapping

from ...choices import ADDED, TRANSFORMERS_ROUTERS
from ..optimizers import ANY_WIDTH, DEALT, IN_PARTS, NOT_SHARDED, WHOLE_TENSORS
from .among import among, only


def of_pipelines(choices: Mapping[str, str]) -> tuple[tuple[str, bool], ...]:
    """Refuse what is not counted in PyTorch's pipeline, and FSDP2 in other pipelines."""
    torch = choices["pipeline"] == "torch"
    return (
        ("PyTorch's pipeline with parameters that are freed after every forward pass",
         torch and choices["reshard"] == "always"),
        ("PyTorch's pipeline with an optimizer that goes from parameter to parameter",
         torch and choices["optimizer_kernel"] == "loop"),
        ("PyTorch's pipeline with an explicit list of layers in another schedule than 1F1B",
         torch and choices["stages"] == "listed" and choices["schedule"] != "1f1b"),
        ("PyTorch's pipeline with uneven stages in another schedule than 1F1B and interleaved",
         torch and choices["stages"] == "uneven" and choices["schedule"] not in ("1f1b", "interleaved")),
        ("a compiled loss in PyTorch's pipeline, which holds the logits too: choose loss = dtensor",
         torch and choices["loss"] == "dtensor_compiled"),
        ("PyTorch's pipeline with weights in bf16", torch and choices["precision"] == "bf16"),
        ("PyTorch's pipeline without FSDP2", torch and choices["data_parallel"] != "fsdp"),
        ("FSDP2 with this schedule in a program's own pipeline",
         not torch and choices["data_parallel"] == "fsdp" and choices["schedule"] != "1f1b"),
    )


def of_optimizers(choices: Mapping[str, str]) -> tuple[tuple[str, bool], ...]:
    """Refuse optimizers with precisions, shares and temporaries that they are not counted with."""
    optimizer, precision, fsdp = choices["optimizer"], choices["precision"], choices["data_parallel"] == "fsdp"
    listed = choices["peak"] == "megatron_local" and choices["optimizer_kernel"] != "fused"
    return (
        (f"optimizer {optimizer} on the sharded matrices of FSDP2", fsdp and optimizer in NOT_SHARDED),
        (f"optimizer {optimizer} with precision {precision}",
         optimizer in ANY_WIDTH and precision not in ("mixed", "fp16")),
        ("optimizer muon with precision fp16", optimizer == "muon" and precision == "fp16"),
        *only(f"optimizer {optimizer}", optimizer in DEALT, choices, {
            "precision": ("mixed",), "data_parallel": ("ddp",), "adapters": ("none",)}),
        (f"temporaries of optimizer {optimizer} with optimizer_kernel {choices['optimizer_kernel']}: choose"
         " optimizer_kernel = fused",
         (choices["peak"] in ("torch", "megatron_local") or choices["data_parallel"] == "deepspeed")
         and choices["optimizer_kernel"] != "fused" and optimizer != "adamw"),
        *only("an optimizer of PyTorch in Megatron-Core", listed, choices, {
            "precision": ("mixed", "fp16"), "data_parallel": ("ddp",), "adapters": ("none",)}),
        ("Transformer Engine without its fused optimizer: choose optimizer_kernel = fused or peak = megatron_local",
         choices["peak"] == "megatron_te" and choices["optimizer_kernel"] != "fused"),
        (f"optimizer {optimizer} with the experts of Hugging Face, which are one tensor",
         optimizer in WHOLE_TENSORS and choices["layers"] == "experts" and choices["router"] in TRANSFORMERS_ROUTERS
         and (choices["adapters"] == "none" or choices["expert_adapters"] in ADDED)),
    )


def of_deepspeed(choices: Mapping[str, str]) -> tuple[tuple[str, bool], ...]:
    """Refuse what is not counted with DeepSpeed."""
    deepspeed = choices["data_parallel"] == "deepspeed"
    precision, optimizer = choices["precision"], choices["optimizer"]
    return (
        (f"DeepSpeed with precision {precision}: choose precision = mixed or fp32",
         deepspeed and precision not in ("mixed", "fp32")),
        (f"DeepSpeed with optimizer {optimizer}", deepspeed and optimizer not in IN_PARTS),
        ("DeepSpeed with the linear layers of Falcon, whose saved tensors are views of weights that stage 3 gathers",
         deepspeed and choices["value"] == "picked"),
        ("DeepSpeed with experts that are sent to other ranks",
         deepspeed and choices["layers"] != "dense" and choices["dispatch"] == "huggingface_sent"),
        *only("the moments of PyTorch's own step with DeepSpeed", deepspeed and choices["peak"] != "saved", choices, {
            "precision": ("mixed",), "layers": ("dense",), "adapters": ("none",), "optimizer": ("adamw",),
            "optimizer_kernel": ("fused",), "norm": ("eager",), "normalisation": ("rms",), "norms": ("pre",),
            "mlp": ("swiglu",), "heads": ("grouped",), "attention": ("sdpa",), "residual": ("sequential",),
            "rope": ("shared",), "positions": ("rotary",), "loss": ("huggingface", "huggingface_freed")}),
    )


def of_megatron_fsdp(choices: Mapping[str, str]) -> tuple[tuple[str, bool], ...]:
    """Refuse what is not counted with Megatron-FSDP."""
    counted = {
        "precision": ("mixed", "fp16"), "optimizer": ("adamw", "sgd_momentum", "sgd"), "layers": ("dense",),
        "heads": ("grouped",), "norms": ("pre",), "capping": ("none",), "fp8": ("none", "delayed", "current"),
        "adapters": ("none",), "schedule": ("1f1b",), "recompute_method": ("each", "block"),
    }
    chosen = choices["data_parallel"] == "megatron_fsdp"
    return (
        *only("Megatron-FSDP", chosen, choices, counted, ("data_parallel", "megatron_fsdp")),
        ("Megatron-FSDP with FP8 copies of 16-bit weights: choose fp8_weights = primary",
         chosen and choices["fp8"] != "none" and choices["fp8_weights"] != "primary"),
    )


def of_compiled(choices: Mapping[str, str]) -> tuple[tuple[str, bool], ...]:
    """Refuse what is not counted with compiled layers."""
    counted = {"layers": ("dense",), "heads": ("grouped",), "norm": ("fused",)}
    return among("compiled layers", choices["compile"] != "none", choices, counted)
