"""Losses, and what a head keeps for them."""
