"""Generated loops in plain Python, compiled to the processor's code by LLVM, and kept in the user's cache."""
