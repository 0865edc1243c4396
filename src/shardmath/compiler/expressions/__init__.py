"""Expressions as a graph without SymPy: read, bounded, compared, made smaller, and computed on arrays."""
