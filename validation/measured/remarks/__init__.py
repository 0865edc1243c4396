"""Sentences about the tables, made from their numbers and checked against them."""
