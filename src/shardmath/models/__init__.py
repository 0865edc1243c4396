"""Models by name and from the ``config.json`` of Hugging Face: their dimensions, and the rules that these keep."""

from __future__ import annotations

from shardmath.models.model import Model, load_model

__all__ = ["Model", "load_model"]
