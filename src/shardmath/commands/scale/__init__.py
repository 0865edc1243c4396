"""One model over many GPUs: the best layout at each size, and what becomes of throughput, energy and cost."""

from shardmath.commands.scale.run import Point, ProgressOf, Scaling, scale

__all__ = ["Point", "ProgressOf", "Scaling", "scale"]
