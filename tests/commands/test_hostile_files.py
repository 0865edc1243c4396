"""File systems and processes at their worst: a correct answer or one clear line, never a wrong or half file."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
import small_space

from shardmath import evaluate
from shardmath.account.anchor import anchored
from shardmath.account.time import as_cluster
from shardmath.cli.main import exit_code
from shardmath.commands.calibrate.files import read_runs
from shardmath.commands.explore.run import explore
from shardmath.errors import InputError
from shardmath.files import cached
from shardmath.files import writing as files
from shardmath.files.arrays import DamagedError, read_arrays, write_arrays
from shardmath.files.writing import PARTIAL, replacing, whole_file
from shardmath.formats import read
from shardmath.machines import read_cluster, write_cluster
from shardmath.models.model import Model
from shardmath.search.spaces import read_space

EXPLAIN = ["explain", "llama-3.1-8b", "--gpu", "h100-80gb", "--tp", "2"]
SWEEP = ["sweep", "llama-3.1-8b", "--gpu", "h100-80gb", "--num-gpus", "8", "--global-batch-size", "8"]
#: Every reader of a file with the end of its name.
READERS: dict[str, tuple[str, Callable[[Path], object]]] = {
    "config": (".json", Model.from_config), "script": (".sh", read), "flags": (".txt", read), "nemo": (".yaml", read),
    "torchtitan": (".toml", read), "space": (".toml", read_space), "space in YAML": (".yml", read_space),
    "cluster": (".toml", read_cluster), "measured run": (".json", anchored),
    "runs": (".csv", lambda path: read_runs(path, as_cluster("h100-80gb"))),
    "table": (".csv", lambda path: evaluate(path, "llama-3.1-8b", "h100-80gb").read_all()),
    "parquet": (".parquet", lambda path: evaluate(path, "llama-3.1-8b", "h100-80gb").read_all()),
    "arrow": (".arrow", lambda path: evaluate(path, "llama-3.1-8b", "h100-80gb").read_all()),
    "stream": (".arrows", lambda path: evaluate(path, "llama-3.1-8b", "h100-80gb").read_all()),
}
#: Bytes that are no file of any of these, and what the line must not need: much memory or time.
WRONG: dict[str, bytes] = {
    "empty": b"", "one zero": b"\0", "zeros": bytes(4096), "UTF-16": '{"a": 1}'.encode("utf-16"),
    "half a mark": b"\xef\xbb",
    "lone surrogate": b'{"a": "\xed\xa0\x80"}', "deep lists": b"[" * 30_000, "deep tables": b'{"a":' * 10_000,
    "deep keys": b"a." * 20_000 + b"a = 1", "deep flow": b"{a: " * 10_000, "deep dashes": b"- " * 20_000,
    "long number": b'{"hidden_size": ' + b"9" * 60_000 + b"}", "commas": b",,,\n,,,\n", "only lines": b"\n" * 60_000,
    "quote": b'"' + b"x" * 60_000, "laughs": b"a: &a [x,x]\nb: &b [*a,*a]\nc: &c [*b,*b]\nd: [*c,*c]\n",
    "merge": b"<<: {<<: {<<: 1}}\n", "object": b"!!python/object/apply:os.system ['touch canary']\n",
    "date": b"a: 0001-01-01T00:00:00+23:59\n", "escapes": b"\x1b]0;x\x07\x1b[31m", "CR": b"a\rb\rc",
    "heads without rows": b"model,num_gpus,step_seconds\n", "column \x93": b"num_gpus,\x93\n8,1\n",
}


@pytest.mark.slow
@pytest.mark.parametrize("content", WRONG)
@pytest.mark.parametrize("reader", READERS)
def test_what_is_no_file_of_its_kind_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reader: str, content: str
) -> None:
    suffix, read_it = READERS[reader]
    monkeypatch.chdir(tmp_path)
    path = tmp_path / f"input{suffix}"
    path.write_bytes(WRONG[content])
    try:
        read_it(path)
    except InputError as error:
        line = str(error)
    else:
        line = "" if reader == "table" else "\n"  # any text is a table, of columns that are passed through
    assert line.isprintable()
    assert [item.name for item in tmp_path.iterdir()] == [path.name]


@pytest.mark.parametrize("reader", READERS)
def test_what_is_no_regular_file_is_refused_at_once(tmp_path: Path, reader: str) -> None:
    suffix, read_it = READERS[reader]
    pipe, device, folder, nowhere, loop = (tmp_path / f"{name}{suffix}" for name in "pdfnl")
    os.mkfifo(pipe)
    device.symlink_to("/dev/zero")
    folder.mkdir()
    nowhere.symlink_to(tmp_path / "nothing")
    loop.symlink_to(loop)
    for path in (pipe, device, folder, nowhere, loop):
        with pytest.raises(InputError) as refused:
            read_it(path)
        assert str(refused.value).isprintable()


@pytest.mark.parametrize("reader", [name for name, (suffix, _) in READERS.items() if not suffix.startswith((".pa",
                                                                                                            ".ar"))])
def test_a_file_of_a_gigabyte_is_refused_by_its_size(tmp_path: Path, reader: str) -> None:
    suffix, read_it = READERS[reader]
    path = tmp_path / f"large{suffix}"
    with path.open("wb") as file:
        file.truncate(2**30)
    before, start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    with pytest.raises(InputError, match=r"at most \d+ bytes|that can be read"):
        read_it(path)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 2**17  # of KiB: an eighth of the file
    assert time.process_time() - start < 10


def test_names_that_look_alike_are_told_apart() -> None:
    with pytest.raises(InputError) as refused:
        Model.named("llаma-3.1-8b")  # with a Cyrillic letter
    assert "nearest legal: llama-3.1-8b" in str(refused.value)
    assert "\\u0430" in str(refused.value)
    with pytest.raises(InputError) as turned:
        Model.named("\u202ellama-3.1-8b")
    assert str(turned.value).isprintable()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["[red]x[/]", "[/x]", "a$\\frac$b", "<b>&amp;",
                                  "</script><img src=x onerror=alert(1)>", "\\", "%s{0}"])
def test_any_name_of_a_model_is_shown_as_it_is(tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / name.replace("/", "∕")
    folder.mkdir()
    path = folder / "config.json"
    path.write_text(json.dumps({
        "model_type": "llama", "hidden_size": 512, "intermediate_size": 1024, "num_hidden_layers": 2,
        "vocab_size": 1000,
        "num_attention_heads": 8, "max_position_embeddings": 8192, "tie_word_embeddings": False, "hidden_act": "silu",
    }))
    assert exit_code(["explain", str(path), "--gpu", "h100-80gb"]) == 0
    assert capsys.readouterr().out.startswith(f"{folder.name} on 1 x h100-80gb")
    plot = tmp_path / "plot.svg"
    assert exit_code(["scale", str(path), "--gpu", "h100-80gb", "--num-gpus", "8,16", "--global-batch-size", "16",
                      "--recompute", "none", "--tp", "1", "--plot", str(plot)]) == 0
    ElementTree.parse(plot)


# -- what is written -------------------------------------------------------------------------------------------------


@contextmanager
def full_disk() -> Iterator[None]:
    """No file may become longer than some bytes: what a disk does that is full. Nor may that of pytest's own output.

    Python before 3.13 would keep the compiled half of a module that it imports meanwhile, and fail by it ever after.
    """
    writes, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (64, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, before)
        sys.dont_write_bytecode = writes


#: Commands that write, each with its option and the file.
WRITERS: dict[str, list[str]] = {
    "csv": [*EXPLAIN, "--csv", "out.csv"], "layouts": [*SWEEP, "--csv", "out.csv"],
    "parquet": [*SWEEP, "--parquet", "out.parquet"],
    "rows": ["explore", "space.toml", "--rows", "out.parquet"], "rows as CSV": ["explore", "space.toml", "--rows",
                                                                                "out.csv"],
    "checkpoint": ["explore", "space.toml", "--checkpoint", "out"],
    "table": ["evaluate", "table.csv", "-o", "out.parquet", "--model", "llama-3.1-8b", "--gpu", "h100-80gb", "--set",
              "num_gpus=16", "--set", "global_batch_size=16"],
    "page": ["page", "-o", "out.html"],
    "plot": ["scale", "llama-3.1-8b", "--gpu", "h100-80gb", "--num-gpus", "8,16", "--global-batch-size", "16",
             "--recompute", "none", "--plot", "out.svg"],
}


@pytest.fixture
def inputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with what the commands read."""
    small_space.file_in(tmp_path)
    (tmp_path / "table.csv").write_text("data_parallel,tensor_parallel\n8,2\n4,4\n")
    monkeypatch.setattr("shardmath.commands.page.page", lambda *arguments: "<!doctype html>" + "x" * 10_000)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.slow
@pytest.mark.parametrize("writer", WRITERS)
def test_a_full_disk_is_one_line_and_leaves_nothing(
    inputs: Path, writer: str, capsys: pytest.CaptureFixture[str]
) -> None:
    before = sorted(path.name for path in inputs.iterdir())
    with warnings.catch_warnings(), full_disk():
        warnings.simplefilter("ignore")  # nothing can be kept in the cache either
        assert exit_code(WRITERS[writer]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: ")
    assert "File too large" in line
    assert sorted(path.name for path in inputs.iterdir()) == before


@pytest.mark.slow
@pytest.mark.parametrize("writer", WRITERS)
def test_what_is_no_file_is_not_written_over(inputs: Path, writer: str, capsys: pytest.CaptureFixture[str]) -> None:
    name = next(word for word in WRITERS[writer] if word.startswith("out"))
    os.mkfifo(inputs / name)
    assert exit_code(WRITERS[writer]) == 2
    assert "error: " in capsys.readouterr().err
    assert (inputs / name).is_fifo()
    (inputs / name).unlink()
    (inputs / name).mkdir()
    assert exit_code(WRITERS[writer]) == 2
    assert not [*(inputs / name).iterdir()]


def test_a_device_is_not_replaced(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code([*EXPLAIN, "--csv", "/dev/null"]) == 2
    assert "must be a regular file" in capsys.readouterr().err
    assert Path("/dev/null").is_char_device()


def test_a_link_is_followed_and_a_long_name_is_written(tmp_path: Path) -> None:
    target = tmp_path / ("ö" * 120)
    (tmp_path / "link").symlink_to(target)
    with whole_file("output", str(tmp_path / "link")) as file:
        file.write("text")  # type: ignore[call-overload]
    assert target.read_text() == "text"
    assert (tmp_path / "link").is_symlink()


@pytest.mark.parametrize("path", ["no/such/folder/x", "a\0b", "x" * 300])
def test_a_path_that_cannot_be_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match="output"), whole_file("output", path):
        pytest.fail("opened")
    assert not [*tmp_path.iterdir()]


KILLED = """
import os, sys, time
from pathlib import Path
from shardmath.files.writing import replacing
with replacing(Path(sys.argv[1])) as file:
    file.write(b"half")
    file.flush()
    print("half", flush=True)
    time.sleep(600)
"""


@pytest.mark.process
def test_a_kill_while_writing_leaves_the_old_file_and_is_cleaned_up(tmp_path: Path,
                                                                    monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "out.csv"
    target.write_text("old")
    processes = [
        subprocess.Popen([sys.executable, "-c", KILLED, str(target)], stdout=subprocess.PIPE,
                         text=True) for _ in range(2)
    ]
    for process in processes:
        assert process.stdout is not None
        process.stdout.readline()
    processes[0].kill()
    processes[0].communicate()
    assert target.read_text() == "old"
    halves = [path for path in tmp_path.iterdir() if path.name.endswith(PARTIAL)]
    assert len(halves) == 2
    monkeypatch.setattr(files, "_YOUNG", -1.0)
    with replacing(target) as file:
        file.write(b"new")
    assert target.read_text() == "new"
    (living,) = [path for path in tmp_path.iterdir() if path.name.endswith(PARTIAL)]  # of the one that still writes
    processes[1].kill()
    processes[1].communicate()
    with replacing(target) as file:
        file.write(b"newer")
    assert [path.name for path in tmp_path.iterdir()] == [target.name]
    assert not living.exists()


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [["models"], [*EXPLAIN, "--json"], [*EXPLAIN, "--csv", "-"], ["formula",
                                                                                                    "--list"]])
def test_output_that_nobody_reads_ends_quietly(arguments: list[str]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run([sys.executable, "-m", "shardmath", *arguments], stdout=writing, stderr=subprocess.PIPE,
                          check=False)
    os.close(writing)
    assert done.stderr == b""
    assert done.returncode == 1


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [["models"], [*EXPLAIN, "--json"]])
def test_a_full_device_behind_the_output_is_one_line(arguments: list[str]) -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run([sys.executable, "-m", "shardmath", *arguments], stdout=full, stderr=subprocess.PIPE,
                              check=False)
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert b"No space left on device" in done.stderr


def test_a_cluster_file_on_a_full_disk(tmp_path: Path) -> None:
    with full_disk(), pytest.raises(InputError, match=r"cluster = .*File too large"):
        write_cluster(as_cluster("h100-80gb").model_copy(update={"name": "x" * 500}), str(tmp_path / "own.toml"))
    assert not [*tmp_path.iterdir()]


# -- the cache -------------------------------------------------------------------------------------------------------

#: A module is made, a function of it compiled, and both are kept.
WORK = '''
import sys, warnings
warnings.showwarning = lambda message, *rest: print("warning:", message, file=sys.stderr)
import numpy as np
from shardmath.files.cached import cached_module
from shardmath.compiler.native.objects import native
TEXT = """
def total(numbers) -> int:
    found = 0
    for i in range(numbers.size):
        found += numbers[i]
    return found
"""
print(native(cached_module("modules", "total", lambda: TEXT), "total")(np.arange(10)))
'''


def work(code: str = WORK, user: int | None = None, **environment: str) -> subprocess.Popen[str]:
    kept = {name: value for name, value in os.environ.items() if name not in ("HOME", "XDG_CACHE_HOME", "PYTHONPATH")}
    return subprocess.Popen([sys.executable, "-c", code], env={**kept, **environment}, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, text=True, user=user)


@pytest.mark.slow
def test_without_a_cache_the_answer_is_the_same(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    process = work(HOME=str(tmp_path / "file"))
    out, err = process.communicate()
    assert out == "45\n"
    (line,) = err.splitlines()
    assert line.startswith("warning: nothing can be kept in ")


def test_a_user_without_a_home_keeps_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("platformdirs.user_cache_path", lambda name: Path("~/.cache") / name)
    cached._say_once.cache_clear()
    with pytest.warns(UserWarning, match="nothing can be kept in a cache: there is no home"):
        assert cached.cached_text("kind", "name", lambda: "text") == "text"
    assert cached.cached_text("kind", "name", lambda: "again") == "again"  # and says nothing more
    assert not [*tmp_path.iterdir()]


@pytest.mark.slow
def test_two_processes_fill_one_cache(tmp_path: Path) -> None:
    processes = [work(HOME=str(tmp_path)) for _ in range(2)]
    for process in processes:
        out, err = process.communicate()
        assert err == ""
        assert out == "45\n"
    assert not [path for path in tmp_path.rglob("*") if path.name.endswith(PARTIAL)]
    # Every file in it, damaged in turn, is made anew.
    kept = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert {path.suffix for path in kept} == {".py", ".o"}
    for path in kept:
        whole = path.read_bytes()
        path.write_bytes(whole[: len(whole) // 2])
    process = work(HOME=str(tmp_path))
    out, err = process.communicate()
    assert out == "45\n"
    assert err.count("is damaged, and is made anew") == len(err.splitlines()) == len(kept)


DAMAGE: dict[str, Callable[[bytes, bytes], bytes]] = {
    "cut": lambda own, other: own[:-1], "longer": lambda own, other: own + b"\n", "empty": lambda own, other: b"",
    "another file": lambda own, other: other, "no seal": lambda own, other: own.split(b"\n", 1)[1],
    "changed": lambda own, other: own.replace(b"1", b"2"), "zeros": lambda own, other: bytes(len(own)),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_no_damaged_file_of_the_cache_is_executed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: str) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    name = f"of_{damage.replace(' ', '_')}"
    text = "VALUE = 1\n"
    cached.keep("modules", f"{name}.py", text.encode())
    cached.keep("modules", "other.py", b"VALUE = 1\nraise SystemExit('executed')\n")
    own, other = (tmp_path / "shardmath" / cached.versions() / "modules" / f"{file}.py" for file in (name, "other"))
    own.write_bytes(DAMAGE[damage](own.read_bytes(), other.read_bytes()))
    with pytest.warns(UserWarning, match="is damaged, and is made anew"):
        module = cached.cached_module("modules", name, lambda: text)
    assert module.VALUE == 1
    assert cached.source_of(module) == text
    assert cached.kept("modules", f"{name}.py") == text.encode()
    assert not [*tmp_path.rglob("*.pyc")]


def test_a_pipe_or_a_stranger_in_the_cache_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    cached.keep("kind", "own", b"text")
    path = tmp_path / "shardmath" / cached.versions() / "kind" / "own"
    os.mkfifo(path.with_name("pipe"))
    with pytest.warns(UserWarning, match="pipe is no regular file: nothing is read from it"):
        assert cached.kept("kind", "pipe") is None
    if path.stat().st_uid:
        monkeypatch.setattr(os, "geteuid", lambda: path.stat().st_uid + 1)
        with pytest.warns(UserWarning, match="belongs to another user: nothing is read from it"):
            assert cached.kept("kind", "own") is None


@pytest.mark.parametrize("changed", ["cut", "flipped", "text", "empty", "pipe"])
def test_arrays_come_back_exactly_or_not_at_all(tmp_path: Path, changed: str) -> None:
    path, arrays = tmp_path / "arrays", {"a": np.arange(6).reshape(2, 3), "b": np.array("text"), "c": np.zeros((0, 4))}
    with path.open("wb") as file:
        write_arrays(file, arrays)
    found = read_arrays(path)
    assert {name: array.tolist() for name, array in found.items()} == {name: item.tolist() for name,
                                                                       item in arrays.items()}
    whole = path.read_bytes()
    if changed == "pipe":
        path.unlink()
        os.mkfifo(path)
    else:
        place = whole.index(b"text"[:1], len(whole) // 3)
        path.write_bytes({"cut": whole[:-30], "flipped": whole[:place] + b"T" + whole[place + 1:], "text": b"PK",
                          "empty": b""}[changed])
    with pytest.raises(DamagedError):
        read_arrays(path)


@pytest.mark.slow
def test_a_folder_with_files_of_others_is_left_alone(tmp_path: Path) -> None:
    folder = tmp_path / "state.rows"
    folder.mkdir()
    (folder / "thesis.tex").write_text("years of work")
    with pytest.raises(InputError, match=r"thesis\.tex is none of them"):
        explore(small_space.space(), rows=tmp_path / "rows.csv", checkpoint=tmp_path / "state")
    assert (folder / "thesis.tex").read_text() == "years of work"
