"""The memory and the time of one configuration, row by row."""
