"""PyTorch's caching allocator for CUDA: which memory it reserves for a sequence of allocations and frees."""
