"""Every symbol of the mathematics once: letter, name, unit, smallest legal value, meaning."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from functools import cached_property

from sympy import Symbol

from .run_out import PARTS, USUAL_PARTS
from .workspaces import USUAL


class Kind(Enum):
    """Where the value of a parameter comes from."""

    MODEL = "model"
    TRAINING = "training"
    LAYOUT = "layout"
    CLUSTER = "cluster"
    MACHINE = "machine"
    DERIVED = "derived"
    PUBLISHED = "published"


@dataclass(frozen=True)
class Parameter:
    """One symbol.

    ``short`` is the abbreviation that people use, which is an option of the command line where it is of capitals.
    ``default`` is the value of a parameter that few people set. The SymPy assumptions follow from ``minimum``;
    nobody types them. A symbol whose legal values include 0 is nonnegative and never positive, because SymPy
    would drop branches that compare a positive symbol with 0.
    """

    letter: str
    name: str
    unit: str
    minimum: int
    meaning: str
    kind: Kind
    maximum: int | None = None
    latex: str = ""
    default: int | None = None
    short: str = ""

    @cached_property
    def symbol(self) -> Symbol:
        """The SymPy symbol; its name is the parameter's letter."""
        return Symbol(self.letter, integer=True, **self.assumptions)

    @property
    def assumptions(self) -> dict[str, bool]:
        """SymPy assumptions that hold for every legal value."""
        if self.minimum < 0:
            return {}
        return {"positive": True} if self.minimum >= 1 else {"nonnegative": True}

    @property
    def is_switch(self) -> bool:
        """True for a symbol that is either 0 or 1."""
        return (self.minimum, self.maximum) == (0, 1)


def _switch(
    letter: str, name: str, meaning: str, kind: Kind, latex: str, default: int | None = None, short: str = ""
) -> Parameter:
    return Parameter(letter, name, "0 or 1", 0, meaning, kind, maximum=1, latex=latex, default=default, short=short)


def _efficiency(letter: str, name: str, meaning: str, latex: str, default: int) -> Parameter:
    return Parameter(letter, name, "per mille", 1, meaning, Kind.MACHINE, maximum=1000, latex=latex, default=default)


def _link(letter: str, group: str, words: str) -> Parameter:
    return Parameter(letter, f"{group}_link_bandwidth", "bytes/s", 1, f"measured, of one GPU: {words}", Kind.MACHINE,
                     latex=f"W_{{{letter.lower()}}}")


#: Measured links between nodes: letter, group of ranks, and which of its links is meant.
LINKS: tuple[tuple[str, str, str], ...] = (
    *((letter, group, f"slowest link between nodes of {words}") for letter, group, words in (
        ("Yt", "tensor", "tensor-parallel ranks"), ("Yc", "context", "context-parallel ranks"),
        ("Yd", "data", "ranks that share out parameters"), ("Yr", "replica", "ranks that hold copies of a share"),
        ("Yet", "expert_tensor", "ranks that share the width of experts"),
        ("Ye", "expert", "ranks that share out experts"),
        ("Yea", "expert_all", "ranks that share out experts and their width"),
        ("Yed", "expert_data", "ranks that share out parameters of experts"),
        ("Yer", "expert_replica", "ranks that hold copies of a share of experts"),
        ("Yp", "pipeline", "neighbouring stages"),
    )),
    ("Yq", "path", "harmonic mean of the links between nodes from the first stage to the last"),
)

#: Figures of all stages together, where stages have machines of their own: letter, end of the name, unit, meaning.
ACROSS: tuple[tuple[str, str, str, str], ...] = (
    ("Tx", "slowest", "ps", "one micro-batch on the slowest stage; of several chunks of layers the first"),
    ("Tm", "slowest_middle", "ps", "the same of any chunk but the first and the last"),
    ("Tl", "slowest_last", "ps", "the same of the last chunk"),
    ("Ta", "sum", "ps", "one micro-batch on all stages, one after the other; of several chunks the first"),
    ("Xx", "slowest_send", "ps", "one message over the slowest border between stages"),
    ("Xa", "sends", "ps", "one message over all borders between stages"),
    ("Tw", "data_waiting", "ps", "wait for data-parallel ranks, of the stage that waits longest"),
    ("To", "optimizer", "ps", "optimizer step of the stage that takes longest"),
    ("Fx", "matmul_flops", "FLOP/s", "peak of matrix products of a GPU, mean of all stages"),
)

PARAMETERS: tuple[Parameter, ...] = (
    Parameter("h", "hidden_size", "elements", 1, "width of the residual stream", Kind.MODEL),
    Parameter("a", "num_attention_heads", "heads", 1, "query heads of a layer", Kind.MODEL),
    Parameter("k", "num_kv_heads", "heads", 1, "key and value heads of a layer (GQA)", Kind.MODEL),
    Parameter("d", "head_dim", "elements", 1, "width of one head", Kind.MODEL),
    Parameter("f", "ffn_hidden_size", "elements", 1, "inner width of the MLP", Kind.MODEL),
    Parameter("L", "num_layers", "layers", 1, "transformer layers of the model", Kind.MODEL),
    Parameter("u", "vocab_size", "tokens", 1, "vocabulary before padding", Kind.MODEL),
    _switch("tied", "tied_embeddings", "the LM head is the embedding matrix", Kind.MODEL, r"\theta"),
    _switch("bias", "qkv_bias", "the QKV projection has a bias (Qwen2)", Kind.MODEL, r"\beta"),
    _switch("qkn", "qk_norm", "queries and keys are normalised per head (Qwen3)", Kind.MODEL, r"\nu"),
    _switch("lbias", "linear_bias", "all projections have a bias (GPT)", Kind.MODEL, r"\lambda",
            default=0),
    _switch("obias", "attention_output_bias", "the projection after attention has a bias (Llama with attention_bias)",
            Kind.MODEL, r"\lambda_{o}", default=0),
    _switch("mbias", "mlp_bias", "the projections of dense MLPs have a bias", Kind.MODEL, r"\lambda_{m}", default=0),
    _switch("hbias", "head_bias", "the LM head has a bias (Phi 2)", Kind.MODEL, r"\lambda_{h}", default=0),
    _switch("acap", "attention_softcapping", "scores are bounded by tanh (Gemma 2)", Kind.MODEL, r"\chi_{a}",
            default=0),
    _switch("lcap", "logit_softcapping", "logits are bounded by tanh (Gemma 2)", Kind.MODEL, r"\chi_{l}",
            default=0),
    Parameter("pos", "learned_positions", "positions", 0, "rows of a learned position table; 0 without one",
              Kind.MODEL, latex=r"\pi", default=0),
    Parameter("win", "attention_window", "tokens", 0, "tokens that a query of a windowed layer attends to, itself"
              " included; 0 without windows", Kind.MODEL, latex="w_{a}", default=0),
    Parameter("wstep", "full_attention_step", "layers", 0,
              "beside windows: every such layer attends to whole sequences; 0 for none", Kind.MODEL,
              latex=r"\ell_{w}", default=0),
    Parameter("dg", "full_head_dim", "elements", 0,
              "width of one head in layers without windows, where it is another than head_dim (Gemma 4); 0 where not",
              Kind.MODEL, latex="d_{f}", default=0),
    Parameter("kg", "full_num_kv_heads", "heads", 0, "key and value heads of these layers; 0 where there are none",
              Kind.MODEL, latex="k_{f}", default=0),
    _switch("same", "keys_as_values", "values of these layers are their keys before norm and rotary embedding",
            Kind.MODEL, r"\psi", default=0),
    Parameter("E", "num_experts", "experts", 0, "routed experts of an expert layer; 0 in a dense model", Kind.MODEL,
              default=0),
    Parameter("q", "moe_topk", "experts", 0, "experts that each token is sent to", Kind.MODEL, default=0),
    Parameter("fe", "moe_ffn_hidden_size", "elements", 0, "inner width of one routed expert", Kind.MODEL,
              latex="f_{e}", default=0),
    Parameter("fs", "shared_expert_ffn_hidden_size", "elements", 0,
              "inner width of all shared experts together; 0 without them", Kind.MODEL, latex="f_{s}", default=0),
    _switch("sgate", "shared_expert_gate", "a gate scales the result of the shared experts", Kind.MODEL, r"\zeta",
            default=0),
    Parameter("ng", "expert_groups", "groups", 0, "groups of experts, of which a token may use some; 0 without them",
              Kind.MODEL, latex="E_{g}", default=0),
    Parameter("gq", "expert_group_topk", "groups", 0, "groups of experts that each token may use", Kind.MODEL,
              latex="q_{g}", default=0),
    Parameter("ld", "first_dense_layers", "layers", 0, "layers before the first that may have experts", Kind.MODEL,
              latex="L_{d}", default=0),
    Parameter("step", "moe_layer_step", "layers", 1, "every such layer has experts, the last of each step",
              Kind.MODEL, latex=r"\ell", default=1),
    Parameter("lq", "q_lora_rank", "elements", 0, "width of compressed queries (MLA); 0 if not compressed",
              Kind.MODEL, latex="r_{q}", default=0),
    Parameter("lk", "kv_lora_rank", "elements", 0, "width of compressed keys and values (MLA)", Kind.MODEL,
              latex="r_{k}", default=0),
    Parameter("dr", "qk_rope_head_dim", "elements", 0,
              "part of d that carries the rotary embedding (MLA, GPT-NeoX); 0 for all of it", Kind.MODEL,
              latex="d_{r}", default=0),
    Parameter("dv", "v_head_dim", "elements", 0, "width of one value head (MLA)", Kind.MODEL, latex="d_{v}", default=0),
    Parameter("mtp", "num_mtp_layers", "layers", 0, "layers that predict further tokens (MTP)", Kind.MODEL,
              latex="L_{m}", default=0),
    Parameter("s", "seq_length", "tokens", 1, "tokens of one sequence", Kind.TRAINING),
    Parameter("doc", "document_length", "tokens", 0, "tokens of a document of a packed sequence, of unequal ones"
              " the mean over their tokens; 0 where sequences are not packed", Kind.TRAINING, latex="s_{d}", default=0),
    Parameter("B", "global_batch_size", "sequences", 1, "sequences of one optimizer step", Kind.TRAINING, short="gbs"),
    Parameter(
        "g", "vocab_multiple", "tokens", 1, "the vocabulary is padded to a multiple of g t", Kind.TRAINING
    ),
    Parameter(
        "w", "gradient_bytes", "bytes", 2, "bytes of one gradient element: 4 (fp32) or 2 (bf16)",
        Kind.TRAINING, maximum=4, latex=r"\gamma",
    ),
    _switch("zero1", "distributed_optimizer", "optimizer states are sharded (ZeRO-1)", Kind.TRAINING, r"\omega"),
    _switch("zero2", "sharded_gradients", "gradients are sharded too (ZeRO-2)", Kind.TRAINING, r"\omega_{2}",
            default=0),
    _switch("zero3", "sharded_weights", "weights are sharded too (ZeRO-3)", Kind.TRAINING, r"\omega_{3}", default=0),
    Parameter("R", "data_parallel_replicas", "groups", 1,
              "data-parallel groups with a full copy of the sharded states (HSDP)", Kind.TRAINING,
              default=1),
    Parameter("m1", "exp_avg_bytes", "bytes", 1, "bytes of a first moment of the precision-aware optimizer: 4, 2 or 1",
              Kind.TRAINING, maximum=4, latex="m_{1}", default=4),
    Parameter("m2", "exp_avg_sq_bytes", "bytes", 1,
              "bytes of a second moment of the precision-aware optimizer: 4, 2 or 1", Kind.TRAINING, maximum=4,
              latex="m_{2}", default=4),
    Parameter("wm", "main_param_bytes", "bytes", 2,
              "bytes of a master weight of the precision-aware optimizer: 4, or 2 for fp16 or the lower half of an"
              " fp32 one whose upper half is the weight", Kind.TRAINING, maximum=4, latex="w_{m}", default=2),
    Parameter("bk", "reduce_bucket_size", "elements", 0, "gradients that DeepSpeed reduces at a time", Kind.TRAINING,
              latex="b_{r}", default=500_000_000),
    _switch("ovl", "overlap_comm", "DeepSpeed fills a second bucket while one is reduced (ZeRO-1, ZeRO-2)",
            Kind.TRAINING, r"\omega_{o}", default=0),
    Parameter("bz", "ddp_bucket_size", "elements", 0,
              "parameters that close a bucket of Megatron-FSDP; 0 for 40 million, or 1 million for each rank if these"
              " are more", Kind.TRAINING, latex="b_{z}", default=0),
    Parameter("cu", "communication_unit_size", "elements", 0,
              "gradients that wait in Megatron-FSDP for their reduction, twice the weights that it gathers ahead; 0 for"
              " 1000 million, or two layers if these are more", Kind.TRAINING, latex="c_{u}", default=0),
    _switch("sbk", "single_bucket", "Megatron-FSDP closes no bucket: gradients do not overlap the backward pass",
            Kind.TRAINING, r"\omega_{b}", default=0),
    Parameter("pt", "param_persistence_threshold", "elements", 0,
              "largest parameter that DeepSpeed keeps gathered (ZeRO-3)", Kind.TRAINING, latex="p_{t}",
              default=100_000),
    Parameter("pf", "prefetch_bucket_size", "elements", 0, "parameters that DeepSpeed gathers ahead (ZeRO-3)",
              Kind.TRAINING, latex="p_{f}", default=50_000_000),
    Parameter("ml", "max_live_parameters", "elements", 0,
              "gathered parameters above which DeepSpeed gathers none ahead (ZeRO-3)", Kind.TRAINING, latex="p_{l}",
              default=1_000_000_000),
    Parameter("mr", "max_reuse_distance", "elements", 0,
              "parameters that may come in between if DeepSpeed is to keep one gathered (ZeRO-3)", Kind.TRAINING,
              latex="p_{r}", default=1_000_000_000),
    Parameter("sg", "sub_group_size", "elements", 1,
              "parameters of a subgroup, which DeepSpeed updates at a time (ZeRO-3)", Kind.TRAINING,
              latex="p_{g}", default=1_000_000_000),
    Parameter("eb", "eval_batch_size", "sequences", 1, "sequences of a rank in one pass of an evaluation",
              Kind.TRAINING, latex="b_{e}", default=8),
    Parameter("ek", "eval_batches_kept", "batches", 0, "batches of an evaluation whose logits stay on the GPU",
              Kind.TRAINING, latex="k_{e}", default=0),
    Parameter("ah", "fp8_amax_history_len", "steps", 1,
              "steps of magnitude history for delayed FP8 scaling", Kind.TRAINING, latex="a_{h}",
              default=1),
    Parameter("rl", "lora_rank", "elements", 0, "rank of low-rank adapters; 0 without them", Kind.TRAINING,
              latex=r"\rho_{l}", default=0),
    Parameter("oo", "optimizer_offload_percent", "percent", 0, "parameters that are updated on the host",
              Kind.TRAINING, maximum=100, latex="o", default=0),
    Parameter("gk", "gpu_update_stride", "subgroups", 1, "of so many subgroups of parameters whose states rest on the"
              " host the GPU updates the last (Deep Optimizer States)", Kind.TRAINING, latex="k_{g}", default=1),
    Parameter("ol", "cpu_offloading_num_layers", "layers", 0, "layers whose saved tensors wait on the host",
              Kind.TRAINING, latex="L_{o}", default=0),
    Parameter("H", "inner_steps", "steps", 1, "steps that data-parallel groups train by themselves (local updates)",
              Kind.TRAINING, default=1),
    Parameter("fr", "fragments", "fragments", 1, "parts of the parameters that are synchronised one after the other"
              " within the inner steps", Kind.TRAINING, latex="P_{f}", default=1),
    Parameter("lt", "outer_overlap_steps", "steps", 0, "inner steps during which a fragment is reduced",
              Kind.TRAINING, latex=r"\tau_{f}", default=0),
    Parameter("ob", "outer_gradient_bits", "bits", 4, "bits of an outer gradient on its way: 32, 16, 8 or 4",
              Kind.TRAINING, maximum=32, latex="b_{o}", default=32),
    _switch("drop", "hidden_dropout", "dropout after attention, MLP and embedding", Kind.TRAINING, r"\delta",
            default=0),
    _switch("adrop", "attention_dropout", "dropout of the attention probabilities", Kind.TRAINING,
            r"\delta_{a}", default=0),
    Parameter("load", "expert_load_percent", "percent", 1,
              "tokens of the fullest rank's experts over the average; 100 is balanced", Kind.TRAINING,
              latex=r"\eta", default=100),
    Parameter("cf", "expert_capacity_percent", "percent", 0,
              "tokens that every expert is padded or cut to, over the average; 0 drops and pads none",
              Kind.TRAINING, latex="C", default=0),
    Parameter("t", "tensor_parallel", "ranks", 1, "tensor-parallel size (TP)", Kind.LAYOUT, short="TP"),
    Parameter("ty", "tensor_parallel_y", "ranks", 1, "second axis of tensor parallelism, which shares out the residual"
              " width of weights (AxoNN)", Kind.LAYOUT, latex="t_{y}", default=1, short="TPY"),
    Parameter("tz", "tensor_parallel_z", "ranks", 1, "third axis of tensor parallelism, which shares out sequences and"
              " gathers weights (AxoNN)", Kind.LAYOUT, latex="t_{z}", default=1, short="TPZ"),
    Parameter("xb", "shared_batch", "ranks", 1, "expert-parallel ranks that work on one batch (tp_size of Transformers,"
              " without a plan of tensor parallelism)", Kind.LAYOUT, latex="x_{b}", default=1, short="shared"),
    Parameter("c", "context_parallel", "ranks", 1, "context-parallel size (CP)", Kind.LAYOUT, short="CP"),
    Parameter("p", "pipeline_parallel", "ranks", 1, "pipeline-parallel size (PP)", Kind.LAYOUT, short="PP"),
    Parameter("sn", "sequence_slices", "slices", 1, "slices of a sequence, which pass the pipeline one after another",
              Kind.LAYOUT, latex="n_{q}", default=1, short="slices"),
    Parameter("D", "data_parallel", "ranks", 1, "data-parallel size (DP), without context parallelism",
              Kind.LAYOUT, short="DP"),
    Parameter("e", "expert_parallel", "ranks", 1, "expert-parallel size (EP); divides CP x TP x DP", Kind.LAYOUT,
              default=1, short="EP"),
    Parameter("et", "expert_tensor_parallel", "ranks", 1, "tensor-parallel size of routed experts (ETP)",
              Kind.LAYOUT, latex="t_{e}", default=1, short="ETP"),
    Parameter("b", "micro_batch_size", "sequences", 1, "sequences of one micro-batch", Kind.LAYOUT, short="mbs"),
    _switch("sp", "sequence_parallel", "norms and residuals are sharded over TP (SP)", Kind.LAYOUT, r"\sigma",
            short="SP"),
    _switch("rfull", "recompute_full", "every layer is recomputed from its input", Kind.LAYOUT, r"\varphi"),
    _switch("rcore", "recompute_core_attention", "core attention is recomputed", Kind.LAYOUT, r"\kappa"),
    _switch("rmlp", "recompute_mlp", "the MLP is recomputed", Kind.LAYOUT, r"\mu"),
    _switch("rnorm", "recompute_layernorm", "norms that stand alone are recomputed (MLA, experts)", Kind.LAYOUT,
            r"\mu_{n}", default=0),
    _switch("rup", "recompute_mla_up_proj", "up projections of latent attention are recomputed", Kind.LAYOUT,
            r"\mu_{u}", default=0),
    _switch("ract", "recompute_moe_act", "the activation of routed experts is recomputed", Kind.LAYOUT,
            r"\mu_{a}", default=0),
    _switch("rshared", "recompute_shared_experts", "shared experts are recomputed", Kind.LAYOUT, r"\mu_{s}",
            default=0),
    _switch("rmoe", "recompute_moe", "router, routed and shared experts are recomputed", Kind.LAYOUT, r"\mu_{e}",
            default=0),
    Parameter("rn", "recompute_num_layers", "layers", 1,
              "layers per recomputed group (uniform), recomputed layers per chunk (block), or recompute every N-th"
              " layer (every)", Kind.LAYOUT, latex=r"\rho", default=1),
    Parameter("V", "virtual_pipeline", "chunks", 1,
              "chunks of layers per pipeline rank (interleaved schedule)", Kind.LAYOUT, default=1, short="VPP"),
    Parameter("G", "microbatch_group", "micro-batches", 0,
              "micro-batches of one chunk in a row (interleaved schedule); 0 stands for p", Kind.LAYOUT,
              default=0),
    Parameter("Lf", "first_stage_layers", "layers", 0, "layers of the first stage; 0 for an even share", Kind.LAYOUT,
              latex="L_{0}", default=0),
    Parameter("Ll", "last_stage_layers", "layers", 0, "layers of the last stage; 0 for an even share", Kind.LAYOUT,
              latex="L_{p-1}", default=0),
    _switch("eemb", "account_for_embedding", "the embedding counts as a layer when layers are shared out",
            Kind.LAYOUT, r"\epsilon_{e}", default=0),
    _switch("eloss", "account_for_loss", "the loss counts as a layer when layers are shared out", Kind.LAYOUT,
            r"\epsilon_{l}", default=0),
    Parameter("r", "pipeline_rank", "rank", 0, "pipeline stage, from 0 to p - 1", Kind.LAYOUT),
    Parameter("N", "num_gpus", "GPUs", 1, "GPUs of the job", Kind.CLUSTER),
    Parameter("n", "node_size", "GPUs", 1, "GPUs of one node", Kind.CLUSTER),
    Parameter("M", "gpu_memory", "bytes", 1, "memory of one GPU", Kind.CLUSTER),
    Parameter("gs", "server_gpus", "GPUs", 1, "GPUs of one server, which share the memory of its host", Kind.CLUSTER,
              latex="n_{h}"),
    Parameter("Mh", "host_memory", "bytes", 0, "memory of a server's host; 0 where it is not known", Kind.CLUSTER,
              latex="M_{h}"),
    Parameter("extra", "unexplained_bytes", "bytes", -(2**53), "measured allocation minus the ledger's",
              Kind.CLUSTER, latex="x_{0}", default=0),
    Parameter("slack", "reserved_per_mille", "bytes", 1, "bytes reserved per 1000 that the formula of them has",
              Kind.CLUSTER, latex="x_{r}", default=1000),
    Parameter("context", "context_bytes", "bytes", 0, "CUDA context and kernels of a process", Kind.CLUSTER,
              latex="x_{c}", default=400 * 2**20),
    Parameter("nccl", "communicator_bytes", "bytes", 0, "memory of one NCCL communicator", Kind.CLUSTER,
              latex="x_{n}", default=400 * 2**20),
    Parameter("room", "process_parts", "parts", 1,
              "millionths of the GPU's memory that a process may take for a layout to fit", Kind.CLUSTER,
              maximum=PARTS, latex="x_{f}", default=USUAL_PARTS),
    Parameter("we", "engine_workspace_bytes", "bytes", 0, "cuBLAS workspace of Transformer Engine", Kind.CLUSTER,
              latex="w_{e}", default=USUAL.engine),
    Parameter("wt", "torch_workspace_bytes", "bytes", 0, "cuBLAS workspace of each thread of PyTorch", Kind.CLUSTER,
              latex="w_{t}", default=USUAL.torch),
    _switch("fcopy", "attention_copies_output", "Transformer Engine chooses FlashAttention, whose output is copied",
            Kind.CLUSTER, r"\kappa_{c}", default=USUAL.copies),
    Parameter("Fm", "matmul_flops", "FLOP/s", 1, "peak of dense matrix products in the precision of linear layers",
              Kind.MACHINE, latex="F_{m}"),
    Parameter("Fa", "attention_flops", "FLOP/s", 1, "peak of dense matrix products of 16 bits: attention and LM head",
              Kind.MACHINE, latex="F_{a}"),
    Parameter("Wm", "hbm_bandwidth", "bytes/s", 1, "bandwidth of a GPU's memory", Kind.MACHINE, latex="W_{m}"),
    Parameter("Wn", "node_bandwidth", "bytes/s", 1, "intra-node bandwidth of one GPU (NVLink domain), each direction",
              Kind.MACHINE, latex="W_{n}"),
    Parameter("Wx", "network_bandwidth", "bytes/s", 1, "inter-node bandwidth of one GPU, each direction", Kind.MACHINE,
              latex="W_{x}"),
    *(_link(*item) for item in LINKS),
    Parameter("Ws", "send_bandwidth", "bytes/s", 1,
              "most that one GPU sends to one GPU of another node, each direction", Kind.MACHINE, latex="W_{s}",
              default=12_000_000_000),
    Parameter("lp", "link_peers", "GPUs", 1,
              "GPUs that a GPU's links are divided among: the others of a board without a switch; 1 with one",
              Kind.MACHINE, latex="n_{g}", default=1),
    *(Parameter(letter, f"all_stages_{end}", unit, 0 if unit == "ps" else 1, words, Kind.MACHINE,
                latex=f"{letter[0]}_{{{letter[1]}}}") for letter, end, unit, words in ACROSS),
    Parameter("dom", "nvlink_domain", "GPUs", 1, "GPUs that the bandwidth of a node joins", Kind.MACHINE,
              latex="n_{v}"),
    Parameter("an", "node_latency_ns", "ns", 0, "intra-node latency per collective step", Kind.MACHINE,
              latex=r"\alpha_{n}", default=3_400),
    Parameter("ax", "network_latency_ns", "ns", 0, "inter-node latency per collective step", Kind.MACHINE,
              latex=r"\alpha_{x}", default=14_000),
    Parameter("ab", "collective_latency_ns", "ns", 0, "latency of a collective or message beside that of its steps",
              Kind.MACHINE, latex=r"\alpha_{b}", default=8_400),
    Parameter("gap", "kernel_ns", "ns", 0, "idle time between two kernels on a GPU", Kind.MACHINE,
              latex=r"\tau_{k}", default=4_000),
    Parameter("tau", "launch_ns", "ns", 0, "host time per kernel launch", Kind.MACHINE,
              latex=r"\tau_{h}", default=15_000),
    Parameter("th", "expert_launch_ns", "ns", 0, "host time for each expert of a rank in a pass of a layer that"
              " quantises its tokens, beside the other kernels", Kind.MACHINE, latex=r"\tau_{e}", default=200_000),
    Parameter("st", "stage_stall_ns", "ns", 0,
              "wait per other tensor-parallel rank in a collective while stages cross nodes; measured, unexplained,"
              " set by calibration alone", Kind.MACHINE,
              latex=r"\tau_{s}", default=0),
    Parameter("ord", "pipeline_place", "place", 0,
              "rank order of pipeline stages: 0 after data parallelism, 1 before it, 2 before context parallelism"
              " too", Kind.MACHINE, maximum=2, latex=r"\iota", default=0),
    Parameter("Wo", "island_bandwidth", "bytes/s", 0, "link of one group of local updates to the others, each"
              " direction, shared by its GPUs; 0 for the network's", Kind.MACHINE, latex="W_{o}", default=0),
    Parameter("Wh", "host_copy_bandwidth", "bytes/s", 1, "bandwidth of a GPU's link to the host, each direction",
              Kind.MACHINE, latex="W_{h}", default=64_000_000_000),
    Parameter("Wc", "host_memory_bandwidth", "bytes/s", 1, "one GPU's share of the bandwidth of its server's memory",
              Kind.MACHINE, latex="W_{c}", default=76_800_000_000),
    _efficiency("em", "matmul_per_mille", "GEMM efficiency (per mille of peak)", r"\eta_{m}", 750),
    _efficiency("ea", "attention_per_mille", "core attention efficiency (per mille of peak)", r"\eta_{a}", 450),
    Parameter("s0", "attention_half_length", "tokens", 0,
              "length of a sequence at which core attention reaches half of its efficiency", Kind.MACHINE,
              latex="s_{0}", default=0),
    _efficiency("ew", "hbm_per_mille", "memory bandwidth efficiency (per mille of peak)", r"\eta_{w}", 750),
    _efficiency("en", "node_per_mille", "intra-node collective efficiency (per mille of bandwidth)", r"\eta_{n}",
                700),
    _efficiency("ex", "network_per_mille", "inter-node collective efficiency (per mille of bandwidth)",
                r"\eta_{x}", 700),
    _efficiency("ed", "flex_network_per_mille", "share of a network adapter that DeepEP and HybridEP reach (per mille"
                " of bandwidth)", r"\eta_{d}", 875),
    Parameter("kx", "network_contention_per_mille", "per mille", 0,
              "further flows on the slowest link of the network in a job of many nodes, per 1000 flows", Kind.MACHINE,
              latex=r"\kappa_{x}", default=0),
    _efficiency("hl", "host_copy_per_mille", "host link efficiency (per mille of bandwidth)", r"\eta_{h}", 850),
    _efficiency("hm", "host_memory_per_mille", "host memory efficiency (per mille of bandwidth)", r"\eta_{c}", 800),
    Parameter("sl", "overlap_slowdown_per_mille", "per mille", 0,
              "compute slowdown while a data-parallel collective overlaps",
              Kind.MACHINE, maximum=1000, latex=r"\eta_{o}", default=159),
    _switch("og", "overlap_grad_reduce", "gradient reduction overlaps the backward pass", Kind.MACHINE,
            r"\omega_{g}", default=0),
    _switch("ow", "overlap_param_gather", "weight gathering overlaps the forward pass", Kind.MACHINE,
            r"\omega_{w}", default=0),
    _switch("ot", "tp_comm_overlap", "tensor-parallel collectives overlap matrix products",
            Kind.MACHINE, r"\omega_{t}", default=0),
    _switch("oe", "expert_overlap", "tokens go to experts beside computing of another micro-batch, in time"
            " alone", Kind.MACHINE, r"\omega_{e}", default=0),
    _switch("o8", "fp8_dispatch", "DeepEP or HybridEP sends tokens, and gradients of experts' results, in FP8, in time"
            " alone", Kind.MACHINE, r"\omega_{8}", default=0),
    _switch("oh", "overlap_cpu_optimizer_d2h_h2d", "gradients are copied to the host while it updates other"
            " parameters", Kind.MACHINE, r"\omega_{h}", default=0),
    Parameter("pw", "power_milliwatts", "mW", 0, "power of one GPU at full load, with its share of the building",
              Kind.MACHINE, latex="P", default=0),
    Parameter("busy", "waiting_power_per_mille", "per mille", 0,
              "power of a waiting GPU (per mille of a computing one)", Kind.MACHINE, maximum=1000,
              latex=r"\eta_{p}", default=850),
    Parameter("chi", "cents_per_gpu_hour", "cents", 0, "price of one GPU for one hour", Kind.MACHINE,
              latex=r"\chi", default=0),
    Parameter("A", "query_size", "elements", 1, "width of all queries, a d; not h", Kind.DERIVED),
    Parameter("K", "kv_size", "elements", 1, "width of all keys, k d", Kind.DERIVED),
    Parameter("v", "padded_vocab_size", "tokens", 1, "padded vocabulary", Kind.DERIVED),
    Parameter("ts", "sequence_shards", "ranks", 1, "t with sequence parallelism, else 1", Kind.DERIVED,
              latex="t_{s}"),
    Parameter("kt", "kv_heads_per_rank", "heads", 1, "key and value heads of one rank, k/t but at least 1",
              Kind.DERIVED, latex="k_{t}"),
    Parameter("shards", "optimizer_shards", "ranks", 1, "ranks that share the optimizer states", Kind.DERIVED,
              latex="z"),
    Parameter("m", "num_microbatches", "micro-batches", 1, "micro-batches of one step and rank", Kind.DERIVED),
    Parameter("Lr", "stage_layers", "layers", 1, "layers of one pipeline stage", Kind.DERIVED, latex="L_{r}"),
    Parameter("Lx", "longest_stage_layers", "layers", 0,
              "layers of the longest stage between first and last, of an explicit list", Kind.DERIVED, latex="L_{x}"),
    Parameter("Ly", "second_longest_layers", "layers", 0,
              "layers of a stage between those that may take longer: it has more of another kind", Kind.DERIVED,
              latex="L_{y}"),
    Parameter("Lz", "third_longest_layers", "layers", 0, "layers of a third such stage", Kind.DERIVED, latex="L_{z}"),
    Parameter("Lfe", "first_stage_experts", "layers", 0, "layers with experts of the first stage of an explicit list",
              Kind.DERIVED, latex="L_{0e}"),
    Parameter("Lle", "last_stage_experts", "layers", 0, "layers with experts of the last stage of an explicit list",
              Kind.DERIVED, latex="L_{(p-1)e}"),
    Parameter("Lxe", "longest_stage_experts", "layers", 0, "of L_x, layers with experts", Kind.DERIVED,
              latex="L_{xe}"),
    Parameter("Lye", "second_longest_experts", "layers", 0, "of L_y, layers with experts", Kind.DERIVED,
              latex="L_{ye}"),
    Parameter("Lze", "third_longest_experts", "layers", 0, "of L_z, layers with experts", Kind.DERIVED,
              latex="L_{ze}"),
    Parameter("Gr", "group_size", "micro-batches", 1, "micro-batches of one chunk in a row", Kind.DERIVED,
              latex="g_{r}"),
    Parameter("nr", "in_flight", "chunks", 1, "chunks (of L_r/V layers) in flight on rank r", Kind.DERIVED,
              latex="n_{r}"),
    Parameter("nf", "in_flight_first", "micro-batches", 1, "micro-batches whose first chunk is in flight on rank r",
              Kind.DERIVED, latex="n_{f}"),
    Parameter("nl", "in_flight_last", "micro-batches", 1, "micro-batches of which the head's input is kept",
              Kind.DERIVED, latex="n_{l}"),
    Parameter("ns", "in_flight_loss", "micro-batches", 1, "micro-batches of which the loss is kept", Kind.DERIVED,
              latex="n_{s}"),
    Parameter("Lm", "middle_layers", "layers", 0, "layers of a stage between first and last", Kind.DERIVED,
              latex="L_{i}"),
    Parameter("Lc", "chunk_layers", "layers", 0, "layers of a chunk of rank r that has no layer less", Kind.DERIVED,
              latex="L_{c}"),
    Parameter("Lcf", "leading_chunk_layers", "layers", 0, "layers of the first chunk of rank r", Kind.DERIVED,
              latex="L_{cf}"),
    Parameter("Lb", "layers_before", "layers", 0, "layers before the first chunk of rank r", Kind.DERIVED,
              latex="L_{b}"),
    Parameter("Lw", "windowed_layers", "layers", 0, "layers of the stage that attend to a window", Kind.DERIVED,
              latex="L_{rw}"),
    Parameter("Ldr", "dense_layers", "layers", 0, "layers of the stage with a dense MLP", Kind.DERIVED,
              latex="L_{rd}"),
    Parameter("Ler", "expert_layers", "layers", 0, "layers of the stage with experts", Kind.DERIVED,
              latex="L_{re}"),
    Parameter("Hd", "held_dense_layers", "layers", 0,
              "dense layers times micro-batches whose saved tensors rank r holds at its peak", Kind.DERIVED,
              latex="H_{d}"),
    Parameter("He", "held_expert_layers", "layers", 0,
              "expert layers times micro-batches whose saved tensors rank r holds at its peak", Kind.DERIVED,
              latex="H_{e}"),
    Parameter("Hc", "held_layer_inputs", "layers", 0,
              "kept inputs of recomputed layers times micro-batches on rank r at its peak", Kind.DERIVED,
              latex="H_{c}"),
    Parameter("eshards", "expert_optimizer_shards", "ranks", 1,
              "ranks that share the optimizer states of routed experts", Kind.DERIVED, latex="z_{e}"),
    Parameter("gshards", "gradient_shards", "ranks", 1, "ranks that share the gradients", Kind.DERIVED,
              latex="z_{g}"),
    Parameter("wshards", "weight_shards", "ranks", 1, "ranks that share the weights", Kind.DERIVED, latex="z_{w}"),
    Parameter("De", "expert_data_parallel", "ranks", 1, "ranks that hold the same routed experts", Kind.DERIVED,
              latex="D_{e}"),
    Parameter("ec", "expert_capacity", "tokens", 0, "tokens that a rank sends to each expert under a capacity, padding"
              " included; 0 without one", Kind.DERIVED, latex="c_{e}"),
    Parameter("xs", "sent_tokens", "tokens", 0, "tokens that a rank sends to experts, once for each expert",
              Kind.DERIVED, latex="T_{s}"),
    Parameter("xn", "expert_tokens", "tokens", 0, "tokens that the experts of a rank work on", Kind.DERIVED,
              latex="T_{e}"),
    Parameter("xr", "arrived_tokens", "tokens", 0, "tokens that arrive at a rank, once for all of its experts, at most",
              Kind.DERIVED, latex="T_{r}"),
)

#: Inputs of published formulas that no configuration has: they follow from it, or are measured.
QUANTITIES: tuple[Parameter, ...] = (
    Parameter("Psi", "total_parameters", "elements", 1, "parameters of the whole model", Kind.PUBLISHED, latex=r"\Psi"),
    Parameter("Psil", "largest_layer_parameters", "elements", 1, "parameters of the largest layer", Kind.PUBLISHED,
              latex=r"\Psi_{l}"),
    Parameter("T", "training_tokens", "tokens", 1, "tokens of the whole training", Kind.PUBLISHED),
    Parameter("X", "achieved_flops", "FLOP/s", 1, "FLOP/s that one GPU achieves", Kind.PUBLISHED),
    Parameter("Xt", "achieved_tokens", "tokens/s", 1, "tokens that all GPUs together train in a second",
              Kind.PUBLISHED, latex="X_{t}"),
    Parameter("yf", "forward_chunk_time", "s", 1, "forward pass of one chunk of layers", Kind.PUBLISHED, latex="y_{f}"),
    Parameter("yb", "backward_chunk_time", "s", 1, "whole backward pass of one chunk", Kind.PUBLISHED, latex="y_{b}"),
    Parameter("yw", "weight_chunk_time", "s", 1, "gradients of the weights of one chunk", Kind.PUBLISHED,
              latex="y_{w}"),
    Parameter("yt", "turning_time", "s", 0, "from the forward to the backward pass of a micro-batch, on the last stage",
              Kind.PUBLISHED, latex="y_{t}"),
    Parameter("Yg", "stage_gradient_bytes", "bytes", 0, "gradients of the stage that has most of them",
              Kind.PUBLISHED, latex="G_{s}"),
    Parameter("yo", "overlapped_chunk_time", "s", 1, "forward pass of one chunk beside the backward pass of another",
              Kind.PUBLISHED, latex="y_{o}"),
    Parameter("yc", "copied_chunk_time", "s", 1, "saved tensors of one chunk copied to the host, or back",
              Kind.PUBLISHED, latex="y_{c}"),
)

BY_LETTER: dict[str, Parameter] = {parameter.letter: parameter for parameter in (*PARAMETERS, *QUANTITIES)}
BY_NAME: dict[str, Parameter] = {parameter.name: parameter for parameter in BY_LETTER.values()}


def symbol(letter: str) -> Symbol:
    """Return the SymPy symbol of a letter.

    Raises KeyError for a letter that is not in ``PARAMETERS``.
    """
    return BY_LETTER[letter].symbol


def symbols(letters: str) -> tuple[Symbol, ...]:
    """Return the SymPy symbols of several letters, given with spaces between them."""
    return tuple(symbol(letter) for letter in letters.split())
