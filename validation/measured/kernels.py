"""Choices of the ledger that published runs made, as ``kernels`` of ``shardmath.explain``."""

from __future__ import annotations

from shardmath.generated.definitions import WORKSPACES

#: Megatron-LM with Transformer Engine: what lives besides saved tensors.
MEGATRON_TE = {"peak": "megatron_te"}
#: Transformer Engine's fused cross entropy: its gradient overwrites the bf16 logits.
TE_LOSS = {"loss": "te_fused"}
#: Megatron-LM's own cross entropy, compiled into one function.
COMPILED_LOSS = {"loss": "native_fused"}
#: fp32 cross entropy of torch on logits that were gathered over tensor-parallel ranks.
GATHERED_LOSS = {"loss": "gathered"}
#: Context parallelism that exchanges heads for sequence.
ALL_TO_ALL = {"context": "all_to_all"}
#: FlashAttention called with the sequence first: b > 1 costs one more copy of the output.
FLASH = {"attention": "flash_bshd"}
#: Attention by matrix products: Transformer Engine's own, and Megatron-Core's with its fused softmax.
TE_UNFUSED, FUSED_SOFTMAX = {"attention": "te_unfused"}, {"attention": "fused_softmax"}
#: Megatron-LM with its own layers.
MEGATRON_LOCAL = {"peak": "megatron_local"}
#: Sizes of the cuBLAS workspaces, as arguments, with CUBLAS_WORKSPACE_CONFIG=:4096:8; else they follow the GPU.
CONFIGURED = WORKSPACES["configured"]
#: Weight gradients in tensors of their own, and a causal mask that comes with the batch.
SEPARATE_GRADIENTS, MASK_OF_BATCH = {"weight_gradient": "separate"}, {"mask": "dataloader"}
#: FP8 with delayed scaling and weights that are FP8 themselves; its transients are not counted.
SAVED_FP8 = {"fp8": "delayed", "fp8_weights": "primary", "peak": "saved"}
