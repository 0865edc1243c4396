"""Shared by all tests: the profile of Hypothesis, plain text as wide as for a file, and the limits of the quick lane.

A test without one of the markers ``slow``, ``process``, ``oracle``, ``latex`` and ``browser`` belongs to the quick
lane. It starts no process, imports no library that counts for the oracles, and needs nothing that is derived or
compiled into the user's cache: it is refused all that, in whatever lane it runs.
"""

import gc
import os
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from shardmath.files.cached import user_folder

# Thousands of tests and SymPy's expressions are objects that stay: to look through them over and over for garbage is a
# tenth and more of the time of the tests.
# A replay leaves circles of blocks, of which a worker held more than ten GB with 50 in place of 10.
gc.set_threshold(50_000, 20, 10)

# pytest-xdist sets it for its workers.
os.environ.pop("COLUMNS", None)
# Nothing is measured on the machine that tests run on: no test depends on a clock.
os.environ["SHARDMATH_OPTIONS"] = "usual"

#: Health checks that no test should fail by: one reads a clock, and random nests may outgrow the other.
_LEFT_OUT = (HealthCheck.too_slow, HealthCheck.data_too_large)

# `make test` draws a few cases, the same on every machine and every time; `make oracle` draws new ones, and more.
settings.register_profile("fixed", derandomize=True, max_examples=40, deadline=None, suppress_health_check=_LEFT_OUT,
                          print_blob=True)
settings.register_profile("drawn", max_examples=100, deadline=None, suppress_health_check=_LEFT_OUT, print_blob=True)
settings.load_profile("drawn" if os.environ.get("ORACLES") == "full" else "fixed")

#: Markers of the tests that `make quick` leaves out.
HEAVY = ("slow", "process", "oracle", "latex", "browser")
#: Audit events of Python by which a process starts.
STARTS = frozenset(("subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.system", "os.exec"))
#: Libraries that count bytes for the oracles, or draw pages.
LIBRARIES = frozenset(("torch", "transformers", "megatron", "playwright"))
#: The folder of what is derived and compiled; tests of the cache itself have one of their own.
CACHE = str(user_folder())


class _Guard:
    """Refuses processes, heavy libraries and the user's cache while a test of the quick lane runs in this process."""

    def __init__(self) -> None:
        self.test = ""
        self.process = os.getpid()

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self.test or os.getpid() != self.process:
            return
        if event in STARTS:
            raise RuntimeError(f"{self.test} starts a process: mark it with pytest.mark.process")
        if event == "import" and arguments[0] in LIBRARIES:
            raise RuntimeError(f"{self.test} imports {arguments[0]}: mark it with pytest.mark.slow")
        if event == "open" and str(arguments[0]).startswith(CACHE):
            raise RuntimeError(f"{self.test} needs what is derived or compiled: mark it with pytest.mark.slow")


GUARD = _Guard()
sys.addaudithook(GUARD)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--quick", action="store_true", help="run the quick lane: no test that has one of the markers "
                     f"{', '.join(HEAVY)}")


def pytest_configure(config: pytest.Config) -> None:
    """Let measured runs with 16 or 32 tensor-parallel ranks have nodes as large without a warning."""
    config.addinivalue_line("filterwarnings", "ignore:node_size = .*links of")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not even import a file of which every test is left out: its ``pytestmark`` says so."""
    if not config.getoption("--quick"):
        return None
    if collection_path.is_dir():
        return collection_path.name in ("oracles", "browser") or None
    if collection_path.suffix != ".py":
        return None
    text = collection_path.read_text(encoding="utf-8")
    return any(f"\npytestmark = pytest.mark.{marker}\n" in text for marker in HEAVY) or None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--quick"):
        heavy = [item for item in items if is_heavy(item)]
        config.hook.pytest_deselected(items=heavy)
        items[:] = [item for item in items if not is_heavy(item)]


def pytest_collection_finish() -> None:
    gc.freeze()


def is_heavy(item: pytest.Item) -> bool:
    """True of a test that the quick lane leaves out."""
    return any(item.get_closest_marker(marker) for marker in HEAVY)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    GUARD.test = "" if is_heavy(item) else item.nodeid
    try:
        return (yield)
    finally:
        GUARD.test = ""


def pytest_sessionfinish() -> None:
    if os.environ.get("COUNTED_ROWS"):
        import_module("oracles.instruments.traced").write()
