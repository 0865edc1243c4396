"""Branch and bound: the best of a space and its front, by bounds of whole boxes of configurations."""
