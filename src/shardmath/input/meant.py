"""Options and values as people know them from other programs, with the way to say the same here."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

from shardmath.generated.definitions import CHOICES

_LENGTH = "the tokens of a whole training to `shardmath plan --tokens`"
_RECOMPUTE = "--recompute full, or modules such as --recompute core_attention"
_PRECISION = "--kernel precision=OPTION, listed by `shardmath kernels precision`"
_ADAPTERS = ("--lora-rank 16 for all linear layers, and --kernel adapters=OPTION for others, listed by"
             " `shardmath kernels adapters`")
#: Recipes of linear layers in FP8 or FP4.
RECIPES = tuple(option for option in CHOICES["fp8"][1] if option != "none")
#: Ways to say it, each with the options of Megatron-LM, torchtitan, Transformers, DeepSpeed, launchers and people.
_WAYS = {
    "the model as the first argument, without an option":
        "-m --model --model-name --model-path --model-name-or-path --config --hf-config",
    "--solve": "--for --solve-for --find --symbol",
    "--gpu": "-g --gpu-type --gpu-name --gpu-model --device --hardware --accelerator",
    "--gpu-memory in GiB": "--vram --memory --gpu-mem --mem",
    "--num-gpus, the GPUs of all nodes together":
        "--nodes --nnodes --num-nodes --world-size --ngpu --ngpus --n-gpus --num-devices --devices --num-processes",
    "--node-size": "--nproc-per-node --gpus-per-node --ntasks-per-node --num-gpus-per-node",
    "--tp": "--tensor-model-parallel-size --tensor-parallel-size --tensor-parallel-degree --tp-size --tp-degree",
    "--pp": "--pipeline-model-parallel-size --pipeline-parallel-size --pipeline-parallel-degree --pp-size --pp-degree",
    "--cp": "--context-parallel-size --context-parallel-degree --cp-size --cp-degree",
    "--ep": "--expert-model-parallel-size --expert-parallel-size --expert-parallel-degree --ep-size --ep-degree",
    "--etp": "--expert-tensor-parallel-size --expert-tensor-parallel-degree",
    "--dp": "--data-parallel-size --data-parallel-degree --data-parallel-shard-degree --dp-size --dp-shard",
    "--data-parallel-replicas": "--data-parallel-replicate-degree --dp-replicate --hsdp",
    "--vpp, chunks of layers per pipeline rank":
        "--virtual-pipeline-model-parallel-size --num-layers-per-virtual-pipeline-stage --interleave",
    "--sequence-parallel": "--sp --sequence-parallelism",
    "--zero-stage": "--zero --zero-optimization --zero-optimization-stage --stage --sharding-strategy",
    "--zero-stage 0": "--ddp",
    "--zero-stage 3": "--fsdp --fsdp2 --use-torch-fsdp2 --zero3 --zero-3",
    "--zero-stage 2": "--zero2 --zero-2",
    "--distributed-optimizer": "--use-distributed-optimizer --zero1 --zero-1",
    "--seq, tokens of a sequence":
        "--seq-len --max-seq-len --max-seq-length --sequence-length --context-length --block-size --max-length "
        "--cutoff-len --max-position-embeddings --context --context-size --ctx --ctx-len --seqlen",
    "--mbs, sequences of a micro-batch":
        "--micro-batch --microbatch --microbatch-size --local-batch-size --per-device-train-batch-size "
        "--per-device-batch-size --train-micro-batch-size-per-gpu",
    "--gbs, sequences of one optimizer step, or --mbs, those of a micro-batch":
        "--batch --batch-size --train-batch-size --global-batch",
    "--gbs, sequences of one optimizer step: those of a micro-batch x data-parallel ranks x steps of accumulation":
        "--gradient-accumulation-steps --gradient-accumulation --grad-accum --accumulate-grad-batches",
    "--gbs, sequences of one optimizer step: its tokens divided by --seq":
        "--batch-tokens --global-batch-tokens --tokens-per-batch --tokens-per-step",
    _RECOMPUTE:
        "--recompute-granularity --recompute-activations --gradient-checkpointing --activation-checkpointing "
        "--activation-checkpoint-mode --checkpoint-activations --use-gradient-checkpointing --ac",
    _PRECISION: "--bf16 --fp16 --fp32 --dtype --mixed-precision --torch-dtype --param-dtype --amp",
    "--kernel fp8=OPTION, listed by `shardmath kernels fp8`": "--fp8-format --fp8-recipe --float8",
    "--kernel attention=OPTION, listed by `shardmath kernels attention`":
        "--flash-attn --use-flash-attn --flash-attention --attn-implementation --attention-backend --sdpa",
    "--kernel optimizer=OPTION, listed by `shardmath kernels optimizer`": "--optim --optimizer-type",
    "--kernel data_parallel=deepspeed with --implementation huggingface, and --zero-stage": "--deepspeed",
    "--optimizer-offload-percent 100": "--offload --cpu-offload --optimizer-cpu-offload --offload-optimizer",
    _ADAPTERS: "--lora --use-lora --use-peft --lora-r --lora-alpha --peft",
    f"--kernel base_weights=nf4 and {_ADAPTERS}": "--load-in-4bit --qlora --quantization --quantize --4bit",
    f"--kernel base_weights=int8 and {_ADAPTERS}": "--load-in-8bit --8bit --int8",
    "the path of a config.json with it as MODEL: the sizes of a model stand there":
        "--hidden-size --d-model --num-layers --num-hidden-layers --n-layers --layers --num-attention-heads --n-heads "
        "--heads --num-query-groups --num-key-value-heads --ffn-hidden-size --intermediate-size --vocab-size "
        "--padded-vocab-size --num-experts",
    "--top, layouts to show": "--limit --rows --max-results",
    "--rank-by": "--sort --sort-by --order-by --objective",
    "--csv FILE or --parquet FILE": "--output --out --output-file --export --save",
    "--implementation": "--impl --framework --backend --engine --library",
    _LENGTH: "--train-iters --train-samples --max-steps --steps --training-steps --epochs --num-train-epochs",
}
#: How it is said here, by option.
MEANT = {option: way for way, options in _WAYS.items() for option in options.split()}

#: Options of kernel axes as other programs call them.
OPTIONS_MEANT = {
    "adapters": {"all_linear": "all all-linear lora peft", "q_v": "default"},
    "attention": {"flash": "fa fa2 fa3"},
    "base_weights": {"nf4": "4bit bnb int4 qlora", "int8": "8bit llm-int8"},
    "optimizer": {"adamw": "fused-adam", "adamw_8bit": "8bit adam8bit paged-adamw-8bit"},
    "schedule": {"zero_bubble": "zb zbh1", "interleaved": "vpp"},
}


def option_of(axis: str, text: str) -> str:
    """Return the option of a kernel axis that other programs call ``text``; empty where nobody knows."""
    name = text.lower().replace("_", "-")
    if axis == "precision" and name.startswith(("fp8", "fp4")):
        return f"fp8={' or '.join(RECIPES)}"
    return next((own for own, others in OPTIONS_MEANT.get(axis, {}).items() if name in others.split()), "")


_ON, _OFF = ("true", "yes", "on", "1", "all"), ("false", "no", "off", "0")


def truth(value: object) -> bool | None:
    """Return the truth that a value says in words; None for others."""
    if isinstance(value, bool):
        return value
    text = value.lower() if isinstance(value, str) else ""
    return True if text in _ON else False if text in _OFF else None


def recompute_of(value: object) -> str:
    """Return the recompute mode that a switch of another program means; empty for others."""
    return {True: "full", False: "none", None: ""}[truth(value)]


def kernels_of(value: object) -> str:
    """Return the kernel choices, as Python writes them, that texts such as ``axis=option`` mean; empty for others."""
    texts = value.split(",") if isinstance(value, str) else value if isinstance(value, list | tuple) else ()
    choices = [re.split("[=:]", text.strip(), maxsplit=1) if isinstance(text, str) else [""] for text in texts]
    return str({axis: rest[0] for axis, *rest in choices}) if choices and all(map(_is_choice, choices)) else ""


def kernel_of(text: str) -> str:
    """Return the choices ``axis=option`` that a text without an equals sign means: ``axis:option`` or an option."""
    if _is_choice(choice := re.split("[: ]", text, maxsplit=1)):
        return "=".join(choice)
    return " or ".join(f"{axis}={text}" for axis, (_, options) in CHOICES.items() if text in options)


def _is_choice(choice: Collection[str]) -> bool:
    axis, *rest = choice
    return axis in CHOICES and rest != [] and rest[0] in CHOICES[axis][1]


def parameter_of(name: str, known: Collection[str], short: Mapping[str, str]) -> str:
    """Return the argument that another program calls ``name``; empty where there is none.

    ``short`` has the short names of parameters.
    """
    way = MEANT.get(f"--{name.lower().replace('_', '-')}", "")
    first = way.split(" ")[0].strip("-,")
    axis = name if name in CHOICES else way.removeprefix("--kernel ").partition("=")[0]
    if axis in CHOICES and "kernels" in known:
        return f'kernels={{"{axis}": ...}}'
    return next((own for own in known if first and first in (own.replace("_", "-"), short.get(own))), "")
