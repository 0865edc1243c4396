"""A sweep that is stopped or killed at any moment, and gone on with, ends as one that never was."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import small_space

from shardmath.commands.explore import run as exploring
from shardmath.commands.explore.answer import Explored
from shardmath.commands.explore.run import explore
from shardmath.errors import InputError
from shardmath.search.nests.checkpoint import Checkpoint
from shardmath.search.nests.compiled import CompiledNest

pytestmark = pytest.mark.slow

TERMS = ("first.total", "data_parallel", "first.total / 2**30")
#: The command, which begins no chunk after so many, and so does not end by itself; its state is saved often.
COMMAND = """
import itertools, signal, sys, time
from shardmath.cli.main import run
from shardmath.search.nests import checkpoint
from shardmath.search.nests.columns import ColumnNest
signal.signal(signal.SIGINT, signal.default_int_handler)  # a process in the background was told to ignore it
swept, begun, most = ColumnNest.swept, itertools.count(1), float(sys.argv.pop(1))
def halting(*arguments):
    while next(begun) > most and signal.getsignal(signal.SIGTERM) is not signal.SIG_IGN:  # as after a signal
        time.sleep(0.01)
    return swept(*arguments)
ColumnNest.swept = halting
checkpoint.SECONDS = 0.0
run()
"""


class Job:
    """The command in a folder, with a checkpoint and a table of rows."""

    def __init__(self, folder: Path, *more: str) -> None:
        self.folder = folder
        self.state, self.rows = folder / "state", folder / "rows.parquet"
        self.arguments = [
            "explore", str(small_space.file_in(folder)), "--json", "--rows", str(self.rows), "--among", "uncertain",
            *(word for term in TERMS for word in ("--term", term)), "--checkpoint", str(self.state), "--threads", "2",
            *more,
        ]

    def start(self, chunks: float, *more: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", COMMAND, str(chunks), *self.arguments, *more]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=self.folder)

    def end(self, *more: str) -> dict[str, Any]:
        process = self.start(inf, *more)
        out, err = process.communicate()
        assert process.returncode == 0, err
        found: dict[str, Any] = json.loads(out)
        return found

    def done(self) -> int:
        """Shards that the checkpoint calls done, 0 without one."""
        if not self.state.exists():
            return 0
        with np.load(self.state) as stored:
            header = json.loads(str(stored["header"]))
        return sum(stop - start for part in header["done"] for start, stop in part)

    def wait_until(self, shards: int, process: subprocess.Popen[str]) -> None:
        """Wait until so many shards are done."""
        while self.done() < shards:
            assert process.poll() is None
            time.sleep(0.01)


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> tuple[Explored, bytes]:
    path = tmp_path_factory.mktemp("whole") / "rows.parquet"
    found = explore(small_space.space(), rows=path, terms=TERMS, among="uncertain")
    return found, path.read_bytes()


@pytest.mark.slow
def test_ctrl_c_leaves_a_valid_part_and_says_how_to_go_on(
    tmp_path: Path, uninterrupted: tuple[Explored, bytes]
) -> None:
    job = Job(tmp_path)
    process = job.start(12)
    job.wait_until(30, process)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate()
    assert process.returncode == 130
    found = json.loads(out)
    whole, rows = uninterrupted
    assert 0 < found["done"] < whole.size
    assert not found["complete"]
    assert found["done"] == found["legal"] + sum(item["count"] for item in found["broken"])
    assert f"{found['done']:,} of 4,500 configurations are done" in err
    assert err.strip().endswith("--resume")
    import pyarrow.parquet as pq

    part = pq.read_table(job.rows).to_pylist()
    assert len(part) == found["rows"] == found["verdicts"]["fits"] + found["verdicts"]["uncertain"]
    ended = job.end("--resume")
    assert _without_evaluated(ended) == _without_evaluated(whole.to_dict())
    assert job.rows.read_bytes() == rows
    assert sorted(path.name for path in tmp_path.iterdir()) == ["rows.parquet", "space.toml", "state"]


@pytest.mark.slow
def test_killed_at_random_moments(tmp_path: Path, uninterrupted: tuple[Explored, bytes]) -> None:
    whole, rows = uninterrupted
    job, chance = Job(tmp_path), random.Random(os.environ.get("KILLS_SEED", "1"))
    reached = [0]
    for more in ((), ("--resume",), ("--resume",)):
        process = job.start(11, *more)
        job.wait_until(reached[-1] + chance.randint(1, 28), process)
        time.sleep(chance.random() * 0.1)
        process.kill()
        process.communicate()
        assert process.returncode == -signal.SIGKILL
        reached.append(job.done())
    assert reached == sorted(reached)
    assert 0 < reached[1] < reached[3] < CompiledNest(small_space.space().parts()[0], small_space.QUESTIONS).shards
    assert _without_evaluated(job.end("--resume")) == _without_evaluated(whole.to_dict())
    assert job.rows.read_bytes() == rows


def test_a_complete_checkpoint_answers_again(tmp_path: Path, uninterrupted: tuple[Explored, bytes]) -> None:
    whole, rows = uninterrupted
    state, table = tmp_path / "state", tmp_path / "rows.parquet"
    asked: dict[str, Any] = {"rows": table, "terms": TERMS, "among": "uncertain", "checkpoint": state}
    explore(small_space.space(), **asked)
    with pytest.raises(InputError, match="checkpoint"):
        explore(small_space.space(), **asked)
    (tmp_path / "state.rows").mkdir()  # what a kill at the very end leaves
    again = explore(small_space.space(), **asked, resume=True)
    assert _without_evaluated(again.to_dict()) == _without_evaluated(whole.to_dict())
    assert table.read_bytes() == rows
    assert sorted(path.name for path in tmp_path.iterdir()) == ["rows.parquet", "state"]
    with pytest.raises(InputError, match=r"rows = .*must be .*rows\.parquet"):
        explore(small_space.space(), **{**asked, "rows": tmp_path / "other.parquet"}, resume=True)


def test_what_fails_while_rows_are_written_is_gone_on_with(
    tmp_path: Path, uninterrupted: tuple[Explored, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: dict[str, Any] = {"rows": tmp_path / "rows.parquet", "terms": TERMS, "among": "uncertain"}
    with monkeypatch.context() as broken:
        broken.setattr(exploring, "write_rows", lambda *_: 1 // 0)
        with pytest.raises(ZeroDivisionError):
            explore(small_space.space(), **asked)
        assert list(tmp_path.iterdir()) == []
        with pytest.raises(ZeroDivisionError):
            explore(small_space.space(), **asked, checkpoint=tmp_path / "state")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["state", "state.rows"]
    explore(small_space.space(), **asked, checkpoint=tmp_path / "state", resume=True)
    assert (tmp_path / "rows.parquet").read_bytes() == uninterrupted[1]


def test_rows_that_the_checkpoint_does_not_know_do_not_count(
    tmp_path: Path, uninterrupted: tuple[Explored, bytes]
) -> None:
    asked: dict[str, Any] = {"terms": TERMS, "among": "uncertain", "checkpoint": tmp_path / "state"}
    table, seen = tmp_path / "rows.parquet", list[int]()
    explore(small_space.space(), rows=table, **asked, threads=3, stopped=lambda: len(seen) > 10,
            progress=lambda done, _: seen.append(done))
    (first, *_) = sorted((tmp_path / "state.rows").iterdir())
    # What a kill leaves between a file of rows and the state: here of a stretch that other threads cut otherwise.
    shutil.copy(first, first.with_name(f"{0:06d}-{100:020d}-{101:020d}.npz"))
    shutil.copy(first, first.with_name(f".{first.name}.of-a-kill.partial"))
    explore(small_space.space(), rows=table, **asked, threads=1, resume=True)
    assert table.read_bytes() == uninterrupted[1]


def test_the_state_of_another_space_is_refused(tmp_path: Path) -> None:
    nest = CompiledNest(small_space.space().parts()[0], small_space.QUESTIONS)
    ours = Checkpoint(tmp_path / "state", [nest])
    ours.save([])
    for path, text in ((tmp_path / "text", b"state"), (tmp_path / "zip", b"PK\5\6" + b"\0" * 18)):
        path.write_bytes(text)
        with pytest.raises(InputError, match="must be a whole checkpoint of this version"):
            Checkpoint(path, [nest]).load()
    np.savez(tmp_path / "numbers.npz", numbers=np.zeros(3))
    with pytest.raises(InputError, match="must be a whole checkpoint of this version"):
        Checkpoint(tmp_path / "numbers.npz", [nest]).load()
    larger = small_space.space()
    larger.fixed["global_batch_size"] = 512  # type: ignore[index]
    other = CompiledNest(larger.parts()[0], small_space.QUESTIONS)
    assert other.module is nest.module, "the same formulas, for other values"
    with pytest.raises(InputError, match="must be that of the same space"):
        Checkpoint(tmp_path / "state", [other]).load()
    with pytest.raises(InputError, match="must be a file that can be read"):
        Checkpoint(tmp_path, [nest]).load()
    with pytest.raises(InputError, match="resume"):
        explore(small_space.space(), resume=True)


def _without_evaluated(found: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in found.items() if key not in ("evaluated", "schema")}  # printed alone
