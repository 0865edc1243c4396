"""Loop nests over declared spaces: every value at the outermost loop that it depends on."""
