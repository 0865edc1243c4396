"""JSON Schema of every document of ``--json``, made from classes that describe each field."""

from __future__ import annotations

from shardmath.schemas.documents import DOCUMENTS, document_of, schema
from shardmath.schemas.markdown import markdown

__all__ = ["DOCUMENTS", "document_of", "markdown", "schema"]
