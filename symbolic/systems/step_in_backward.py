"""An optimizer that updates a parameter in the backward pass, as soon as its gradient is there, and frees the gradient.

torchtitan's ``optimizer.early_step_in_backward`` and torchtune's ``optimizer_in_bwd`` hook every parameter, as LOMO
does (Lv et al. 2023). A step has one micro-batch, because nothing is summed up, and no norm of all gradients.
"""

from __future__ import annotations

from collections.abc import Sequence

from sympy import Eq

from ..axis import Axis
from ..parallel.rules import Rule
from ..parameters import symbols
from .system import Aspect, Choices, Refusal, System

NAME = "optimizer_step"
D, c, m = symbols("D c m")


def _rules(choices: Choices) -> Sequence[Rule]:
    if choices[NAME] == "after":
        return ()
    alone = (Rule("step_ranks", "D", Eq(D * c, 1), f"must be 1 with {NAME} = backward and without FSDP: buckets of"
                  " gradients are not counted yet"),)
    return (
        Rule("step_batches", "B", Eq(m, 1), f"must be micro_batch_size times data_parallel with {NAME} = backward:"
             " gradients of several micro-batches are not summed up"),
        *(alone if choices["data_parallel"] == "ddp" else ()),
    )


def _refused(choices: Choices) -> Sequence[Refusal]:
    plain = (choices["data_parallel"], choices["peak"]) == ("ddp", "torch")
    words = "an optimizer in the backward pass with the moments of PyTorch's own step on one rank: choose peak = saved"
    return (Refusal(words, choices[NAME] == "backward" and plain),)


SYSTEM = System(
    Axis(NAME, "when the optimizer updates a parameter", {
        "after": "after the backward pass of the last micro-batch, all parameters at once",
        "backward": "in the backward pass, as soon as its gradient is there, which is freed (torchtitan, torchtune)",
    }, rowless=("after", "backward")),
    ("huggingface", "torchtitan"),
    words="an optimizer in the backward pass", changes=(Aspect.STATES,),
    counted={
        "data_parallel": ("ddp", "fsdp"), "precision": ("bf16", "mixed", "autocast", "fp32"), "adapters": ("none",),
        "layers": ("dense",), "optimizer_kernel": ("fused",), "pipeline": ("own",),
    },
    rules=_rules, refused=_refused, gradients_freed=lambda choices: choices[NAME] == "backward",
    fixed=lambda choices: {"p": 1} if choices[NAME] == "backward" else {},
)
