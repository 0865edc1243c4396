"""The document of ``shardmath compare``: configurations side by side."""

from __future__ import annotations

from pydantic import Field

from shardmath.schemas.parts import Amount, Label, Part, StepTime


class ComparedSide(Part):
    """One configuration of a comparison, on the rank that is compared."""

    name: str
    """Letter of the configuration."""
    asked: str
    """What was asked for, in words."""
    model: str
    """Name of the model."""
    gpu: str
    """Name of the GPU."""
    implementation: str
    """Framework, with the kernel choices that differ from its own."""
    recompute: str
    """Recompute mode."""
    inputs: dict[str, int]
    """Every parameter by name."""
    choices: dict[str, str]
    """Option of every kernel axis."""
    rank: int
    """Pipeline rank."""
    site: str
    """Moment of a step at which the rank peaks."""
    total_bytes: int
    """Bytes of the peak."""
    share: float
    """The peak over the memory of the GPU."""
    verdict: str
    """fits, uncertain or out of memory."""
    time: StepTime | None
    """Time of a step; null where a figure of the machine is not known."""


class Changed(Part):
    """One input that is not the same everywhere."""

    name: str
    """A parameter, or ``kernel`` and an axis, or another input."""
    letter: str
    """What stands for it in formulas; empty where nothing does."""
    values: list[Label]
    """The value of every configuration."""


class ComparedTerm(Part):
    """One component and role on every side."""

    component: str
    """Component of the model."""
    role: str
    """Why the rank keeps it."""
    bytes: list[Amount]
    """Bytes of every configuration."""


class ComparedTensor(Part):
    """One tensor that has another size than in the first configuration."""

    component: str
    """Component of the model."""
    role: str
    """Why the rank keeps it."""
    tensor: str
    """Row of the ledger, or term."""
    meaning: str
    """What it is."""
    source: str
    """Key of the source."""
    before: Amount
    """Bytes in the first configuration."""
    after: Amount
    """Bytes in the other one."""
    bytes: Amount
    """Bytes that come, or go where it is negative."""
    size_before: str
    """Formula of its size in the first configuration."""
    size_after: str
    """Formula of its size in the other one."""
    causes: list[str]
    """Changes that the size follows from."""


class ComparedDifference(Part):
    """Changes from the first configuration to another."""

    from_: str = Field(alias="from")
    """Letter of the first configuration."""
    to: str
    """Letter of the other one."""
    bytes: int
    """Difference of the totals."""
    tensors: list[ComparedTensor]
    """What it consists of."""


class PublishedSummand(Part):
    """One summand of the difference between a published and a counted term."""

    size: str
    """Formula."""
    amount: Amount
    """Its amount, in the unit of the term."""
    tensors: list[str]
    """Tensors that it stands for."""


class PublishedTerm(Part):
    """A published term beside the terms of the ledger that mean the same."""

    term: str
    """Published term."""
    ledger: list[str]
    """Terms of the ledger."""
    meaning: str
    """What both are."""
    remark: str
    """Why they differ."""
    unit: str
    """bytes or elements."""
    published: Amount
    """What the publication says."""
    counted: Amount
    """What the ledger says."""
    difference: Amount
    """Published minus counted."""
    assumed: dict[str, Amount]
    """What the publication assumes, by letter."""
    summands: list[PublishedSummand]
    """What the difference consists of."""


class PublishedSide(Part):
    """A published set of formulas beside the ledger, on the first pipeline rank."""

    name: str
    """Name of the set."""
    title: str
    """Its authors and what they assume."""
    total: Amount
    """Bytes that it says."""
    counted: Amount
    """Bytes that the ledger says."""
    terms: list[PublishedTerm]
    """Term by term."""


class Compare(Part):
    """Configurations side by side, and why the others differ from the first, tensor by tensor."""

    sides: list[ComparedSide]
    """The configurations, the first one first."""
    changes: list[Changed]
    """Inputs that are not the same everywhere."""
    terms: list[ComparedTerm]
    """Components and roles."""
    differences: list[ComparedDifference]
    """One for each configuration but the first."""
    published: list[PublishedSide]
    """Published formulas beside the first configuration, where they were asked for."""
