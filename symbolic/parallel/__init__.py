"""Sharding rules of each parallel dimension, and the conditions of legal layouts."""
