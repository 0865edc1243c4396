"""Log-probabilities of actors with a vocabulary over tensor-parallel ranks: verl and NeMo RL on Megatron-Core.

Megatron-Core hands out fp32 logits. verl scales them in place by the temperature, and Megatron-Core's cross entropy
makes the softmax in their place; the entropy keeps a copy and a softmax of its own, which its gradient overwrites. NeMo
RL keeps a softmax beside the logits, which live until the loss is there.
"""

from __future__ import annotations

from typing import Any

from ...choices import VOCAB_ACTORS
from ...dimensions import BATCH, SEQUENCE, VOCAB
from ...ledger import Lifetime, Tensor, saved, transient
from ...work import Stream

COMPONENTS = ()

_LOGITS, _TOKENS = (SEQUENCE, BATCH, VOCAB), (SEQUENCE, BATCH)
_FORWARD, _BACKWARD = ("loss_forward",), ("loss_backward",)
_PLAIN, _ENTROPY, _NEMO = ((loss,) for loss in VOCAB_ACTORS)


def vocab_policy_rows() -> tuple[Tensor, ...]:
    """Return what the losses keep and write, beside the numbers of each token that a policy's loss itself makes."""
    on: Any = {"loss": VOCAB_ACTORS}
    once: Any = {"lifetime": Lifetime.ONCE}
    core, verl, nemo = "megatron_core", "verl", "nemo_rl"
    return (
        saved("policy_softmax", "loss", _LOGITS, 4, core, "fp32 softmax of the rank's vocabulary", **once, **on),
        saved("policy_targets", "loss", _TOKENS, 8, core, "int64 next tokens relative to the rank's vocabulary",
              **once, **on),
        saved("policy_target_mask", "loss", _TOKENS, 1, core, "bool mask of next tokens of other ranks", **once, **on),
        saved("temperatures", "loss", _TOKENS, 4, verl, "fp32 temperatures", **once, loss=(*_PLAIN, *_ENTROPY)),
        saved("entropy_logits", "loss", _LOGITS, 4, verl, "fp32 logits that the entropy reads again", **once,
              loss=_ENTROPY),
        saved("entropy_probabilities", "loss", _LOGITS, 4, verl, "fp32 softmax of the entropy, later its gradient",
              **once, loss=_ENTROPY),
        saved("mean_policy_logits", "loss", _TOKENS, 4, verl, "fp32 mean logits", **once, loss=_ENTROPY),
        transient("cast_logits", "loss", _LOGITS, 2, core, "bf16 logits, about to be replaced", _FORWARD, loss=_PLAIN),
        transient("policy_logits_and_logarithms", "loss", _LOGITS, 8, nemo, "fp32 logits, and log-softmax", _FORWARD,
                  loss=_NEMO),
        transient("scaled_gradient", "loss", _LOGITS, 4, verl, "fp32 gradient divided by the temperature", _BACKWARD,
                  loss=_PLAIN),
        transient("gradient_beside_softmax", "loss", _LOGITS, 4, nemo, "fp32 gradient of the logits", _BACKWARD,
                  loss=_NEMO),
        transient("value_of_vocab_policy", "loss", (), 4, core, "fp32 loss", ("after_forward",), **on),
    )


def vocab_policy_work() -> tuple[Stream, ...]:
    """Return the traffic of logits: each kernel reads its inputs and writes its output."""
    return tuple(
        Stream(f"{loss}.steps", "loss", _LOGITS, forward, backward, source, meaning, kernels, options={"loss": (loss,)})
        for loss, forward, backward, kernels, source, meaning in (
            (*_PLAIN, 46, 22, 10, "verl", "fp32 copy, division, maximum, exponentials, quotients; gradients, a cast"),
            (*_ENTROPY, 94, 78, 22, "verl", "the same, a copy, as much for the entropy; products and sums"),
            (*_NEMO, 46, 22, 10, "nemo_rl", "fp32 copy, maximum, differences, exponentials; negation, product, a cast"),
        )
    )
