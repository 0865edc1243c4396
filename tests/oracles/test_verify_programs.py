"""Programs of ``shardmath verify`` in processes of their own: FSDP2 without memory, to the byte, and the hook."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from random import Random
from typing import Any

import pytest

from shardmath.account.accounting import explain
from shardmath.account.configured import configured
from shardmath.cli.main import exit_code
from shardmath.commands.verify import hook, program, read_result
from shardmath.machines.gpu import Gpu
from shardmath.models.model import Model

pytestmark = pytest.mark.process
GPU = Gpu.named("h100-80gb")
FSDP = {"data_parallel": "fsdp", "peak": "torch"}


def drawn(draw: Random) -> tuple[Model, dict[str, Any]]:
    """Draw a model whose vocabulary is as large as real ones are, beside its width, and a run of it."""
    groups, each, heads = draw.choice((1, 2, 4)), draw.choice((1, 2, 4)), draw.choice((32, 64))
    hidden = groups * each * draw.choice((32, 64, 96))
    precision, ranks, batch = draw.choice(("mixed", "bf16")), draw.choice((2, 8)), draw.choice((1, 2))
    family = draw.choice(({}, {"qkv_bias": True}, {"qk_norm": True}))
    units, reshard = draw.choice((*((units, "default") for units in ("root", "ends", "ends")), ("root", "always"),
                                  ("root", "never"), ("ends", "never")))
    model = Model(**{
        "name": "drawn", "source": "", "hidden_size": hidden, "ffn_hidden_size": 32 * draw.randint(4, 40),
        "num_layers": draw.randint(2, 5), "num_attention_heads": groups * each, "num_kv_heads": groups,
        "head_dim": heads, "vocab_size": 32 * hidden, "tied_embeddings": draw.random() < 0.5, "qkv_bias": False,
        "qk_norm": False, "max_seq_length": 4096, **family,
    })
    return model, {
        "implementation": "huggingface", "num_gpus": ranks, "micro_batch_size": batch, "seq_length": 512,
        "global_batch_size": batch * ranks * draw.choice((1, 3)), "recompute": draw.choice(("none", "full")),
        "kernels": {**FSDP, "precision": precision, "loss": draw.choice(("huggingface", "huggingface_freed")),
                    "units": units, "reshard": reshard},
        "gradients": draw.choice(("fp32", "bf16")) if precision == "mixed" else "bf16",
    }


@pytest.mark.cases(2, 40)
def test_fsdp2_without_memory_has_the_predicted_peak(draws: list[Random], tmp_path: Path) -> None:
    for draw in draws:
        model, arguments = drawn(draw)
        text = program(configured(model, GPU, **arguments), model, GPU, arguments)
        _run(tmp_path, "check.py", text)
        result = read_result(tmp_path / "shardmath_result.json")
        predicted = explain(model, GPU, **arguments, torch_workspace_bytes=0).peak_bytes
        assert result.measured_allocated_bytes == result.predicted_allocated_bytes == predicted, (model, arguments)
        assert result.measured_reserved_bytes is None
        assert result.versions.startswith("torch ")


#: Stands for a training: three steps on a CPU, with the statistics of a GPU.
TRAINING = """
import sys
import torch

assert sys.argv[1:] == ["--lr", "1"] and __name__ == "__main__"
torch.cuda.memory_stats = lambda: {"allocated_bytes.all.peak": 1000 * steps, "reserved_bytes.all.peak": 1100 * steps}
weight = torch.nn.Parameter(torch.ones(2))
optimizers = [torch.optim.AdamW([weight]), torch.optim.SGD([weight])]
for steps in (1, 2, 3):
    for optimizer in optimizers:
        weight.grad = torch.ones(2)
        optimizer.step()
"""


@pytest.mark.parametrize("start", [("train.py",), ("-m", "train")])
def test_the_hook_reports_after_the_second_step(
    tmp_path: Path, start: tuple[str, ...], capsys: pytest.CaptureFixture[str],
) -> None:
    arguments: dict[str, Any] = {"num_gpus": 8, "tensor_parallel": 2}
    text = hook(configured("llama-3.2-1b", GPU, **arguments), "llama-3.2-1b", GPU, arguments)
    (tmp_path / "train.py").write_text(TRAINING)
    printed = _run(tmp_path, "shardmath_hook.py", text, *start, "--lr", "1")
    lines = printed.splitlines()
    assert [line.split()[1:3] for line in lines] == [["allocated_bytes", "2,000"], ["reserved_bytes", "2,200"]]
    result = tmp_path / "shardmath_result.json"
    assert json.loads(result.read_text())["measured"] == {"allocated_bytes": 2000, "reserved_bytes": 2200}
    table = tmp_path / "evidence.csv"
    assert exit_code(["verify", "--read", str(result), "--table", str(table)]) == 0
    assert "What was reserved lies outside of the predicted range." in capsys.readouterr().out
    estimate = read_result(result).predicted_allocated_bytes
    assert f"{estimate:,} estimated" in lines[0]
    assert table.read_text().count("\n") == 2


def _run(folder: Path, name: str, text: str, *arguments: str) -> str:
    (folder / name).write_text(text, encoding="utf-8")
    return subprocess.run([sys.executable, name, *arguments], cwd=folder, check=True, capture_output=True,
                          text=True).stdout
