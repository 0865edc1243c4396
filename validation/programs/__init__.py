"""Programs that measure on a GPU, and need none of this project."""
