"""Published measurements of memory, read into one form, and what shardmath predicts of them."""
