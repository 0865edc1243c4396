"""A sweep on Dask processes gives the answer and the rows of one on threads, whatever happens to workers."""

from __future__ import annotations

import logging
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import small_space
from distributed import Client, LocalCluster

from shardmath.commands.explore.answer import Explored
from shardmath.commands.explore.run import explore
from shardmath.errors import InputError
from shardmath.search.nests.clusters import ended

pytestmark = pytest.mark.slow

ASKED: dict[str, Any] = {"terms": ("first.total", "data_parallel", "first.total / 2**30"), "among": "uncertain"}


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with ended(LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0")) as processes:
        yield processes


@pytest.fixture(scope="module")
def on_threads(tmp_path_factory: pytest.TempPathFactory) -> tuple[Explored, bytes]:
    path = tmp_path_factory.mktemp("threads") / "rows.parquet"
    return explore(small_space.space(), rows=path, **ASKED), path.read_bytes()


def _plain(found: Explored) -> dict[str, Any]:
    return {key: value for key, value in found.to_dict().items() if key != "evaluated"}


@pytest.mark.slow
def test_a_lost_worker_loses_nothing(
    cluster: LocalCluster, on_threads: tuple[Explored, bytes], tmp_path: Path
) -> None:
    def slowly() -> int:
        import time

        from shardmath.search.nests.columns import ColumnNest

        swept = ColumnNest.swept

        def slow(*arguments: Any) -> Any:
            time.sleep(0.03)
            return swept(*arguments)

        ColumnNest.swept = slow  # type: ignore[method-assign]
        return os.getpid()

    with Client(cluster) as client:
        workers = client.run(slowly)
    killed: list[int] = []
    seen: list[int] = []

    def progress(done: int, size: int) -> None:
        seen.append(done)
        if done > size // 4 and not killed:
            killed.append(next(iter(workers.values())))
            os.kill(killed[0], signal.SIGKILL)

    path = tmp_path / "rows.parquet"
    found = explore(small_space.space(), rows=path, dask=cluster.scheduler_address, progress=progress, **ASKED)
    assert len(killed) == 1
    assert found.size // 4 < seen[-2] < seen[-1] == found.size
    assert _plain(found) == _plain(on_threads[0])
    assert path.read_bytes() == on_threads[1]
    with Client(cluster) as client:
        assert killed[0] not in client.run(os.getpid).values()


@pytest.mark.slow
def test_a_sweep_moves_from_a_cluster_to_threads(
    cluster: LocalCluster, on_threads: tuple[Explored, bytes], tmp_path: Path
) -> None:
    path, state = tmp_path / "rows.parquet", tmp_path / "state"
    seen: list[int] = []
    first = explore(
        small_space.space(), rows=path, dask=cluster.scheduler_address, checkpoint=state,
        progress=lambda done, _: seen.append(done), stopped=lambda: len(seen) > 20, **ASKED,
    )
    assert 0 < first.done < first.size
    found = explore(small_space.space(), rows=path, checkpoint=state, resume=True, **ASKED)
    assert _plain(found) == _plain(on_threads[0])
    assert path.read_bytes() == on_threads[1]


@pytest.mark.slow
@pytest.mark.parametrize("address", ["no-such-scheme://here", "tcp://127.0.0.1:9", "nowhere"])
def test_a_scheduler_that_is_none_is_refused(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from shardmath.search.nests import clusters

    monkeypatch.setattr(clusters, "_PATIENCE", 1)
    with pytest.raises(InputError, match=r"dask = .*must be the address"):
        explore(small_space.space(), dask=address)


REFUSED = """
from shardmath.cli.main import run
from shardmath.search.nests import clusters
clusters._PATIENCE = 1
run()
"""


@pytest.mark.slow
@pytest.mark.parametrize("address", ["tcp://127.0.0.1:9", "tls://127.0.0.1:9", "nowhere"])
def test_an_error_is_one_line_without_the_logs_of_dask(address: str, tmp_path: Path) -> None:
    command = [sys.executable, "-c", REFUSED, "explore", str(small_space.file_in(tmp_path)), "--dask", address]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"error: dask = '{address}': must be ")


def test_levels_of_logs_are_as_they_were() -> None:
    from shardmath.search.nests.clusters import _quiet

    logger = logging.getLogger("distributed.client")
    before = logger.level
    with _quiet():
        assert not logger.isEnabledFor(logging.CRITICAL)
    assert logger.level == before


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificate")
def test_certificates_are_asked_for(on_threads: tuple[Explored, bytes], tmp_path: Path) -> None:
    """As docs/robustness.md says: the configuration of Dask, and an address that begins with tls."""
    import dask
    from distributed.security import Security

    cert, key, path = tmp_path / "node.pem", tmp_path / "node-key.pem", tmp_path / "rows.parquet"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=node",
                    "-out", str(cert), "-keyout", str(key)], check=True, capture_output=True)
    tls: dict[str, Any] = {"ca-file": str(cert)}
    tls |= {f"{end}.{part}": str(file) for end in ("client", "scheduler", "worker")
            for part, file in (("cert", cert), ("key", key))}
    tls = {f"distributed.comm.tls.{name}": value for name, value in tls.items()}
    tls |= {"distributed.comm.require-encryption": True}
    with dask.config.set(tls):
        security = Security()
    with LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=":0", protocol="tls://",
                      security=security) as cluster:
        address = cluster.scheduler_address
        assert address.startswith("tls://")
        with pytest.raises(InputError, match="must be the address of a Dask scheduler that answers"):
            explore(small_space.space(), dask=address)
        with dask.config.set(tls):
            found = explore(small_space.space(), rows=path, dask=address, **ASKED)
    assert _plain(found) == _plain(on_threads[0])
    assert path.read_bytes() == on_threads[1]


@pytest.mark.slow
def test_workers_that_are_lost_again_and_again_are_told_in_one_line(
    cluster: LocalCluster, tmp_path: Path, on_threads: tuple[Explored, bytes]
) -> None:
    def ends() -> None:
        from shardmath.search.nests.columns import ColumnNest

        ColumnNest.swept = lambda *_: os._exit(1)  # type: ignore[method-assign]

    path, state = tmp_path / "rows.parquet", tmp_path / "state"
    asked: dict[str, Any] = {"rows": path, "checkpoint": state, **ASKED}
    with Client(cluster) as client:
        client.register_worker_callbacks(ends)
    with pytest.raises(InputError, match=r"dask = .*must have workers that live: 4 of them"):
        explore(small_space.space(), dask=cluster.scheduler_address, **asked)
    assert not path.exists()
    explore(small_space.space(), resume=True, **asked)
    assert path.read_bytes() == on_threads[1]


@pytest.mark.slow
def test_processes_made_for_one_sweep(on_threads: tuple[Explored, bytes], tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    found = explore(small_space.space(), rows=path, dask="local", threads=1, **ASKED)
    assert _plain(found) == _plain(on_threads[0])
    assert path.read_bytes() == on_threads[1]
