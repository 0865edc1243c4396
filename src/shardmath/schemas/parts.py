"""Parts of all documents: objects without further fields, in which every field is required."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from shardmath.account.time import StepTime
from shardmath.machines import Cluster
from shardmath.machines.gpu import Gpu
from shardmath.models.model import Model
from shardmath.search.layout import Layout

__all__ = ["Amount", "Cluster", "Gpu", "Label", "Layout", "Model", "Part", "StepTime"]

#: An integer where the number is whole.
Amount = int | float
#: A size, or the name of a mode or of an option.
Label = int | str


class Part(BaseModel):
    """An object of a document. The texts behind its fields say what they mean."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True, protected_namespaces=())
