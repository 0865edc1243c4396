"""What ``--json`` prints: the JSON Schema of every document, made from classes that say what each field means."""

from __future__ import annotations

from shardmath.schemas.documents import DOCUMENTS, document_of, schema
from shardmath.schemas.markdown import markdown

__all__ = ["DOCUMENTS", "document_of", "markdown", "schema"]
