"""Certificates of a search by branch and bound: written once, and checked with arithmetic of their own."""
