"""Every moment of a Megatron-LM step against integers written down here, for layouts of all kinds.

The oracle below knows nothing of the ledger: it is the arithmetic of what Megatron-LM and Transformer Engine keep,
one line for each tensor.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import Any

import pytest
from oracles.instruments.traced import explained

from shardmath.account.accounting import RankAccount, explain
from shardmath.account.configured import configured
from shardmath.generated.definitions import LIBRARIES, TORCH_WORKSPACES
from shardmath.machines.gpu import Gpu
from shardmath.models.model import Model

pytestmark = pytest.mark.slow

MIB = 2**20
SMALL = (2 * 4096 + 8 * 16) * 1024
LARGE = 8 * 4096 * 1024
GPU = Gpu.named("b200")
H, HEADS, WIDTH, LAYERS, VOCABULARY, SEQUENCE = 512, 8, 64, 8, 5000, 256


@dataclass(frozen=True)
class Kind:
    """A model and its kernels: what differs between the two families that Megatron-LM trains most."""

    gpt: bool
    groups: int
    f: int
    kernels: dict[str, str]
    libraries: str = "hopper"
    torch: str = ""

    @property
    def torch_workspace(self) -> dict[str, int]:
        """Bytes of PyTorch's workspace, where the GPU does not decide."""
        return {"torch_workspace_bytes": TORCH_WORKSPACES[self.torch]} if self.torch else {}

    @property
    def model(self) -> Model:
        own: dict[str, Any] = {}
        if self.gpt:
            own = {"normalisation": "layer", "mlp": "gelu", "linear_bias": True, "learned_positions": SEQUENCE}
        return Model(
            name="model of the test", hidden_size=H, num_layers=LAYERS, ffn_hidden_size=self.f,
            num_attention_heads=HEADS, num_kv_heads=self.groups, head_dim=WIDTH, vocab_size=VOCABULARY,
            tied_embeddings=False, qkv_bias=self.gpt, qk_norm=False, max_seq_length=SEQUENCE, source="a test", **own,
        )


LLAMA = Kind(False, 2, 1408, {"peak": "megatron_te", "loss": "te_fused", "attention": "flash"})
#: As wide inside as the queries are: both projections back to h have one shape, so there is one dummy for both.
NARROW = Kind(False, 8, 512, {"peak": "megatron_te", "loss": "te_fused", "attention": "flash"})
GPT = Kind(True, 8, 2048, {
    "peak": "megatron_te", "loss": "vocab_parallel", "attention": "flash", "weight_gradient": "separate",
    "mask": "dataloader",
}, "ampere", "configured")
COMPILED = Kind(True, 8, 2048, {**GPT.kernels, "loss": "native_fused", "mask": "kernel", "attention": "flash_bshd"},
                "blackwell", "before 2.12")
LOCAL = Kind(True, 8, 2048, {**GPT.kernels, "peak": "megatron_local", "attention": "fused_softmax"}, "ampere")
KINDS = {"llama": LLAMA, "narrow": NARROW, "gpt": GPT, "compiled": COMPILED, "local": LOCAL}


@dataclass(frozen=True)
class Layout:
    """Where the model lies, and the options that change what lives at a moment."""

    kind: Kind
    t: int
    sp: int
    p: int
    b: int
    m: int
    w: int
    dropout: int
    rmlp: int

    def account(self) -> tuple[RankAccount, ...]:
        """What shardmath says, by pipeline rank."""
        return explained(configured(
            self.kind.model, GPU, kernels=self.kind.kernels, seq_length=SEQUENCE, micro_batch_size=self.b,
            global_batch_size=self.b * self.m * 2, tensor_parallel=self.t, pipeline_parallel=self.p, data_parallel=2,
            sequence_parallel=bool(self.sp), recompute="mlp" if self.rmlp else "none",
            gradients="bf16" if self.w == 2 else "fp32", hidden_dropout=self.dropout, attention_dropout=self.dropout,
            **{**LIBRARIES[self.kind.libraries], **self.kind.torch_workspace},
        )).ranks


def layouts() -> list[Layout]:
    found = []
    for kind, (t, sp), p, b, m in product(KINDS.values(), ((1, 0), (2, 0), (4, 1)), (1, 2, 4), (1, 2), (1, 3, 8)):
        w, dropout, rmlp = 2 + 2 * ((p + m) % 2), int(kind.gpt and b == 2), int(m == 3)
        found.append(Layout(kind, t, sp, p, b, m, w, dropout, rmlp))
    return found


class Oracle:
    """Bytes of pipeline rank r, in integers. T tokens, ts ranks that share them out between the projections."""

    def __init__(self, layout: Layout, r: int) -> None:
        self.x, self.kind, self.r = layout, layout.kind, r
        self.t, self.ts = layout.t, layout.t if layout.sp else 1
        self.T, self.f, self.A, self.K = SEQUENCE * layout.b, self.kind.f, HEADS * WIDTH, self.kind.groups * WIDTH
        self.v = -(-VOCABULARY // (128 * self.t)) * 128 * self.t
        self.first, self.last = r == 0, r == layout.p - 1
        self.flight = min(layout.m, layout.p - r)
        self.layers = LAYERS // layout.p
        self.whole, self.share = 2 * H * self.T, 2 * H * self.T // self.ts
        self.logits = self.v * self.T // self.t  # elements
        self.local = self.kind.kernels["peak"] == "megatron_local"
        self.separate = self.kind.kernels.get("weight_gradient") == "separate"
        self.steady = layout.m > self.flight

    def norm(self) -> int:
        """Input of a norm and its statistics."""
        return self.share + (8 if self.kind.gpt else 4) * self.T // self.ts

    def mlp(self) -> int:
        """Inputs of the activation and of the projection back."""
        return (4 if self.kind.gpt else 6) * self.f * self.T // self.t

    def again(self) -> int:
        """Bytes that recompute of the MLP makes again: these, and those of the norm inside of its first projection."""
        return self.mlp() + (0 if self.local else self.norm())

    def layer(self) -> int:
        T, t, dropped = self.T, self.t, self.x.dropout
        scores = 2 * HEADS * SEQUENCE * SEQUENCE * self.x.b // t
        size = 2 * self.norm() + 2 * self.share  # both norms, inputs of QKV and of the MLP
        size += 2 * self.A * T // t + 4 * max(self.K // t, WIDTH) * T  # every rank has a head of keys and values
        if self.local:  # softmax; with dropout its mask of one byte and its result; output transposed
            size += scores + dropped * (scores + scores // 2) + 2 * self.A * T // t
        else:  # output, log-sum-exp, state of random numbers; a copy of the output for several sequences
            copies = 2 if self.kind.gpt and self.x.b > 1 else 1
            size += copies * 2 * self.A * T // t + 4 * HEADS * T // t + 16 * dropped
        size += self.mlp() - self.x.rmlp * self.again()
        return size + 2 * dropped * H * T // self.ts

    def embedding(self) -> int:
        """Ids and positions are inputs, not activations; what the embedding saves of its own are masked ids."""
        if not self.first:
            return 0
        return ((9 * self.T if self.t > 1 else 0) + self.x.dropout * H * self.T // self.ts) * self.flight

    def inner(self) -> int:
        return self.layer() * self.layers * self.flight + self.embedding()

    def head(self) -> int:
        """Final norm and input of the head."""
        return (self.norm() + self.share) * self.last

    def loss(self) -> int:
        """Gradient in place of logits, or fp32 softmax with masked labels and their mask."""
        fused = self.kind.kernels["loss"] == "te_fused"
        return (2 * self.logits if fused else 4 * self.logits + 9 * self.T) * self.last

    def sent(self) -> int:
        return self.share if self.steady and not self.first else 0

    def batch(self) -> int:
        """ids, labels, mask of the loss, positions; a second layout of labels; the attention mask."""
        T, alone = self.T, self.x.p == 1
        ids = 0 if alone and self.t == 1 else 8 * T
        positions = 0 if alone and self.kind.gpt else 8 * T
        copy = 8 * T if self.x.b > 1 else 0
        mask = self.x.b * SEQUENCE * SEQUENCE if self.kind.kernels.get("mask") == "dataloader" else 0
        return ids + 8 * T + 4 * T + positions + copy + mask

    def loss_forward(self) -> int:
        T, loss = self.T, self.kind.kernels["loss"]
        if loss == "te_fused":  # losses, statistics, those of all ranks
            return 16 * T + (12 * T * self.t if self.t > 1 else 0)
        shared = 2 * self.logits + 4 * T  # bf16 logits, maxima
        return shared + (4 * self.logits + 8 * T if loss == "native_fused" else 16 * T)

    def mlp_backward(self) -> int:
        wide = self.f if self.kind.gpt else 2 * self.f
        gathered = self.ts > 1
        activation = 2 * wide * self.T // self.t
        down = self.whole * gathered + 2 * self.f * self.T // self.t + self.x.dropout * self.share // 2
        copies = 1 if self.local else 1 + gathered
        up = activation + copies * self.whole + gathered * self.share - self.mlp()
        if not self.local and not gathered:  # the norm's weights have gradients beside that of the projection's output
            up += 2 * H * (1 + self.kind.gpt)
        if self.separate:
            down += 2 * H * self.f // self.t
            up += 2 * wide * H // self.t
        return max(down, activation, up) + self.x.rmlp * (self.again() + self.share)  # the output is made again too

    def parameters(self) -> int:
        """Elements of the rank; every matrix and vector of these sizes starts at a multiple of 64."""
        gpt, wide = self.kind.gpt, self.f if self.kind.gpt else 2 * self.f
        matrices = H * (self.A + 2 * self.K) + self.A * H + H * wide + self.f * H
        layer = matrices // self.t + 2 * H * (1 + gpt)
        if gpt:
            layer += (self.A + 2 * self.K + wide) // self.t + 2 * H
        ends = (self.first + self.last) * H * self.v // self.t + self.last * H * (1 + gpt)
        return self.layers * layer + ends + (SEQUENCE * H if gpt and self.first else 0)

    def padded(self) -> int:
        return -(-self.parameters() // 128) * 128

    def embedding_backward(self) -> int:
        if not self.first:
            return 0
        waiting = self.inner() - self.layer() * self.layers
        return 2 * H * self.v // self.t + self.whole + (self.share if self.x.p > 1 else 0) + waiting

    def moments(self) -> dict[str, int]:
        """Activations and transients at every moment."""
        inner, head, loss, sent, last = self.inner(), self.head(), self.loss(), self.sent(), self.last
        native = self.kind.kernels["loss"] != "te_fused"
        head_backward = 2 * self.logits + self.whole + (self.share if self.ts > 1 else 0)
        head_backward += 2 * H * self.v // self.t if self.separate else 0
        return {
            "after_forward": inner + head + loss + sent + 4 * native * last,
            # The loop still binds the micro-batch before, with the input that its graph began with: as much as it sent.
            "loss_forward": inner + head + loss + 2 * sent + (self.batch() + self.loss_forward()) * last,
            "loss_backward": inner + head + loss + sent + 2 * self.logits * native * last,
            "head_backward": inner + head + sent + head_backward * last,
            "stage_exchange": inner + sent + (0 if last else self.share * (2 + self.steady)),
            "layer_backward": inner + sent + self.share + self.mlp_backward(),
            "embedding_backward": sent + self.embedding_backward(),
            "optimizer_step": 2 * self.padded() * (self.x.w == 2) + (0 if self.first else 2 * self.share),
        }

    def static(self) -> int:
        """Two ranks share the optimizer's states."""
        states = (2 + self.x.w) * self.padded() + 12 * self.padded() // 2
        inputs = 8 * self.T * self.flight * self.first * (self.t == 1)
        if self.kind.gpt:
            inputs += 8 * self.T * self.flight * self.first  # positions
        return states + inputs + self.buffers()

    def buffers(self) -> int:
        small = self.kind.torch == "before 2.12" or (self.kind.libraries == "ampere" and not self.kind.torch)
        size = 0 if self.local else (4 * MIB if self.kind.libraries == "ampere" else 32 * MIB + 1024)
        size += 2 * (SMALL if small else LARGE) * (self.local or self.last)
        size += 0 if self.kind.gpt else 4 * WIDTH * SEQUENCE  # rotary angles
        if self.local:
            size += 2 * self.x.b * HEADS * SEQUENCE * SEQUENCE // self.t
        size += self.whole * (self.ts > 1) * self.last
        if not self.separate:
            wide = self.f if self.kind.gpt else 2 * self.f
            shapes = {((self.A + 2 * self.K) // self.t, H), (H, self.A // self.t), (wide // self.t, H),
                      (H, self.f // self.t)}
            shapes |= {(self.v // self.t, H)} if self.last else set()
            size += sum(2 * rows * columns for rows, columns in shapes)
        return size


@pytest.mark.parametrize("name", KINDS)
def test_every_moment_of_every_rank(name: str) -> None:
    chosen = [layout for layout in layouts() if layout.kind is KINDS[name]]
    assert len(chosen) == 54
    for layout in chosen:
        for found in layout.account():
            oracle = Oracle(layout, found.rank)
            assert dict(found.moments) == oracle.moments(), (layout, found.rank)
            assert found.total == oracle.static() + max(oracle.moments().values()), (layout, found.rank)
            assert found.moments[found.site] == max(oracle.moments().values())


def test_the_lines_of_an_account_are_its_total() -> None:
    for layout in layouts():
        for found in layout.account():
            assert sum(line.bytes for line in found.lines) == found.total == sum(found.by_role.values())


def test_the_layouts_peak_at_many_moments() -> None:
    sites = {found.site for layout in layouts() for found in layout.account()}
    assert {"loss_forward", "head_backward", "layer_backward"} <= sites


def test_a_gradient_of_two_bytes_has_its_copy_in_the_optimizer_step_alone() -> None:
    """20 bytes for a parameter in the optimizer step without sharing out, 16 in the passes."""
    kernels = {"peak": "megatron_te", "loss": "te_fused"}
    totals = {}
    for gradients in ("fp32", "bf16"):
        found, = explain(LLAMA.model, GPU, kernels=kernels, seq_length=SEQUENCE, gradients=gradients,
                         distributed_optimizer=False).ranks
        states = sum(found.by_role[role] for role in ("weight", "gradient", "optimizer"))
        totals[gradients] = states, found.moments["optimizer_step"]
    parameters = totals["fp32"][0] // 18
    assert totals == {"fp32": (18 * parameters, 0), "bf16": (16 * parameters, 4 * parameters)}
