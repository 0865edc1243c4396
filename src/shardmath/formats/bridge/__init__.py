"""Recipes of Megatron-Bridge in Python: followed, never run, and written."""
