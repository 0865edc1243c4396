"""Flags of Megatron-LM, and of ms-swift over it: read as a run, and written."""
