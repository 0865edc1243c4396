"""Choices of the ledger that published runs made, as ``kernels`` of ``shardmath.explain``."""

from __future__ import annotations

#: Megatron-LM with Transformer Engine: what lives besides saved tensors.
MEGATRON_TE = {"peak": "megatron_te"}
#: Transformer Engine's fused cross entropy: its gradient overwrites the bf16 logits.
TE_LOSS = {"loss": "te_fused"}
#: fp32 cross entropy of torch on logits that were gathered over tensor-parallel ranks.
GATHERED_LOSS = {"loss": "gathered"}
#: Context parallelism that exchanges heads for sequence.
ALL_TO_ALL = {"context": "all_to_all"}
#: Attention by matrix products in Transformer Engine.
TE_UNFUSED = {"attention": "te_unfused"}
#: FP8 with delayed scaling and weights that are FP8 themselves.
FP8_WEIGHTS = {"fp8": "delayed", "fp8_weights": "primary"}
#: Megatron-LM overlaps nothing unless a flag says so; papers and tables without flags are read in that way.
NO_OVERLAPS = {"overlap_grad_reduce": 0, "overlap_param_gather": 0}
