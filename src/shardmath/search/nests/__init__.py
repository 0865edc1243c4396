"""Sweep the configurations of spaces with compiled nests: answers merged as they come, stopped and resumed."""
