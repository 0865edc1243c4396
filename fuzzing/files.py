"""Readers of text files: models, runs, spaces, clusters, measured runs."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING

from fuzzing.outcome import Finding, outcome
from fuzzing.reader import DATA, ROOT, Reader, in_file

if TYPE_CHECKING:
    from shardmath.machines import Cluster

#: Of the inputs that are answered, every how many are used for all that is done with an answer.
_DEEPER = 64


def _config(data: bytes, folder: str) -> str:
    from shardmath.models.model import Model

    path = in_file(data, folder, "config.json")

    def read() -> None:
        answer = Model.from_config(path)
        if Model(**answer.model_dump()) != answer or answer.num_attention_heads % answer.num_kv_heads:
            raise Finding(f"not a model: {answer}")
        if len(data) % _DEEPER == 0:
            _explained(answer)

    return outcome(read)


def _explained(model: object, **arguments: object) -> None:
    from shardmath.account.accounting import explain

    answer = explain(model, "h100-80gb", **arguments)
    if answer.peak.total <= 0:
        raise Finding(f"a peak of {answer.peak.total} bytes")
    json.dumps(answer.to_dict(), allow_nan=False)


_SET = re.compile(rb"#set ([^=\n]{1,80})=([^\n]{0,200})\n")


def run_reader(suffix: str) -> Callable[[bytes, str], str]:
    """Return a reader of launch scripts and configurations that raises Finding; lines ``#set name=value`` win."""
    def read_one(data: bytes, folder: str) -> str:
        from shardmath.formats import read

        values, start = {}, 0
        while (setting := _SET.match(data, start)) is not None:
            values[setting[1].decode("utf-8", "replace")] = setting[2].decode("utf-8", "replace")
            start = setting.end()
        path = in_file(data[start:], folder, f"run{suffix}")

        def follow() -> None:
            run = read(path, values)
            if run.model.num_layers < 1:
                raise Finding("no layers")
            if len(data) % _DEEPER == 0:
                run.explain("h100-80gb", num_gpus=64)

        return outcome(follow)

    return read_one


def _space(suffix: str) -> Callable[[bytes, str], str]:
    def read_one(data: bytes, folder: str) -> str:
        from shardmath.search.spaces import plain, read_space, space_of

        path = in_file(data, folder, f"space{suffix}")

        def follow() -> None:
            space = read_space(path)
            parts = space.parts()
            if any(not 1 <= part.size <= 2**62 for part in parts):
                raise Finding("no size")
            if space_of(plain(space)) != space:
                raise Finding("another space as plain data")

        return outcome(follow)

    return read_one


def _cluster(data: bytes, folder: str) -> str:
    from shardmath.machines import read_cluster, write_cluster

    path = in_file(data, folder, "cluster.toml")

    def read() -> None:
        answer = read_cluster(path)
        write_cluster(answer, f"{folder}/again.toml")
        if read_cluster(f"{folder}/again.toml") != answer:
            raise Finding("another cluster when read again")

    return outcome(read)


def _measured_run(data: bytes, folder: str) -> str:
    from shardmath.account.anchor import anchored

    path = in_file(data, folder, "measured.json")
    return outcome(lambda: anchored(path))


def _runs(data: bytes, folder: str) -> str:
    from shardmath.commands.calibrate.files import read_runs

    path = in_file(data, folder, "runs.csv")

    def read() -> None:
        if any(not 0 < run.seconds < float("inf") for run in read_runs(path, _h100())):
            raise Finding("a run without a time")

    return outcome(read)


@cache
def _h100() -> Cluster:
    from shardmath.account.time import as_cluster

    return as_cluster("h100-80gb")


def _configs() -> Sequence[bytes]:
    known = json.loads((DATA / "family_configs.json").read_text(encoding="utf-8"))
    return [json.dumps(config).encode() for config in known.values()]


def _examples(*suffixes: str, starts: str = "") -> Callable[[], Sequence[bytes]]:
    def found() -> Sequence[bytes]:
        return [path.read_bytes() for path in sorted((DATA / "formats").iterdir())
                if path.suffix in suffixes and path.name.startswith(starts)]

    return found


def _scripts() -> Sequence[bytes]:
    settings = b"#set USE_MEGATRON_FSDP=0\n#set moe-token-dispatcher-type=alltoall\n"
    return [*_examples(".sh")(), *(settings + content for content in _examples(".sh", starts="megatron_deepseek")())]


def _flag_lists() -> Sequence[bytes]:
    """Return the flags of the published scripts, as somebody would list them."""
    from shardmath.formats.scripts.launch import launch_of
    from shardmath.formats.scripts.shell import read_script

    lists = []
    for content in _examples(".sh")():
        flags = launch_of("", read_script("", content.decode(), {"USE_MEGATRON_FSDP": "0"})).flags
        lists.append("\n".join(" ".join((f"--{name}", *words)) for name, words in flags.items()).encode())
    return lists


def _clusters() -> Sequence[bytes]:
    from shardmath.machines.files import cluster_of, plain

    own = {"name": "own", "gpu": {"like": "h100-80gb", "hbm_mb_per_s": 3_000_000}, "network": {"like": "ndr-400"}}
    import tomli_w

    return [(ROOT / "docs" / "clusters" / "example.toml").read_bytes(), tomli_w.dumps(own).encode(),
            tomli_w.dumps(plain(cluster_of(own))).encode()]


def _spaces(suffix: str) -> Callable[[], Sequence[bytes]]:
    return lambda: [path.read_bytes() for path in sorted((ROOT / "docs" / "spaces").glob(f"*{suffix}"))]


def _tables_of_runs() -> Sequence[bytes]:
    text = (ROOT / "docs" / "clusters" / "README.md").read_text(encoding="utf-8")
    rate = ("model,num_gpus,tensor_parallel,sequence_parallel,recompute,global_batch_size,implementation,gradients,"
            "pipeline_layout,group,tokens_per_second_per_gpu\nllama-3.1-8b,16,2,false,full,64,megatron,fp32,,mine,8000\n"
            "llama-3.1-8b,8,,,,64,torchtitan,,,,8192\n")
    return [*(block.encode() for block in re.findall(r"```csv\n(.*?)```", text, re.DOTALL)), rate.encode()]


def _measured_runs() -> Sequence[bytes]:
    run = {"model": "llama-3.1-8b", "gpu": "h100-80gb", "num_gpus": 16, "tensor_parallel": 2, "pipeline_parallel": 2,
           "micro_batch_size": 1, "global_batch_size": 64, "seq_length": 8192, "recompute": "none"}
    took = {"allocated_bytes": 2**35, "reserved_bytes": 2**35 + 2**30, "process_bytes": 2**35 + 2**32}
    more = {**run, "kernels": {"loss": "native"}, "implementation": "torchtitan", "gpu": "a100-80gb"}
    return [json.dumps({"run": asked, "measured": took}).encode() for asked in (run, more)]


@cache
def _keys_of_configs() -> Sequence[bytes]:
    from shardmath.models.config_json import FAMILIES

    known = json.loads((DATA / "family_configs.json").read_text(encoding="utf-8"))
    keys = {key for config in known.values() for key in config} | {"text_config", "rope_parameters", "head_dim"}
    return [f'"{key}"'.encode() for key in sorted({*keys, *FAMILIES})]


@cache
def _flags() -> Sequence[bytes]:
    from shardmath.formats.megatron import flags
    from shardmath.formats.megatron.model import FLAGS_OF
    from shardmath.formats.nemo.reading import FLAG_OF, OPPOSITE

    known = {*flags.REFUSED, *flags.UNCOUNTED, *FLAGS_OF.values()}
    patterns = ("--moe-layer-freq ([1]*9999)*9999", "--pipeline-model-parallel-layout Et*99999*99999L", "E(t|)*99999tL",
                "#set TP=2\n", "#set num-layers=9\n", "if [ -z $X ]; then\n", "fi\n", "for x in a b; do\n", "done\n",
                "case $X in\n", "*)\n", ";;\n", "esac\n", "f() {\n", "}\n",
                "torchrun --nproc_per_node 8 pretrain_gpt.py ",
                "${X:-1}", "${A[@]}", "A=(1 2 3)\n", "A+=(4)\n", "<<EOF\n", "EOF\n", "bash <<'EOF'\n")
    return [*(f" --{flag} ".encode() for flag in sorted(known)), *map(str.encode, (*patterns, *FLAG_OF, *OPPOSITE))]


@cache
def _symbols() -> Sequence[bytes]:
    from shardmath.generated.definitions import IMPLEMENTATIONS, PARAMETERS, RECOMPUTE_MODES

    more = ("axes", "fixed", "derived", "constraints", "questions", "kernels", "range", "powers_of_two", "multiples",
            "divisors_of", "at_least", "best", "front", "histogram", "edges", "count", "per", "among", "legal", "peak",
            "ceil_div(num_layers, 0)", "lcm(1, 2)", "max(1, 2)", "a if b else c", "1 / 0", "2**62", "x.__class__",
            "lambda: 0", "gpu_memory_gib", "cluster", "network", "zero_stage", "schedule", "first.total", "like",
            "model",
            "step_seconds")
    return [name.encode() for name in (*PARAMETERS, *IMPLEMENTATIONS, *RECOMPUTE_MODES, *more)]


READERS = (
    Reader("config", _config, _configs, _keys_of_configs, 6),
    Reader("megatron-script", run_reader(".sh"), _scripts, _flags, 3),
    Reader("megatron-flags", run_reader(".txt"), _flag_lists, _flags, 3),
    Reader("megatron-test", run_reader(".yaml"), _examples(".yaml", starts="megatron"), _flags),
    Reader("nemo", run_reader(".yaml"), _examples(".yaml"), _flags),
    Reader("torchtitan", run_reader(".toml"), _examples(".toml"), _flags, 3),
    Reader("space-toml", _space(".toml"), _spaces(".toml"), _symbols),
    Reader("space-yaml", _space(".yaml"), _spaces(".yaml"), _symbols),
    Reader("cluster", _cluster, _clusters, _symbols, 3),
    Reader("runs", _runs, _tables_of_runs, _symbols, 3),
    Reader("measured-run", _measured_run, _measured_runs, _symbols),
)
