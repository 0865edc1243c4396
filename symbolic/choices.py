"""The choices that frameworks and trainings make differently, each with its options and what they mean."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from types import MappingProxyType

from sympy import Expr, Integer, Symbol

from .axis import Axis
from .parallel.optimizers import ANY_WIDTH, DEALT, OPTIMIZERS
from .parameters import BY_LETTER, symbol
from .systems import SYSTEMS

#: One unit of FSDP for all that is outside of the layers, where the units that Accelerate makes are not counted yet.
_ONE_UNIT: Mapping[str, str] = {"units": "root", "reshard": "always"}

AXES: tuple[Axis, ...] = (
    Axis("norm", "kernel of every norm", {
        "fused": "keeps its input and the inverse root mean square, or mean and inverse deviation (LayerNorm)",
        "eager": "RMSNorm: keeps an fp32 copy of its input and the normalised input; LayerNorm: as fused",
        "keeps_output": "keeps its output, which the next projection keeps anyway, instead of its input",
        "torch": "torch.nn.RMSNorm where no fused kernel exists: two fp32 copies; LayerNorm: as fused",
        "eager_fp32": "eager, with a scale that multiplies in fp32: the normalised input is in fp32 (OLMo 2)",
        "eager_scale": "the same, and keeps the scale that it multiplies with: fp32, or one plus it (Gemma, Nemotron)",
        "eager_power": "as eager_scale, and keeps the mean square, which it takes to a power (Gemma 4)",
    }),
    Axis("swiglu", "kernel of the SwiGLU activation", {
        "fused": "keeps the gate and up projections",
        "eager": "keeps the SiLU output too",
        "unfused": "Megatron-Core without fusion: keeps the SiLU output and a copy of the up projection",
    }),
    Axis("gelu", "kernel of GELU", {
        "fused": "one kernel: keeps its input (gelu and gelu_pytorch_tanh in Hugging Face, all of Megatron-Core)",
        "new": "steps of gelu_new (GPT-2): half of the input, tanh, 1 + tanh too; with autocast partly in fp32",
        "fast": "steps of gelu_fast (GPT-NeoX 20B): six more tensors than its input",
        "python": "steps of gelu_python: half of the input, the argument of erf, 1 + erf, but not the input",
    }),
    Axis("attention", "kernel of core attention", {
        "flash": "FlashAttention: keeps q, k, v, the output and the log-sum-exp",
        "flash_bshd": "FlashAttention with batch-first output: one more copy for b > 1",
        "sdpa": "PyTorch scaled dot product attention: the same tensors as flash",
        "sdpa_masked": "the same with repeated keys and values, and a 16-bit mask in every layer (Falcon 40B)",
        "sdpa_steps": "the same without a kernel for one key and value head: steps in fp32 (Falcon 7B)",
        "eager": "Hugging Face eager attention: expanded k and v, fp32 and bf16 probabilities",
        "unfused": "Megatron-Core local attention: expanded k and v, fp32 and bf16 probabilities, mask",
        "fused_softmax": "Megatron-Core local attention with its fused or a 16-bit softmax: no fp32 probabilities",
        "te_unfused": "Transformer Engine's unfused attention, read in its source: as fused_softmax, without buffer",
        "flex": "compiled FlexAttention: as flash, and blocks of its mask in every layer (Gemma 2 in Megatron-Bridge)",
    }, untimed={"sdpa_steps": "fp32 steps of attention", "flex": "rates of FlexAttention"},
         needs={"flex": {"value": "view"}}),
    Axis("softmax", "softmax of eager attention in Transformers", {
        "fp32": "in fp32, and a 16-bit copy",
        "low": "in the precision of queries and keys (GPT-2)",
    }),
    Axis("value", "memory of v", {
        "copy": "v lies in a tensor of its own",
        "view": "v is a view that keeps the whole fused QKV projection alive",
        "repacked": "q is a view of the repacked projection, k and v are copied out of it (nanotron)",
        "picked": "k and v are copies picked by lists of one number, which are kept (Falcon)",
    }),
    Axis("rope", "kernel of the rotary embedding", {
        "fused": "keeps nothing but the fp32 table of the stage",
        "fused_twice": "as fused, and a table for layers with windows beside it (Gemma 3 in Megatron-Bridge)",
        "unfused": "keeps bf16 cosines and sines in every layer, for queries and for keys",
        "unfused_twice": "as unfused, and a table of the stage for layers with windows beside it",
        "shared": "keeps bf16 cosines and sines once (Hugging Face)",
        "shared_first": "as shared, before the norms of queries and keys (Hunyuan)",
        "shared_half": "as shared, without the second half, which repeats the first (GPT-OSS)",
        "shared_twice": "the same for layers with windows and once more for those without (Gemma 3)",
        "shared_fp32": "as shared in fp32 (OLMo)",
        "shared_fp32_twice": "as shared_twice in fp32 (OLMo 3)",
        "repeated": "every layer keeps bf16 cosines and sines of its own, repeated for pairs of elements (Helium)",
        "repeated_fp32": "the same in fp32 (ERNIE 4.5)",
        "joined": "as shared, and joins turned and other parts of heads, one head after another (GPT-NeoX there)",
        "joined_held": "as joined by attention itself, which holds the parts until it returns (Phi, StableLM)",
        "joined_repeated": "as joined with cosines and sines as in repeated (GLM)",
        "complex": "keeps nothing but the complex64 table of the model (torchtitan)",
        "cast": "every layer keeps bf16 cosines and sines, cast from one fp32 table (torchtitan's Qwen3)",
        "cached": "every layer has a bf16 table of cosines and sines of its own (flash-attn in nanotron)",
    }),
    Axis("loss", "kernel of the cross entropy", {
        "vocab_parallel": "Megatron-Core: keeps the fp32 softmax of the rank's vocabulary",
        "float": "torch cross entropy on fp32 logits",
        "bf16": "torch cross entropy on bf16 logits",
        "huggingface": "Hugging Face causal LM loss: fp32 logits, shifted labels, logits returned",
        "huggingface_freed": "the same, but the caller keeps the loss and frees the logits before the backward pass",
        "dtensor": "torch cross entropy on fp32 logits, with TP on logits of the rank's vocabulary (loss_parallel)",
        "dtensor_compiled": "the same compiled: bf16 logits, read again; with TP an fp32 log-softmax (torch.compile)",
        "nanotron": "fp32 softmax of the rank's vocabulary, which becomes the gradient",
        "native_fused": "Megatron-Core's fused kernels by torch.compile: vocab_parallel with one more fp32 copy",
        "te_fused": "Transformer Engine 2.2 to 2.17: the gradient overwrites the bf16 logits and is kept",
        "te_fused_fp32": "Transformer Engine 2.18 and later: keeps an fp32 gradient",
        "gathered": "torch cross entropy on fp32 logits of the whole vocabulary on every tensor-parallel rank",
        "liger": "Liger's fused linear cross entropy: logits of some tokens, gradients made in the forward pass",
        "trl": "TRL's fused head: logits of some tokens and a part of the vocabulary, made again in the backward pass",
        "cut": "cut cross entropy: logits in registers alone, made again in the backward pass",
        "torchtune": "torch cross entropy on fp32 logits that the model returns and the recipe frees (torchtune)",
        "torchtune_compiled": "the same compiled: fp32 logits, read again",
        "torchtune_shifted": "the same of logits less the last token's, which the recipe holds (torchtune up to 0.2)",
        "torchtune_chunks": "logits in 8 chunks, of which one at a time is in fp32 (CEWithChunkedOutputLoss)",
        "torchtune_chunks_compiled": "the same compiled: 16-bit logits, read again",
        "torchtune_linear": "logits of 8 chunks made by the loss, kept as fp32 log-softmax (LinearCrossEntropyLoss)",
        "torchtune_linear_compiled": "the same compiled: 16-bit logits, overwritten by their gradient",
        "log_probs_sft": "log-probabilities of labels from fp32 logits, beside the model's own loss (LLaMA-Factory 1)",
        "log_probs": "log-probabilities of labels from fp32 logits, which the trainer holds (LLaMA-Factory's DPO)",
        "log_probs_kto": "the same beside copies of the logits, and those of other answers (LLaMA-Factory's KTO)",
        "trl_dpo": "log-probabilities of pairs from fp32 logits and a logarithm of their sum (TRL 1.9's DPO)",
        "trl_dpo_16": "the same from 16-bit logits, of which it keeps a log-softmax (TRL 1.9's DPO with ZeRO or FSDP2)",
        "trl_kto": "as trl_dpo, of single answers, whose logits are copied for means (TRL 1.9's KTO)",
        "trl_kto_16": "as trl_dpo_16, of single answers, whose logits are copied for means (TRL 1.9's KTO)",
        "trl_orpo": "as trl_dpo, beside a cross entropy of the better sequences, no entropy (TRL's ORPO and CPO)",
        "trl_orpo_16": "as trl_dpo_16, beside a cross entropy of the better sequences, no entropy (TRL's ORPO and CPO)",
        "trl_simpo": "as trl_dpo without an entropy (TRL's SimPO: CPO without a cross entropy)",
        "trl_simpo_16": "as trl_dpo_16 without an entropy (TRL's SimPO: CPO without a cross entropy)",
        "swift_dpo": "as trl_dpo, of all tokens and without an entropy (ms-swift's DPO)",
        "swift_dpo_16": "as trl_dpo_16, of all tokens and without an entropy (ms-swift's DPO with ZeRO or FSDP2)",
        "swift_kto": "as swift_dpo, of single answers (ms-swift's KTO)",
        "swift_kto_16": "as swift_dpo_16, of single answers (ms-swift's KTO)",
        "reward": "one score of every token in place of logits, and pairs whose scores are compared (TRL's rewards)",
        "scores": "one score of every token in place of logits, and those of last tokens (classifiers of Transformers)",
        "verl": "log-probabilities from 16-bit logits, overwritten by their gradient (verl's actor, flash-attn)",
        "verl_entropy": "the same beside the compiled entropy, whose gradient is one more of the logits",
        "verl_entropy_chunks": "as verl_entropy, 2048 tokens at a time (entropy_from_logits_with_chunking): at most",
        "verl_entropy_eager": "as verl_entropy without torch.compile: keeps the 16-bit softmax",
        "verl_entropy_eager_chunks": "as verl_entropy_chunks without torch.compile: keeps fp32 logits and softmax",
        "openrlhf": "log-probabilities from fp32 logits, which the trainer holds (OpenRLHF's actor, flash-attn)",
        "openrlhf_entropy": "the same beside the compiled entropy, whose fp32 gradient is one more of the logits",
        "verl_megatron": "log-probabilities from fp32 logits of the rank's vocabulary (verl's actor on Megatron-Core)",
        "verl_megatron_entropy": "the same beside the entropy, which keeps logits and a softmax of its own",
        "nemo_rl": "log-probabilities beside fp32 logits of the rank's vocabulary (NeMo RL on Megatron-Core)",
        "value": "one value of every token in place of logits, compared with returns (verl's critic)",
    }),
    Axis("precision", "weights, gradients and optimizer states", {
        "mixed": "bf16 weights, fp32 master weights and AdamW moments (Megatron)",
        "bf16": "weights, gradients and AdamW moments in bf16",
        "fp16": "as mixed with fp16 for bf16, and a scaler of the loss (Megatron)",
        "autocast": "fp32 weights, gradients and moments; bf16 copies of the linear weights while in use",
        "fp32": "all of it in fp32, what layers keep too (Hugging Face)",
    }, untimed={"fp32": "products in fp32"}),
    Axis("optimizer", "states that the optimizer keeps for each parameter",
         {name: item.meaning for name, item in OPTIMIZERS.items()}, rowless=ANY_WIDTH,
         words={name: item.word for name, item in OPTIMIZERS.items() if item.word},
         untimed=dict.fromkeys(DEALT, "gathers of whole parameters")),
    Axis("fp8", "FP8 or FP4 in linear layers (Transformer Engine)", {
        "none": "linear layers in 16 bits",
        "delayed": "one scale for a tensor, from earlier steps",
        "current": "one scale for a tensor, from its values; the output projection keeps its 16-bit input",
        "block": "scales for 128 x 128 weights and for 128 activations; otherwise as current",
        "mx": "MXFP8: 8-bit scales for 32 elements; otherwise as current",
        "nvfp4": "NVFP4: two elements in a byte, 8-bit scales for 16, one fp32 for a tensor; otherwise as current",
    }, untimed={"nvfp4": "products in FP4"}, predicted={"nvfp4": "none"}),
    Axis("fp8_weights", "where the FP8 weights come from, if there are any", {
        "copy": "quantised copies of 16-bit weights, kept from the first micro-batch on",
        "primary": "linear weights are FP8 themselves, in a buffer of their own (--fp8-param-gather)",
    }, rowless=("copy", "primary")),
    Axis("projections", "matrices of the projections that read the same input", {
        "fused": "one for queries, keys and values, one for gate and up",
        "separate": "one for each",
        "qkv": "one for queries, keys and values, one each for gate and up",
        "gate_up": "one for gate and up, one each for queries, keys and values (GLM)",
    }),
    Axis("qk_order", "place of norms of queries and keys, where there are any", {
        "each": "each behind its own projection",
        "all": "behind the projections of queries, keys and values (EXAONE, Gemma 3, GLM 4.5, Hy3 in Transformers)",
    }, rowless=("each", "all")),
    Axis("adapters", "low-rank adapters; all other weights are frozen (LoRA)", {
        "none": "all weights are trained",
        "q_v": "for the projections of queries and values (PEFT's default for Llama)",
        "qkv": "for the projections of queries, keys and values",
        "attention": "for the projections of attention",
        "all_linear": "for the projections of attention and MLP",
    }, asked={"all_linear": "rl"},
         needs={option: {"peak": "saved", **_ONE_UNIT} for option in ("q_v", "qkv", "attention", "all_linear")}),
    Axis("adapter_parts", "adapters of projections that read the same input, where there are adapters", {
        "joined": "one for queries, keys and values, one for gate and up (LoRA in Megatron-Bridge)",
        "apart": "one for each of them (PEFT; CanonicalLoRA in Megatron-Bridge)",
    }),
    Axis("expert_adapters", "adapters of routed experts, where all linear layers have adapters", {
        "none": "none: experts are frozen",
        "shared": "one for all experts of a rank, where one product computes them (LoRA in Megatron-Bridge)",
        "each": "one for every expert (ms-swift; Megatron-Bridge with experts one after another)",
        "weights": "one for every expert, added to its weights, and one for the router (PEFT with Transformers 5)",
        "weights_alone": "one for every expert, added to its weights; the router is a linear layer with one (Hunyuan)",
    }, rowless=("none",)),
    Axis("adapter_kind", "how adapters change a projection, where there are adapters", {
        "lora": "two matrices, whose product is added",
        "dora": "and a magnitude of every output, which scales the sum (DoRA in PEFT)",
    }, rowless=("lora",)),
    Axis("adapter_precision", "matrices of adapters", {
        "low": "in 16 bits, as all weights (PEFT with autocast_adapter_dtype=False, DeepSpeed, Megatron-Bridge)",
        "fp32": "in fp32 with their gradients and states, under autocast (PEFT's default in a trainer with bf16)",
        "fp32_uncopied": "the same without copies of their inputs (PEFT's default beside weights of bitsandbytes)",
    }, rowless=("low",)),
    Axis("adapter_ends", "embedding and head, where there are adapters", {
        "frozen": "frozen, as all weights",
        "copies": "trained in 16-bit copies beside the frozen ones, tied ones too (modules_to_save of PEFT)",
    }, rowless=("frozen",)),
    Axis("base_weights", "frozen weights", {
        "full": "as in training",
        "nf4": "linear layers in 4 bits with doubly quantised scales (QLoRA, bitsandbytes)",
        "int8": "linear layers in 8 bits with an fp32 scale of every output (LLM.int8, bitsandbytes)",
    }, rowless=("full", "nf4", "int8")),
    Axis("data_parallel", "how parameters lie in the memory of data-parallel ranks", {
        "ddp": "one buffer for every chunk of layers, its end padded for equal shards (Megatron-Core)",
        "fsdp": "every parameter by itself, its first dimension padded to a multiple of the shards (FSDP2)",
        "torch_ddp": "every parameter by itself; unsharded, with buckets for bf16 gradients (DistributedDataParallel)",
        "megatron_fsdp": "Megatron-FSDP: every layer by itself where weights are shared out, else buckets",
        "deepspeed": "DeepSpeed's ZeRO: one buffer cut into equal parts (stages 1, 2), or every parameter (stage 3)",
    }, needs={"deepspeed": {"precision": "mixed"}}),
    Axis("gathered_input", "input of column-parallel projections under sequence parallelism", {
        "dropped": "the rank keeps its own tokens and gathers the others again in the backward pass",
        "kept": "the gathered input is kept whole (torch DTensor)",
    }),
    Axis("token_ids", "what the embedding keeps under TP", {
        "masked": "the ids with those of other vocabulary shards set to 0, and the mask",
        "whole": "nothing but the ids (torch DTensor)",
    }),
    Axis("position_ids", "numbers of learned positions", {
        "batch": "from the data loader, for every token of every sequence",
        "shared": "made by the model once for all sequences (Hugging Face)",
        "shifted": "made by the model for every sequence, and added to (OPT)",
    }),
    Axis("recompute_saves", "what full recompute keeps of a layer", {
        "input": "its input",
        "ops": "its input and outputs of every second matmul, of attention and of reductions (torchtitan)",
    }, rowless=("input",)),
    Axis("compile", "what torch.compile makes one graph of", {
        "none": "nothing: operations one by one",
        "layers": "every layer: results of activations are made again, and what no backward pass reads is not kept"
                  " (torchtitan)",
    }, rowless=("layers",)),
    Axis("units", "what FSDP gathers at once, besides each layer", {
        "root": "embedding, final norm and head together",
        "ends": "the embedding, and final norm and head; all three together where weights are tied (Accelerate)",
        "apart": "the embedding, and final norm and head (torchtitan)",
    }, needs={"root": {"reshard": "always"}}),
    Axis("reshard", "parameters that FSDP frees after the forward pass", {
        "always": "those of every unit",
        "default": "those of every unit but the last",
        "never": "none: they stay until the backward pass (as in ZeRO-2)",
    }),
    Axis("optimizer_kernel", "how the optimizer goes over the parameters", {
        "fused": "one kernel, without temporaries",
        "foreach": "all parameters at once, with a temporary for each",
        "loop": "one parameter after another, with two temporaries",
    }, rowless=("fused",)),
    Axis("schedule", "order of forward and backward passes in the pipeline", {
        "1f1b": "one forward, one backward, a stage is one chunk of layers",
        "interleaved": "1F1B with several chunks of layers per rank",
        "gpipe": "all forward passes, then all backward passes",
        "zero_bubble": "interleaved, with weight gradients computed later",
        "zbv": "zero bubble with two chunks in a V: first and last stage on rank 0",
        "dualpipev": "DualPipe in a V: first and last stage on rank 0",
    }),
    Axis("pipeline", "what a pipeline keeps beside its stages", {
        "own": "nothing but the rows of the program",
        "torch": "torch.distributed.pipelining: buffers of all micro-batches, and whole gradients until the last one",
    }),
    Axis("stages", "layers of the pipeline stages", {
        "even": "every stage has as many",
        "uneven": "first and last stage may have other numbers, embedding and loss may count as layers",
        "listed": "an explicit list of layers for every stage and chunk",
    }, rowless=("even", "listed")),
    Axis("recompute_method", "which layers full recompute recomputes, and in what groups", {
        "each": "every layer from its own input",
        "uniform": "every layer, in groups of n that keep one input",
        "block": "the first n layers of every chunk, each from its own input",
        "every": "every n-th layer of the stage, from its own input (torchtitan)",
    }),
    Axis("normalisation", "normalisation of the residual stream", {
        "rms": "RMSNorm: a scale",
        "layer": "LayerNorm: scale and bias",
        "layer_unbiased": "LayerNorm: a scale (Command R)",
        "layer_plain": "LayerNorm: no weights (OLMo 1)",
    }),
    Axis("norms", "norms of a layer beside attention and MLP", {
        "pre": "one before each",
        "post": "one after each, which keeps as much (OLMo 2, EXAONE 4)",
        "both": "one before and one after each (Gemma 2 and 3, GLM 4)",
    }, rowless=("pre", "post")),
    Axis("qk_norms", "norms of queries and keys, where there are any", {
        "head": "over every head, with one scale for all heads (Qwen3)",
        "heads": "over every head, each with a scale of its own (Command R+)",
        "width": "over all heads together (OLMo 2)",
    }),
    Axis("sinks", "sinks of attention: logits without a key, beside the scores", {
        "none": "none",
        "trained": "one of each head, which is trained (GPT-OSS, softmax_type = learnable in Megatron-Core)",
    }, rowless=("none",)),
    Axis("capping", "bounds of scores and logits", {
        "none": "none",
        "tanh": "scores, and logits too, may be bounded by tanh (Gemma 2)",
        "logits": "logits alone are bounded by tanh (Gemma 4)",
    }, {"none": ("acap", "lcap"), "logits": ("acap",)}, rowless=("none", "tanh", "logits")),
    Axis("mlp", "feed-forward block of dense layers", {
        "swiglu": "gate, up and down projection with SiLU",
        "geglu": "gate, up and down projection with the tanh form of GELU",
        "gelu": "up and down projection with GELU",
        "relu": "up and down projection with ReLU (OPT)",
        "relu2": "up and down projection with the square of ReLU",
        "xielu": "up and down projection with xIELU, whose two slopes are trained (Apertus)",
        "swiglu_clamped": "gate, up and down projection, gate and up bounded, in experts alone (GPT-OSS)",
    }, words={"swiglu": "silu", "geglu": "gelu_pytorch_tanh"}),
    Axis("heads", "kind of attention heads", {
        "grouped": "grouped queries (GQA), of which multi-head and multi-query attention are cases",
        "latent": "multi-head latent attention (MLA) over compressed keys and values",
        "two_widths": "grouped queries, of another width and number in layers without windows (Gemma 4)",
    }),
    Axis("layers", "kinds of layers", {
        "dense": "every layer has a dense MLP",
        "experts": "some or all layers have routed experts",
    }),
    Axis("predictions", "layers of further predictions (MTP) in models with experts", {
        "experts": "with experts, as the last layer of the model",
        "dense": "with a dense MLP (K-EXAONE)",
    }, rowless=("experts", "dense")),
    Axis("positions", "how positions enter", {
        "rotary": "rotary embedding of queries and keys",
        "partial": "rotary embedding of a part of every query and key head",
        "learned": "a learned table added to the embedding",
        "alibi": "scores fall with the distance of keys, by a slope of each head (ALiBi)",
    }, needs={"learned": _ONE_UNIT}),
    Axis("residual", "what the MLP of a layer reads", {
        "sequential": "the residual stream with the output of attention added: x + attention(x), then its MLP",
        "parallel": "what attention reads: x + attention(norm(x)) + mlp(norm(x)), two norms of one tensor (GPT-NeoX)",
        "parallel_one": "the same with one norm, whose output both read (Command R, Phi 2)",
    }),
    Axis("embedding_norm", "norm behind the word embedding", {
        "none": "none",
        "norm": "one, before the first layer (BLOOM)",
    }, rowless=("none",), needs={"norm": _ONE_UNIT}),
    Axis("window", "tokens that attention reads", {
        "none": "all earlier ones in every layer",
        "sliding": "a window of the latest ones, in all layers or in all but every n-th (Mistral, Gemma 3, GPT-OSS)",
    }, {"none": ("win", "wstep")}, rowless=("none",)),
    Axis("documents", "documents of a sequence", {
        "one": "one, or several that attend to each other",
        "packed": "one behind the other without padding, each attends to itself (flash_attn_varlen, THD)",
    }, {"one": ("doc",)}, rowless=("one",), asked={"packed": "doc"}, needs={"packed": {"attention": "flash"}}),
    Axis("scores", "how the router scores experts", {
        "softmax": "softmax of the chosen logits (Mixtral), which is that of all, divided by its sum (Qwen3-MoE)",
        "softmax_all": "softmax of all logits, of which some are chosen (Qwen2-MoE, DeepSeek-V2)",
        "sigmoid": "sigmoid of all logits; several chosen ones are divided by their sum (DeepSeek-V3, Llama 4)",
    }),
    Axis("balance", "what keeps the experts equally loaded", {
        "none": "nothing",
        "bias": "a bias of each expert, updated without a gradient: two fp32 buffers",
        "loss": "an auxiliary loss, for which all experts are scored again",
        "loss_one_hot": "the same in Transformers before pull request 48131: an int64 one-hot mask of all layers",
        "both": "bias and auxiliary loss",
        "sinkhorn": "Sinkhorn's iteration chooses experts; scores are sigmoids (top-1), or the softmax of all logits",
    }, rowless=("none",)),
    Axis("router", "kernel of the router", {
        "unfused": "Megatron-Core in single operations",
        "fused": "Transformer Engine's fused router: keeps all scores and a map of the chosen experts",
        "huggingface": "Hugging Face Transformers: softmax of all logits in fp32",
        "huggingface_low": "the same with logits in 16 bits before their sigmoid (MiniMax M2)",
        "huggingface_chosen": "the same with a 16-bit softmax of the chosen logits (GPT-OSS)",
        "huggingface_top": "the same with an fp32 softmax of the chosen logits (Granite 3)",
        "huggingface_bounded": "the same with a weight in fp32 and sums within a bound (ERNIE 4.5)",
        "huggingface_mixer": "two experts drawn one after the other by their 16-bit softmax (SparseMixer, Phi-3.5-MoE)",
        "torchtitan": "torchtitan: fp32 scores of all experts, on every tensor-parallel rank for all tokens",
    }),
    Axis("router_precision", "precision of logits, scores and of the weights of experts' results", {
        "fp32": "fp32",
        "bf16": "bf16; softmax and sigmoid are in fp32 all the same",
    }),
    Axis("router_weights", "width of routers' weights, and of their gradients and moments", {
        "as_others": "as that of all others",
        "fp32": "in fp32 beside 16-bit others, as Transformers leaves them on one GPU and with DDP (DeepSeek, GLM 4.5)",
    }, rowless=("as_others",),
         needs={"fp32": {"precision": "bf16", "data_parallel": "ddp", "adapters": "none"}}),
    Axis("dispatch", "how tokens reach experts", {
        "alltoall": "Megatron-Core: every token is sent to its experts, all at once",
        "allgather": "Megatron-Core: every rank gathers all tokens and picks those of its experts",
        "deepep": "Megatron-Core's flex dispatcher with DeepEP: every token is sent once to each rank of its experts",
        "hybridep": "the same with HybridEP, which sorts the tokens by expert as they arrive",
        "huggingface": "Hugging Face Transformers: sorted by expert on one rank, for a grouped matrix product",
        "huggingface_sent": "Hugging Face Transformers: sent all at once to the experts of other ranks (ep_size)",
        "torchtitan": "torchtitan: sent all at once, in padded groups for a grouped matrix product",
    }, untimed={"huggingface_sent": "tokens that Transformers sends to experts"}),
    Axis("expert_products", "products of the experts of one rank", {
        "grouped": "one grouped product for all of them, in streams with workspaces of their own (Transformer Engine)",
        "sequential": "one expert after another",
    }, rowless=("sequential",)),
    Axis("weighting", "where tokens of experts are weighted: in Megatron-Core without a gate, and in torchtitan", {
        "separate": "a product after the activation, which keeps its result",
        "fused": "one kernel with the activation, of which its input alone is kept (squared ReLU of Megatron-Core)",
        "results": "a product of fp32 matrices behind the experts (torchtitan's DeepSeek and Qwen)",
        "input": "in fp32 before the experts (torchtitan's Llama 4)",
    }),
    Axis("shared_sum", "sum of what routed and shared experts return", {
        "low": "in 16 bits",
        "fp32": "in fp32, and a 16-bit copy of it (Hy3 in Transformers)",
    }, rowless=("low", "fp32")),
    Axis("permute", "kernel that sorts tokens by expert", {
        "fused": "Transformer Engine: keeps maps of int32",
        "unfused": "keeps masks, scores and indices of int64",
    }),
    Axis("dropout", "dropout of the residual stream and of attention probabilities", {
        "none": "no dropout",
        "masks": "a mask is kept for each that is switched on",
    }, {"none": ("drop", "adrop")}, rowless=("none", "masks")),
    Axis("biases", "biases of the projections", {
        "qkv": "none but those of queries, keys and values where the model has them",
        "linear": "all projections may have one (GPT)",
        "some": "all projections, that after attention, and those of MLPs may have one",
        "head": "as some, and the LM head may have one (Phi 2, Phi-3.5-MoE)",
    }, {"qkv": ("lbias", "obias", "mbias", "hbias"), "linear": ("obias", "mbias", "hbias"), "some": ("hbias",)},
         rowless=("qkv", "linear", "some", "head")),
    Axis("peak", "what lives besides saved tensors at the moments of a step", {
        "saved": "nothing but what the loss itself makes, and in nanotron the MLP's backward pass",
        "megatron_te": "Megatron-LM with Transformer Engine: gradients, gathered inputs, workspaces",
        "torch": "PyTorch's own training step: gathered parameters, gradients while they are made, temporaries",
        "megatron_local": "Megatron-LM with its own layers: the same without Transformer Engine's workspace",
    }),
    Axis("loading", "how a trainer brings weights onto the GPUs, and from there into a checkpoint", {
        "none": "left out",
        "trainer": "from the first rank, one parameter after another, where ranks have shards; else whole (Accelerate)",
        "fsdp1": "FSDP1: every layer is flattened and cut, and at last all outside of the layers",
        "fsdp1_whole": "FSDP1 without an automatic wrapping of layers: the whole model is flattened at once (NO_WRAP)",
        "sharded": "from Megatron-Core's sharded checkpoint, whose gate and up projections are joined anew",
        "distributed": "PyTorch's distributed checkpoint, behind a step with gradients of zero (torchtitan)",
        "distributed_copied": "the same, copied to the host before it is written (async_mode of torchtitan)",
    }, rowless=("none", "trainer", "fsdp1", "fsdp1_whole", "sharded", "distributed", "distributed_copied"),
         needs={option: {"data_parallel": "fsdp"} for option in ("fsdp1", "fsdp1_whole")}),
    Axis("collectives", "stream of collectives that a program waits for", {
        "current": "that of the computation: freed tensors come back at once (PyTorch from 2.8 on)",
        "own": "NCCL's own, which holds the tensors of all-to-alls back"
               " (PyTorch up to 2.7, unless TORCH_NCCL_AVOID_RECORD_STREAMS=1)",
    }, rowless=("current", "own")),
    Axis("context", "how context parallelism exchanges the sequence inside attention", {
        "ring": "every rank attends with its own queries to keys and values that go around",
        "all_to_all": "heads instead of tokens are shared out inside attention (Ulysses)",
        "all_gather": "every rank gathers all keys and values, in each pass (Llama 3)",
    }),
    Axis("weight_gradient", "where the gradient of a linear weight is made", {
        "fused": "added to the gradient buffer by the product itself; autograd gets one dummy for each shape",
        "separate": "in a bf16 tensor that is added to the gradient buffer afterwards",
    }),
    Axis("mask", "where the causal attention mask comes from", {
        "kernel": "from the attention kernel",
        "dataloader": "from the data loader with every batch, one byte for every pair of tokens",
    }, rowless=("kernel",)),
    Axis("pinned", "what of shards on the host is in pinned memory, whose blocks are powers of two (zero_offload)", {
        "all": "all that a program pins unless it is told not to: pin_memory is true in DeepSpeed 0.19 and FSDP2",
        "optimizer": "pin_memory of offload_optimizer alone (DeepSpeed)",
        "parameters": "pin_memory of offload_param alone (DeepSpeed)",
        "none": "pin_memory is false; DeepSpeed pins trained parameters nevertheless",
    }, rowless=("all", "optimizer", "parameters", "none")),
    *(system.axis for system in SYSTEMS),
)

#: Axes that the model decides, not the framework.
ARCHITECTURE: tuple[str, ...] = (
    "normalisation", "norms", "qk_norms", "mlp", "heads", "layers", "predictions", "residual", "positions",
    "embedding_norm", "window", "sinks", "capping", "scores",
)

#: Losses of torchtune on chunks of logits that the model makes, and on those that the loss makes itself.
TORCHTUNE_CHUNKS: tuple[str, ...] = ("torchtune_chunks", "torchtune_chunks_compiled")
TORCHTUNE_LINEAR: tuple[str, ...] = ("torchtune_linear", "torchtune_linear_compiled")
TORCHTUNE: tuple[str, ...] = ("torchtune", "torchtune_compiled", "torchtune_shifted", *TORCHTUNE_CHUNKS)
#: Losses that make logits themselves from the head's input, and all others.
FUSED_HEADS: tuple[str, ...] = ("liger", "trl", "cut", *TORCHTUNE_LINEAR)
#: Those that make the logits once more in the backward pass.
RECOMPUTED_LOGITS: tuple[str, ...] = ("trl", "cut")
WITH_LOGITS: tuple[str, ...] = tuple(
    option for axis in AXES if axis.name == "loss" for option in axis.options if option not in FUSED_HEADS
)
#: Losses of actors in reinforcement learning, those of 16-bit logits and on Megatron-Core apart.
ACTORS_16: tuple[str, ...] = (
    "verl", "verl_entropy", "verl_entropy_chunks", "verl_entropy_eager", "verl_entropy_eager_chunks",
)
VOCAB_ACTORS: tuple[str, ...] = ("verl_megatron", "verl_megatron_entropy", "nemo_rl")
ACTORS: tuple[str, ...] = (*ACTORS_16, "openrlhf", "openrlhf_entropy")
#: Losses of a head with one output, and all others, whose head has the vocabulary.
SCORES: tuple[str, ...] = ("reward", "scores", "value")
OF_WORDS: tuple[str, ...] = tuple(
    option for axis in AXES if axis.name == "loss" for option in axis.options if option not in SCORES
)

#: Losses of pairs on logits of all tokens, those of single answers, and both.
PAIRED: tuple[str, ...] = ("log_probs", "trl_dpo", "trl_dpo_16", "trl_orpo", "trl_orpo_16", "trl_simpo",
                           "trl_simpo_16", "swift_dpo", "swift_dpo_16")
SINGLE: tuple[str, ...] = ("log_probs_kto", "trl_kto", "trl_kto_16", "swift_kto", "swift_kto_16")
PREFERENCES: tuple[str, ...] = (*PAIRED, *SINGLE)

#: Options of ``peak`` that are moments of Megatron-LM.
MEGATRON_PEAKS: tuple[str, ...] = ("megatron_te", "megatron_local")

BY_NAME: dict[str, Axis] = {axis.name: axis for axis in AXES}

#: Options of ``units`` with which final norm and head are not a part of the model's own unit.
ENDS: tuple[str, ...] = ("ends", "apart")

#: Options of ``adapters`` with which all other weights are frozen.
ADAPTED: tuple[str, ...] = tuple(option for option in BY_NAME["adapters"].options if option != "none")

#: Choices with which the head's matrix has a gradient, by what the names of rows for them end in.
TRAINED_HEADS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "": {"adapters": ("none",)}, "_of_copy": {"adapters": ADAPTED, "adapter_ends": ("copies",)},
}

#: Options of ``expert_adapters`` that are added to the weights of experts.
ADDED: tuple[str, ...] = ("weights", "weights_alone")

#: Losses that further predictions are counted with; all of them are Megatron-Core's.
MTP_LOSSES: tuple[str, ...] = ("vocab_parallel", "native_fused", "te_fused", "te_fused_fp32")
#: Options of ``mlp`` that experts have too: with a gate beside the up projection, and without.
GATED: tuple[str, ...] = (*BY_NAME["mlp"].words, "swiglu_clamped")
UNGATED: tuple[str, ...] = ("gelu", "relu2")

#: Kernels of attention that Falcon alone has.
FALCON: tuple[str, ...] = ("sdpa_masked", "sdpa_steps")

#: Kernels of the rotary embedding in Megatron-Core.
FUSED_ROPE: tuple[str, ...] = ("fused", "fused_twice")
UNFUSED_ROPE: tuple[str, ...] = ("unfused", "unfused_twice")
MEGATRON_ROPE: tuple[str, ...] = (*FUSED_ROPE, *UNFUSED_ROPE)

#: Routers of Transformers.
TRANSFORMERS_ROUTERS: tuple[str, ...] = (
    "huggingface", "huggingface_low", "huggingface_chosen", "huggingface_top", "huggingface_bounded",
    "huggingface_mixer",
)

#: The symbols of all letters that formulas do not speak of with some option.
EVERY_ABSENT: frozenset[Symbol] = frozenset(
    symbol(letter) for axis in AXES for letters in axis.absent.values() for letter in letters
)


_ABSENT: tuple[Axis, ...] = tuple(axis for axis in AXES if axis.absent)


def absent_letters(choices: Mapping[str, str]) -> tuple[str, ...]:
    """Return the letters that formulas do not speak of under these choices."""
    return tuple(letter for axis in _ABSENT for letter in axis.absent.get(choices[axis.name], ()))


def absent_values(choices: Mapping[str, str]) -> Mapping[Expr, Expr]:
    """Return the values of those letters: switches are 0, degrees of parallelism 1."""
    return values_without(absent_letters(choices))


@cache
def values_without(letters: tuple[str, ...]) -> Mapping[Expr, Expr]:
    """Return the values of letters that formulas do not speak of: see ``absent_values``."""
    return MappingProxyType({symbol(letter): Integer(BY_LETTER[letter].minimum) for letter in letters})


def trains_copies(choices: Mapping[str, str]) -> bool:
    """Return True where copies of the head, or of embedding and head, are trained beside adapters."""
    return choices["adapters"] != "none" and (choices["adapter_ends"] == "copies" or choices["loss"] in SCORES)
