"""A launch script as Megatron-LM takes it: parsed with its own flags, held to what it asserts when it starts.

The flags are those of the parser of core_v0.16.1, read from ``megatron_arguments.csv``; the conditions are those of
``validate_args`` and of the configuration classes of the same release that a written script could break.
"""

from __future__ import annotations

import argparse
import csv
import re
import subprocess
from pathlib import Path
from typing import Any

from shardmath.formats.scripts.launch import Launch, launch_of
from shardmath.formats.scripts.shell import Script, read_script

TABLE = Path(__file__).parent / "data" / "megatron_arguments.csv"


def _pattern(text: str) -> list[int] | int:
    """A number, or a list of 0 and 1 with sums and products, as --moe-layer-freq takes it."""
    if "[" not in text:
        return int(text)
    assert not re.search(r"[^,\d\[\]()+*]", text), text
    found: list[int] = eval(text)  # digits, brackets, commas, + and * alone
    return found


_TYPES: dict[str, Any] = {"int": int, "float": float, "moe_freq_type": _pattern}


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> Any:
        raise AssertionError(message)


def parser() -> argparse.ArgumentParser:
    """Megatron-LM's parser, from the table; no default is known."""
    found = _Parser(allow_abbrev=False, argument_default=argparse.SUPPRESS)
    with open(TABLE, newline="") as table:
        for row in csv.DictReader(table):
            options: dict[str, Any] = {"dest": row["flag"]}
            if row["words"] == "0":
                options["action"] = "store_true"
            else:
                options["type"] = _TYPES.get(row["type"], str)
                if row["words"] != "1":
                    options["nargs"] = int(row["words"]) if row["words"].isdecimal() else row["words"]
                if row["choices"]:
                    options["choices"] = [options["type"](word) for word in row["choices"].split(" ")]
            found.add_argument(f"--{row['flag']}", **options)
    return found


PARSER = parser()


def launched(text: str) -> tuple[Script, Launch]:
    """The variables and the command of a script, whose syntax bash has accepted."""
    checked = subprocess.run(["bash", "-n"], input=text, text=True, capture_output=True, check=False)
    assert (checked.returncode, checked.stderr) == (0, "")
    script = read_script("script", text, {"NODE_RANK": "0", "MASTER_ADDR": "node0"})
    return script, launch_of("script", script)


def refuse_what_does_not_start(text: str, before_blackwell: bool = True) -> dict[str, Any]:
    """Assert that Megatron-LM starts with a script; its flags with their values."""
    script, launch = launched(text)
    words = [word for flag, values in launch.flags.items() for word in (f"--{flag}", *values)]
    given: dict[str, Any] = vars(PARSER.parse_args(words))
    # A flag of negative numbers or without a word is parsed as another; none may be lost.
    assert set(given) == set(launch.flags)
    assert launch.program == "pretrain_gpt.py"
    tensor, context, pipeline, expert = (given.get(f"{name}-parallel-size", 1) for name in (
        "tensor-model", "context", "pipeline-model", "expert-model"))
    gpus = launch.num_gpus
    assert gpus is not None
    assert gpus % (tensor * context * pipeline) == 0
    _layout(given, tensor, context, pipeline, gpus)
    _switches(given, tensor)
    if "num-experts" in given:
        _experts(given, tensor, context, pipeline, expert, gpus)
    else:
        assert expert == 1
    one_queue = max(tensor, context) > 1 and before_blackwell
    assert (script.variables.get("CUDA_DEVICE_MAX_CONNECTIONS") == "1") == one_queue
    return given


def _layout(given: dict[str, Any], tensor: int, context: int, pipeline: int, gpus: int) -> None:
    replicas = gpus // (tensor * context * pipeline)
    assert given["global-batch-size"] % (given["micro-batch-size"] * replicas) == 0
    assert given["max-position-embeddings"] >= given["seq-length"]
    assert given["num-attention-heads"] % tensor == 0
    groups = given.get("num-query-groups", given["num-attention-heads"])
    assert groups % tensor == 0 or tensor % groups == 0
    if context > 1:
        assert given["seq-length"] % (2 * context) == 0
    assert given["min-lr"] <= given["lr"]
    assert given["train-iters"] > 0
    assert given["eval-interval"] > 0
    ways = {"num-layers-per-virtual-pipeline-stage", "num-virtual-stages-per-pipeline-rank",
            "pipeline-model-parallel-layout"} & given.keys()
    assert len(ways) <= 1
    if "pipeline-model-parallel-layout" in given:
        assert (given["pipeline-model-parallel-layout"].count("|") + 1) % pipeline == 0
    ends = {"decoder-first-pipeline-num-layers", "decoder-last-pipeline-num-layers"} & given.keys()
    shared = [flag for flag in given if flag.startswith("account-for-")]
    assert not (ends and shared)
    if not ends and "pipeline-model-parallel-layout" not in given:
        layers = given["num-layers"] + len(shared)
        assert layers % (pipeline * given.get("num-virtual-stages-per-pipeline-rank", 1)) == 0
    if "num-virtual-stages-per-pipeline-rank" in given:
        assert pipeline > 1
    if given.get("cpu-offloading-num-layers"):
        assert pipeline == 1
        assert "recompute-granularity" not in given


def _switches(given: dict[str, Any], tensor: int) -> None:
    assert ("bf16" in given) != ("fp16" in given)
    sharded = "use-distributed-optimizer" in given
    if "sequence-parallel" in given:
        assert tensor > 1
    if "tp-comm-overlap" in given:
        assert "sequence-parallel" in given
    if "overlap-param-gather" in given:
        assert sharded
        assert "overlap-grad-reduce" in given
    if "fp8-param-gather" in given:
        assert sharded
        assert "fp8-format" in given
    if "use-precision-aware-optimizer" in given:
        assert sharded
    if "optimizer-cpu-offload" in given:
        assert "use-precision-aware-optimizer" in given
        assert "fp8-param-gather" not in given or given["fp8-recipe"] == "delayed"
    if "muon" in given.get("optimizer", "adam"):
        assert not sharded
        assert not {"overlap-grad-reduce", "overlap-param-gather"} & given.keys()
    if given.get("recompute-granularity") == "full":
        assert given["recompute-method"] in ("uniform", "block")
        assert given["recompute-num-layers"] > 0
    else:
        assert "recompute-method" not in given
    if given.get("fp8-recipe") == "delayed":
        assert not {"moe_act", "layernorm"} & set(given.get("recompute-modules", ()))
    if "multi-latent-attention" in given:
        assert "group-query-attention" not in given
        assert given.get("rope-type", "yarn") == "yarn" or "no-rope-fusion" in given
    if "mtp-num-layers" in given:
        assert given["position-embedding-type"] == "rope"
    if given["position-embedding-type"] == "rope":
        assert given["rotary-base"] > 0


def _experts(given: dict[str, Any], tensor: int, context: int, pipeline: int, expert: int, gpus: int) -> None:
    assert given["num-experts"] % expert == 0
    width = given.get("expert-tensor-parallel-size", tensor)
    assert gpus % (width * expert * pipeline) == 0
    assert "disable-bias-linear" in given or width == 1
    scores = given.get("moe-router-score-function", "softmax")
    if "moe-router-enable-expert-bias" in given:
        assert scores == "sigmoid"
    if given["moe-router-topk"] == 1 and scores == "softmax":
        assert "moe-router-pre-softmax" in given
    if "moe-router-group-topk" in given:
        assert given["num-experts"] % given["moe-router-num-groups"] == 0
        assert given["moe-router-group-topk"] <= given["moe-router-num-groups"]
    if "moe-pad-expert-input-to-capacity" in given:
        assert given["moe-expert-capacity-factor"] > 0
    frequency = given.get("moe-layer-freq", 1)
    assert isinstance(frequency, int) or len(frequency) == given["num-layers"]
    if "moe_act" in given.get("recompute-modules", ()):
        assert "moe-grouped-gemm" in given
