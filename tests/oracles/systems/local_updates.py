"""DiLoCo and local SGD as their papers write them, on copies as torchft 0.2.0 keeps them, and all bytes counted.

One group is run; the others are stood in for by an average that changes nothing but is given what would be sent.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from oracles.instruments.live import Live
from torch import nn


class Counted(NamedTuple):
    """Bytes of one group: states that last, those on the host, the most at each step beside them, sent at each step."""

    momentum: int
    backup: int
    beside: tuple[int, ...]
    sent: tuple[int, ...]


class Fragment:
    """Some parameters, their global values, and what waits for the next synchronisation."""

    def __init__(self, parameters: Sequence[nn.Parameter]) -> None:
        self.own = list(parameters)
        self.backup = [one.detach().clone() for one in self.own]
        self.outer = torch.optim.SGD(self.own, lr=0.7, momentum=0.9, nesterov=True, foreach=True)
        self.gradients: list[torch.Tensor] = []

    def send(self) -> int:
        """Make outer gradients and send them: return their bytes."""
        self.gradients = [old - new.detach() for old, new in zip(self.backup, self.own, strict=True)]
        return sum(one.numel() * one.element_size() for one in self.gradients)

    def receive(self) -> None:
        """Update the global parameters with the averaged outer gradients, and start from them."""
        with torch.no_grad():
            kept = [one.detach().clone() for one in self.own]
            for one, old in zip(self.own, self.backup, strict=True):
                one.copy_(old)
            for one, gradient in zip(self.own, self.gradients, strict=True):
                one.grad = gradient
            self.gradients = []
            self.outer.step()
            for one, old, local in zip(self.own, self.backup, kept, strict=True):
                old.copy_(one)
                one.lerp_(local, 0.0)
            self.outer.zero_grad()


def train(layers: int, width: int, steps: int, fragments: int, overlap: int) -> Counted:
    """Two rounds of DiLoCo of a stack of equal matrices, ``steps`` inner steps each; inner updates keep no bytes."""
    torch.manual_seed(0)
    model = nn.Sequential(*(nn.Linear(width, width, bias=False) for _ in range(layers)))
    share = layers // fragments
    parts = [Fragment([one.weight for one in model[place * share:(place + 1) * share]])  # type: ignore[union-attr]
             for place in range(fragments)]
    for part in parts:  # momenta of the outer optimizer exist from its first step on
        part.send()
        part.receive()
    every, beside, sent = steps // fragments, [], []
    known = [kept for part in parts for state in part.outer.state.values() for kept in state.values()]
    with Live(model, known, [part.backup for part in parts]) as live:
        for step in range(2 * steps):
            live.restart()
            turn = parts[step // every % fragments]
            with torch.no_grad():  # the inner step, in place
                for one in model.parameters():
                    one.mul_(0.99)
            sent.append(turn.send() if step % every == every - 1 - overlap else 0)
            if step % every == every - 1:
                turn.receive()
            beside.append(live.peak)
    momentum = sum(
        kept.numel() * kept.element_size()
        for part in parts for state in part.outer.state.values() for kept in state.values()
    )
    backup = sum(one.numel() * one.element_size() for part in parts for one in part.backup)
    return Counted(momentum, backup, tuple(beside), tuple(sent))


def average(layers: int, width: int) -> Counted:
    """One synchronisation of local SGD: a copy of every parameter is averaged and copied back."""
    model = nn.Sequential(*(nn.Linear(width, width, bias=False) for _ in range(layers)))
    with Live(model) as live, torch.no_grad():
        copies = [one.detach().clone() for one in model.parameters()]
        for one, copy in zip(model.parameters(), copies, strict=True):
            one.copy_(copy)
        peak = live.peak
    return Counted(0, 0, (peak,), (sum(one.numel() * one.element_size() for one in copies),))
