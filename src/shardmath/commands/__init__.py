"""One room for each command, called like it: its question, its answer, its report.

The functions ``shardmath.explain`` and so on have the same names, so the rooms stand here and not beside them.
"""
