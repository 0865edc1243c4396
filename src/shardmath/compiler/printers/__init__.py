"""Plans as source text, in Python for LLVM, Numba and CUDA, and in C."""
