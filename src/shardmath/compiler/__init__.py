"""Formulas as compiled code: evaluators for kernel choices, loops as machine code, and columns in aligned memory."""
