"""Bash scripts and Python files that are read, never run, and the commands that they would start."""
