"""The document of ``shardmath explain``: one configuration, byte by byte."""

from __future__ import annotations

from shardmath.account.accounting import Parameters, Process
from shardmath.account.anchor import Anchor
from shardmath.schemas.parts import Amount, Gpu, Model, Part, StepTime


class AccountLine(Part):
    """One line of an account: a component in one role."""

    term: str
    """Name of the term, as ``shardmath formula`` takes it."""
    component: str
    """Component of the model."""
    role: str
    """Why the rank keeps it: weight, gradient, optimizer, activation, input, buffer or transient."""
    bytes: Amount
    """Bytes; not whole only for a component's share of sharded states."""


class Rank(Part):
    """All that one pipeline rank keeps at its peak."""

    rank: int
    """Pipeline rank, from 0."""
    parameters: int
    """Elements of weights of every kind, without padding."""
    in_flight: int
    """Chunks of layers in flight."""
    site: str
    """Moment of a step at which the rank peaks."""
    lines: list[AccountLine]
    """All that is not 0."""
    by_role: dict[str, int]
    """Bytes by role."""
    total: int
    """Bytes of the peak."""
    share: float
    """The peak over the memory of the GPU."""
    verdict: str
    """fits, uncertain or out of memory."""
    moments: dict[str, int]
    """Bytes of activations and transients at every moment that has transients."""


class PublishedEstimate(Part):
    """Estimate of a published set of formulas for the same configuration."""

    name: str
    """Name of the set."""
    title: str
    """Its authors and what they assume."""
    total: Amount
    """Bytes on the first rank."""
    verdict: str
    """Verdict on that estimate."""


class Explain(Part):
    """The account of one configuration: every byte of every pipeline rank, the verdict and the time of a step."""

    model: Model
    """Dimensions of the model."""
    gpu: Gpu
    """Figures of the GPU."""
    implementation: str
    """Framework, with the kernel choices that differ from its own."""
    recompute: str
    """Recompute mode."""
    choices: dict[str, str]
    """Option of every kernel axis."""
    inputs: dict[str, int]
    """Every parameter by name."""
    parameters: Parameters
    """Parameters of the model, ``total`` and ``active``: those that one token meets."""
    peak_rank: int
    """Pipeline rank that keeps most; the first of several."""
    peak_bytes: int
    """Bytes that it keeps at its peak."""
    verdict: str
    """fits, uncertain or out of memory."""
    reason: str
    """Why that rank and not another."""
    ranks: list[Rank]
    """One account for each pipeline rank."""
    process: Process
    """Memory of the process on the peak rank, in bytes."""
    anchor: Anchor | None
    """The measured run that fixed the constants of ``process``; null without one."""
    time: StepTime | None
    """Time of a step; null where a figure of the machine is not known."""
    time_unknown: str
    """Why the time is not known; empty where it is."""
    published: list[PublishedEstimate]
    """What published formulas say, of models that they are about."""
