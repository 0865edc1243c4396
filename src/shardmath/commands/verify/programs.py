"""Programs that check a prediction: a launch with a fake process group, FSDP2 without memory, and a start-up hook."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from shardmath.account.accounting import Explanation
from shardmath.account.anchor import run_of
from shardmath.account.configured import Configuration
from shardmath.account.replaying import replayed
from shardmath.errors import InputError
from shardmath.files.rendering import rendered
from shardmath.formats.writers import written
from shardmath.generated.definitions import IMPLEMENTATIONS
from shardmath.models.model import Model

#: File that a program writes, and name of the hook beside it.
RESULT, HOOK = "shardmath_result.json", "shardmath_hook.py"
HEADER = "Written by `shardmath verify`."
#: Frameworks that the hook starts: the words behind it, and their launch without other processes.
_STARTS: Mapping[str, str] = {"megatron": "pretrain_gpt.py", "torchtitan": "-m torchtitan.train"}
#: Choices of kernels that the program with FSDP2 needs or has; all others are those of Transformers itself.
_FSDP: Mapping[str, tuple[str, ...]] = {
    "data_parallel": ("fsdp",), "peak": ("torch",), "precision": ("mixed", "bf16"),
    "loss": ("huggingface", "huggingface_freed"), "units": ("root", "ends"),
}
#: Parameters that are freed after the forward pass, by units: Accelerate never frees those of the last one.
_RESHARD: Mapping[str, tuple[str, ...]] = {"root": ("always", "default", "never"), "ends": ("default", "never")}


def program(configuration: Configuration, model: Model | str, gpu: Any, arguments: Mapping[str, Any]) -> str:
    """Return the program that measures a run on one GPU, or with Hugging Face's models on none.

    ``model``, ``gpu`` and ``arguments`` are those that ``configuration`` was made of: the result has them. Raises
    InputError for a run that no such program has yet.
    """
    account = replayed(configuration)
    if account.framework == "huggingface":  # products of tensors without memory have no workspace
        return _without_memory(account, run_of(model, gpu, {**arguments, "torch_workspace_bytes": 0}))
    start = _start(account)
    shared = {"hook": hook(configuration, model, gpu, arguments), "hook_file": HOOK, "result": RESULT,
              "ranks": account.inputs["num_gpus"], "rank": _global_rank(account), "start": start}
    text = written(None, account, arguments.get("pipeline_layout") or account.layers)
    if account.framework == "megatron":
        head, launch, tail = text.partition('torchrun "${DISTRIBUTED_ARGS[@]}" pretrain_gpt.py')
        assert launch
        shared |= {"head": head, "tail": tail.rstrip("\n")}
    else:
        shared["configuration"] = text
    return rendered(f"verify_{account.framework}.sh", shared, HEADER)


def hook(configuration: Configuration, model: Model | str, gpu: Any, arguments: Mapping[str, Any]) -> str:
    """Return the file that a training is started through: it compares the peak after step 2 with the estimate.

    Raises InputError for a run of a framework that it does not start.
    """
    account = replayed(configuration)
    return rendered("verify_hook.py", {
        "run": _literal(run_of(model, gpu, arguments)), "rank": _global_rank(account), "result": RESULT,
        "estimate": {"allocated_bytes": account.peak.total, "reserved_bytes": account.reserved_bytes}, "file": HOOK,
        "start": _start(account),
    }, HEADER)


def _start(account: Explanation) -> str:
    if account.framework not in _STARTS:
        rule = f"must be one of {', '.join((*_STARTS, 'huggingface'))}: no program for others is written yet"
        raise InputError("implementation", account.framework, rule, next(iter(_STARTS)))
    return _STARTS[account.framework]


def _global_rank(account: Explanation) -> int:
    """Return the first global rank of the fullest pipeline rank; both frameworks have those of a stage in a row."""
    return account.peak_rank * account.inputs["num_gpus"] // account.inputs["pipeline_parallel"]


def _without_memory(account: Explanation, run: Mapping[str, Any]) -> str:
    """Return the program with FSDP2. Raises InputError for a run that it does not have yet."""
    choices, inputs = account.choices, account.inputs
    own = {axis: (option,) for axis, option in IMPLEMENTATIONS["huggingface"]["choices"].items()}
    for axis, options in {**_FSDP, **own, **_FSDP, "reshard": _RESHARD[choices["units"]]}.items():
        if choices[axis] not in options:
            rule = f"must be {' or '.join(options)}: no program for others is written yet"
            raise InputError(axis, choices[axis], rule, options[0])
    if account.peak.site == "optimizer_step":
        raise InputError("run", "optimizer_step", "must not peak in the optimizer step, which is not measured yet")
    model = account.model
    kind = "Qwen3" if model.qk_norm else "Qwen2" if model.qkv_bias else "Llama"
    if (model.qkv_bias and model.qk_norm) or model.linear_bias or model.attention_output_bias or model.mlp_bias:
        rule = "must be like Llama, Qwen2 or Qwen3: no program for others is written yet"
        raise InputError("model", model.name, rule)
    return rendered("verify_fsdp2.py", {
        "run": _literal(run), "result": RESULT, "kind": kind, "ranks": inputs["data_parallel"],
        "batch": inputs["micro_batch_size"], "sequence": inputs["seq_length"],
        "microbatches": inputs["global_batch_size"] // inputs["micro_batch_size"] // inputs["data_parallel"],
        "mixed": choices["precision"] == "mixed", "holds": choices["loss"] == "huggingface",
        "ends": choices["units"] == "ends",
        "reshard": {"always": True, "default": choices["units"] == "ends" or None, "never": False}[choices["reshard"]],
        "recompute": bool(inputs["recompute_full"]),
        "reduced": "torch.float32" if inputs["gradient_bytes"] == 4 else "torch.bfloat16", "sizes": {
            "hidden_size": model.hidden_size, "num_attention_heads": model.num_attention_heads,
            "num_key_value_heads": model.num_kv_heads, "head_dim": model.head_dim,
            "intermediate_size": model.ffn_hidden_size, "vocab_size": model.vocab_size,
            "num_hidden_layers": model.num_layers, "tie_word_embeddings": model.tied_embeddings,
            "max_position_embeddings": max(model.max_seq_length, inputs["seq_length"]),
        },
    }, HEADER)


def _literal(run: Mapping[str, Any]) -> str:
    """Return JSON inside of a literal of Python; a name cannot end it, as JSON escapes quotes and other letters."""
    return repr(json.dumps(run))
