"""Names of models that have been trained further, or on other data: they have the shape of what they come from."""

from __future__ import annotations

__all__ = ["untrained"]

#: Ends of such names, in small letters.
TRAINED = ("-instruct-2507", "-thinking-2507", "-unsloth-bnb-4bit", "-bnb-4bit", "-bnb-nf4-bf16", "-unsloth",
           "-instruct", "-chat", "-base", "-it", "-pt", "-deduped", "-fp16")
#: Part of such a name before a version, and the parts there in names of what they come from.
_INSTRUCTED, _VERSIONED = "-instruct-", ("-", "-base-")
#: Models with names of their own, and the models of the catalogue that they were trained from.
_RENAMED = {
    "cogito-v1-preview-llama-3b": "llama-3.2-3b", "cogito-v1-preview-llama-8b": "llama-3.1-8b",
    "cogito-v1-preview-qwen-14b": "qwen2.5-14b", "cogito-v1-preview-qwen-32b": "qwen2.5-32b",
    "deepcoder-14b-preview": "qwen2.5-14b", "deepseek-r1": "deepseek-v3", "deepseek-r1-0528": "deepseek-v3",
    "deepseek-r1-0528-qwen3-8b": "qwen3-8b",
    "deepseek-r1-distill-llama-8b": "llama-3.1-8b", "deepseek-r1-distill-llama-70b": "llama-3.1-70b",
    "deepseek-r1-distill-qwen-7b": "qwen2.5-7b", "deepseek-r1-distill-qwen-14b": "qwen2.5-14b",
    "deepseek-r1-distill-qwen-32b": "qwen2.5-32b", "devstral-small-2507": "mistral-small-24b-base-2501",
    "deepseek-v2.5": "deepseek-v2",
    "deepseek-v3-0324": "deepseek-v3", "deepseek-v3.1": "deepseek-v3", "llama-3.3-70b": "llama-3.1-70b",
    "gpt-oss-120b-dequantized": "gpt-oss-120b", "gpt-oss-safeguard-20b": "gpt-oss-20b",
    "magistral-small-2506": "mistral-small-24b-base-2501", "magistral-small-2507": "mistral-small-24b-base-2501",
    "olmo-3-7b-instruct-sft": "olmo-3-1025-7b", "plano-orchestrator-4b": "qwen3-4b",
    "qwen2.5-math-1.5b": "qwen2.5-1.5b", "qwen3-coder-30b-a3b": "qwen3-30b-a3b",
    "skywork-reward-v2-qwen3-8b": "qwen3-8b", "sparse-llama-3.1-8b-2of4": "llama-3.1-8b",
}


def untrained(name: str) -> list[str]:
    """List the names that what a model was trained from may have, by its own in small letters."""
    own = name.rpartition("/")[2]
    ends = [own.removesuffix(end) for end in TRAINED if own.endswith(end)][:1]
    others = [own.replace(_INSTRUCTED, sign) for sign in _VERSIONED if _INSTRUCTED in own]
    return [_RENAMED.get(other, other) for other in (own, *ends, *others)]
