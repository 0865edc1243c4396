"""JSON Schema of every document of ``--json``, made from the classes of the answers."""

from __future__ import annotations

from shardmath.schemas.documents import DOCUMENTS, schema
from shardmath.schemas.markdown import markdown

__all__ = ["DOCUMENTS", "markdown", "schema"]
