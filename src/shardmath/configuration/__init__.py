"""One training run: its job, its layout and its kernels, with defaults, each value checked."""
