"""Log-probabilities and entropies of actors: verl's ways to the entropy, and OpenRLHF's losses from fp32 logits.

The programs follow verl 0.9.1 (``utils/torch_functional.py``) and OpenRLHF 0.11.2 (``models/actor.py``). Neither is
imported: their packages start clusters. flash-attn's cross entropy is the stand-in of ``test_policy_losses``.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
import torch
from families import read_config
from oracles.hugging_face.huggingface import FAMILIES, causal_lm, random_shape
from oracles.hugging_face.public_families import LONGEST, built, random_config
from oracles.instruments.allocator import AllocatorLog
from oracles.instruments.ledger import ledger
from oracles.instruments.live import Live
from oracles.instruments.saved import Saved, functions_of
from oracles.losses.test_compiled_loss import BESIDE
from oracles.losses.test_policy_losses import CrossEntropy, entropy, kept_of_tokens
from torch import Tensor

from shardmath.configuration.choosing import choices_of
from shardmath.input.parameters import model_values
from shardmath.symbolic.implementations import HUGGINGFACE
from shardmath.symbolic.parameters import BY_NAME

#: verl's ``entropy_from_logits_chunk_size``.
CHUNK = 2048


def entropy_in_chunks(logits: Tensor) -> Tensor:
    """Return the entropy of every row, in fp32 and a chunk of rows at a time."""
    result = torch.zeros(len(logits))
    for start in range(0, len(logits), CHUNK):
        result[start:start + CHUNK] = entropy(logits[start:start + CHUNK].float())
    return result


def counted(loss: str, tokens: int, vocabulary: int) -> tuple[int, ...]:
    """Bytes saved and those at the loss's moments: behind its forward pass, during it, in its backward pass."""
    moments = (f"stage.loss.{moment}" for moment in ("after_forward", "loss_forward", "loss_backward"))
    return ledger(HUGGINGFACE.with_choices(loss=loss), "loss.saved", *moments, s=tokens, b=1, u=vocabulary, B=1,
                  **BESIDE)


@pytest.mark.cases(4, 40)
@pytest.mark.parametrize(("loss", "program"), [
    ("verl_entropy_eager", entropy), ("verl_entropy_eager_chunks", entropy_in_chunks)])
def test_single_operations(draw: Random, loss: str, program: Callable[[Tensor], Tensor]) -> None:
    """Up to nine chunks, the last one full or not; a few numbers of each token live between kernels."""
    u = draw.randint(30, 60)
    last = draw.choice([CHUNK, draw.randint(8, CHUNK)])
    s = CHUNK * draw.randint(0, 8) + last
    labels = torch.zeros(s, dtype=torch.long)
    logits = torch.randn(s, u).bfloat16().requires_grad_()
    with AllocatorLog() as forward:
        entropies = program(logits)  # before the log-probabilities, so its backward pass comes behind theirs
        value = CrossEntropy.apply(logits, labels, False).mean() - 0.01 * entropies.mean()
        del entropies
    assert sum(each._saved_result.nbytes for each in functions_of(value, "Logsumexp")) == kept_of_tokens(loss, s)
    with AllocatorLog() as backward:
        value.backward()
    saved, after, during, gradients = counted(loss, s, u)
    given, few = logits.nbytes + labels.nbytes, 16 * s
    assert abs(forward.net + given - saved - after) <= few
    assert abs(forward.peak + given - saved - during) <= few
    assert abs(backward.peak - gradients) <= few


@pytest.fixture
def compiled(compiler: None) -> Callable[[Tensor], Tensor]:
    """The entropy in chunks as verl compiles it."""
    return torch.compile(entropy_in_chunks, dynamic=True)


@pytest.mark.slow
@pytest.mark.cases(1, 4)
@pytest.mark.parametrize("chunks", [1, 3])
def test_compiled_chunks(draw: Random, chunks: int, compiled: Callable[[Tensor], Tensor]) -> None:
    """Gradients of chunks are put together by the compiler, which never needs more than the ledger has."""
    s, u = CHUNK * chunks - draw.randint(0, 64) * 16, 64 * draw.randint(1, 3)
    labels, loss = torch.zeros(s, dtype=torch.long), None
    for _ in range(3):  # the first pass compiles
        logits, loss = torch.randn(s, u).bfloat16().requires_grad_(), None
        with AllocatorLog() as forward:
            with Saved() as saved:
                entropies = compiled(logits)
                assert saved.bytes(logits) == kept_of_tokens("verl_entropy_chunks", s)
            loss = CrossEntropy.apply(logits, labels, False).mean() - 0.01 * entropies.mean()
        with AllocatorLog() as backward:
            gradient, = torch.autograd.grad(loss, logits)
    kept, after, _, gradients = counted("verl_entropy_chunks", s, u)
    given, few = logits.nbytes + labels.nbytes, 24 * s
    assert abs(forward.net + given - kept - after) <= few
    assert 2 * gradient.nbytes - few <= backward.peak <= gradients + few


@pytest.mark.cases(6, 60)
def test_openrlhf(draw: Random) -> None:
    """The model's logits are replaced by an fp32 copy, which the trainer holds; their gradient is cast back.

    Both copies are there before labels are shifted (8 bytes of a token) and logarithms of sums are made (4).
    """
    family = draw.choice(list(FAMILIES))
    shape = random_shape(draw) | FAMILIES[family][2] | {"b": draw.randint(1, 2)}
    model, ids = causal_lm(family, shape, "sdpa"), torch.zeros(shape["b"], shape["s"], dtype=torch.long)
    kept, tables, during, after, backward = ledger(
        HUGGINGFACE.with_choices(loss="openrlhf"), "stage.activation", "stage.buffer", "stage.loss.loss_forward",
        "stage.loss.after_forward", "stage.loss.loss_backward", **shape)
    peaks: list[int] = []
    with Live(model, ids) as live:
        output = model(input_ids=ids, use_cache=False)
        output.logits.register_hook(lambda gradient: peaks.append(live.peak))
        live.restart()
        output["logits"] = output["logits"].to(torch.float32)
        rolled = torch.roll(ids, -1)
        loss = -CrossEntropy.apply(output["logits"].flatten(0, 1), rolled.flatten(), False).mean()
        few = 8 * shape["b"] * shape["s"] + 8
        assert abs(live.peak - kept - tables - during) <= few + 4 * shape["b"] * shape["s"]
        assert live.now == kept + tables + after
        live.restart()
        loss.backward()
    assert abs(peaks[0] - kept - tables - backward) <= few


@pytest.mark.cases(2, 20)
@pytest.mark.parametrize("family", ["starcoder2", "olmo", "stablelm", "opt", "phi"])
@pytest.mark.parametrize("loss", ["verl", "openrlhf"])
def test_models_with_layer_norm(draw: Random, family: str, loss: str, tmp_path: Path) -> None:
    """A loss keeps the same behind any norm in front of the head."""
    config = random_config(draw, family)
    model, read = built(config, "sdpa"), read_config(tmp_path, config)
    shape = {BY_NAME[name].letter: value for name, value in model_values(read).items()} | {"b": 1}
    shape["s"] = draw.randint(2, LONGEST)
    ids = torch.zeros(1, shape["s"], dtype=torch.long)
    chosen = HUGGINGFACE.with_choices(**{**choices_of("huggingface", read), "attention": "sdpa", "loss": loss})
    moments = ("stage.activation", "stage.buffer", "stage.loss.after_forward", "stage.input")
    kept = sum(ledger(chosen, *moments, **shape)) - ids.nbytes
    with Live(model, ids) as live:
        output = model(input_ids=ids, use_cache=False)
        if loss == "openrlhf":
            output["logits"] = output["logits"].to(torch.float32)
        value = -CrossEntropy.apply(output["logits"].flatten(0, 1), torch.roll(ids[0], -1), loss == "verl").mean()
    assert value.requires_grad
    assert live.now == kept


def test_entropy_of_openrlhf() -> None:
    """Both fp32 gradients live together; what the compiled entropy keeps was read on a GPU: 12 bytes of a token."""
    plain, with_entropy = (counted(loss, 100, 1000) for loss in ("openrlhf", "openrlhf_entropy"))
    assert with_entropy[0] - plain[0] == 12 * 100
    assert with_entropy[3] - plain[3] == (4 - 2) * 100 * 1000
