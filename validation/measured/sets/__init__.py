"""Tables of measured runs: each read as cases, with what its source says of them."""
