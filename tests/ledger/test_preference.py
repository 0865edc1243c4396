"""Preference training: pairs are two sequences, the reference is a copy of the weights, and what readers make of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from counted import table
from oracles.instruments.times import timed

from shardmath import explain, formats
from shardmath.errors import InputError
from shardmath.symbolic.accounts import build
from shardmath.symbolic.implementations import HUGGINGFACE, TORCHTITAN

#: TRL's own examples in trl/scripts/dpo.py (release 1.16), on a model of the catalogue.
FLAGS = ("--dataset_name trl-lib/ultrafeedback_binarized --model_name_or_path Qwen/Qwen2.5-0.5B-Instruct"
         " --per_device_train_batch_size 2 --gradient_accumulation_steps 8 --eval_strategy steps")
LORA = " --use_peft --lora_r 32 --lora_alpha 16"


def read(folder: Path, text: str, name: str = "run.sh") -> dict[str, Any]:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return dict(formats.read(path).arguments)


@pytest.mark.parametrize("start", ["trl dpo", "python trl/scripts/dpo.py"])
def test_trl(start: str, tmp_path: Path) -> None:
    whole = read(tmp_path, f"{start} {FLAGS}\n")
    assert (whole["micro_batch_size"], whole["seq_length"], whole["recompute"]) == (4, 1024, "full")
    assert whole["kernels"] == {"optimizer": "adamw", "loss": "trl", "reference": "copy", "precision": "bf16"}
    for more in (LORA, " --precompute_ref_log_probs true"):
        assert "reference" not in read(tmp_path, f"{start} {FLAGS}{more}\n")["kernels"]
    with pytest.raises(InputError, match="sync_ref_model"):
        read(tmp_path, f"{start} {FLAGS} --sync_ref_model true\n")


@pytest.mark.parametrize("start", ["trl kto", "python trl/scripts/kto.py"])
def test_kto_of_trl(start: str, tmp_path: Path) -> None:
    """Answers stand alone, and the head is that of all trainers of TRL 1.16."""
    whole = read(tmp_path, f"{start} {FLAGS} --desirable_weight 1.3\n")
    assert (whole["micro_batch_size"], whole["seq_length"], whole["recompute"]) == (2, 1024, "full")
    assert whole["kernels"] == {"optimizer": "adamw", "loss": "trl", "reference": "copy", "precision": "bf16"}
    assert "reference" not in read(tmp_path, f"{start} {FLAGS}{LORA}\n")["kernels"]


@pytest.mark.parametrize(("script", "loss"), [
    ("orpo.py", "trl_orpo"), ("cpo.py", "trl_orpo"), ("cpo.py --loss_type simpo --cpo_alpha 0", "trl_simpo"),
    ("cpo.py --loss_type alphapo", "trl_simpo"), ("orpo.py --deepspeed ds.json", "trl_orpo_16"),
])
def test_orpo_and_cpo_of_trl(script: str, loss: str, tmp_path: Path) -> None:
    (tmp_path / "ds.json").write_text('{"zero_optimization": {"stage": 2}, "bf16": {"enabled": true}}')
    run = read(tmp_path, f"accelerate launch examples/scripts/{script} {FLAGS} --beta 0.2\n")
    assert (run["micro_batch_size"], run["recompute"], run["kernels"]["loss"]) == (4, "full", loss)
    assert "reference" not in run["kernels"]


@pytest.mark.parametrize("start", ["trl reward", "python trl/scripts/reward.py"])
def test_rewards_of_trl(start: str, tmp_path: Path) -> None:
    run = read(tmp_path, f"{start} {FLAGS} --center_rewards_coefficient 0.01\n")
    assert (run["micro_batch_size"], run["seq_length"], run["recompute"]) == (4, 1024, "full")
    assert run["kernels"] == {"optimizer": "adamw", "loss": "reward", "precision": "bf16"}


@pytest.mark.slow
def test_a_reward_model_has_one_row_for_the_vocabulary() -> None:
    """Llama 2 7B has 32,000 rows of 4096 in its head; pairs are two sequences; what is not counted is refused."""
    run: dict[str, Any] = {"implementation": "huggingface", "num_gpus": 8, "seq_length": 2048, "recompute": "full"}
    words, scores = (explain("llama-2-7b", "h100-80gb", **run, micro_batch_size=2, kernels={"loss": loss}).peak
                     for loss in ("huggingface", "reward"))
    assert words.by_role["weight"] - scores.by_role["weight"] == 2 * 31_999 * 4096
    with pytest.raises(InputError, match="micro_batch_size = 3: must be even"):
        explain("llama-2-7b", "h100-80gb", **run, micro_batch_size=3, kernels={"loss": "reward"})
    for more in ({"lora_rank": 8, "kernels": {"data_parallel": "fsdp"}}, {"kernels": {"precision": "autocast"}},
                 {"kernels": {"peak": "torch"}}):
        kernels = {"loss": "reward", **more.pop("kernels", {})}
        with pytest.raises(InputError, match="not counted yet"):
            explain("llama-2-7b", "h100-80gb", **run, micro_batch_size=2, kernels=kernels, **more)


@pytest.mark.slow
def test_packed_documents_take_attention_of_their_own() -> None:
    """Memory is that of one sequence but for bounds and positions; what is no packed sequence is refused."""
    run: dict[str, Any] = {"implementation": "huggingface", "num_gpus": 8, "seq_length": 8192, "recompute": "none"}
    saved = {"peak": "saved"}
    whole = explain("llama-2-7b", "h100-80gb", **run, kernels={"attention": "flash", **saved})
    packed = explain("llama-2-7b", "h100-80gb", **run, kernels=saved, document_length=1024)
    # of eight documents: positions of all tokens, and bounds in every one of 32 layers
    assert packed.peak.total - whole.peak.total == 8 * 8192 + 32 * 4 * 9
    assert packed.choices["documents"] == "packed"
    for words, more in (("micro_batch_size = 2", {"micro_batch_size": 2}),
                        ("loss = log_probs", {"kernels": {"loss": "log_probs"}}),
                        ("document_length = 9000", {"document_length": 9000})):
        with pytest.raises(InputError, match=words):
            explain("llama-2-7b", "h100-80gb", **{**run, "document_length": 1024, **more})


def test_llamafactory(tmp_path: Path) -> None:
    text = ("model_name_or_path: qwen2.5-7b\nstage: dpo\nfinetuning_type: full\ncutoff_len: 2048\ntemplate: qwen\n"
            "per_device_train_batch_size: 1\nbf16: true\nenable_liger_kernel: true\ndeepspeed: ds_z3_config.json\n")
    run = read(tmp_path, text, "dpo.yaml")
    assert run["micro_batch_size"] == 2
    assert (run["kernels"]["loss"], run["kernels"]["reference"]) == ("log_probs", "copy")
    assert "reference" not in read(tmp_path, f"{text}pref_loss: simpo\n", "dpo.yaml")["kernels"]
    single = read(tmp_path, text.replace("dpo", "kto"), "kto.yaml")
    assert (single["micro_batch_size"], single["kernels"]["loss"], single["kernels"]["reference"]) == (
        1, "log_probs_kto", "copy")
    with pytest.raises(InputError, match="stage"):
        read(tmp_path, text.replace("dpo", "ppo"), "dpo.yaml")


AXOLOTL = ("base_model: llama-3-8b\nrl: dpo\nsequence_len: 4096\nmicro_batch_size: 1\nbf16: true\ndatasets: x\n"
           "gradient_accumulation_steps: 4\ncut_cross_entropy: true\n")


@pytest.mark.parametrize(("more", "loss", "reference"), [
    ("", "trl_dpo", "copy"), ("adapter: lora\nlora_r: 8\nlora_target_linear: true\n", "trl_dpo", None),
    ("fsdp_config: {fsdp_version: 2}\n", "trl_dpo_16", "copy"),
    ("fsdp: [full_shard, auto_wrap]\n", "trl_dpo", "copy"),
    ("deepspeed: zero3_bf16.json\n", "trl_dpo_16", "copy"), ("precompute_ref_log_probs: true\n", "trl_dpo", "copy"),
])
def test_axolotl(more: str, loss: str, reference: str | None, tmp_path: Path) -> None:
    """Logits are what the model returns: fp32 ones where Accelerate casts. A reference stays though it is not used."""
    run = read(tmp_path, AXOLOTL + more, "run.yaml")
    assert (run["micro_batch_size"], run["seq_length"]) == (2, 4096)
    assert (run["kernels"]["loss"], run["kernels"].get("reference")) == (loss, reference)
    with pytest.raises(InputError, match="rl_adapter_ref_model"):
        read(tmp_path, f"{AXOLOTL}{more}rl_adapter_ref_model: true\n", "run.yaml")


@pytest.mark.parametrize(("kind", "micro", "loss", "reference"), [
    ("kto", 1, "trl_kto", "copy"), ("orpo", 2, "trl_orpo", None), ("simpo", 2, "trl_orpo", None),
    ("simpo\ncpo_alpha: 0", 2, "trl_simpo", None), ("orpo\ncpo_alpha: 0", 2, "trl_orpo", None),
])
@pytest.mark.parametrize("narrow", [False, True])
def test_other_losses_of_axolotl(kind: str, micro: int, loss: str, reference: str | None, narrow: bool,
                                 tmp_path: Path) -> None:
    """SimPO is TRL's CPO, whose cross entropy is left out where its weight is 0."""
    text = AXOLOTL.replace("dpo", kind) + ("deepspeed: zero3_bf16.json\n" if narrow else "")
    run = read(tmp_path, text, "run.yaml")
    assert (run["micro_batch_size"], run["kernels"]["loss"], run["kernels"].get("reference")) == (
        micro, loss + ("_16" if narrow else ""), reference)


@pytest.mark.parametrize(("kind", "micro", "loss", "reference"), [
    ("kto", 1, "swift_kto", "copy"), ("orpo", 2, "trl_orpo", None), ("cpo", 2, "trl_orpo", None),
    ("simpo --cpo_alpha 0.0", 2, "trl_simpo", None), ("simpo", 2, "trl_orpo", None), ("rm", 2, "reward", None),
])
def test_other_losses_of_ms_swift(kind: str, micro: int, loss: str, reference: str | None, tmp_path: Path) -> None:
    run = read(tmp_path, f"swift rlhf --rlhf_type {kind} --model qwen2.5-7b --dataset x --max_length 2048"
               " --tuner_type full\n")
    assert (run["micro_batch_size"], run["kernels"]["loss"], run["kernels"].get("reference")) == (
        micro, loss, reference)


@pytest.mark.parametrize(("more", "loss", "reference"), [
    ("", "swift_dpo", None), (" --tuner_type full", "swift_dpo", "copy"),
    (" --tuner_type full --deepspeed zero2 --rlhf_type dpo", "swift_dpo_16", "copy"),
    (" --tuner_type full --bf16 false --torch_dtype bfloat16", "swift_dpo_16", "copy"),
    (" --tuner_type full --bf16 false --torch_dtype float32", "swift_dpo", "copy"),
    (" --tuner_type full --fsdp fsdp2 --torch_dtype float32", "swift_dpo_16", "copy"),
])
def test_ms_swift(more: str, loss: str, reference: str | None, tmp_path: Path) -> None:
    run = read(tmp_path, f"swift rlhf --model qwen2.5-7b --dataset x --max_length 2048 --beta 0.1{more}\n")
    assert (run["micro_batch_size"], run["seq_length"]) == (2, 2048)
    assert (run["kernels"]["loss"], run["kernels"].get("reference")) == (loss, reference)


@pytest.mark.parametrize(("start", "warned"), [
    ("sft", True), ("rlhf", True), ("rlhf --rlhf_type kto", True), ("sft --use_logits_to_keep false", False),
    ("sft --use_logits_to_keep true", True), ("rlhf --rlhf_type simpo", False), ("rlhf --rlhf_type rm", False),
    ("sft --use_liger_kernel true", False),
])
def test_logits_of_labels_in_ms_swift(start: str, warned: bool, tmp_path: Path) -> None:
    """They are made unless a file says otherwise; losses of TRL and rewards read all."""
    (path := tmp_path / "run.sh").write_text(f"swift {start} --model qwen2.5-7b --dataset x --max_length 2048\n")
    run = formats.read(path)
    assert [warning for warning in run.warnings if "alone" in warning] == [
        "use_logits_to_keep makes logits of labels alone, and no setting says how many tokens have one: logits of all"
        " tokens are counted, which are more than real ones where prompts are masked"] * warned


@pytest.mark.slow
def test_logits_of_pairs() -> None:
    """Of 152,064 words and 2 x 2048 tokens: bytes of a logit, those of scored ones apart, and numbers of tokens."""
    run: dict[str, Any] = {"implementation": "huggingface", "num_gpus": 8, "seq_length": 2048, "recompute": "full",
                           "micro_batch_size": 2}
    peaks = {loss: explain("qwen2.5-7b", "h100-80gb", **run, kernels={"loss": loss, "peak": "saved"}).peak
             for loss in ("log_probs", "trl_dpo", "trl_dpo_16", "swift_dpo", "swift_dpo_16")}
    alone = {loss: peak.moments["loss_backward"] - peaks["log_probs"].moments["loss_backward"]
             for loss, peak in peaks.items()}
    words, tokens, scored = 152_064, 2 * 2048, 2 * 2047
    kept = 12 * scored * words + 9 * scored
    assert alone == {
        "log_probs": 0, "trl_dpo": (4 * tokens + 8 * scored) * words + 5 * scored - kept,
        "trl_dpo_16": (2 * tokens + 2 * scored) * words + scored - kept,
        "swift_dpo": 12 * tokens * words + 13 * tokens - kept, "swift_dpo_16": 4 * tokens * words + 9 * tokens - kept,
    }
    for loss in peaks:
        with pytest.raises(InputError, match="micro_batch_size = 3: must be even"):
            explain("qwen2.5-7b", "h100-80gb", **{**run, "micro_batch_size": 3}, kernels={"loss": loss})


@pytest.mark.slow
def test_the_reference_lies_as_the_weights_do() -> None:
    parameters = 6_738_415_616
    for kernels, ranks, bytes_of_each in (({}, 1, 2), ({"data_parallel": "fsdp", "precision": "mixed"}, 8, 4)):
        run: dict[str, Any] = {"implementation": "huggingface", "num_gpus": 8, "seq_length": 2048, "recompute": "full"}
        sizes = [explain("llama-7b", "h100-80gb", **run, kernels={**kernels, "reference": kind}).peak.by_role["weight"]
                 for kind in ("none", "copy")]
        assert sizes[1] - sizes[0] == bytes_of_each * parameters // ranks == sizes[0]
    with pytest.raises(InputError, match="frozen weights are the reference"):
        explain("llama-7b", "h100-80gb", implementation="huggingface", lora_rank=8, kernels={"reference": "copy"})


@pytest.mark.slow
def test_float8_of_torchao_keeps_what_16_bits_keep() -> None:
    for row in table("float8_saved"):
        assert int(row["saved"]) == 2 * int(row["tokens"]) * int(row["inputs"])
    plain, float8 = (build(TORCHTITAN.with_choices(float8=kind)) for kind in ("none", "rowwise"))
    assert plain["layer.saved"].expression == float8["layer.saved"].expression
    with pytest.raises(ValueError, match="float8"):
        HUGGINGFACE.with_choices(float8="rowwise")


@pytest.mark.slow
def test_losses_of_actors_and_critics() -> None:
    """Llama 3.2 1B has 128,256 words: 2 bytes of a logit, 4 more with entropy; a critic has a row and a bias."""
    run: dict[str, Any] = {"implementation": "huggingface", "num_gpus": 8, "seq_length": 8192, "recompute": "full",
                           "document_length": 1024}
    actor, entropy, critic = (explain("llama-3.2-1b", "h100-80gb", **run, kernels={"loss": loss}).peak
                              for loss in ("verl", "verl_entropy", "value"))
    assert entropy.moments["loss_backward"] - actor.moments["loss_backward"] == 8192 * (4 * 128_256 + 10)
    assert critic.parameters - actor.parameters == 2048 + 1
    more = {"verl_entropy_chunks": 8192 * (8 * 128_256 + 12), "verl_entropy_eager": 8192 * (12 * 128_256 + 2),
            "verl_entropy_eager_chunks": 8192 * (10 * 128_256 + 4) + 20 * 2048 * 128_256,
            "openrlhf": 8192 * 8 * 128_256, "openrlhf_entropy": 8192 * (10 * 128_256 + 12)}
    for loss, expected in more.items():
        peak = explain("llama-3.2-1b", "h100-80gb", **run, kernels={"loss": loss}).peak
        assert peak.moments["loss_backward"] - actor.moments["loss_backward"] == expected, loss
    with pytest.raises(InputError, match="not counted yet: loss = verl under autocast"):
        explain("llama-3.2-1b", "h100-80gb", **run, kernels={"loss": "verl", "precision": "autocast"})


@pytest.mark.slow
def test_actors_with_a_vocabulary_over_ranks() -> None:
    """128,256 words are padded to 128,512 for four ranks: fp32 logits of a rank, and few numbers of a token."""
    run: dict[str, Any] = {"num_gpus": 8, "tensor_parallel": 4, "seq_length": 8192, "recompute": "full"}
    usual, *others = (explain("llama-3.1-8b", "h100-80gb", **run, kernels={"loss": loss}).peak.moments["loss_backward"]
                      for loss in ("vocab_parallel", "verl_megatron", "verl_megatron_entropy", "nemo_rl"))
    logits = 128_512 // 4
    assert [other - usual for other in others] == [8192 * size for size in (2 * logits + 4, 6 * logits + 8, 2 * logits)]
    with pytest.raises(InputError, match=r"loss = 'verl_megatron': must be one of .* with huggingface"):
        explain("llama-3.1-8b", "h100-80gb", implementation="huggingface", kernels={"loss": "verl_megatron"})


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", ["adamw", "adamw_8bit"])
def test_the_optimizer_leaves_the_reference_alone(optimizer: str) -> None:
    """With states that are shared out or belong to whole tensors, the step reads and writes as much as without it."""
    chosen = HUGGINGFACE.with_choices(optimizer=optimizer, precision="bf16")
    shape = {"h": 64, "a": 4, "k": 4, "d": 16, "f": 128, "u": 512, "L": 2, "s": 16, "b": 1, "tied": 0, "B": 1}
    alone, beside = (timed(chosen.with_choices(reference=reference), **shape)["stage.optimizer_time"]
                     for reference in ("none", "copy"))
    assert alone == beside > 0
