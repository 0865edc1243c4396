"""Head and loss of Hugging Face Transformers in PyTorch's own step, in the order of PyTorch's autograd."""

from __future__ import annotations

from collections.abc import Mapping

from .words import Script

_LOSS: Mapping[str, tuple[str, ...]] = {"peak": ("torch",), "loss": ("huggingface", "huggingface_freed")}

SCRIPTS: tuple[Script, ...] = (
    # The model returns its logits when it has its loss; the caller holds them until its next forward pass, or does not.
    Script("head_forward", "save =loss.held_by_caller =loss.logits_in_model", _LOSS),
    Script("loss_forward", "+loss.logits_fp32 +loss.padded_labels save +* -* -loss.logits_in_model", _LOSS),
    Script("loss_backward", "+loss.gradient_log_softmax +* -loss.gradient_log_softmax free =last_steps.logits_gradient"
           " -*", _LOSS),
    Script("head_backward", "+* free -last_steps.logits_gradient -*", _LOSS),
)
