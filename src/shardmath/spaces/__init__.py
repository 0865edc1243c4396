"""Spaces of configurations: axes, derived symbols, fixed values, constraints and what to ask of them."""
