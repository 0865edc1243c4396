"""The order in which a rank allocates and frees its tensors during a step, for each framework that is replayed."""
