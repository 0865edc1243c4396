"""Replay the allocations of training steps, made from the ledger's rows, through PyTorch's caching allocator."""
