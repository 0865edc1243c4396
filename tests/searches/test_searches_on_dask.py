"""Sweeps, recommendations, scalings and plans on Dask processes give the answers of those on threads."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from distributed import Client, LocalCluster

from shardmath.answers import Answer
from shardmath.cli.main import exit_code
from shardmath.commands.plan import plan
from shardmath.commands.recommend import recommend
from shardmath.commands.scale import scale
from shardmath.commands.sweep import sweep
from shardmath.errors import InputError
from shardmath.search import answered
from shardmath.search.nests import clusters
from shardmath.search.nests.clusters import ended

pytestmark = pytest.mark.slow

JOB: dict[str, Any] = {"model": "llama-3.2-1b", "gpu": "h100-80gb", "global_batch_size": 16, "micro_batch_size": [1, 2]}
QUESTIONS: dict[str, tuple[Callable[..., Answer], dict[str, Any]]] = {
    "sweep": (sweep, {**JOB, "num_gpus": 8}),
    "recommend": (recommend, {**JOB, "num_gpus": 8}),
    "scale": (scale, {**JOB, "num_gpus": [4, 8]}),
    "plan": (plan, {"model": "llama-3.2-1b", "tokens": "1T", "gpus": ["h100-80gb", "h200-141gb"], "num_gpus": [8],
                    "batch_tokens": "131072", "micro_batch_size": [1, 2]}),
}


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    made = LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0")
    with ended(made) as processes, Client(processes) as own:
        yield own


@pytest.fixture
def shared(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Sizes of the loops that went to a cluster."""
    sizes: list[int] = []
    on_cluster = clusters.on_cluster

    def counted(nest: Any, client: Client) -> Any:
        sizes.append(nest.size)
        return on_cluster(nest, client)

    monkeypatch.setattr(clusters, "on_cluster", counted)
    return sizes


@pytest.mark.parametrize("name", QUESTIONS)
def test_answers_are_those_of_threads(
    name: str, client: Client, shared: list[int], monkeypatch: pytest.MonkeyPatch,
) -> None:
    function, asked = QUESTIONS[name]
    alone = function(**asked)
    monkeypatch.setattr(answered, "is_quick", lambda nest: False)
    assert function(**asked, dask=client).to_dict() == alone.to_dict()
    assert shared
    assert client.status == "running"


def test_quick_loops_stay_here(client: Client, shared: list[int]) -> None:
    function, asked = QUESTIONS["sweep"]
    function(**asked, dask=client.scheduler.address)
    assert not shared


def test_bounds_are_not_shared(client: Client) -> None:
    with pytest.raises(InputError, match=r"dask = .*: bounds answer here.*without --every-switch"):
        scale("llama-3.1-70b", "h100-80gb", [512], global_batch_size=1024, every_switch=True, dask=client)


@pytest.mark.parametrize("command", ["sweep", "recommend", "scale", "plan"])
def test_an_address_without_a_scheduler_is_one_line(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(clusters, "_PATIENCE", 1)
    job = ["--tokens", "1T"] if command == "plan" else ["--gbs", "16"]
    words = [command, "llama-3.2-1b", "--gpu", "h100-80gb", "--gpus", "8", *job, "--dask", "tcp://127.0.0.1:9", "-q"]
    assert exit_code(words) == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.splitlines() == [
        "error: dask = 'tcp://127.0.0.1:9': must be the address of a Dask scheduler that answers, or local"]


def test_what_is_no_address_is_refused() -> None:
    with pytest.raises(InputError, match=r"dask = 3: must be the address .*distributed\.Client"):
        sweep("llama-3.2-1b", "h100-80gb", 8, global_batch_size=16, dask=3)
