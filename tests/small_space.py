"""A small space with many shards, for tests of how it is swept: as a file, and counted one by one."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from itertools import product
from pathlib import Path

from shardmath.configuration.settings import recompute_switches
from shardmath.generated.definitions import LIMITS, RULE_80, VERDICTS, rule_80, verdict
from shardmath.search.spaces import Best, Front, Histogram, Part, Space

AXES = {
    "seq_length": [4096, 6144, 8192, 10240, 12288, 16384], "tensor_parallel": [1, 2, 4, 8, 16],
    "pipeline_parallel": [1, 2, 3, 4, 8], "micro_batch_size": [1, 2, 4], "recompute": ["none", "full"],
    "num_gpus": [16, 32, 48, 96, 256],
}
SEQUENCES = 256
QUESTIONS = (
    Best("best", ("tensor_parallel * pipeline_parallel", "-micro_batch_size"), 7),
    Best("least-peak", ("peak",), 2, ("recompute", "num_gpus"), "legal"),
    Front("front", ("peak", "-seq_length", "num_gpus"), "uncertain"),
    Histogram("sizes", "peak", (2**34, 2**35, 2**36), "legal"),
)
FILE = """
model = "llama-3.1-8b"
gpu = "a100-40gb"
[axes]
seq_length = [4096, 6144, 8192, 10240, 12288, 16384]
tensor_parallel = [1, 2, 4, 8, 16]
pipeline_parallel = [1, 2, 3, 4, 8]
micro_batch_size = [1, 2, 4]
recompute = ["none", "full"]
num_gpus = [16, 32, 48, 96, 256]
[fixed]
global_batch_size = 256
[questions.best]
best = ["tensor_parallel * pipeline_parallel", "-micro_batch_size"]
count = 7
[questions.least-peak]
best = ["peak"]
count = 2
per = ["recompute", "num_gpus"]
among = "legal"
[questions.front]
front = ["peak", "-seq_length", "num_gpus"]
among = "uncertain"
[questions.sizes]
histogram = "peak"
edges = [17179869184, 34359738368, 68719476736]
among = "legal"
"""


def space() -> Space:
    """The space of FILE."""
    return Space(AXES, "llama-3.1-8b", "a100-40gb", fixed={"global_batch_size": SEQUENCES}, questions=QUESTIONS)


def file_in(folder: Path) -> Path:
    path = folder / "space.toml"
    path.write_text(FILE, encoding="utf-8")
    return path


@cache
def counted() -> dict[str, list[dict[str, object]]]:
    """Every configuration by its verdict, or the name of the first broken rule; computed by the plain evaluator."""
    part = space().parts()[0]
    found: dict[str, list[dict[str, object]]] = {name: [] for name, _ in VERDICTS}
    for name, row in _each(part):
        found.setdefault(name, []).append(row)
    return found


def _each(part: Part) -> Iterator[tuple[str, dict[str, object]]]:
    terms = part.evaluator.terms
    candidates = [list(axis.labels) for axis in part.axes]
    for number, labels in enumerate(product(*candidates)):
        row: dict[str, object] = {"number": number, **dict(zip(AXES, labels, strict=True))}
        values = {**part.fixed, **{name: value for name, value in row.items() if name in part.derived or name in AXES}}
        values |= recompute_switches(str(values.pop("recompute")))
        ranks = values["tensor_parallel"] * values["pipeline_parallel"]
        values["sequence_parallel"] = int(values["tensor_parallel"] > 1)
        if values["num_gpus"] % ranks:
            yield "data_parallel", row
            continue
        values["data_parallel"] = values["num_gpus"] // ranks
        inputs = [values[name] for name in terms.INPUTS]
        broken = [name for (name, _, _), met in zip(terms.RULES, terms.rules_met(*inputs), strict=True) if not met]
        if broken:
            yield broken[0], row
            continue
        found = terms.terms(*inputs)
        kind = VERDICTS[verdict(found["peak"], *(found[name] for name in LIMITS))][0]
        yield kind, {
            **row, "peak_bytes": found["peak"], "verdict": kind,
            "rule_80": RULE_80[rule_80(found["peak"], values["gpu_memory"])][0], "first.total": found["first.total"],
            "data_parallel": values["data_parallel"],
        }
