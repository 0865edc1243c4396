"""What all tests share: the profile of Hypothesis, and plain text as wide as it is for a file."""

import os

from hypothesis import HealthCheck, settings

# pytest-xdist sets it for its workers.
os.environ.pop("COLUMNS", None)

#: Health checks and deadlines that read a clock: a busy machine would fail them without a wrong value.
_CLOCKS = (HealthCheck.too_slow, HealthCheck.data_too_large)

# `make test` draws the same cases on every machine and every time; `make oracle` draws new ones.
settings.register_profile("fixed", derandomize=True, deadline=None, suppress_health_check=_CLOCKS, print_blob=True)
settings.register_profile("drawn", deadline=None, suppress_health_check=_CLOCKS, print_blob=True)
settings.load_profile("drawn" if os.environ.get("ORACLES") == "full" else "fixed")
