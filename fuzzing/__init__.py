"""Inputs that nobody would write for everything that reads a file, a name or an option: `python -m fuzzing.run`."""
