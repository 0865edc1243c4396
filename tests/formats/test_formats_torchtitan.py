"""Configurations of torchtitan's main branch in Python: batches in tokens, optimizers, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from shardmath.errors import InputError
from shardmath.formats import read
from shardmath.formats.run import Run

CONFIGURATION = """\
from torchtitan.components.optimizer import default_adamw, OptimizersContainer, ParamGroupConfig
from torchtitan.config import ParallelismConfig, TrainingConfig
from torchtitan.models.{family} import model_registry
from torchtitan.trainer import Trainer


def config():
    return Trainer.Config(
        model_spec=model_registry({model}),
        optimizer={optimizer},
        training=TrainingConfig({training}),
        parallelism=ParallelismConfig({parallelism}),
    )
"""
LLAMA = {"family": "llama3", "model": "'8B'", "optimizer": "default_adamw(lr=3e-4)", "training": "steps=10",
         "parallelism": ""}
ADAM = "ParamGroupConfig(pattern='.*', optimizer_name='{}', optimizer_kwargs={{'lr': 1e-4}})"


def made(folder: Path, **parts: str) -> Run:
    (folder / "config.py").write_text(CONFIGURATION.format(**{**LLAMA, **parts}), encoding="utf-8")
    return read(folder / "config.py")


@pytest.mark.parametrize(("parts", "length", "micro", "batch"), [
    ({"training": "num_tokens_per_microbatch_per_dp_rank=4 * 4096, max_context_length=4096"}, 4096, 4, 32),
    ({"training": "max_context_length=4096"}, 4096, 4, 32),
    ({"training": "num_tokens_per_microbatch_per_dp_rank=4096"}, 2048, 2, 16),
    ({"training": "max_context_length=8192, num_tokens_per_train_step=64 * 8192"}, 8192, 2, 64),
    ({"training": "max_context_length=4096",
      "parallelism": "pipeline_parallel_degree=4, num_pp_microbatches=6"}, 4096, 4, 48),
    ({"training": "local_batch_size=2, seq_len=8192"}, 8192, 2, 16),
])
def test_batches_in_tokens(parts: dict[str, str], length: int, micro: int, batch: int, tmp_path: Path) -> None:
    run = made(tmp_path, **parts)
    arguments = run.changed({"data_parallel": 8 // run.arguments["pipeline_parallel"]})
    assert (arguments["seq_length"], arguments["micro_batch_size"], arguments["global_batch_size"]) == (
        length, micro, batch)
    assert run.unknown == ()


def test_weights_in_bf16(tmp_path: Path) -> None:
    """``training.dtype`` is that of shards, gradients and moments; FSDP2 sums gradients in fp32 all the same."""
    plain, narrow = (made(tmp_path, training=f"local_batch_size=1, seq_len=4096{more}").arguments
                     for more in ("", ", dtype='bfloat16'"))
    assert narrow == {**plain, "kernels": {**plain["kernels"], "precision": "bf16"}}
    assert made(tmp_path, training="dtype='float32'").arguments["kernels"] == plain["kernels"]
    with pytest.raises(InputError, match=r"training.dtype.*must be one of float32, bfloat16"):
        made(tmp_path, training="dtype='float16'")


@pytest.mark.parametrize(("parts", "field", "rule"), [
    ({"training": "num_tokens_per_microbatch_per_dp_rank=6000, max_context_length=4096"},
     "training.num_tokens_per_microbatch_per_dp_rank", "must be a multiple of training.max_context_length = 4096"),
    ({"family": "deepseek_v3", "model": "'16B', moe_comm_backend='hybridep'"},
     "parallelism.expert_parallel_comm_backend", "must be standard"),
    ({"family": "deepseek_v3", "model": "'16B', num_mtp_layers=1"}, "model.num_mtp_layers", "must be 0"),
    ({"parallelism": "tensor_parallel_degree=2, enable_sequence_parallel=False"},
     "parallelism.enable_sequence_parallel", "must be true"),
    ({"optimizer": f"OptimizersContainer.Config(param_groups=[{ADAM.format('DistMuon')}])"}, "optimizer",
     "must be default_adamw, or OptimizersContainer.Config of Adam and AdamW"),
    ({"optimizer": "OptimizersContainer.Config(param_groups=[" + ADAM.format("AdamW") + "],"
      " implementation='fused_opt_states_bf16')"}, "optimizer.implementation",
     "must be one of fused, foreach, for-loop"),
    ({"optimizer": "other_optimizer()"}, "optimizer", "must be default_adamw"),
])
def test_settings_that_are_refused(parts: dict[str, str], field: str, rule: str, tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        made(tmp_path, **parts)
    assert caught.value.field == field
    assert rule in caught.value.rule


def test_groups_of_parameters_and_cuda_graphs(tmp_path: Path) -> None:
    groups = f"OptimizersContainer.Config(param_groups=[{ADAM.format('Adam')}, {ADAM.format('AdamW')}]"
    run = made(tmp_path, optimizer=f"{groups}, implementation='foreach')", model="'1B', tp_gemm_backend='dist_gemm'",
               training="num_tokens_per_microbatch_per_dp_rank=8192", parallelism="enable_sequence_parallel=False")
    assert (run.model.name, run.arguments["kernels"]["optimizer_kernel"]) == ("llama-3.2-1b", "foreach")
    assert any("memory of CUDA graphs is not counted yet" in text for text in run.warnings)
    assert any(text.startswith("model.tp_gemm_backend is not counted yet") for text in run.warnings)
    plain = made(tmp_path, training="num_tokens_per_microbatch_per_dp_rank=8192, disable_cuda_graphs=True")
    assert not any("CUDA graphs" in text for text in plain.warnings)


@pytest.mark.parametrize(("lines", "loading"), [
    ("enable = true\nasync_mode = 'async'", "distributed_copied"),
    ("enable_checkpoint = true\nasync_mode = 'async_with_pinned_mem'", "distributed_copied"),
    ("enable = true", "distributed"), ("async_mode = 'async'", "distributed"),
])
def test_checkpoints_that_are_copied_to_the_host(lines: str, loading: str, tmp_path: Path) -> None:
    model = "[model]\nname = 'llama3'\nflavor = '8B'\n[parallelism]\n[training]\n"
    (tmp_path / "job.toml").write_text(f"{model}[checkpoint]\n{lines}\n", encoding="utf-8")
    run = read(tmp_path / "job.toml")
    assert run.arguments["kernels"].get("loading", "distributed") == loading
    assert run.unknown == ()
