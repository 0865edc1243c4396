"""Layers as the operations of their forward passes, and what autograd makes and frees in their backward passes."""
