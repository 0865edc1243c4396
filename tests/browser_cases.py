"""What the page is tried with: sizes of screens, and random models, jobs and layouts as arguments of ``explain``."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

from shardmath.catalogue import read
from shardmath.commands.page.catalogue import gpu_data, models
from shardmath.configuration.defaults import has_architecture
from shardmath.generated.definitions import IMPLEMENTATIONS, RECOMPUTE_MODES
from shardmath.models.model import Model

#: Width and height in CSS pixels of a phone, a tablet, a screen and a wide one.
PHONE, TABLET, SCREEN, WIDE = (390, 844), (768, 1024), (1280, 900), (1920, 1080)
#: Models of few sets of formulas: the first of the page, others of the usual architecture, one with experts.
MODELS = ("llama-3.1-70b", "llama-3.2-1b", "llama-3.1-8b", "llama-2-13b", "llama-3.1-405b", "qwen2.5-7b", "qwen3-8b",
          "mixtral-8x7b-v0.1")
_MODELS = models(MODELS[:-1], only=True)
_GPUS, _NETWORKS = tuple(read("gpus")), tuple(read("networks"))
#: GPUs whose servers can be joined by any network: all figures of them are known.
_JOINED = tuple(gpu["name"] for gpu in gpu_data() if len(gpu["networks"]) == len(_NETWORKS))


def states(random: Random, count: int) -> list[dict[str, Any]]:
    """Draw states; what an implementation fixes is left at that value."""
    return [_state(random) for _ in range(count)]


def _state(random: Random) -> dict[str, Any]:
    model = random.choice(_MODELS)
    implementation = random.choice([name for name in IMPLEMENTATIONS if has_architecture(name, model)])
    fixed = IMPLEMENTATIONS[implementation]["fixed"]
    degrees = {
        "tensor_parallel": random.choice((1, 2, 4, 8)), "context_parallel": random.choice((1, 1, 1, 2, 3)),
        "pipeline_parallel": random.choice((1, 1, *_few_divisors(model))),
    }
    degrees = {name: fixed.get(name, size) for name, size in degrees.items()}
    ranks = degrees["tensor_parallel"] * degrees["context_parallel"] * degrees["pipeline_parallel"]
    data = random.choice((1, 2, 3, 8, 64))
    modes = ["none", "full"] if "recompute_mlp" in fixed else [*RECOMPUTE_MODES]
    sequence = random.random() < 0.8 and degrees["tensor_parallel"] > 1
    micro = random.choice((1, 1, 2, 4))
    machine = {"gpu": random.choice(_GPUS), "risk": random.choice(("1%", "1%", "0.1%", "10%"))}
    if machine["gpu"] in _JOINED and random.random() < 0.5:
        machine["network"] = random.choice(_NETWORKS)
    return {
        "model": model.name, **machine, "implementation": implementation, **degrees,
        "num_gpus": ranks * data + (random.random() < 0.05), "micro_batch_size": micro,
        "global_batch_size": data * micro * random.choice((1, 5, 64, 256)),
        "seq_length": random.choice((1024, 4096, 8192, 12288, 131072)),
        "sequence_parallel": bool(fixed.get("sequence_parallel", sequence)), "recompute": random.choice(modes),
    }


def _few_divisors(model: Model) -> list[int]:
    return [size for size in (2, 4, 7, 8, 10, 16) if model.num_layers % size == 0] or [1]


def jobs(random: Random, count: int) -> Iterator[dict[str, Any]]:
    """Draw jobs as arguments of a search: small models on few GPUs, so that few layouts are legal."""
    for _ in range(count):
        model, implementation = random.choice(_SEARCHED)
        gpus = random.choice((8, 16, 24, 32, 64))
        yield {
            "model": model, "gpu": random.choice(("h100-80gb", "a100-40gb", "h200-141gb")),
            "network": random.choice(_NETWORKS), "risk": random.choice(("1%", "5%")),
            "implementation": implementation,
            "num_gpus": gpus, "global_batch_size": gpus * random.choice((1, 2, 4)),
            "seq_length": random.choice((2048, 4096)),
        }


_SEARCHED = (
    ("llama-3.2-1b", "megatron"), ("qwen2.5-7b", "megatron"), ("llama-3.1-8b", "megatron"), ("llama-2-13b", "nanotron"),
    ("llama-3.1-8b", "nanotron"), ("llama-3.1-8b", "torchtitan"), ("llama-3.2-1b", "huggingface"),
)


def written_link(tab: Any) -> str:
    """Return the link of a tab, from its number sign on, after the page has written its last change into it."""
    tab.evaluate("async () => { while (location.hash !== toLink()) await new Promise((go) => setTimeout(go)); }")
    return f"#{tab.url.partition('#')[2]}"
