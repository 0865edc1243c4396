"""What all tests share: plain text is as wide as it is for a file, whatever started the tests."""

import os

# pytest-xdist sets it for its workers.
os.environ.pop("COLUMNS", None)
