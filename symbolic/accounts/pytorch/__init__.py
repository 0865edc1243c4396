"""PyTorch's own training step: gradients, FSDP2's units and streams, pipelines, and temporaries."""
