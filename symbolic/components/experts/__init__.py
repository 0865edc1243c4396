"""Experts: router, dispatch, grouped and shared experts, and adapters of them."""
