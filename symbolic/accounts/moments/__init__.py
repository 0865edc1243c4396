"""Sizes of what is alive beside saved tensors at the moments of a step, one file for each program that has some."""
