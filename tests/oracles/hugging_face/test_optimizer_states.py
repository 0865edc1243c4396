"""States of PyTorch's and Transformers' optimizers after a step on Hugging Face models of random shape.

Counters of steps are left out, as the ledger leaves them out: PyTorch keeps them on the host.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from random import Random

import pytest
import torch
from oracles.hugging_face.huggingface import FAMILIES, causal_lm, random_shape
from oracles.instruments.ledger import ledger
from torch import Tensor, nn
from torch.optim import SGD, AdamW, Muon, Optimizer
from torch.optim import Adafactor as TorchAdafactor
from transformers.optimization import Adafactor

from shardmath.symbolic.implementations import HUGGINGFACE

DTYPES = {"bf16": torch.bfloat16, "autocast": torch.float32}
Named = list[tuple[str, nn.Parameter]]


def muon(named: Named) -> list[Optimizer]:
    """Make Muon for matrices inside of layers and AdamW for all else, as Muon's documentation asks for."""
    matrices = [one for name, one in named if one.dim() == 2 and "embed" not in name and "lm_head" not in name]
    chosen = {id(one) for one in matrices}
    return [Muon(matrices), AdamW([one for _, one in named if id(one) not in chosen])]


def single(make: Callable[[list[nn.Parameter]], Optimizer]) -> Callable[[Named], list[Optimizer]]:
    """One optimizer for all parameters."""
    return lambda named: [make([one for _, one in named])]


OPTIMIZERS: dict[str, Callable[[Named], list[Optimizer]]] = {
    "adamw": single(AdamW),
    "adafactor": single(Adafactor),
    "adafactor_torch": single(TorchAdafactor),
    "muon": muon,
    "sgd_momentum": single(lambda ones: SGD(ones, momentum=0.9)),
    "sgd": single(SGD),
}


def state_bytes(optimizers: Iterable[Optimizer]) -> int:
    """Bytes of all states of tensors but the counters of steps."""
    return sum(
        kept.numel() * kept.element_size()
        for optimizer in optimizers for state in optimizer.state.values()
        for name, kept in state.items() if isinstance(kept, Tensor) and name != "step"
    )


@pytest.mark.cases(6, 80)
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_states(draw: Random, optimizer: str) -> None:
    family, precision = draw.choice(list(FAMILIES)), draw.choice(list(DTYPES))
    shape = random_shape(draw) | FAMILIES[family][2]
    model = causal_lm(family, shape, "sdpa", dtype=DTYPES[precision])
    for one in model.parameters():
        one.grad = torch.ones_like(one)
    made = OPTIMIZERS[optimizer](list(model.named_parameters()))
    for item in made:
        item.step()
    kept, summed = ledger(
        HUGGINGFACE.with_choices(optimizer=optimizer, precision=precision), "stage.optimizer", "stage.parameters",
        **shape,
    )
    assert state_bytes(made) == kept
    assert sum(one.numel() for one in model.parameters()) == summed
