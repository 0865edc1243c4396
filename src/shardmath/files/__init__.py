"""Files: read within bounds, written whole or not at all, and kept in a cache that nobody else can write."""
