"""The works and programs that the ledger and the published formulas cite."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Source:
    """One citable source: a paper, a document, or a counted program with its version."""

    key: str
    authors: str
    title: str
    year: int
    where: str
    url: str


SOURCES: tuple[Source, ...] = (
    Source(
        "fujii2024", "K. Fujii, K. Watanabe, R. Yokota",
        "Accelerating Large Language Model Training with 4D Parallelism and Memory Consumption Estimator",
        2024, "arXiv:2411.06465", "https://arxiv.org/abs/2411.06465",
    ),
    Source(
        "korthikanti2022",
        "V. Korthikanti, J. Casper, S. Lym, L. McAfee, M. Andersch, M. Shoeybi, B. Catanzaro",
        "Reducing Activation Recomputation in Large Transformer Models",
        2022, "arXiv:2205.05198", "https://arxiv.org/abs/2205.05198",
    ),
    Source(
        "narayanan2021", "D. Narayanan, M. Shoeybi, J. Casper, et al.",
        "Efficient Large-Scale Language Model Training on GPU Clusters Using Megatron-LM",
        2021, "arXiv:2104.04473", "https://arxiv.org/abs/2104.04473",
    ),
    Source(
        "huang2019", "Y. Huang, Y. Cheng, A. Bapna, et al.",
        "GPipe: Efficient Training of Giant Neural Networks using Pipeline Parallelism",
        2019, "arXiv:1811.06965", "https://arxiv.org/abs/1811.06965",
    ),
    Source(
        "lamy2023", "J. Lamy-Poirier", "Breadth-First Pipeline Parallelism",
        2023, "arXiv:2211.05953", "https://arxiv.org/abs/2211.05953",
    ),
    Source(
        "singh2023", "S. Singh, P. Singhania, A. K. Ranjan, Z. Sating, A. Bhatele",
        "A 4D Hybrid Algorithm to Scale Parallel Training to Thousands of GPUs",
        2023, "arXiv:2305.13525", "https://arxiv.org/abs/2305.13525",
    ),
    Source(
        "li2021", "Z. Li, S. Zhuang, S. Guo, et al.",
        "TeraPipe: Token-Level Pipeline Parallelism for Training Large-Scale Language Models",
        2021, "arXiv:2102.07988", "https://arxiv.org/abs/2102.07988",
    ),
    Source(
        "sun2024", "A. Sun, W. Zhao, X. Han, et al.",
        "Seq1F1B: Efficient Sequence-Level Pipeline Parallelism for Large Language Model Training",
        2024, "arXiv:2406.03488", "https://arxiv.org/abs/2406.03488",
    ),
    Source(
        "liu2023", "H. Liu, M. Zaharia, P. Abbeel",
        "Ring Attention with Blockwise Transformers for Near-Infinite Context",
        2023, "arXiv:2310.01889", "https://arxiv.org/abs/2310.01889",
    ),
    Source(
        "jacobs2023", "S. A. Jacobs, M. Tanaka, C. Zhang, et al.",
        "DeepSpeed Ulysses: System Optimizations for Enabling Training of Extreme Long Sequence Transformer Models",
        2023, "arXiv:2309.14509", "https://arxiv.org/abs/2309.14509",
    ),
    Source(
        "jiang2024", "Z. Jiang, H. Lin, Y. Zhong, et al.",
        "MegaScale: Scaling Large Language Model Training to More Than 10,000 GPUs",
        2024, "arXiv:2402.15627", "https://arxiv.org/abs/2402.15627",
    ),
    Source(
        "qi2023", "P. Qi, X. Wan, G. Huang, M. Lin", "Zero Bubble Pipeline Parallelism",
        2023, "arXiv:2401.10241", "https://arxiv.org/abs/2401.10241",
    ),
    Source(
        "rajbhandari2020", "S. Rajbhandari, J. Rasley, O. Ruwase, Y. He",
        "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models",
        2020, "arXiv:1910.02054", "https://arxiv.org/abs/1910.02054",
    ),
    Source(
        "deepspeed", "DeepSpeed Team",
        "DeepSpeed 0.19, deepspeed/runtime/zero, bytes of ZeRO stages counted on CPU with PyTorch 2.13",
        2026, "program", "https://github.com/deepspeedai/DeepSpeed",
    ),
    Source(
        "megatron_lm", "NVIDIA",
        "Megatron-LM, megatron/training/theoretical_memory_usage.py, revision 1bcb3b9e",
        2026, "program", "https://github.com/NVIDIA/Megatron-LM",
    ),
    Source(
        "megatron_core", "NVIDIA",
        "Megatron-Core 0.16.1, bytes counted with PyTorch 2.13",
        2026, "program", "https://github.com/NVIDIA/Megatron-LM",
    ),
    Source(
        "megatron_fsdp", "NVIDIA",
        "Megatron-FSDP of Megatron-Core 0.16.1: buckets, all-gathers ahead and the queue of reductions",
        2026, "program", "https://github.com/NVIDIA/Megatron-LM/tree/main/megatron/core/distributed/fsdp",
    ),
    Source(
        "megatron_training", "NVIDIA",
        "Megatron-LM core_r0.14, schedules, batches, output layer and losses, revision 23e00ed0",
        2025, "program", "https://github.com/NVIDIA/Megatron-LM",
    ),
    Source(
        "transformer_engine", "NVIDIA",
        "Transformer Engine 2.11, linear modules, attention, cross entropy and workspaces, revision c188b533",
        2025, "program", "https://github.com/NVIDIA/TransformerEngine",
    ),
    Source(
        "cublas_workspaces", "PyTorch contributors",
        "PyTorch 2.13, aten/src/ATen/cuda/CublasHandlePool.cpp, as changed by pull request 175344",
        2026, "program", "https://github.com/pytorch/pytorch",
    ),
    Source(
        "scaling", "Aleph Alpha",
        "scaling, LM head, cross entropy and pipeline buffers, revision 737f855",
        2024, "program", "https://github.com/Aleph-Alpha/scaling",
    ),
    Source(
        "simumax", "Moore Threads",
        "SimuMax 1.2, allocated and reserved memory of Megatron-LM on B200 by rank",
        2026, "program", "https://github.com/MooreThreads/SimuMax",
    ),
    Source(
        "nccl", "NVIDIA", "NCCL user guide, environment variables: buffers of channels and connections",
        2026, "documentation", "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html",
    ),
    Source(
        "deepep", "DeepSeek-AI, NVIDIA", "DeepEP 1.2.1, and HybridEP of its branch hybrid-ep at 94a9f8f",
        2026, "program", "https://github.com/deepseek-ai/DeepEP",
    ),
    Source(
        "pytorch", "PyTorch contributors",
        "PyTorch 2.13, tensors saved for backward counted by its own hooks",
        2026, "program", "https://github.com/pytorch/pytorch",
    ),
    Source(
        "transformers", "Hugging Face",
        "Transformers, Llama, Qwen2 and Qwen3 modelling code, bytes counted with PyTorch 2.13",
        2026, "program", "https://github.com/huggingface/transformers",
    ),
    Source(
        "torchtitan", "PyTorch contributors",
        "torchtitan 0.2.2, Llama 3 with its tensor-parallel plan, checkpointing and FSDP2, bytes counted with"
        " PyTorch 2.13",
        2026, "program", "https://github.com/pytorch/torchtitan",
    ),
    Source(
        "axonn", "Parallel Software and Systems Group, University of Maryland",
        "AxoNN 0.2.0, linear layers on three axes, bytes counted on CPU with PyTorch 2.13",
        2024, "program", "https://github.com/axonn-ai/axonn",
    ),
    Source(
        "megatron_axonn", "Parallel Software and Systems Group, University of Maryland",
        "Megatron-AxoNN, communication model and models of the weak scaling runs, revision 8a4ae241",
        2024, "program", "https://github.com/axonn-ai/Megatron-AxoNN",
    ),
    Source(
        "nanotron", "Hugging Face",
        "nanotron, Llama, tensor parallelism and gradient accumulation, revision 2411b022",
        2026, "program", "https://github.com/huggingface/nanotron",
    ),
    Source(
        "bitsandbytes", "T. Dettmers",
        "bitsandbytes 0.50, 8-bit optimizers and 4-bit weights, bytes counted with PyTorch 2.13",
        2026, "program", "https://github.com/bitsandbytes-foundation/bitsandbytes",
    ),
    Source(
        "torchao", "PyTorch contributors", "torchao 0.18, 8-bit optimizers, bytes counted with PyTorch 2.13",
        2026, "program", "https://github.com/pytorch/ao",
    ),
    Source(
        "peft", "Hugging Face", "PEFT 0.21, LoRA, bytes counted with PyTorch 2.13",
        2026, "program", "https://github.com/huggingface/peft",
    ),
    Source(
        "liger", "LinkedIn", "Liger-Kernel 0.8.5, fused linear cross entropy, bytes counted with PyTorch 2.13",
        2026, "program", "https://github.com/linkedin/Liger-Kernel",
    ),
    Source(
        "torchtune", "PyTorch", "torchtune 0.6.1, losses on chunks, bytes counted with PyTorch 2.13", 2025, "program",
        "https://github.com/meta-pytorch/torchtune",
    ),
    Source(
        "cut_cross_entropy", "Apple", "cut-cross-entropy 25.1.1, bytes counted with PyTorch 2.13",
        2025, "program", "https://github.com/apple/ml-cross-entropy",
    ),
    Source(
        "llamafactory", "LLaMA-Factory", "LLaMA-Factory 0.9.5, log-probabilities of preference training",
        2026, "program", "https://github.com/hiyouga/LLaMA-Factory",
    ),
    Source(
        "llamafactory_1", "LLaMA-Factory", "LLaMA-Factory 1 (ff6d4d12), loss of supervised training",
        2026, "program", "https://github.com/hiyouga/LLaMA-Factory",
    ),
    Source(
        "trl", "Hugging Face", "TRL 1.16, fused language-model head, bytes counted with PyTorch 2.13",
        2026, "program", "https://github.com/huggingface/trl",
    ),
    Source(
        "trl_dpo", "Hugging Face",
        "TRL 1.9.0 and 0.29.1, losses of preferences on logits, bytes counted with PyTorch 2.13",
        2026, "program", "https://github.com/huggingface/trl/tree/v1.9.0",
    ),
    Source(
        "ms_swift", "ModelScope", "ms-swift 4.6.0, losses of DPO and KTO, bytes counted with PyTorch 2.13",
        2026, "program", "https://github.com/modelscope/ms-swift",
    ),
    Source(
        "verl", "verl project", "verl 0.9.1, losses of actors and critics, bytes counted with PyTorch 2.13",
        2026, "program", "https://github.com/verl-project/verl",
    ),
    Source(
        "nemo_rl", "NVIDIA", "NeMo RL (commit 0433dae), losses of actors, bytes counted with PyTorch 2.13",
        2026, "program", "https://github.com/NVIDIA-NeMo/RL",
    ),
    Source(
        "openrlhf", "OpenRLHF project", "OpenRLHF 0.11.2, losses of actors, bytes counted with PyTorch 2.13",
        2026, "program", "https://github.com/OpenRLHF/OpenRLHF",
    ),
    Source(
        "megatron_bridge", "NVIDIA", "Megatron-Bridge 0.3.1, LoRA and CanonicalLoRA",
        2026, "program", "https://github.com/NVIDIA-NeMo/Megatron-Bridge",
    ),
    Source(
        "dao2023", "T. Dao", "FlashAttention-2: Faster Attention with Better Parallelism and Work Partitioning",
        2023, "arXiv:2307.08691", "https://arxiv.org/abs/2307.08691",
    ),
    Source(
        "shah2024", "J. Shah, G. Bikshandi, Y. Zhang, V. Thakkar, P. Ramani, T. Dao",
        "FlashAttention-3: Fast and Accurate Attention with Asynchrony and Low-precision",
        2024, "arXiv:2407.08608", "https://arxiv.org/abs/2407.08608",
    ),
    Source(
        "flash_attention", "Dao-AILab", "FlashAttention, measured rates on B200 by length (pull request 2605)",
        2026, "program", "https://github.com/Dao-AILab/flash-attention",
    ),
    Source(
        "nvidia_throughput", "NVIDIA", "Megatron Bridge and NeMo, performance summaries of 2024 to 2026",
        2026, "documentation", "https://github.com/NVIDIA-NeMo/Megatron-Bridge/blob/main/docs/performance-summary.md",
    ),
    Source(
        "hagemann2023", "J. Hagemann, S. Weinbach, K. Dobler, M. Schall, G. de Melo",
        "Efficient Parallelization Layouts for Large-Scale Distributed Model Training",
        2023, "arXiv:2311.05610", "https://arxiv.org/abs/2311.05610",
    ),
    Source(
        "qwen2", "A. Yang, B. Yang, B. Hui, et al.", "Qwen2 Technical Report",
        2024, "arXiv:2407.10671", "https://arxiv.org/abs/2407.10671",
    ),
    Source(
        "qwen3", "A. Yang, A. Li, B. Yang, et al.", "Qwen3 Technical Report",
        2025, "arXiv:2505.09388", "https://arxiv.org/abs/2505.09388",
    ),
    Source(
        "llama3", "Llama Team, AI at Meta", "The Llama 3 Herd of Models",
        2024, "arXiv:2407.21783", "https://arxiv.org/abs/2407.21783",
    ),
    Source(
        "deepseek2024v2", "DeepSeek-AI",
        "DeepSeek-V2: A Strong, Economical, and Efficient Mixture-of-Experts Language Model",
        2024, "arXiv:2405.04434", "https://arxiv.org/abs/2405.04434",
    ),
    Source(
        "deepseek2024v3", "DeepSeek-AI", "DeepSeek-V3 Technical Report",
        2024, "arXiv:2412.19437", "https://arxiv.org/abs/2412.19437",
    ),
    Source(
        "chowdhery2022", "A. Chowdhery, S. Narang, J. Devlin, et al.",
        "PaLM: Scaling Language Modeling with Pathways", 2022, "arXiv:2204.02311", "https://arxiv.org/abs/2204.02311",
    ),
    Source(
        "yim2024", "Jinkyu Yim, Jaeyong Song, Yerim Choi, Jaebeen Lee, Jaewon Jung, Hongsun Jang, Jinho Lee",
        "Pipette: Automatic Fine-grained Large Language Model Training Configurator for Real-World Clusters",
        2024, "arXiv:2405.18093", "https://arxiv.org/abs/2405.18093",
    ),
    Source(
        "um2024", "T. Um, B. Oh, M. Kang, W.-Y. Lee, G. Kim, D. Kim, Y. Kim, M. Muzzammil, M. Jeon",
        "Metis: Fast Automatic Distributed Training on Heterogeneous GPUs", 2024, "USENIX ATC 2024",
        "https://www.usenix.org/conference/atc24/presentation/um",
    ),
    Source(
        "stich2018", "S. U. Stich", "Local SGD Converges Fast and Communicates Little", 2018, "arXiv:1805.09767",
        "https://arxiv.org/abs/1805.09767",
    ),
    Source(
        "douillard2023", "A. Douillard, Q. Feng, A. A. Rusu, et al.",
        "DiLoCo: Distributed Low-Communication Training of Language Models", 2023, "arXiv:2311.08105",
        "https://arxiv.org/abs/2311.08105",
    ),
    Source(
        "douillard2025", "A. Douillard, Y. Donchev, K. Rush, et al.",
        "Streaming DiLoCo with overlapping communication: Towards a Distributed Free Lunch", 2025, "arXiv:2501.18512",
        "https://arxiv.org/abs/2501.18512",
    ),
    Source(
        "wahib2020", "M. Wahib, H. Zhang, T. T. Nguyen, A. Drozd, J. Domke, L. Zhang, R. Takano, S. Matsuoka",
        "Scaling Distributed Deep Learning Workloads beyond the Memory Capacity with KARMA", 2020, "arXiv:2008.11421",
        "https://arxiv.org/abs/2008.11421",
    ),
    Source(
        "maurya2024", "A. Maurya, J. Ye, M. M. Rafique, F. Cappello, B. Nicolae",
        "Deep Optimizer States: Towards Scalable Training of Transformer Models Using Interleaved Offloading", 2024,
        "arXiv:2410.21316", "https://arxiv.org/abs/2410.21316",
    ),
    Source(
        "torchft", "Meta", "torchft 0.2.0, torchft/local_sgd.py", 2026, "program",
        "https://github.com/meta-pytorch/torchft",
    ),
    Source(
        "transformer_math", "Q. Anthony, S. Biderman, H. Schoelkopf", "Transformer Math 101",
        2023, "EleutherAI blog", "https://blog.eleuther.ai/transformer-math/",
    ),
    Source(
        "ultrascale", "Hugging Face", "The Ultra-Scale Playbook: Training LLMs on GPU Clusters",
        2025, "documentation", "https://huggingface.co/spaces/nanotron/ultrascale-playbook",
    ),
    Source(
        "deepspeed_estimators", "DeepSpeed Team",
        "DeepSpeed, estimators of model states in deepspeed/runtime/zero, and their documentation, revision edaa7221",
        2026, "program", "https://github.com/deepspeedai/DeepSpeed",
    ),
    Source(
        "megatron_flops", "NVIDIA",
        "Megatron-LM, num_floating_point_operations in megatron/training/training.py, revision d98e8a64",
        2026, "program", "https://github.com/NVIDIA/Megatron-LM",
    ),
    Source(
        "young1974", "J. W. Young", "A First Order Approximation to the Optimum Checkpoint Interval",
        1974, "Communications of the ACM 17 (9)", "https://doi.org/10.1145/361147.361115",
    ),
    Source(
        "daly2006", "J. T. Daly", "A Higher Order Estimate of the Optimum Checkpoint Interval for Restart Dumps",
        2006, "Future Generation Computer Systems 22 (3)", "https://doi.org/10.1016/j.future.2004.11.016",
    ),
    Source(
        "touvron2023", "H. Touvron, T. Lavril, G. Izacard, et al.",
        "LLaMA: Open and Efficient Foundation Language Models",
        2023, "arXiv:2302.13971", "https://arxiv.org/abs/2302.13971",
    ),
    Source(
        "kokolis2024", "A. Kokolis, M. Kuchnik, J. Hoffman, et al.",
        "Revisiting Reliability in Large-Scale Machine Learning Research Clusters",
        2024, "arXiv:2410.21680", "https://arxiv.org/abs/2410.21680",
    ),
    Source(
        "fernandez2024", "J. Fernandez, L. Wehrstedt, L. Shamis, et al.",
        "Hardware Scaling Trends and Diminishing Returns in Large-Scale Distributed Training",
        2024, "arXiv:2411.13055", "https://arxiv.org/abs/2411.13055",
    ),
    Source(
        "hoffmann2022", "J. Hoffmann, S. Borgeaud, A. Mensch, et al.",
        "Training Compute-Optimal Large Language Models",
        2022, "arXiv:2203.15556", "https://arxiv.org/abs/2203.15556",
    ),
    Source(
        "besiroglu2024", "T. Besiroglu, E. Erdil, M. Barnett, J. You", "Chinchilla Scaling: A Replication Attempt",
        2024, "arXiv:2404.10102", "https://arxiv.org/abs/2404.10102",
    ),
    Source(
        "gpt_oss", "OpenAI", "gpt-oss-120b & gpt-oss-20b Model Card",
        2025, "arXiv:2508.10925", "https://arxiv.org/abs/2508.10925",
    ),
)

BY_KEY: dict[str, Source] = {source.key: source for source in SOURCES}
