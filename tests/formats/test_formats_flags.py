"""What each flag of Megatron-LM means, and what its absence means, as ``megatron/training/arguments.py`` has it."""

from __future__ import annotations

from typing import Any

import pytest

from shardmath.errors import InputError
from shardmath.formats.megatron import flags
from shardmath.formats.megatron.reading import run_of
from shardmath.formats.options import Options
from shardmath.formats.run import Run
from shardmath.formats.scripts.launch import flags_of
from shardmath.generated.definitions import WORDS
from shardmath.machines.gpu import Gpu

LEAST = ("--num-layers 8 --hidden-size 512 --num-attention-heads 8 --seq-length 1024 --max-position-embeddings 2048"
         " --micro-batch-size 2 --vocab-size 1000 --bf16")
EXPERTS = "--swiglu --num-experts 8"
OFFLOAD = "--fine-grained-activation-offloading --offload-modules"
LATENT = "--multi-latent-attention --qk-layernorm --disable-bias-linear --swiglu"


def run(more: str = "", **options: Any) -> Run:
    return run_of(Options(flags_of(f"{LEAST} {more}".split())), "small", **options)


def refused(more: str) -> InputError:
    with pytest.raises(InputError) as caught:
        run(more)
    return caught.value


def test_defaults_of_megatron() -> None:
    found = run()
    model = found.model
    assert (model.normalisation, model.mlp, model.linear_bias, model.tied_embeddings) == ("layer", "gelu", True, True)
    assert (model.num_kv_heads, model.head_dim, model.ffn_hidden_size, model.learned_positions) == (8, 64, 2048, 2048)
    assert found.arguments == {
        "implementation": "megatron", "seq_length": 1024, "micro_batch_size": 2, "sequence_parallel": False,
        "recompute": "none", "gradients": "fp32", "distributed_optimizer": False, "hidden_dropout": 1,
        "attention_dropout": 1, "vocab_multiple": 128, "kernels": {"mask": "dataloader"},
        "overlap_grad_reduce": 0, "overlap_param_gather": 0,
    }
    assert found.changed({"num_gpus": 4})["global_batch_size"] == 8  # one micro-batch for every data-parallel rank


@pytest.mark.parametrize(("more", "field", "value"), [
    ("--swiglu", "ffn_hidden_size", 1344), ("--ffn-hidden-size 3072 --swiglu", "ffn_hidden_size", 3072),
    ("--group-query-attention --num-query-groups 2", "num_kv_heads", 2),
    ("--group-query-attention", "num_kv_heads", 1), ("--num-query-groups 2", "num_kv_heads", 8),
    ("--kv-channels 128", "head_dim", 128), ("--disable-bias-linear", "linear_bias", False),
    ("--disable-bias-linear --add-qkv-bias", "qkv_bias", True), ("--qk-layernorm", "qk_norm", True),
    ("--untie-embeddings-and-output-weights", "tied_embeddings", False), ("--squared-relu", "mlp", "relu2"),
    ("--position-embedding-type rope", "learned_positions", 0), ("--use-rotary-position-embeddings",
                                                                 "learned_positions", 0),
    ("--normalization RMSNorm", "normalisation", "rms"), ("--padded-vocab-size 1024", "vocab_size", 1024),
    ("--tokenizer-type NullTokenizer", "vocab_size", 1001), ("--vocab-extra-ids 5", "vocab_size", 1005),
    (f"{EXPERTS}", "moe_topk", 2), (EXPERTS, "moe_ffn_hidden_size", 1344), (EXPERTS, "expert_scores", "softmax"),
    (f"{EXPERTS} --moe-router-pre-softmax", "expert_scores", "softmax_all"),
    (f"{EXPERTS} --moe-router-score-function sigmoid", "expert_scores", "sigmoid"),
    (f"{EXPERTS} --moe-layer-freq ([0]*3+[1]*5)", "first_dense_layers", 3),
    (f"{EXPERTS} --moe-layer-freq ([0]*1+[1]*1)*4", "moe_layer_step", 2),
    (f"{EXPERTS} --moe-shared-expert-intermediate-size 64", "shared_expert_ffn_hidden_size", 64),
    ("--window-size 127,0", "attention_window", 128), ("--window-size (127,0)", "full_attention_step", 0),
    ("--window-size 127,0 --window-attn-skip-freq 2", "full_attention_step", 2),
    ("--window-size 127,0 --window-attn-skip-freq ([1]*3+[0]*1)*2", "full_attention_step", 4),
    ("--window-size -1,0", "attention_window", 0), ("--softmax-type learnable", "attention_sinks", True),
    ("--softmax-type vanilla", "attention_sinks", False),
    ("--num-experts 8 --quick-geglu --activation-func-clamp-value 7 --glu-linear-offset 1", "mlp", "swiglu_clamped"),
    ("--num-experts 0", "num_experts", 0), (LATENT, "head_dim", 192), (LATENT, "kv_lora_rank", 32),
    (LATENT, "q_lora_rank", 0), (f"{LATENT} --v-head-dim 64", "v_head_dim", 64),
])
def test_flags_of_the_model(more: str, field: str, value: object) -> None:
    assert getattr(run(more).model, field) == value


@pytest.mark.parametrize(("tokenizer", "size"), [
    ("--tokenizer-type GPT2BPETokenizer", 50257), ("--vocab-file v --merge-file m", 50257),
    ("--tokenizer-type Llama2Tokenizer --tokenizer-model $MODEL", 32000),
    ("--tokenizer-type HuggingFaceTokenizer --tokenizer-model meta-llama/Meta-Llama-3.1-8B", 128256),
    ("--tokenizer-type TikTokenizer", 131072),
])
def test_vocabularies_of_tokenizers(tokenizer: str, size: int) -> None:
    words = flags_of(f"{LEAST} {tokenizer}".split())
    assert run_of(Options({name: words[name] for name in words if name != "vocab-size"}), "m").model.vocab_size == size


@pytest.mark.parametrize(("more", "name", "value"), [
    ("--tensor-model-parallel-size 2 --sequence-parallel", "sequence_parallel", True),
    ("--sequence-parallel", "sequence_parallel", False),  # Megatron-LM switches it off without tensor parallelism
    ("--grad-reduce-in-bf16", "gradients", "bf16"),
    ("--use-precision-aware-optimizer --main-grads-dtype bf16", "gradients", "bf16"),
    ("--use-precision-aware-optimizer --main-grads-dtype bf16 --accumulate-allreduce-grads-in-fp32", "gradients",
     "fp32"),
    ("--use-distributed-optimizer", "distributed_optimizer", True),
    ("--num-distributed-optimizer-instances 2", "data_parallel_replicas", 2),
    ("--make-vocab-size-divisible-by 64", "vocab_multiple", 64), ("--padded-vocab-size 8", "vocab_multiple", 1),
    ("--pipeline-model-parallel-size 2 --num-layers-per-virtual-pipeline-stage 2", "virtual_pipeline", 2),
    ("--pipeline-model-parallel-size 2 --num-virtual-stages-per-pipeline-rank 4", "virtual_pipeline", 4),
    ("--pipeline-model-parallel-size 2 --decoder-first-pipeline-num-layers 3", "first_stage_layers", 3),
    ("--pipeline-model-parallel-size 2 --pipeline-model-parallel-layout Ett|(tt|)*2ttL", "pipeline_layout",
     (2, 2, 2, 2)),
    ("--pipeline-model-parallel-size 2 --pipeline-model-parallel-layout Et*5|t*3,L", "pipeline_layout", (5, 3)),
    ("--account-for-loss-in-pipeline-split", "account_for_loss", 1),
    ("--recompute-activations", "recompute", "core_attention"),
    ("--recompute-granularity selective --recompute-modules core_attn mlp", "recompute", "core_attention+mlp"),
    ("--recompute-granularity full --recompute-method uniform --recompute-num-layers 2", "recompute_num_layers", 2),
    ("--recompute-granularity full --recompute-method uniform --recompute-num-layers 1", "recompute", "full"),
    ("--recompute-granularity selective --recompute-modules layernorm", "recompute", "none"),
    ("--step-batch-size-schedule 0:16 2.4B:320", "global_batch_size", 320),
    ("--use-precision-aware-optimizer --exp-avg-dtype bf16", "exp_avg_bytes", 2),
    ("--use-precision-aware-optimizer --exp-avg-sq-dtype fp8", "exp_avg_sq_bytes", 1),
    ("--use-precision-aware-optimizer", "main_param_bytes", 2),
    ("--use-precision-aware-optimizer --store-param-remainders false", "main_param_bytes", 4),
    ("--use-precision-aware-optimizer --main-params-dtype fp16 --store-param-remainders false", "main_param_bytes", 2),
    ("--optimizer-cpu-offload --use-precision-aware-optimizer --optimizer-offload-fraction 0.5",
     "optimizer_offload_percent", 50),
    ("--optimizer-cpu-offload --use-precision-aware-optimizer --overlap-cpu-optimizer-d2h-h2d",
     "overlap_cpu_optimizer_d2h_h2d", 1),
    ("--cpu-offloading-num-layers 2", "cpu_offloading_num_layers", 2),
    (f"{EXPERTS} --moe-expert-capacity-factor 1.25 --moe-pad-expert-input-to-capacity", "expert_capacity_percent", 125),
    (f"{EXPERTS} --expert-tensor-parallel-size 1", "expert_tensor_parallel", 1),
])
def test_flags_of_the_layout(more: str, name: str, value: object) -> None:
    assert run(more).arguments[name] == value


@pytest.mark.parametrize(("more", "axis", "option"), [
    ("--transformer-impl local", "attention", "fused_softmax"), ("--transformer-impl local", "peak", "megatron_local"),
    ("--transformer-impl local --no-masked-softmax-fusion", "attention", "unfused"),
    ("--attention-backend unfused", "attention", "te_unfused"),
    ("--attention-backend flash", "attention", None), ("--attention-backend auto", "attention", None),
    ("--no-create-attention-mask-in-dataloader", "mask", None), ("--no-rope-fusion", "rope", "unfused"),
    ("--cross-entropy-loss-fusion", "loss", "native_fused"), ("--cross-entropy-fusion-impl te", "loss", None),
    ("--cross-entropy-loss-fusion --cross-entropy-fusion-impl te", "loss", "te_fused"),
    ("--cp-comm-type a2a", "context", "all_to_all"), ("--cp-comm-type all_gather", "context", "all_gather"),
    ("--optimizer sgd", "optimizer", "sgd_momentum"),
    ("--optimizer sgd --sgd-momentum 0", "optimizer", "sgd"), ("--optimizer muon", "optimizer", "muon"),
    ("--optimizer dist_muon", "optimizer", "dist_muon"),
    ("--fp4-format e2m1 --fp4-recipe nvfp4", "fp8", "nvfp4"),
    ("--fp8-format hybrid", "fp8", "delayed"), ("--fp8-format e4m3 --fp8-recipe mxfp8", "fp8", "mx"),
    ("--recompute-granularity full --recompute-method block --recompute-num-layers 3", "recompute_method", "block"),
    (EXPERTS, "dispatch", "allgather"), (EXPERTS, "balance", "none"), (EXPERTS, "router_precision", "bf16"),
    (f"{EXPERTS} --moe-token-dispatcher-type flex", "dispatch", "deepep"),
    (f"{EXPERTS} --moe-token-dispatcher-type flex --moe-flex-dispatcher-backend hybridep", "dispatch", "hybridep"),
    (f"{EXPERTS} --moe-token-dispatcher-type alltoall --moe-flex-dispatcher-backend hybridep", "dispatch", "alltoall"),
    (f"{EXPERTS} --moe-aux-loss-coeff 1e-2", "balance", "loss"),
    (f"{EXPERTS} {OFFLOAD} expert_fc1", "module_offload", "expert_fc1"),
    (f"{EXPERTS} --offload-modules expert_fc1", "module_offload", None),
    (f"{OFFLOAD} expert_fc1", "module_offload", None),
    (f"{EXPERTS} --moe-router-enable-expert-bias --moe-router-load-balancing-type none", "balance", "bias"),
])
def test_flags_of_kernels(more: str, axis: str, option: str | None) -> None:
    assert run(more).arguments["kernels"].get(axis) == option


@pytest.mark.parametrize(("more", "field", "part"), [
    ("--exp-avg-dtype bf16", "--exp-avg-dtype", "must be one of fp32 without --use-precision"),
    ("--hidden-size x", "--hidden-size", "must be an integer"),
    ("--hidden-size", "--hidden-size", "must have one value"),
    ("--hidden-size 1.5", "--hidden-size", "must be an integer"), ("--fp16", "--bf16", "must not be given together"),
    ("--num-attention-heads 7", "--hidden-size", "must be a multiple of --num-attention-heads = 7"),
    ("--group-query-attention --num-query-groups 3", "--num-query-groups", "must divide num_attention_heads"),
    ("--normalization BatchNorm", "--normalization", "must be one of LayerNorm, RMSNorm"),
    ("--position-embedding-type relative", "--position-embedding-type", "others are not counted yet"),
    (f"{EXPERTS} --moe-token-dispatcher-type flex --moe-flex-dispatcher-backend nccl", "--moe-flex-dispatcher-backend",
     "must be one of deepep, hybridep"),
    (f"{EXPERTS} --moe-enable-deepep", "--moe-enable-deepep", "must be given with --moe-token-dispatcher-type flex"),
    (f"{EXPERTS} --moe-token-dispatcher-type flex --moe-enable-deepep --moe-flex-dispatcher-backend hybridep",
     "--moe-enable-deepep", "must not be given with another backend"),
    (f"{EXPERTS} --moe-layer-freq 2", "--moe-layer-freq", "must be every layer, or every n-th"),
    (f"{EXPERTS} --moe-layer-freq __import__", "--moe-layer-freq", "must be a number, or a list of 0 and 1"),
    (f"{EXPERTS} --moe-router-load-balancing-type sinkhorn aux_loss", "--moe-router-load-balancing-type", "must be"),
    (f"{EXPERTS} --moe-router-load-balancing-type sinkhorn --moe-aux-loss-coeff 0.01", "--moe-aux-loss-coeff",
     "must be 0"),
    (f"{EXPERTS} --moe-expert-capacity-factor 1.25", "--moe-expert-capacity-factor", "--moe-pad-expert-input-to"),
    ("--multi-latent-attention", "--qk-layernorm", "must be given with latent attention"),
    ("--recompute-granularity selective --recompute-modules gdn_norm_out", "--recompute-modules", "must be some of"),
    ("--mtp-num-layers 2000000000 --pipeline-model-parallel-layout EtL", "--mtp-num-layers",
     "must be 0: not counted yet"),
    (f"{EXPERTS} --mtp-num-layers 2000000000 --pipeline-model-parallel-layout EtmL",
     "--pipeline-model-parallel-layout", "must begin with E"),
    ("--pipeline-model-parallel-layout Et|tm|L", "--pipeline-model-parallel-layout", "must begin with E"),
    ("--pipeline-model-parallel-size 3 --num-layers-per-virtual-pipeline-stage 1",
     "--num-layers-per-virtual-pipeline-stage", "must divide the 8 layers"),
    ("--optimizer unknown", "--optimizer", f"must be one of {', '.join(WORDS['optimizer'])}: others are not counted"),
    ("--swiglu maybe", "--swiglu", "true or false"),
    ("--cp-comm-type a2a+p2p", "--cp-comm-type", "must be one of p2p, a2a, all_gather for all layers"),
    ("--optimizer-cpu-offload --optimizer-offload-fraction 0.333", "--optimizer-offload-fraction", "whole number"),
    ("--global-batch-size nan", "--global-batch-size", "must be an integer"),
    (f"{OFFLOAD} core_attn expert_fc1", "--offload-modules", "must be expert_fc1 alone"),
    ("--fine-grained-activation-offloading", "--offload-modules", "must be expert_fc1 alone"),
    (f"{OFFLOAD} expert_fc1 --min-offloaded-tensor-size 1024", "--min-offloaded-tensor-size", "must be 1048576"),
    (f"{OFFLOAD} expert_fc1 --activation-offload-fraction 0.5", "--activation-offload-fraction", "must be 1"),
])
def test_errors_blame_the_flag(more: str, field: str, part: str) -> None:
    error = refused(more)
    assert error.field == field
    assert part in error.rule


HYBRID = f"{EXPERTS} --moe-token-dispatcher-type flex --moe-flex-dispatcher-backend hybridep --moe-router-dtype fp32"


def test_tokens_that_hybridep_pads_are_counted_or_named() -> None:
    padded = run(f"{HYBRID} --moe-expert-rank-capacity-factor 5")
    assert padded.arguments["expert_load_percent"] == 500
    assert "5 times the mean number of tokens" in padded.warnings[0]
    stashed = run(f"{HYBRID} --moe-expert-rank-capacity-factor 1.5 --moe-paged-stash"
                  " --moe-paged-stash-buffer-size-factor-cuda -1.2 --moe-paged-stash-buffer-size-factor-cpu 1")
    assert "expert_load_percent" not in stashed.arguments
    assert stashed.unknown == ()
    assert stashed.warnings == (
        "--moe-paged-stash is not counted yet: its room for 1.2 times the mean number of tokens, and rows of one layer"
        " padded to 1.5 times it: experts are counted with the mean",)
    others = run(f"{EXPERTS} --moe-expert-rank-capacity-factor 2")
    assert "expert_load_percent" not in others.arguments
    assert "HybridEP alone" in others.warnings[0]
    for more, part in (("--moe-paged-stash", "must be given with --moe-expert-rank-capacity-factor"),
                       ("--moe-expert-rank-capacity-factor 0.5", "must be at least 1")):
        with pytest.raises(InputError, match=part):
            run(f"{HYBRID} {more}")


def test_weights_of_tokens_are_sent_in_fp32() -> None:
    found = run(HYBRID.replace("--moe-router-dtype fp32", ""))
    assert found.arguments["kernels"]["router_precision"] == "fp32"
    assert found.warnings == (
        "--moe-router-dtype: a router in bf16 is counted as one in fp32 with hybridep, which sends its weights in"
        " fp32",)


@pytest.mark.parametrize("flag", sorted(flags.REFUSED))
def test_flags_that_no_number_would_be_true_with_are_refused_by_name(flag: str) -> None:
    assert refused(f"--{flag} 7").field == f"--{flag}"
    assert run(f"--{flag} false").arguments == run().arguments


@pytest.mark.parametrize("flag", sorted(flags.WITHOUT_EFFECT))
def test_flags_without_effect_are_named(flag: str) -> None:
    found = run(f"--{flag} 7")
    assert f"--{flag}" in (*found.without_effect, *found.understood)
    assert found.arguments == run().arguments


def test_every_flag_has_one_place() -> None:
    assert not flags.WITHOUT_EFFECT & {*flags.UNCOUNTED}
    assert not flags.WITHOUT_EFFECT & {*flags.REFUSED}
    assert not {*flags.UNCOUNTED} & {*flags.REFUSED}


def test_a_flag_that_another_one_replaces_is_known() -> None:
    found = run("--use-rotary-position-embeddings --position-embedding-type rope")
    assert found.unknown == ()
    assert {"--position-embedding-type", "--use-rotary-position-embeddings"} <= {*found.understood}


def test_unknown_and_uncounted_flags_are_named() -> None:
    found = run("--tp-comm-overlap --brand-new 1 --moe-z-loss-coeff 1e-3")
    assert found.unknown == ("--brand-new",)
    assert found.warnings == (
        "--tp-comm-overlap is not counted yet: buffers that overlap tensor-parallel communication",)
    assert "--moe-z-loss-coeff" in found.without_effect  # a dense model has no router


def test_a_variable_without_a_value_is_named_where_it_matters() -> None:
    from shardmath.formats.scripts.expansion import mark

    words = flags_of(LEAST.split())
    with pytest.raises(InputError) as caught:
        run_of(Options({**words, "tensor-model-parallel-size": (mark("TP"),)}), "m")
    assert str(caught.value) == (
        "--tensor-model-parallel-size = '${TP}': must have a value: give one with --set TP=...")
    choices = {"TP": ("4", ["7B", "13B"])}
    with pytest.raises(InputError) as caught:
        run_of(Options({**words, "tensor-model-parallel-size": (mark("TP"),)}, choices=choices), "m")
    assert str(caught.value) == (
        "--tensor-model-parallel-size = '${TP}': must have a value: give one with --set 4=7B, or with 13B")
    found = run_of(Options({**words, "save": (mark("OUT"),), "swiglu": (mark("EXTRA"),)}), "m")
    assert found.warnings == ("${EXTRA} after --swiglu has no value: taken as empty",)


def test_tasks_are_refused() -> None:
    with pytest.raises(InputError, match="heads of their own"):
        run("--task MNLI")


def test_another_program_is_refused() -> None:
    with pytest.raises(InputError, match="must train a GPT: T5 is not counted yet"):
        run(program="pretrain_t5.py")


@pytest.mark.slow
@pytest.mark.parametrize(("gpu", "engine"), [("a100-80gb", 4096), ("h100-80gb", 32769), ("b200", 32769)])
def test_the_environment_fixes_workspaces_of_pytorch_alone(gpu: str, engine: int) -> None:
    """Transformer Engine asks the GPU, whatever CUBLAS_WORKSPACE_CONFIG says."""
    found = run(environment={"CUBLAS_WORKSPACE_CONFIG": ":4096:8"})
    assert "engine_workspace_bytes" not in found.arguments
    inputs = found.explain(Gpu.named(gpu)).inputs
    assert (inputs["engine_workspace_bytes"], inputs["torch_workspace_bytes"]) == (engine * 1024, 8 * 4096 * 1024)


@pytest.mark.slow
@pytest.mark.parametrize(("gpu", "backend", "copies"), [
    ("a100-80gb", "auto", 1), ("a100-80gb", "flash", 1), ("a100-80gb", "fused", 0), ("a100-80gb", "unfused", 0),
    ("h100-80gb", "auto", 0), ("h100-80gb", "flash", 1), ("h100-80gb", "fused", 0), ("b200", "auto", 0),
])
@pytest.mark.parametrize("batch", [1, 2])
def test_the_gpu_decides_what_attention_is_where_no_flag_does(gpu: str, backend: str, copies: int, batch: int) -> None:
    """FlashAttention puts the batch first: with more than one sequence its output is copied in every layer."""
    found = run(f"--attention-backend {backend} --micro-batch-size {batch} --global-batch-size {2 * batch}")
    account, without = (found.explain(Gpu.named(gpu), recompute="none", **more).ranks[0]
                        for more in ({}, {"attention_copies_output": 0}))
    kept = [sum(line.bytes for line in one.lines if line.term == "stage.attention.activation")
            for one in (account, without)]
    model, inputs = found.model, found.explain(Gpu.named(gpu)).inputs
    tokens = inputs["seq_length"] * batch
    layers = account.in_flight * model.num_layers // inputs["pipeline_parallel"]
    output = 2 * tokens * model.num_attention_heads * model.head_dim // inputs["tensor_parallel"]
    assert kept[0] - kept[1] == copies * (batch > 1) * layers * output
