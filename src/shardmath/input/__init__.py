"""Values that people hand in: types, ranges and names are checked here, once."""
