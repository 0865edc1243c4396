"""The cache of a user: nobody else can write there what is executed later, and no two versions share a file."""

from __future__ import annotations

import hashlib
import marshal
import os
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from shardmath.files import cached, trimming
from shardmath.files.private import UnsafeError, check_folder
from shardmath.files.trimming import trim
from shardmath.files.writing import PARTIAL, replacing

OWN, INJECTED = "VALUE = 1\n", "VALUE = 2\n"
#: Accounts of nobody: the group that a shared folder belongs to, and a user of it.
GROUP, STRANGER = 54321, 54322
#: Load a module from the cache, and print its value.
LOAD = """
import sys, warnings
warnings.showwarning = lambda message, *rest: print(message, file=sys.stderr)
from shardmath.files.cached import cached_module
print(cached_module("modules", "own", lambda: "VALUE = 1\\n").VALUE)
"""
as_root = pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can be another user")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where modules are kept, in a cache of its own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    cached._say_once.cache_clear()
    yield tmp_path / "cache" / "shardmath" / cached.versions() / "modules"
    sys.modules.pop("shardmath_modules_own", None)


def load(folder: Path, umask: int = 0o022) -> tuple[str, list[str]]:
    """What a new process prints that loads the module."""
    done = subprocess.run([sys.executable, "-c", LOAD], umask=umask, capture_output=True, text=True, check=True)
    return done.stdout.strip(), done.stderr.splitlines()


def sealed(text: str) -> bytes:
    """A file as this program writes it: everybody can compute the digest."""
    return cached._seal("modules", "own.py", text.encode()) + text.encode()


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.process
@pytest.mark.parametrize("umask", [0o000, 0o002, 0o022, 0o077])
def test_folders_and_files_are_the_users_alone(folder: Path, umask: int) -> None:
    assert load(folder, umask) == ("1", [])
    every = [folder.parents[2], *folder.parents[2].rglob("*")]
    assert {path.suffix for path in every if path.is_file()} == {".py"}
    assert {(path.is_dir(), mode(path)) for path in every} == {(True, 0o700), (False, 0o600)}


@pytest.mark.process
@as_root
def test_a_user_of_the_same_group_injects_nothing(folder: Path) -> None:
    """With umask 002 and a shared folder, as it was: the member rewrites a file in place, digest and all."""
    assert load(folder) == ("1", [])
    kept = folder / "own.py"
    for path in (folder.parents[2], folder.parents[1], folder.parent, folder, kept):
        os.chown(path, -1, GROUP)
        path.chmod(0o2775 if path.is_dir() else 0o664)
    for path in kept.parents:
        if not path.stat().st_mode & stat.S_IXOTH:
            path.chmod(mode(path) | stat.S_IXOTH)  # pytest's folders are closed
    subprocess.run(["/bin/sh", "-c", 'cat >"$1"', "attack", str(kept)], input=sealed(INJECTED), check=True,
                   user=STRANGER, group=GROUP, extra_groups=[])
    assert kept.read_bytes() == sealed(INJECTED)
    value, warned = load(folder)
    assert value == "1"
    assert warned == [f"{folder.parents[2]} may be written by other users; chmod go-w it, or set XDG_CACHE_HOME: "
                      "nothing is read from it", f"{folder.parents[2]} may be written by other users; chmod go-w it, "
                      "or set XDG_CACHE_HOME: nothing is kept in it"]
    for path in (folder.parents[2], folder.parents[1], folder.parent, folder):
        path.chmod(0o700)
    value, warned = load(folder)
    assert (value, warned) == ("1", [f"{kept} may be written by other users: nothing is read from it"])
    assert (kept.read_bytes(), mode(kept)) == (sealed(OWN), 0o600)
    assert load(folder) == ("1", [])


@pytest.mark.process
@as_root
@pytest.mark.parametrize("place", ["file", "folder", "above"])
def test_what_belongs_to_another_user_is_not_read(folder: Path, place: str) -> None:
    cached.keep("modules", "own.py", INJECTED.encode())
    path = {"file": folder / "own.py", "folder": folder, "above": folder.parents[2]}[place]
    os.chown(path, STRANGER, GROUP)
    assert load(folder)[1][0] == f"{path} belongs to another user: nothing is read from it"
    assert load(folder)[0] == "1"


@pytest.mark.parametrize("depth", range(5))
@pytest.mark.parametrize("bit", [stat.S_IWGRP, stat.S_IWOTH])
def test_a_folder_that_others_may_write_is_refused(folder: Path, depth: int, bit: int) -> None:
    cached.keep("modules", "own.py", INJECTED.encode())
    path = (folder, *folder.parents)[depth]
    path.chmod(mode(path) | bit)
    with pytest.raises(UnsafeError, match="may be written by other users") as refused:
        check_folder(folder)
    assert refused.value.filename == str(path)
    with pytest.warns(UserWarning, match="nothing is read from it"):
        assert cached.kept("modules", "own.py") is None
    with pytest.warns(UserWarning, match="nothing is kept in it"):
        cached.keep("modules", "own.py", OWN.encode())
    assert (folder / "own.py").read_bytes() == sealed(INJECTED)
    path.chmod(mode(path) | stat.S_ISVTX)  # as /tmp: others can neither rename nor remove what is the user's
    assert cached.kept("modules", "own.py") == INJECTED.encode()


@pytest.mark.parametrize("bit", [stat.S_IWGRP, stat.S_IWOTH])
def test_a_file_that_others_may_write_is_made_anew(folder: Path, bit: int) -> None:
    cached.keep("modules", "own.py", INJECTED.encode())
    (folder / "own.py").chmod(0o600 | bit)
    with pytest.warns(UserWarning, match=r"own\.py may be written by other users: nothing is read from it"):
        assert cached.cached_module("modules", "own", lambda: OWN).VALUE == 1
    assert mode(folder / "own.py") == 0o600


def test_no_link_is_followed_to_a_file(folder: Path, tmp_path: Path) -> None:
    cached.keep("modules", "own.py", INJECTED.encode())
    (folder / "own.py").rename(tmp_path / "elsewhere")
    (folder / "own.py").symlink_to(tmp_path / "elsewhere")
    assert cached.cached_module("modules", "own", lambda: OWN).VALUE == 1
    assert not (folder / "own.py").is_symlink()
    assert (tmp_path / "elsewhere").read_bytes() == sealed(INJECTED)


def test_links_above_are_followed_and_their_folders_checked(folder: Path, tmp_path: Path) -> None:
    cached.keep("modules", "own.py", INJECTED.encode())
    scratch = tmp_path / "scratch" / "deep"
    scratch.parent.mkdir()
    (tmp_path / "cache").rename(scratch)
    (tmp_path / "cache").symlink_to(Path("scratch", "..", "scratch", "deep"))
    assert cached.kept("modules", "own.py") == INJECTED.encode()
    scratch.parent.chmod(0o777)
    with pytest.raises(UnsafeError) as refused:
        check_folder(folder)
    assert refused.value.filename == str(scratch.parent)
    (tmp_path / "cache").unlink()
    (tmp_path / "cache").symlink_to("cache")
    with pytest.raises(OSError, match="symbolic links"):
        check_folder(folder)


@pytest.mark.parametrize("changed", ["python", "shardmath", *cached._LIBRARIES])
def test_every_version_has_files_of_its_own(folder: Path, changed: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import importlib.metadata

    version = importlib.metadata.version
    cached.keep("modules", "own.py", INJECTED.encode())
    cached.versions.cache_clear()
    with monkeypatch.context() as patch:
        if changed == "python":
            patch.setattr(sys, "version", "3.11.99")
        elif changed == "shardmath":
            patch.setattr(cached, "__version__", "99")
        else:
            patch.setattr(importlib.metadata, "version", lambda name: "99" if name == changed else version(name))
        assert cached.kept("modules", "own.py") is None
        assert cached.versions() != folder.parent.name
    cached.versions.cache_clear()
    assert cached.kept("modules", "own.py") == INJECTED.encode()


UMASK = """
import os, sys, threading
from pathlib import Path
from shardmath.files.writing import replacing
def write(number):
    for turn in range(100):
        with replacing(Path(sys.argv[1], f"{number}-{turn}")) as file:
            file.write(b"text")
os.fsync = lambda handle: None
sys.setswitchinterval(1e-6)
threads = [threading.Thread(target=write, args=(number,)) for number in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(oct(os.umask(0)))
"""


@pytest.mark.process
def test_threads_that_write_leave_the_umask_alone(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", UMASK, str(tmp_path)], umask=0o027, capture_output=True, text=True,
                          check=True)
    assert done.stdout == "0o27\n"
    assert [mode(path) for path in tmp_path.iterdir()] == [0o640] * 800


def test_nothing_changes_the_umask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "umask", lambda mask: pytest.fail("a thread beside this one would see it"))
    with replacing(tmp_path / "file") as file:
        file.write(b"text")


def test_unfinished_files_of_one_name_do_not_meet(tmp_path: Path) -> None:
    begun = threading.Barrier(2)

    def write(text: bytes) -> None:
        with replacing(tmp_path / "file") as file:
            begun.wait()
            file.write(text)

    threads = [threading.Thread(target=write, args=(text * 9,)) for text in (b"a", b"b")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (tmp_path / "file").read_bytes() in (b"a" * 9, b"b" * 9)
    assert not [path for path in tmp_path.iterdir() if path.name.endswith(PARTIAL)]


def filled(top: Path, files: dict[str, tuple[int, float]]) -> None:
    """Write files of so many bytes that were used so many days ago."""
    for name, (size, days) in files.items():
        path = top / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(bytes(size))
        os.utime(path, (time.time() - days * 86_400,) * 2)


def left(top: Path) -> set[str]:
    return {str(path.relative_to(top)) for path in top.rglob("*") if not path.is_dir() or path.is_symlink()}


def test_files_that_nothing_uses_go_and_folders_with_them(tmp_path: Path) -> None:
    """Of all versions, but neither links, nor what they lead to, nor what is being written."""
    top, outside = tmp_path / "cache", tmp_path / "outside"
    filled(top, {"one/bounds/a.bin": (9, 91), "one/objects/b.o": (9, 91), "two/objects/c.o": (9, 89),
                 f"two/objects/.d{PARTIAL}": (9, 91), "two/new.py": (9, 91)})
    filled(outside, {"e.bin": (9, 91)})
    (top / "two/linked").symlink_to(outside)
    (top / "two/link.bin").symlink_to(outside / "e.bin")
    trim(top, top / "two/new.py")
    assert left(top) == {"two/objects/c.o", f"two/objects/.d{PARTIAL}", "two/new.py", "two/linked", "two/link.bin"}
    assert not (top / "one").exists()
    assert (outside / "e.bin").exists()


def test_what_was_used_longest_ago_goes_until_the_rest_has_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(trimming, "LARGEST", 100)
    filled(tmp_path, {"a": (40, 3), "b": (40, 4), "c": (40, 1), "d": (20, 2), "new": (30, 5)})
    trim(tmp_path, tmp_path / "new")
    assert left(tmp_path) == {"c", "d", "new"}


def test_a_cache_of_another_user_is_not_trimmed(tmp_path: Path) -> None:
    top = tmp_path / "cache"
    filled(top, {"a": (9, 99)})
    top.chmod(0o777)
    trim(top, top / "new")
    assert left(top) == {"a"}


def test_a_use_is_noted_and_the_first_file_that_a_process_keeps_bounds_the_cache(
    folder: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cached, "_trimmed", set())
    old, used = folder / "old.py", folder / "own.py"
    cached.keep("modules", "own.py", OWN.encode())
    filled(folder, {"old.py": (9, 99)})
    os.utime(used, (time.time() - 80 * 86_400,) * 2)
    assert cached.kept("modules", "own.py") == OWN.encode()
    assert used.stat().st_mtime > time.time() - 86_400
    cached.keep("modules", "second.py", OWN.encode())
    assert old.exists()
    cached._trimmed.clear()  # another process
    cached.keep("modules", "third.py", OWN.encode())
    assert {path.name for path in folder.iterdir()} == {"own.py", "second.py", "third.py"}


def test_compiled_text_is_kept_for_that_text_alone(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A short module is compiled at each start; of a long one what is kept is run, and for no other text."""
    assert cached.cached_module("modules", "own", lambda: OWN).VALUE == 1
    assert not (folder / "own.code").exists()
    monkeypatch.setattr(cached, "_LONG", 1)
    values = []
    for text in (OWN, OWN, INJECTED):
        sys.modules.pop("shardmath_modules_own")
        cached.keep("modules", "own.py", text.encode())
        values.append(cached.cached_module("modules", "own", lambda: OWN).VALUE)
    assert values == [1, 1, 2]
    content = cached.kept("modules", "own.code")
    assert content is not None
    assert content.startswith(hashlib.sha256(INJECTED.encode()).digest())
    cached.keep("modules", "own.code", content[:32] + marshal.dumps(compile("VALUE = 3", "own.py", "exec")))
    sys.modules.pop("shardmath_modules_own")
    assert cached.cached_module("modules", "own", lambda: OWN).VALUE == 3  # it is what runs
    (folder / "own.code").chmod(0o666)
    sys.modules.pop("shardmath_modules_own")
    with pytest.warns(UserWarning, match=r"own\.code may be written by other users: nothing is read from it"):
        assert cached.cached_module("modules", "own", lambda: OWN).VALUE == 2
