"""Published measurements of step time, and what shardmath predicts of them."""
