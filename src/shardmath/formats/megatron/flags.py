"""Flags of Megatron-LM that no formula needs: those that change no memory, and those whose effect is not counted yet.

Names as in ``megatron/training/arguments.py`` and the configuration classes that it makes flags from (release 0.16
and the main branch of August 2026), with dashes, and without the two in front.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from shardmath.formats.megatron.rotary import FLAGS as _OF_ROTARY

if TYPE_CHECKING:
    from shardmath.models.model import Model

_WITHOUT_EFFECT = """
    adam-beta1 adam-beta2 adam-eps apply-wd-to-qk-layernorm clip-grad decoupled-lr decoupled-min-lr end-weight-decay
    lr lr-decay-iters lr-decay-samples lr-decay-style lr-warmup-fraction lr-warmup-init lr-warmup-iters
    lr-warmup-samples lr-wsd-decay-iters lr-wsd-decay-samples lr-wsd-decay-style min-lr muon-coefficient-type
    muon-extra-scale-factor muon-fp32-matmul-prec muon-momentum muon-nesterov muon-no-split-qkv muon-num-ns-steps
    muon-scale-mode muon-use-syrk no-weight-decay-cond-type override-opt-param-scheduler override-opt_param-scheduler
    start-weight-decay use-checkpoint-opt-param-scheduler use-checkpoint-opt_param-scheduler weight-decay
    weight-decay-incr-style exit-duration-in-mins exit-interval exit-signal-handler fake-process-group
    rampup-batch-size train-iters train-samples train-sync-interval iterations-to-skip decrease-batch-size-if-needed
    manual-gc manual-gc-interval manual-gc-eval no-manual-gc-eval empty-unused-memory-level
    check-weight-hash-across-dp-replicas-interval
    calculate-per-token-loss check-for-large-grads check-for-spiky-loss no-check-for-nan-in-loss-and-grad
    no-check-for-nan-in-loss rerun-mode error-injection-rate error-injection-type result-rejected-tracker-filename
    data-args-path data-cache-path data-path dataloader-type dataloader-fast-cache-load eod-mask-loss fim-data fim-rate
    fim-spm-rate fim-split-sample fim-fragment-rate fim-no-prefix fim-prefix-token fim-middle-token fim-suffix-token
    fim-pad-token fim-eod-token mid-level-dataset-surplus mock-data no-mmap-bin-files num-dataset-builder-threads
    num-workers object-storage-cache-path per-split-data-args-path reset-attention-mask reset-position-ids split
    test-data-path train-data-path valid-data-path sample-rate short-seq-prob mask-prob merge-file vocab-file
    tiktoken-pattern tiktoken-num-special-tokens tokenizer-hf-no-include-special-tokens tokenizer-hf-no-use-fast
    tokenizer-metadata tokenizer-sentencepiece-legacy tokenizer-special-tokens trust-remote-code
    null-tokenizer-eod-id null-tokenizer-pad-id tokenizer-prompt-format sft-tokenizer-prompt-format
    async-save async-strategy auto-detect-ckpt-format ckpt-assume-constant-structure ckpt-convert-format
    ckpt-convert-save ckpt-convert-update-legacy-dist-opt-format ckpt-format ckpt-fully-parallel-load
    ckpt-fully-parallel-load-exchange-algo ckpt-fully-parallel-save ckpt-step dist-ckpt-format
    dist-ckpt-optim-fully-reshardable dist-ckpt-save-pre-mcore-014 dist-ckpt-strictness dist-ckpt-workers
    distrib-optim-fully-reshardable-mem-efficient exit-on-missing-checkpoint finetune load load-main-params-from-ckpt
    no-ckpt-fully-parallel-save no-load-optim no-load-rng no-save-optim no-save-rng non-persistent-ckpt-type
    non-persistent-global-ckpt-dir non-persistent-local-ckpt-algo non-persistent-local-ckpt-dir
    non-persistent-save-interval override-ckpt-iteration persistent-save-interval pretrained-checkpoint replication
    replication-factor replication-jump save save-interval save-retain-interval use-checkpoint-args use-dist-ckpt
    use-mp-args-from-checkpoint-args use-persistent-ckpt-worker verify-integrity
    log-device-memory-used log-energy log-interval log-loss-scale-to-tensorboard log-memory-interval
    log-memory-to-tensorboard log-num-zeros-in-grad log-params-norm log-progress log-straggler log-throughput
    log-timers-to-tensorboard log-validation-ppl-to-tensorboard log-world-size-to-tensorboard logging-level
    no-barrier-with-level-1-timing no-log-loss-scale-to-tensorboard one-logger-project one-logger-run-name
    one-logger-async no-one-logger app-tag-run-name app-tag-run-version moe-per-layer-logging tensorboard-dir
    tensorboard-log-interval tensorboard-queue-size timing-log-level timing-log-option wandb-entity wandb-exp-name
    wandb-project wandb-save-dir save-config-filepath config-logger-dir memory-snapshot-path profile profile-ranks
    profile-step-end profile-step-start record-shapes use-pytorch-profiler nvtx-ranges
    straggler-ctrlr-port straggler-minmax-count disable-straggler-on-startup enable-ft-package calc-ft-timeouts
    ft-num-warmup-iters adlr-autoresume adlr-autoresume-interval inprocess-restart run-workload-inspector-server
    eval-global-batch-size eval-interval eval-iters eval-micro-batch-size full-validation skip-train test-mode
    data-parallel-random-init init-method-std init-method-xavier-uniform embedding-init-method-std seed
    no-initialization use-cpu-initialization te-rng-tracker inference-rng-tracker mup-base-hidden-size
    batch-invariant-mode deterministic-mode apply-layernorm-1p rotary-interleaved
    yarn-original-max-position-embeddings yarn-beta-fast yarn-beta-slow
    no-persist-layer-norm attention-softmax-in-fp32 apply-query-key-layer-scaling
    no-bias-gelu-fusion no-bias-dropout-fusion openai-gelu bert-no-binary-head onnx-safe flash-attention-version
    distributed-backend distributed-timeout-minutes distributed-timeout-seconds-after-init disable-jit-fuser
    enable-gloo-process-groups disable-gloo-process-groups high-priority-stream-groups lazy-mpu-init local-rank
    nccl-communicator-config-path use-sharp sharp-enabled-group use-tp-pp-dp-mapping
    pipeline-model-parallel-comm-backend no-align-grad-reduce no-align-param-gather no-overlap-p2p-communication
    overlap-p2p-communication-warmup-flush use-ring-exchange-p2p ddp-average-in-collective
    ddp-num-buckets overlap-param-gather-with-optimizer-step
    tp-comm-bootstrap-backend enable-msc enable-experimental fp8-amax-compute-algo fp8-interval fp8-margin
    hysteresis initial-loss-scale loss-scale loss-scale-window min-loss-scale no-fp8-wgrad
    moe-router-bias-update-rate moe-router-force-load-balancing moe-token-drop-policy moe-use-upcycling
    moe-upcycling-granularity
    moe-use-legacy-grouped-gemm moe-extended-tp moe-deepep-num-sms
    moe-flex-dispatcher-num-sms moe-hybridep-num-sms mtp-loss-scaling-factor cache-mla-latents
    no-position-embedding use-mcore-models use-legacy-models use-flash-attn
    use-torch-optimizer-for-cpu-offload no-pin-cpu-grads no-pin-cpu-params qk-clip qk-clip-alpha qk-clip-threshold
    max-tokens-to-oom inference-max-requests inference-max-seq-length exit-signal mla-down-proj-fusion
    strict-fsdp-dtensor-load no-strict-fsdp-dtensor-load disable-strict-fsdp-dtensor-load fsdp-manual-registration
    offload-modules min-offloaded-tensor-size delta-offload-bytes-across-pp-ranks activation-offload-fraction
    delay-offload-until-cuda-graph init-model-with-meta-device moe-mlp-glu-interleave-size
    moe-hybridep-num-sms-preprocessing moe-hybridep-num-blocks-permute moe-hybridep-num-blocks-unpermute
    moe-paged-stash-page-size moe-paged-stash-buffer-size-factor-cpu moe-pad-experts-for-cuda-graph-inference
    yarn-rotary-scaling-factor yarn-mscale yarn-mscale-all-dim yarn-correction-range-round-to-int
    async-ckpt-use-cpu-shm use-mup no-yarn-correction-range-round-to-int use-flashinfer-fused-rope
"""
WITHOUT_EFFECT = frozenset(_WITHOUT_EFFECT.split())
"""Flags that change no tensor of a training step: data, schedule of the learning rate, checkpoints, logging, ..."""

#: Flags that change some tensors that nobody has counted here: a run with them is accounted for as without them.
UNCOUNTED: Mapping[str, str] = {
    "apply-residual-connection-post-layernorm": "residuals after the norm",
    "cuda-graph-impl": "memory of CUDA graphs",
    "cuda-graph-scope": "memory of CUDA graphs",
    "cuda-graph-warmup-steps": "memory of CUDA graphs",
    "enable-cuda-graph": "memory of CUDA graphs",
    "external-cuda-graph": "memory of CUDA graphs",
    "optimizer-cuda-graph": "memory of CUDA graphs",
    "cuda-graph-modules": "memory of CUDA graphs",
    "defer-embedding-wgrad-compute": "the inputs and gradients of the head that wait",
    "wgrad-deferral-limit": "the inputs and gradients of the head that wait",
    "delay-wgrad-compute": "what waits for delayed weight gradients",
    "ep-overlap-early-attn-memory-release": "another order of passes in turns",
    "overlap-moe-expert-parallel-comm": "a second micro-batch in flight",
    "ddp-pad-buckets-for-high-nccl-busbw": "padding of buckets",
    "fp32-residual-connection": "residuals in fp32",
    "fused-single-qkv-rope": "queries, keys and values that are turned in one tensor",
    "keep-fp8-transpose-cache": "transposed FP8 weights that stay",
    "moe-permute-fusion-into-hybridep": "tokens that HybridEP sorts as it sends them",
    "moe-input-jitter-eps": "a factor of the input of the router",
    "moe-router-padding-for-fp8": "padding of the tokens of experts",
    "moe-router-padding-for-quantization": "padding of the tokens of experts",
    "moe-shared-expert-overlap": "the overlap of shared experts",
    "moe-z-loss-coeff": "the z-loss of the router",
    "moe-apply-probs-on-input": "scores on the input of experts",
    "no-rope-freq": "layers without rotary embedding",
    "num-layers-at-end-in-bf16": "layers of the ends in bf16",
    "num-layers-at-start-in-bf16": "layers of the ends in bf16",
    "first-last-layers-bf16": "layers of the ends in bf16",
    "reuse-grad-buf-for-mxfp8-param-ag": "the shared buffer of gradients and MXFP8 weights",
    "spec": "a layer specification of its own",
    "tp-comm-overlap": "buffers that overlap tensor-parallel communication",
    "tp-comm-overlap-cfg": "buffers that overlap tensor-parallel communication",
    "use-nccl-ub": "buffers registered with NCCL",
    "nccl-ub": "buffers registered with NCCL",
    "use-transformer-engine-op-fuser": "operations fused by Transformer Engine",
    "use-te-activation-func": "Transformer Engine's activation",
    "log-max-attention-logit": "the largest logit of attention",
    "high-priority-a2a-comm-stream": "streams of their own",
    "fp8-output-proj": "an output projection in FP8",
}

#: Flags among them that are counted where a run has a choice of this axis.
COUNTED_BY: Mapping[str, str] = {"overlap-moe-expert-parallel-comm": "expert_passes"}

#: Flags that change what is kept so much that no number would be true.
REFUSED: Mapping[str, str] = {
    "attention-output-gate": "a gate of the attention output is not counted yet",
    "decoder-num-layers": "models with encoder and decoder are not counted yet",
    "experimental-attention-variant": "linear and sparse attention are not counted yet",
    "linear-attention-freq": "linear attention is not counted yet",
    "hybrid-layer-pattern": "hybrid models are not counted yet",
    "hybrid-override-pattern": "hybrid models are not counted yet",
    "hybrid-attention-ratio": "hybrid models are not counted yet",
    "is-hybrid-model": "hybrid models are not counted yet",
    "heterogeneous-layers-config-path": "layers that differ are not counted yet",
    "heterogeneous-layers-config-encoded-json": "layers that differ are not counted yet",
    "task": "tasks of Megatron-LM evaluate, or train heads of their own: neither is counted yet",
    "use-torch-fsdp2": "FSDP2 in Megatron-LM is not counted yet: give --use-megatron-fsdp",
    "use-custom-fsdp": "Megatron-LM no longer has it: give --use-megatron-fsdp",
    "distribute-saved-activations": "activations shared out over TP ranks are not counted yet",
    "freeze-all-layers": "frozen weights are not counted yet in Megatron-LM",
    "moe-latent-size": "experts in a latent space are not counted yet",
    "mtp-use-repeated-layer": "a repeated module of multi-token prediction is not counted yet",
    "enable-mhc-connections": "hyper connections are not counted yet",
    "perform-rl-step": "reinforcement learning keeps more than training",
    "export-kd-teacher-load": "distillation keeps a teacher beside the model",
    "export-kd-cfg": "distillation keeps a teacher beside the model",
    "tensor-parallel-num-weight-shards": "weights shared out over TP ranks anew are not counted yet",
    "expert-tensor-parallel-num-weight-shards": "weights shared out over TP ranks anew are not counted yet",
    "heterogeneous-block-specs": "layers that differ are not counted yet",
    "qk-l2-norm": "the L2 norm of queries and keys is not counted yet",
    "yaml-cfg": "the settings are in another file: give that one",
    "checkpoint-activations": "Megatron-LM no longer has it: give --recompute-granularity",
    "model-parallel-size": "Megatron-LM no longer has it: give --tensor-model-parallel-size",
    "batch-size": "Megatron-LM no longer has it: give --micro-batch-size",
}

#: Words that leave a flag at what it is without one.
OFF = ("false", "null", "none", "0", "1.0", "vanilla")
#: Flags that only latent attention has, and those that it has not.
_OF_LATENT = ("q-lora-rank", "kv-lora-rank", "qk-head-dim", "qk-pos-emb-head-dim", "v-head-dim")
_NOT_OF_LATENT = ("kv-channels", "num-query-groups")


def is_off(words: Sequence[str]) -> bool:
    """Tell whether the words of a flag switch it off."""
    return len(words) == 1 and words[0].lower() in OFF


def idle(flag: str, model: Model) -> bool:
    """Tell whether a flag concerns a part that the model lacks."""
    if flag.startswith(("moe-", "expert-")):
        return not model.num_experts
    if flag in _OF_ROTARY:
        return True  # read where there is a rotary embedding of that kind
    return flag in (_NOT_OF_LATENT if model.kv_lora_rank else _OF_LATENT)
