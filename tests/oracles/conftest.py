"""Random cases for every test of this folder: how many, and from which seed; and what the folder needs.

``ORACLES=full`` runs the second number of the marker ``cases(fast, full)``, anything else the first.
``ORACLES_SEED`` (default 0) starts other random numbers; the name of a test says which case it is, so the
same seed and name give the same case again.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from random import Random
from typing import Any

import pytest
from oracles.extent import FULL, SEED, cases

FOLDER = Path(__file__).parent
MISSING = [library for library in ("torch", "transformers", "megatron") if find_spec(library) is None]

# The libraries under count warn of missing GPUs and kernels; that is known.
QUIET = pytest.mark.filterwarnings("ignore")

# Functions that Megatron-Core compiles for a GPU run as written here; they save the same tensors.
os.environ.setdefault("TORCHDYNAMO_DISABLE", "1")
# One test process per core.
os.environ.setdefault("OMP_NUM_THREADS", "1")

if not MISSING:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Megatron-Core warns of missing kernels when it is imported
        for module in ("models.gpt.gpt_layer_specs", "models.gpt.gpt_model", "pipeline_parallel", "optimizer"):
            import_module(f"megatron.core.{module}")


class Skipped(pytest.Module):
    """A file of tests that cannot be imported without the libraries whose bytes it counts."""

    def collect(self) -> Iterator[pytest.Item]:
        """Skip them all, and say why."""
        pytest.skip(f"without {', '.join(MISSING)} nothing is counted; `make oracle` installs them")


def pytest_pycollect_makemodule(module_path: Path, parent: Any) -> pytest.Module | None:
    return Skipped.from_parent(parent, path=module_path) if MISSING else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if FOLDER in item.path.parents:
            item.add_marker(pytest.mark.oracle)
            item.add_marker(QUIET)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "draw" in metafunc.fixturenames:
        number = cases(metafunc.function)
        metafunc.parametrize("draw", range(number), indirect=True, ids=lambda case: f"case{case}")


@pytest.fixture
def draw(request: pytest.FixtureRequest, record_property: Any) -> Random:
    """The random numbers of one case."""
    record_property("cases", 1)
    return Random(f"{SEED} {request.node.originalname} {request.param}")


@pytest.fixture
def draws(request: pytest.FixtureRequest, record_property: Any) -> list[Random]:
    """The random numbers of all cases, for tests that cost more to start than to run."""
    number = cases(request.function)
    record_property("cases", number)
    return [Random(f"{SEED} {request.node.name} {case}") for case in range(number)]


@pytest.fixture
def compiler(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """PyTorch's compiler, which the other tests of this folder run without."""
    dynamo = import_module("torch._dynamo")
    monkeypatch.delenv("TORCHDYNAMO_DISABLE", raising=False)
    dynamo.reset()
    with dynamo.config.patch(disable=False):
        yield
    dynamo.reset()


@pytest.fixture
def world() -> Iterator[Callable[[int], None]]:
    """A function that plays all ranks but the first, which is this process."""
    dist, fake = (import_module(f"torch.{name}") for name in ("distributed", "testing._internal.distributed.fake_pg"))
    yield lambda ranks: dist.init_process_group("fake", store=fake.FakeStore(), rank=0, world_size=ranks)
    dist.destroy_process_group()


def pytest_terminal_summary(terminalreporter: Any) -> None:
    passed = terminalreporter.stats.get("passed", [])
    number = sum(value for report in passed for name, value in report.user_properties if name == "cases")
    if number:
        extent = "full" if FULL else "fast"
        terminalreporter.write_line(f"{number} random cases equal to what was counted live ({extent}, seed {SEED})")
