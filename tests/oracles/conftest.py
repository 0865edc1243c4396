"""Random cases for every test of this folder: how many, and from which seed.

``ORACLES=full`` runs the second number of the marker ``cases(fast, full)``, anything else the first.
``ORACLES_SEED`` (default 0) starts other random numbers; the name of a test says which case it is, so the
same seed and name give the same case again.
"""

from __future__ import annotations

import os
from pathlib import Path
from random import Random

import pytest
from oracles.extent import FULL, SEED

FOLDER = Path(__file__).parent

# The libraries under count warn of missing GPUs and kernels; that is known.
QUIET = pytest.mark.filterwarnings("ignore")

# What Megatron-Core compiles for a GPU runs as written here; the tensors that it saves are the same.
os.environ.setdefault("TORCHDYNAMO_DISABLE", "1")
# One test process per core.
os.environ.setdefault("OMP_NUM_THREADS", "1")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if FOLDER in item.path.parents:
            item.add_marker(pytest.mark.oracle)
            item.add_marker(QUIET)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "draw" in metafunc.fixturenames:
        marker = metafunc.definition.get_closest_marker("cases")
        assert marker is not None, "a test that draws says how many cases it wants: cases(fast, full)"
        fast, full = marker.args
        metafunc.parametrize("draw", range(full if FULL else fast), indirect=True, ids=lambda number: f"case{number}")


@pytest.fixture
def draw(request: pytest.FixtureRequest) -> Random:
    """The random numbers of one case."""
    return Random(f"{SEED} {request.node.originalname} {request.param}")
