"""The named axes that tensor shapes are made of.

Two axes of the same size are two dimensions when a parallel dimension treats them differently: the
sequence inside and outside the sequence-parallel region, heads and the features of a weight matrix.
"""

from __future__ import annotations

from .ledger import Dimension
from .parameters import symbols

s, b, h, a, k, d, f, v, A, K, E = symbols("s b h a k d f v A K E")

SEQUENCE = Dimension("sequence", s, "tokens, where tensor-parallel ranks see all of them")
SEQUENCE_SP = Dimension(
    "sequence_sp", s, "tokens of norms, residuals and column-parallel inputs (sequence-parallel region)"
)
KEY_SEQUENCE = Dimension("key_sequence", s, "tokens attended to")
SHIFTED_SEQUENCE = Dimension("shifted_sequence", s + 1, "tokens and one more, of labels about to be shifted")
BATCH = Dimension("batch", b, "sequences of a micro-batch")
HIDDEN = Dimension("hidden", h, "width of the residual stream")
HEADS = Dimension("heads", a, "query heads")
KV_HEADS = Dimension("kv_heads", k, "key and value heads of activations")
HEAD_DIM = Dimension("head_dim", d, "width of one head")
FFN = Dimension("ffn", f, "inner width of the MLP")
VOCAB = Dimension("vocab", v, "padded vocabulary")
QUERY_FEATURES = Dimension("query_features", A, "rows of the query projection, columns of the output one")
KV_FEATURES = Dimension("kv_features", K, "rows of the key or value projection")
QKV_FEATURES = Dimension("qkv_features", A + 2 * K, "rows of the fused QKV projection")
GATE_UP_FEATURES = Dimension("gate_up_features", 2 * f, "rows of the fused gate and up projection")
EXPERTS = Dimension("experts", E, "routed experts")

DIMENSIONS: tuple[Dimension, ...] = (
    SEQUENCE, SEQUENCE_SP, KEY_SEQUENCE, SHIFTED_SEQUENCE, BATCH, HIDDEN, HEADS, KV_HEADS, HEAD_DIM, FFN,
    VOCAB, QUERY_FEATURES, KV_FEATURES, QKV_FEATURES, GATE_UP_FEATURES, EXPERTS,
)
