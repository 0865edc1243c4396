"""Files of programs that are known and not read: each is named, with what to do instead.

Keys and commands are those of files in the projects' own repositories, at the commits beside them.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from nested_settings import nested

from shardmath.errors import InputError
from shardmath.formats import read
from shardmath.formats.described import unread

#: By program: files of settings, with some of their keys.
FILES: tuple[tuple[str, str, dict[str, list[str]]], ...] = (
    ("verl", "ppo_trainer.yaml (b178a3cd5)", {"actor_rollout_ref.model.path": ["x"], "critic.strategy": ["fsdp"]}),
    ("nemo_rl", "grpo_math_1B.yaml (7ea279abf)", {"policy.model_name": ["x"], "grpo.num_prompts_per_step": ["32"]}),
    ("nemo_rl", "grpo-gptoss-20b-8n4g-megatron.yaml (7ea279abf)", {
        "defaults": ["x.yaml"], "policy.megatron_cfg.tensor_model_parallel_size": ["4"], "cluster.num_nodes": ["8"]}),
    ("nemo_rl", "grpo-deepscaler-1.5b-1n4g-8K.yaml (7ea279abf)", {
        "defaults": ["x.yaml"], "checkpointing.enabled": ["false"], "logger.log_dir": ["x"],
        "cluster.num_nodes": ["1"]}),
    ("prime_rl", "basic/wordle/sft.toml (559b44772)", {
        "max_steps": ["20"], "model.name": ["Qwen/Qwen3-1.7B"], "data.seq_len": ["1024"], "optim.lr": ["1e-5"]}),
    ("prime_rl", "advanced/glm-5.2/swe.toml (559b44772)", {
        "seq_len": ["131072"], "trainer.optim.type": ["muon"], "orchestrator.batch_size": ["256"],
        "inference.model.name": ["x"], "slurm.job_name": ["x"]}),
    ("torchforge", "apps/grpo/qwen3_1_7b.yaml (6e77f0b3)", {
        "local_batch_size": ["16"], "off_by_n": ["1"], "model": ["Qwen/Qwen3-1.7B"],
        "policy.engine_args.tensor_parallel_size": ["1"], "trainer.training.dtype": ["bfloat16"]}),
    ("automodel", "llama3_2_1b_squad.yaml (36044ad3d)", {
        "recipe": ["TrainFinetuneRecipeForNextTokenPrediction"], "step_scheduler.local_batch_size": ["8"],
        "dist_env.backend": ["nccl"], "model._target_": ["nemo_automodel.NeMoAutoModelForCausalLM.from_pretrained"],
        "model.pretrained_model_name_or_path": ["meta-llama/Llama-3.2-1B"], "distributed.strategy": ["fsdp2"]}),
    ("levanter", "mixtral_8x7b.yaml (9263f81e)", {
        "model.type": ["mixtral"], "trainer.mp": ["p=f32,c=bfloat16"], "trainer.fsdp_axis": ["embed"]}),
    ("maxtext", "gpu/models/llama3_8b.yml (e591f30cb)", {
        "base_config": ["base.yml"], "model_name": ["llama3-8b"], "per_device_batch_size": ["6"]}),
    ("maxtext", "models/llama3-8b.yml (e591f30cb)", {"base_emb_dim": ["4096"], "base_num_query_heads": ["32"]}),
    ("llamafactory_use", "inference/qwen3.yaml (ff6d4d12)", {
        "model_name_or_path": ["Qwen/Qwen3-4B-Instruct-2507"], "template": ["qwen3_nothink"],
        "infer_backend": ["huggingface"]}),
)
#: By program: commands of scripts.
SCRIPTS: tuple[tuple[str, str, str], ...] = (
    ("slime", "run-qwen3-4B.sh (05a0752)",
     "ARGS=(--num-layers 36 --hidden-size 2560)\npython3 train.py --actor-num-gpus-per-node 8 --hf-checkpoint x"
     " ${ARGS[@]} --rollout-batch-size 32 --use-dynamic-batch-size --max-tokens-per-gpu 9216\n"),
    ("openrlhf", "train_ppo_ray_hybrid_engine.sh (3c3be623)",
     "ray job submit -- python3 -m openrlhf.cli.train_ppo_ray --ref.num_nodes 1 --actor.num_gpus_per_node 8\n"),
    ("openrlhf", "flags of 0.8", "python3 -m train_ppo_ray --actor_num_gpus_per_node 8 --pretrain x\n"),
    ("verl", "run_qwen3_prefix_grouper.sh (b178a3cd5)",
     "python3 -m verl.trainer.main_ppo algorithm.adv_estimator=grpo data.train_batch_size=1024\n"),
    ("verl", "run_qwen_05_sp2.sh (b178a3cd5)",
     "torchrun --nproc_per_node=2 -m verl.trainer.fsdp_sft_trainer data.micro_batch_size_per_gpu=4\n"),
    ("deepspeed_chat", "step2_dpo_finetuning/run_llama2_7b_lora.sh (83757d9c)",
     "deepspeed main.py --data_path Dahoas/rm-static --data_split 2,4,4 --model_name_or_path x"
     " --per_device_train_batch_size 8 --max_seq_len 512 --zero_stage 3 --deepspeed --offload --lora_dim 128\n"),
    ("deepspeed_chat", "step3_rlhf_finetuning/run_1.3b.sh (83757d9c)",
     "deepspeed --num_gpus 1 main.py --actor_model_name_or_path x --critic_model_name_or_path y\n"),
    ("maxtext", "tpu/v5p/128b.sh (e591f30cb)",
     "python3 -m maxtext.trainers.pre_train.train src/maxtext/configs/base.yml base_num_decoder_layers=96\n"),
    ("nemo_rl", "examples/run_grpo.py", "uv run ./examples/run_grpo.py --config x.yaml\n"),
)


def test_each_program_says_what_to_do() -> None:
    for name, row in unread().items():
        assert row["title"], name
        assert "give" in row["advice"] or "write" in row["advice"], name


@pytest.mark.parametrize(("program", "file", "settings"), FILES, ids=[file for _, file, _ in FILES])
def test_files_are_named(program: str, file: str, settings: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "run.yaml"
    path.write_text(json.dumps(nested(settings)), encoding="utf-8")
    _refused(program, path)


@pytest.mark.parametrize(("program", "file", "text"), SCRIPTS, ids=[file for _, file, _ in SCRIPTS])
def test_scripts_are_named(program: str, file: str, text: str, tmp_path: Path) -> None:
    path = tmp_path / "run.sh"
    path.write_text(text, encoding="utf-8")
    _refused(program, path)


def _refused(program: str, path: Path) -> None:
    with pytest.raises(InputError) as caught:
        read(path)
    row = unread()[program]
    assert (caught.value.field, caught.value.value) == ("model", program)
    said = f"this is one of {row['title']}, not read yet; {row['advice']}"
    assert caught.value.rule == f"must be a file that is read: {said}"
