"""Job configurations of torchtitan, TOML and Python: read as runs, and written."""
