"""Optimizer states that come to the GPU by subgroups: seconds, bytes, refusals, and the run that the authors logged."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from fractions import Fraction
from itertools import groupby
from pathlib import Path
from random import Random

import pytest
from oracles.systems.host_streams import interleaved_step
from times.test_host_time import value

import shardmath
from shardmath.errors import InputError
from shardmath.models.config_json import read_model
from shardmath.symbolic.implementations import MEGATRON
from shardmath.symbolic.parameters import BY_LETTER
from shardmath.symbolic.timing import build_all

pytestmark = pytest.mark.slow
SYSTEMS = Path(__file__).resolve().parents[2] / "docs" / "systems"
#: Logs of the authors: their fourth iteration on four GPUs, their seventh on one.
TABLE = Path(__file__).parents[1] / "data" / "maurya2024_logs.csv"
LOGS = [*csv.DictReader(TABLE.read_text(encoding="utf-8").splitlines())]
JOB = {"num_gpus": 8, "global_batch_size": 16}
MODEL, GPU = "llama-3.1-8b", "h100-80gb"
PARTS = ("host_update_time", "host_copy_time", "half_copy_time", "gpu_update_time")


def test_seconds_of_an_update() -> None:
    draw, terms = Random(1), build_all(MEGATRON.with_choices(optimizer_offload="interleaved"))
    for _ in range(200):
        groups, stride = draw.randint(1, 20), draw.randint(2, 6)
        seconds = [Fraction(draw.randint(1, 40), draw.randint(1, 9)) for _ in PARTS]
        parts = {f"stage.{name}": number for name, number in zip(PARTS, seconds, strict=True)}
        parts |= {"stage.subgroups": Fraction(groups), "stage.gpu_subgroups": Fraction(groups // stride)}
        assert value(terms, "stage.interleaved_update", {"gk": stride}, parts) == interleaved_step(
            groups, stride, *seconds)


def test_bytes() -> None:
    size = 10**8
    plain = shardmath.explain(MODEL, GPU, **JOB)
    own = shardmath.explain(MODEL, GPU, **JOB, gpu_update_stride=2, sub_group_size=size)
    assert own.peak.by_role["optimizer"] == 0
    assert own.peak.by_role["transient"] - plain.peak.by_role["transient"] == 16 * size
    assert plain.time is not None
    assert own.time is not None
    assert own.time.seconds > plain.time.seconds


def test_two_devices_are_faster_than_the_host_alone() -> None:
    host = shardmath.explain(MODEL, GPU, **JOB, optimizer_offload_percent=100).time
    both = [shardmath.explain(MODEL, GPU, **JOB, gpu_update_stride=stride, sub_group_size=10**7).time
            for stride in (2, 3, 10)]
    assert host is not None
    seconds = [time.spent["host"] for time in both if time is not None]
    assert seconds == sorted(seconds)
    assert seconds[0] < host.spent["host"]


@pytest.mark.parametrize(("asked", "message"), [
    ({"kernels": {"optimizer_offload": "interleaved"}}, "gpu_update_stride = 1: must be 2 or more.*nearest legal: 2"),
    ({"gpu_update_stride": 2, "kernels": {"optimizer": "sgd"}}, "not counted yet"),
])
def test_refused(asked: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        shardmath.explain(MODEL, GPU, **JOB, **asked)


def logged_updates() -> Iterator[tuple[int, float, float]]:
    """Stride, and milliseconds of an update by the ledger and by the log, of models on four A100 and their host.

    A stride of 0 has all states on the host. One log of stride 5 is as slow as those, and is left out.
    """
    logged = read_model(SYSTEMS / "llama-13b.json")
    for row in LOGS:
        stride = int(row["stride"])
        if row["gpus"] == "1" or stride == 5:
            continue
        shape = {BY_LETTER[letter].name: int(row[letter]) for letter in "hfLak"}
        model = logged.model_copy(update={**shape, "head_dim": int(row["h"]) // int(row["a"])})
        own = {"gpu_update_stride": stride, "sub_group_size": 25 * 10**6} if stride else {
            "optimizer_offload_percent": 100}
        time = shardmath.explain(model, SYSTEMS / "four_a100.toml", num_gpus=4, global_batch_size=4, seq_length=2048,
                                 recompute="full", **own).time
        assert time is not None
        yield stride, 1000 * time.spent["host"], float(row["update_ms"])


def test_fewer_subgroups_on_the_host_are_faster_in_logs_too() -> None:
    """The fastest stride of every model is 2, and no update takes less time than the ledger says."""
    for _, rows in groupby(LOGS[2:], key=lambda row: row["elements"]):
        times = {int(row["stride"]): float(row["update_ms"]) for row in rows}
        assert min(times, key=times.__getitem__) == 2
    assert all(ours < theirs for _, ours, theirs in logged_updates())


def test_bytes_of_the_host_that_logs_have() -> None:
    """As the page says: 24 to 28 for each parameter, and 26 to 45 with subgroups on the GPU."""
    found: dict[bool, list[int]] = {False: [], True: []}
    for row in LOGS[2:]:
        size = (float(row["host_gib"]) - float(row["host_gib_before"])) * 2**30 / int(row["elements"])
        found[row["stride"] != "0"].append(round(size))
    assert [(min(sizes), max(sizes)) for sizes in found.values()] == [(24, 28), (26, 45)]
    page = (SYSTEMS / "deep_optimizer_states.md").read_text(encoding="utf-8")
    assert "has 24 to 28 bytes for each parameter without k, and 26 to 45 with it" in page


def test_the_run_that_the_authors_logged() -> None:
    """Subgroups of their log of a model of 7B: 16 bytes of the largest, and 16-bit gradients of every second one."""
    embedding, layer = 206_045_184, (16_781_312, 20_971_520, 90_181_632, 45_088_768)
    groups = [embedding, *layer * 32, embedding]
    gib = 2**30
    assert round(16 * max(groups) / gib, 2) == round(15.35 - 12.28, 2)
    assert round(2 * sum(groups[1::2]) / gib, 2) == round(22.11 - 15.35, 2)
    host, both = LOGS[:2]
    assert round(float(host["iteration_ms"]) / float(both["iteration_ms"]), 2) == 1.39
