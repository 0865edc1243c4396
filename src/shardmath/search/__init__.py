"""One search for all who search: the layouts that an implementation offers for a job, and the best of them."""
