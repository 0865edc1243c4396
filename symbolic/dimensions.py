"""The named axes that tensor shapes are made of.

Two axes of the same size are two dimensions when a parallel dimension treats them differently: the
sequence inside and outside the sequence-parallel region, heads and the features of a weight matrix.
"""

from __future__ import annotations

from sympy import Integer

from .dimension import Dimension
from .expert_layers import experts_before
from .functions import CeilDiv, FloorDiv, Max, Min, pad_to, power_of_two_from
from .parameters import symbols

s, doc, b, h, a, k, d, f, v, A, K, E, pos, t = symbols("s doc b h a k d f v A K E pos t")
q, fe, fs, ng, gq, xs, xn, xr, e, et, L = symbols("q fe fs ng gq xs xn xr e et L")
lq, lk, dr, dv, ts, rl = symbols("lq lk dr dv ts rl")
bias, qkn, we, wt, dg, kg = symbols("bias qkn we wt dg kg")

SEQUENCE = Dimension("sequence", s, "tokens, where tensor-parallel ranks see all of them")
SEQUENCE_SP = Dimension(
    "sequence_sp", s, "tokens of norms, residuals and column-parallel inputs (sequence-parallel region)"
)
KEY_SEQUENCE = Dimension("key_sequence", s, "tokens attended to")
SHIFTED_SEQUENCE = Dimension("shifted_sequence", s + 1, "tokens and one more, of labels about to be shifted")
SCORED_SEQUENCE = Dimension("scored_sequence", s - 1, "tokens that have a next one")
CHUNK_TOKENS = Dimension("chunk_tokens", Min(s * b, power_of_two_from(CeilDiv(s * b, CeilDiv(v, h)))),
                         "tokens whose logits Liger has at a time, for as many elements as hidden states have")
TILE_TOKENS = Dimension("tile_tokens", Min((s - 1) * b, 4096), "tokens of a tile of TRL's fused head")
TILE_VOCAB = Dimension("tile_vocab", Integer(32768), "part of the vocabulary in a tile of TRL's fused head")
_part = CeilDiv(s, 8)
_parts = CeilDiv(s, _part)
_rest = s - _part * (_parts - 1)
TUNE_CHUNKS = Dimension("tune_chunks", _parts, "chunks of torchtune's loss: of each sequence an eighth, rounded up")
TUNE_CHUNK_TOKENS = Dimension("tune_chunk_tokens", _part * b, "tokens of such a chunk, the last of which may be less")
TUNE_CAST_ROWS = Dimension("tune_cast_rows", Max(_rest, _part - _rest) * b,
                           "tokens in fp32 beside log-softmaxes of all tokens: of the last chunk, or less before it")
TUNE_GRADIENT_ROWS = Dimension("tune_gradient_rows", Max(4 * _rest, 4 * _part - _rest) * b,
                               "16-bit numbers of a word: two fp32 gradients of a chunk, less what is rounded by then")
_ends = _rest * b, (_rest + _part) * b
TUNE_HEAD_GRADIENTS = Dimension(
    "tune_head_gradients",
    Max(v * (s * b + h) + h * _ends[0],
        Min(_parts - 1, 1) * Max(v * (s * b - _ends[0] + 2 * h), v * (s * b - _ends[1] + 3 * h)) + h * _ends[1]),
    "numbers of gradients in the head's backward pass: of logits, of its input, and of its matrix from two chunks",
)
_scored = (s - 1) * b
_eighth = FloorDiv(_scored, 8)
_two = _eighth + FloorDiv(_scored + 1, 8)
TUNE_SCORED = Dimension("tune_scored", _eighth, "scored tokens of the smallest of eight chunks, which is the last")
TUNE_LINEAR_GRADIENTS = Dimension(
    "tune_linear_gradients",
    Max(4 * v * _eighth, v * (4 * _two - 6 * _eighth + h) + h * _eighth, v * (3 * h - 2 * _two) + h * _two),
    "numbers of gradients of a chunk's logits, and of the head's input and matrix, less log-softmaxes that are freed",
)
TUNE_COMPILED_GRADIENTS = Dimension(
    "tune_compiled_gradients", Max(h * (v + _eighth), v * (2 * h - _eighth) + h * _two),
    "numbers of gradients of the head's input, and of its matrix from two chunks, less logits that are freed",
)
_tokens, _chunk = s * b, Min(s * b, 2048)
_last = _tokens - _chunk * (CeilDiv(_tokens, _chunk) - 1)
ENTROPY_PRODUCTS = Dimension("entropy_products", Max(_last, _chunk - 2 * _last),
                             "tokens of verl's entropy in chunks of 2048 whose products live in its forward pass")
ENTROPY_GRADIENTS = Dimension(
    "entropy_gradients", Max(10 * _last, 10 * _chunk - 4 * _last, _tokens - 3 * _last),
    "16-bit numbers of a word in its backward pass, less those that the last chunk has freed by then",
)
ENTROPY_ROWS = Dimension("entropy_rows", Min((s - 1) * b, 128), "tokens with an entropy that TRL computes at once")
KTO_ROWS = Dimension(
    "kto_rows", Max(2 * (s - 1) * b, (s - 1) * b * Min(b - 1, 1) + 3 * Min((s - 1) * b, 128)),
    "tokens whose logits TRL's KTO copies at once: for means of one kind of answers, or for entropies",
)
_copies = Min(Max(b - 2, 0), 1)
CHOSEN_ROWS = Dimension("chosen_rows", (s - 1) * b * _copies, "tokens of better sequences that are put together, twice")
CAST_ROWS = Dimension("cast_rows", b * (1 - _copies), "last tokens of a pair, whose logits are not scored")
SUM_GRADIENTS = Dimension("sum_gradients", (s - 1) * Max(2 * b, 3),
                          "scored tokens of gradients that live at once where those of sequences are put together")
ALL_SUM_GRADIENTS = Dimension("all_sum_gradients", s * Max(2 * b, 3), "the same of all tokens")
SLICE_GRADIENTS = Dimension("slice_gradients", Max(s * b, 2 * (s - 1)),
                            "tokens of gradients beside what was saved: of all, or of the one sequence twice")
SEQUENCE_GRADIENTS = Dimension("sequence_gradients", s * Max(b, 2), "the same where all tokens are scored")
PAIR_GRADIENTS = Dimension("pair_gradients", 3 * (s + 1) * b / 2,
                           "tokens of three gradients of all logits, less those of saved log-softmaxes, gone by then")
REFERENCE_ROWS = Dimension("reference_rows", Min(b, 2), "sequences of a reference with a log-softmax at once")
BATCH = Dimension("batch", b, "sequences of a micro-batch")
PAIRS = Dimension("pairs", b / 2, "pairs of sequences of a micro-batch, one better than the other")
SCORE = Dimension("score", Integer(1), "the one output of a head or gate that scores")
DOCUMENT = Dimension("document", doc, "tokens of a document of a packed sequence")
DOCUMENT_BOUNDS = Dimension("document_bounds", CeilDiv(s, Max(doc, 1)) + 1, "first tokens of documents, and the end")
HIDDEN = Dimension("hidden", h, "width of the residual stream")
HIDDEN_PART = Dimension("hidden_part", h, "width of the residual stream, as inputs or outputs of one rank's product")
HIDDEN_COLUMNS = Dimension("hidden_columns", h, "the same, as a side of a projection's weights", HIDDEN_PART)
HEADS = Dimension("heads", a, "query heads")
KV_HEADS = Dimension("kv_heads", k, "key and value heads of activations")
HEAD_DIM = Dimension("head_dim", d, "width of one head")
FULL_HEAD_DIM = Dimension("full_head_dim", dg, "width of one head in layers without windows")
FULL_KV_HEADS = Dimension("full_kv_heads", kg, "key and value heads of layers without windows")
FULL_QUERY_FEATURES = Dimension("full_query_features", a * dg, "width of all queries in layers without windows")
FULL_KV_FEATURES = Dimension("full_kv_features", kg * dg, "width of all keys in layers without windows")
HALF_HEAD = Dimension("half_head", d / 2, "half of a head: pairs of elements that are turned")
MASK_BLOCKS = Dimension("mask_blocks", CeilDiv(s, 128), "blocks of 128 tokens of FlexAttention's mask")
KEYS_AND_SINK = Dimension("keys_and_sink", s + 1, "tokens attended to, and a sink")
FFN = Dimension("ffn", f, "inner width of the MLP")
VOCAB = Dimension("vocab", v, "padded vocabulary")
QUERY_FEATURES = Dimension("query_features", A, "rows of the query projection, columns of the output one")
KV_FEATURES = Dimension("kv_features", K, "rows of the key or value projection")
QKV_FEATURES = Dimension("qkv_features", A + 2 * K, "rows of the fused QKV projection")
ALL_QKV_FEATURES = Dimension("all_qkv_features", A + 2 * K, "columns of the fused QKV projection, those of all ranks")
GATE_UP_FEATURES = Dimension("gate_up_features", 2 * f, "rows of the fused gate and up projection")
EXPERTS = Dimension("experts", E, "routed experts")
ALL_POSITIONS = Dimension("all_positions", s, "positions of a table that is not shared out")
LAYER_TENSORS = Dimension("layer_tensors", 9 + 3 * bias + 2 * qkn, "weights, biases and scales of a dense layer")
POSITIONS = Dimension("positions", pos, "rows of a learned position table")
ALL_KEYS = Dimension("all_keys", s, "tokens of the whole sequence, on every rank")
WHOLE_VOCAB = Dimension("whole_vocab", v, "padded vocabulary, gathered on every rank")
TENSOR_RANKS = Dimension("tensor_ranks", t, "tensor-parallel ranks whose numbers are gathered")

ROUTED = Dimension("routed", E, "routed experts, as the router scores them on every rank")
EXPERT_LAYERS = Dimension("expert_layers", experts_before(L), "layers of the model with experts")
TOPK = Dimension("topk", q, "experts that a token is sent to")
EXPERT_GROUPS = Dimension("expert_groups", ng, "groups of experts")
CHOSEN_GROUPS = Dimension("chosen_groups", gq, "groups of experts that a token may use")
BEST_OF_GROUP = Dimension("best_of_group", q / Max(gq, 1), "experts that stand for their group")
ROW_MAP = Dimension("row_map", 2 * E + 1, "places of a token among those sent: two for every expert, and a count")
LOCAL_ROW_MAP = Dimension("local_row_map", 2 * E / e + 1, "the same for the experts of one rank")
EXPERT_RANKS = Dimension("expert_ranks", e * et, "ranks whose tokens are gathered")
SENT = Dimension("sent", xs, "tokens that a rank sends to experts")
RECEIVED = Dimension("received", xn, "tokens that the experts of a rank work on")
RECEIVED_SHARE = Dimension("received_share", xn / et, "the same before expert-tensor-parallel ranks gather them")
ARRIVED = Dimension("arrived", xr, "tokens that arrive at a rank, once for all of its experts")
ALL_CHOICES = Dimension("all_choices", q * et, "experts that a token is sent to, once for each rank that shares one")
ALL_ROUTED = Dimension("all_routed", E * et, "routed experts, once for each rank that shares one")
EXPERT_NODES = Dimension("expert_nodes", e * et / 8, "servers of eight ranks whose tokens are exchanged")
DISPATCHED = Dimension("dispatched", xs * et, "the tokens sent where all ranks that share an expert's width send them")
PADDED_RECEIVED = Dimension("padded_received", pad_to(xn, Integer(8)) + 8 * E / e,
                            "received tokens in groups of whole eights, with as many rows more for every expert")
EXPERT_FFN = Dimension("expert_ffn", fe, "inner width of a routed expert")
EXPERT_GATE_UP = Dimension("expert_gate_up", 2 * fe, "rows of a routed expert's fused gate and up projection")
SHARED_FFN = Dimension("shared_ffn", fs, "inner width of the shared experts")
SHARED_GATE_UP = Dimension("shared_gate_up", 2 * fs, "rows of the shared experts' fused gate and up projection")
LATENT_Q = Dimension("latent_q", lq, "width of compressed queries")
LATENT_KV = Dimension("latent_kv", lk, "width of compressed keys and values")
LATENT_KV_ROTARY = Dimension("latent_kv_rotary", lk + dr, "compressed keys and values, and the rotary part of keys")
ROTARY_DIM = Dimension("rotary_dim", dr, "part of a head that carries the rotary embedding")
VALUE_DIM = Dimension("value_dim", dv, "width of one value head")
KEY_DIM = Dimension("key_dim", d - dr, "part of a head without the rotary embedding")
KEY_AND_VALUE_DIM = Dimension("key_and_value_dim", d + dv, "one key head and one value head")
KEY_VALUE_DIM = Dimension("key_value_dim", d - dr + dv, "one key head without its rotary part, and one value head")
VALUE_FEATURES = Dimension("value_features", a * dv, "columns of the output projection of latent attention")
KEY_VALUE_FEATURES = Dimension("key_value_features", a * (d - dr + dv), "rows of the up projection of keys and values")
HIDDEN_TWICE = Dimension("hidden_twice", 2 * h, "hidden state and embedding side by side")
HIDDEN_FEATURES = Dimension("hidden_features", h, "rows of a projection to the residual stream that is shared out")
SEQUENCE_OF_OTHERS = Dimension("sequence_of_others", s * (ts - 1), "tokens of the other sequence-parallel ranks")
SLOPE = Dimension("slope", Integer(1), "one slope of xIELU")
SLOPES = Dimension("slopes", Integer(2), "slopes of xIELU, one for each sign")
RANK = Dimension("rank", rl, "rank of an adapter")
RANK_TWICE = Dimension("rank_twice", 2 * rl, "rank of an adapter of fused gate and up projections")
EXPERTS_RANK = Dimension("experts_rank", E * rl, "rank of one adapter of the stacked weights of all experts")
EXPERTS_RANK_TWICE = Dimension("experts_rank_twice", 2 * E * rl, "the same for fused gate and up projections")
LOCAL_RANK = Dimension("local_rank", rl, "rows of the first matrix of an adapter, which are shared out")
EXPERT_SETS = Dimension("expert_sets", e, "sets of experts, one on every rank, that share an adapter")
EXPERT_LOCAL_RANK = Dimension("expert_local_rank", rl, "the same rows in an adapter of experts")
EXPERT_HIDDEN_FEATURES = Dimension("expert_hidden_features", h, "rows of the second matrix of an adapter of experts")
HIDDEN_SCALES = Dimension("hidden_scales", h / 32, "bytes of FP8 scales of a token's hidden state")
FFN_SCALES = Dimension("ffn_scales", f / 32, "bytes of FP8 scales of a token's inner MLP state")
HIDDEN_TWICE_SCALES = Dimension("hidden_twice_scales", pad_to(2 * h, Integer(128)) / 32,
                                "bytes of FP8 scales of two hidden states of a token")
EXPERT_FFN_SCALES = Dimension("expert_ffn_scales", fe / 32, "bytes of FP8 scales of a token inside of an expert")
EXPERT_MAGNITUDES = Dimension("expert_magnitudes", 16 * E / e - 12,
                              "bytes of the fp32 magnitudes of a rank's experts in NVFP4, each 16 bytes behind another")
SHARED_FFN_SCALES = Dimension("shared_ffn_scales", fs / 32, "bytes of FP8 scales of a token inside of shared experts")
HIDDEN_SCALES_PADDED = Dimension("hidden_scales_padded", pad_to(h, Integer(128)) / 32,
                                 "the same of a token's hidden state, with the padding of their tiles")
FFN_SCALES_PADDED = Dimension("ffn_scales_padded", pad_to(f / t, Integer(128)) / 32,
                              "the same of a token's inner MLP state on one rank, with the padding of their tiles")
EXPERT_FFN_SCALES_PADDED = Dimension("expert_ffn_scales_padded", pad_to(fe / et, Integer(128)) / 32,
                                     "the same inside of an expert on one rank, with the padding of their tiles")
SHARED_FFN_SCALES_PADDED = Dimension("shared_ffn_scales_padded", pad_to(fs / t, Integer(128)) / 32,
                                     "the same inside of shared experts on one rank, with the padding of their tiles")
LATENT_Q_SCALES = Dimension("latent_q_scales", lq / 32, "bytes of FP8 scales of a token's compressed queries")
LATENT_KV_SCALES = Dimension("latent_kv_scales", lk / 32, "bytes of FP8 scales of a token's compressed keys and values")

ENGINE_WORKSPACE = Dimension("engine_workspace", we, "bytes of a cuBLAS workspace of Transformer Engine")
TORCH_WORKSPACE = Dimension("torch_workspace", wt, "bytes of a cuBLAS workspace of PyTorch")

DIMENSIONS: tuple[Dimension, ...] = (
    SEQUENCE, SEQUENCE_SP, KEY_SEQUENCE, SHIFTED_SEQUENCE, BATCH, HIDDEN, HEADS, KV_HEADS, HEAD_DIM, FFN,
    VOCAB, QUERY_FEATURES, KV_FEATURES, QKV_FEATURES, GATE_UP_FEATURES, EXPERTS, POSITIONS, ALL_KEYS, WHOLE_VOCAB,
    TENSOR_RANKS, MASK_BLOCKS, ALL_QKV_FEATURES, HIDDEN_COLUMNS, HIDDEN_PART,
    ROUTED, EXPERT_LAYERS, TOPK,
    EXPERT_GROUPS, CHOSEN_GROUPS, BEST_OF_GROUP, ROW_MAP, LOCAL_ROW_MAP, EXPERT_RANKS, SENT, RECEIVED,
    RECEIVED_SHARE, DISPATCHED, PADDED_RECEIVED, ARRIVED, ALL_CHOICES, ALL_ROUTED, EXPERT_NODES,
    EXPERT_FFN, EXPERT_GATE_UP, SHARED_FFN, SHARED_GATE_UP, LATENT_Q, LATENT_KV, LATENT_KV_ROTARY,
    ROTARY_DIM, VALUE_DIM, KEY_DIM, KEY_VALUE_DIM,
    KEY_AND_VALUE_DIM, VALUE_FEATURES, KEY_VALUE_FEATURES, HIDDEN_TWICE, HIDDEN_FEATURES,
    SEQUENCE_OF_OTHERS, ALL_POSITIONS, LAYER_TENSORS, RANK, RANK_TWICE, EXPERTS_RANK,
    EXPERTS_RANK_TWICE, LOCAL_RANK, EXPERT_SETS, EXPERT_LOCAL_RANK,
    EXPERT_HIDDEN_FEATURES, HIDDEN_SCALES, FFN_SCALES,
    HIDDEN_TWICE_SCALES, EXPERT_FFN_SCALES, EXPERT_MAGNITUDES, SHARED_FFN_SCALES, LATENT_Q_SCALES, LATENT_KV_SCALES,
    HIDDEN_SCALES_PADDED, FFN_SCALES_PADDED, EXPERT_FFN_SCALES_PADDED, SHARED_FFN_SCALES_PADDED,
    ENGINE_WORKSPACE, TORCH_WORKSPACE, SCORED_SEQUENCE, CHUNK_TOKENS, TILE_TOKENS, TILE_VOCAB, SLOPE, SLOPES,
    TUNE_CHUNKS, TUNE_CHUNK_TOKENS, TUNE_CAST_ROWS, TUNE_GRADIENT_ROWS, TUNE_HEAD_GRADIENTS, TUNE_SCORED,
    TUNE_LINEAR_GRADIENTS, TUNE_COMPILED_GRADIENTS,
    ENTROPY_PRODUCTS, ENTROPY_GRADIENTS, ENTROPY_ROWS, REFERENCE_ROWS, KTO_ROWS, CHOSEN_ROWS, CAST_ROWS,
    SUM_GRADIENTS, ALL_SUM_GRADIENTS, SLICE_GRADIENTS, SEQUENCE_GRADIENTS, PAIR_GRADIENTS,
    PAIRS, SCORE, DOCUMENT, DOCUMENT_BOUNDS, HALF_HEAD, KEYS_AND_SINK,
    FULL_HEAD_DIM, FULL_KV_HEADS, FULL_QUERY_FEATURES, FULL_KV_FEATURES,
)

#: Dimensions of weights that routed experts have one of each, or one for all of a rank.
OF_EXPERTS: tuple[Dimension, ...] = (EXPERTS, EXPERT_SETS)
