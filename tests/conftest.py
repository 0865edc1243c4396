"""What all tests share: the profile of Hypothesis, and plain text as wide as it is for a file."""

import os

from hypothesis import HealthCheck, settings

# pytest-xdist sets it for its workers.
os.environ.pop("COLUMNS", None)

#: Health checks that no test should fail by: one reads a clock, and random nests may outgrow the other.
_LEFT_OUT = (HealthCheck.too_slow, HealthCheck.data_too_large)

# `make test` draws the same cases on every machine and every time; `make oracle` draws new ones.
settings.register_profile("fixed", derandomize=True, deadline=None, suppress_health_check=_LEFT_OUT, print_blob=True)
settings.register_profile("drawn", deadline=None, suppress_health_check=_LEFT_OUT, print_blob=True)
settings.load_profile("drawn" if os.environ.get("ORACLES") == "full" else "fixed")
