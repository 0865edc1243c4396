"""Choices of the ledger that published runs made, as ``kernels`` of ``shardmath.explain``."""

from __future__ import annotations

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
#: fp16 weights and gradients, fp32 master weights and moments.
FP16 = {"precision": "fp16"}
#: Sizes of the cuBLAS workspaces on B200, and where CUBLAS_WORKSPACE_CONFIG asks for 32 MiB on A100.
BLACKWELL = {"workspace": "blackwell"}
