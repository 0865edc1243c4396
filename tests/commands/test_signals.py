"""Commands that are asked to end, by Ctrl-C, Slurm or a terminal that closes: real processes, each in its middle."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import small_space
from oracles.extent import FULL

from shardmath.files.writing import PARTIAL

pytestmark = pytest.mark.slow

#: The command, which stops where it would finish a file in the folder, says so, and goes on once a signal was handled:
#: from then on SIGHUP is ignored.
COMMAND = r"""
import os, signal, sys, time
from pathlib import Path
from shardmath.cli.main import run
from shardmath.search.nests import checkpoint
folder, checkpoint.SECONDS, fsync = sys.argv.pop(1), 0.0, os.fsync
signal.signal(signal.SIGINT, signal.default_int_handler)  # a process in the background was told to ignore it
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # and one of nohup that
def wait_for_a_signal():
    os.write(2, b"waiting\n")
    while signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        time.sleep(0.01)
def halfway(handle):
    if os.readlink(f"/proc/self/fd/{handle}").startswith(folder):
        wait_for_a_signal()
    fsync(handle)
os.fsync = halfway
"""
RUN = "run()\n"
MODEL = ["llama-3.2-1b", "--gpu", "h100-80gb", "--global-batch-size", "16"]
#: Arguments of each long command; files are those of the folder in which it runs.
COMMANDS = {
    "sweep": ["sweep", *MODEL, "--num-gpus", "8", "--csv", "out.csv"],
    "scale": ["scale", *MODEL, "--num-gpus", "8,16"],
    "recommend": ["recommend", *MODEL, "--num-gpus", "8"],
    "evaluate": ["evaluate", "table.csv", "-o", "out.parquet", "--model", "llama-3.2-1b", "--gpu", "h100-80gb"],
    "fit": ["fit", "llama-3.2-1b", "--gpu", "h100-80gb", "--solve", "micro_batch_size", "--table", "table.csv", "-o",
            "out.parquet"],
    "calibrate": ["calibrate", "runs.csv", "--gpu", "h100-80gb", "-o", "out.toml"],
    "explore": ["explore", "space.toml", "--rows", "out.parquet", "--among", "uncertain"],
}
SIGNALS = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """Where a command runs, with all that the commands read, and nothing else in it in the end."""
    small_space.file_in(tmp_path)
    (tmp_path / "table.csv").write_text("tensor_parallel\n" + "1\n2\n" * 1000)
    (tmp_path / "runs.csv").write_text(
        "model,num_gpus,tensor_parallel,global_batch_size,step_seconds\nllama-3.1-8b,8,1,64,9.9\nllama-3.1-8b,8,2,64,9.1\n")
    (tmp_path / "temporary").mkdir()
    before = {path.name for path in tmp_path.iterdir()}
    yield tmp_path
    assert {path.name for path in tmp_path.iterdir() if path.name != "cache"} == before
    assert not [path for path in tmp_path.rglob("*") if path.name.endswith(PARTIAL)]
    assert not [*(tmp_path / "temporary").iterdir()]


def start(folder: Path, code: str, *arguments: str, **environment: str) -> subprocess.Popen[str]:
    """Start a command, and wait until it says that it waits."""
    pytest.importorskip("pyarrow")
    known = {**os.environ, "TMPDIR": str(folder / "temporary"), **environment}
    process = subprocess.Popen([sys.executable, "-c", code, str(folder), *arguments], stdout=subprocess.PIPE, text=True,
                               stderr=subprocess.PIPE, cwd=folder, env=known)
    assert process.stderr is not None
    for line in process.stderr:
        if line == "waiting\n":
            break
    else:
        pytest.fail("the command has ended before it was asked to")
    return process


@pytest.mark.slow
@pytest.mark.parametrize(("name", "number"), [
    (name, number) for place, name in enumerate(COMMANDS) if name != "explore" and (FULL or name != "recommend")
    for number in (SIGNALS if FULL else SIGNALS[place % 3:][:1])
])
def test_a_command_that_is_ended_leaves_nothing(name: str, number: signal.Signals, folder: Path) -> None:
    """Some write no file but what they compile: that goes to a new cache.

    Each command but ``recommend``, which searches as ``scale`` does, meets one signal; `make oracle` tries every pair.
    """
    new_cache = {} if any("out." in word for word in COMMANDS[name]) else {"XDG_CACHE_HOME": str(folder / "cache")}
    process = start(folder, COMMAND + RUN, *COMMANDS[name], **new_cache)
    process.send_signal(number)
    out, err = process.communicate()
    words = "interrupted" if number == signal.SIGINT else f"ended by {number.name}"
    assert [line for line in err.splitlines() if line not in ("", "waiting")] == [words]
    assert (process.returncode, out) == (128 + number, "")


#: As above, but all processes of the page have work for an hour.
WORKING = COMMAND + r"""
from shardmath.commands.page import shares
def for_an_hour(asking, implementation):
    os.write(2, b"waiting\n")
    time.sleep(3600)
shares._share, os.cpu_count = for_an_hour, lambda: 2
"""


@pytest.mark.parametrize("to_all", [False, True], ids=["to the command", "to its processes too"])
def test_the_processes_of_the_page_end_with_it(to_all: bool, folder: Path) -> None:
    """Slurm and a terminal send a signal to all processes, ``kill`` to one; the output closes when all have ended."""
    if not sys.platform.startswith("linux"):
        pytest.skip("the page is written in one process there")
    process = start(folder, WORKING + RUN, "page", "llama-3.2-1b", "--only", "-o", "out.html")
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text(encoding="ascii").split()
    for number in [process.pid, *(map(int, children) if to_all else ())]:
        os.kill(number, signal.SIGTERM)
    out, err = process.communicate()
    assert {*err.splitlines()} - {"", "waiting"} == {"ended by SIGTERM"}
    assert (process.returncode, out) == (128 + signal.SIGTERM, "")


def test_a_process_of_the_page_that_is_killed_is_named(folder: Path) -> None:
    killed = WORKING.replace("time.sleep(3600)", "os.kill(os.getpid(), signal.SIGKILL)")
    process = start(folder, killed + RUN, "page", "llama-3.2-1b", "--only", "-o", "out.html")
    out, err = process.communicate()
    rule = "a process that derives formulas was ended from outside, perhaps for want of memory"
    assert {*err.splitlines()} - {"", "waiting"} == {f"error: page: {rule}"}
    assert (process.returncode, out) == (2, "")


#: As above, but ``explore`` waits in the middle of its space.
HALFWAY = COMMAND + """
os.fsync = fsync
from shardmath.search.nests.columns import ColumnNest
swept, begun = ColumnNest.swept, []
def slowly(*arguments):
    begun.append(arguments)
    if len(begun) > 5:
        wait_for_a_signal()
    return swept(*arguments)
ColumnNest.swept = slowly
"""


@pytest.mark.slow
@pytest.mark.parametrize(("number", "times"), [
    (signal.SIGINT, 1), (signal.SIGTERM, 3), (signal.SIGHUP, 1),
    *([(signal.SIGTERM, 1), (signal.SIGHUP, 3)] if FULL else []),
], ids=str)
def test_explore_answers_for_what_was_done(number: signal.Signals, times: int, folder: Path) -> None:
    """A shell and its terminal both send SIGHUP, and Slurm may send SIGTERM more than once."""
    process = start(folder, HALFWAY + RUN, *COMMANDS["explore"], "--json", "--threads", "1")
    for _ in range(times):
        process.send_signal(number)
    out, err = process.communicate()
    assert process.returncode == 128 + number, err
    import json

    found = json.loads(out)
    assert 0 < found["done"] < found["size"] == 4500
    assert not found["complete"]
    assert f"stopped: {found['done']:,} of 4,500 configurations are done" in err
    import pyarrow.parquet as pq

    assert pq.read_table(folder / "out.parquet").num_rows == found["rows"]
    (folder / "out.parquet").unlink()


def test_ctrl_c_pressed_again_ends_at_once(folder: Path) -> None:
    never = HALFWAY.replace("signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN", "not os.path.exists('go')")
    process = start(folder, never + """
real = signal.signal
def told(number, handler):
    real(number, handler)
    if number == signal.SIGINT and signal.getsignal(signal.SIGTERM) is signal.SIG_IGN:
        print("asked", file=sys.stderr, flush=True)
signal.signal = told
run()
""", *COMMANDS["explore"], "--threads", "1")
    process.send_signal(signal.SIGINT)
    assert process.stderr is not None
    while process.stderr.readline() != "asked\n":
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    (folder / "go").touch()  # the thread that has begun may end
    out, err = process.communicate()
    (folder / "go").unlink()
    assert (process.returncode, out) == (130, "")
    assert err.split()[-1] == "interrupted"


@pytest.mark.slow
def test_what_nohup_has_ignored_stays_ignored(folder: Path) -> None:
    ignoring = "signal.signal(signal.SIGHUP, signal.SIG_IGN)\n"
    waiting = COMMAND.replace("signal.getsignal(signal.SIGHUP)", "signal.getsignal(signal.SIGTERM)")
    process = start(folder, waiting + ignoring + RUN, *COMMANDS["sweep"])
    process.send_signal(signal.SIGHUP)
    process.send_signal(signal.SIGTERM)
    process.communicate()
    assert process.returncode == 128 + signal.SIGTERM
