"""The evaluator of columns: its formulas as a graph, made cheap for a loop over rows, in which divisions cost most."""
