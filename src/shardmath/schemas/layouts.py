"""The documents about many layouts: ``sweep``, ``recommend``, ``scale`` and ``explore``."""

from __future__ import annotations

from shardmath.commands.explore.answer import Broken
from shardmath.commands.recommend.changes import Change
from shardmath.commands.recommend.neighbours import Neighbour
from shardmath.commands.recommend.run import Excluded
from shardmath.commands.sweep.answer import BrokenRule
from shardmath.schemas.parts import Cluster, Gpu, Label, Layout, Model, Part, StepTime
from shardmath.search.untried import Untried


class Sweep(Part):
    """Counts of all layouts of a model on a cluster, and the best that fit."""

    model: Model
    """Dimensions of the model."""
    gpu: Gpu
    """Figures of the GPU."""
    implementation: str
    """Framework, with the kernel choices that differ from its own."""
    values: dict[str, int]
    """Parameters that all layouts share."""
    tried: int
    """Layouts that were tried: the legal ones and all that broke a rule."""
    legal: int
    """Layouts that break no rule."""
    broken: list[BrokenRule]
    """Layouts by the first rule that they break, in the order in which rules are tried."""
    verdicts: dict[str, int]
    """Legal layouts by verdict."""
    ranking: str
    """What is best, in words."""
    time_unknown: str
    """Why no time is known of layouts that are therefore ranked by memory; empty otherwise."""
    untried: list[Untried]
    """Layouts that were left out, with the option that tries them."""
    best: list[Layout]
    """The best layouts that fit."""
    best_by_recompute: dict[str, Layout]
    """The best one of every recompute mode with one that fits."""
    smallest: Layout | None
    """The legal layout of least memory; null if none is legal."""


class Choice(Part):
    """One layout worth trying."""

    role: str
    """What it is chosen for."""
    layout: dict[str, Label]
    """Its sizes by name."""
    data_parallel: int
    """Data-parallel size."""
    num_microbatches: int
    """Micro-batches of a step on each rank."""
    time: StepTime
    """Time of a step."""
    peak_bytes: int
    """Bytes of the rank that keeps most."""
    margin_bytes: int
    """Memory that it leaves below what fits."""
    share: float
    """The peak over the memory of the GPU."""
    verdict: str
    """fits, uncertain or out of memory."""
    binds: dict[str, float]
    """What holds it back, each with its share of a step or of the memory."""
    neighbours: list[Neighbour]
    """What is one doubling or halving away."""
    script: str | None
    """Launch script or configuration; null where no format has what the run does."""


class Recommend(Part):
    """The few layouts worth trying, and why."""

    model: Model
    """Dimensions of the model."""
    cluster: Cluster
    """GPUs, servers and network."""
    implementation: str
    """Framework, with the kernel choices that differ from its own."""
    num_gpus: int
    """GPUs of the job."""
    global_batch_size: int
    """Sequences of a step."""
    seq_length: int
    """Tokens of a sequence."""
    legal: int
    """Legal layouts that were looked at."""
    choices: list[Choice]
    """The choices, the first one first; none if nothing fits."""
    excluded: Excluded | None
    """The next better layout that memory excludes."""
    changes: list[Change]
    """What would change the answer."""
    untried: list[Untried]
    """Layouts that were left out, with the option that tries them."""


class Point(Part):
    """The fastest layout that fits on one number of GPUs."""

    num_gpus: int
    """GPUs of the job."""
    global_batch_size: int
    """Sequences of a step."""
    legal: int
    """Legal layouts that were looked at."""
    layout: dict[str, Label] | None
    """Sizes of the layout; null if nothing fits."""
    data_parallel: int
    """Data-parallel size; 0 if nothing fits."""
    peak_bytes: int
    """Bytes of the rank that keeps most; 0 if nothing fits."""
    time: StepTime | None
    """Time of a step; null if nothing fits."""
    watts_per_gpu: float
    """Mean power of one GPU in watts; 0 if unknown."""
    tokens_per_joule: float
    """Tokens for each joule; 0 where the power of the GPU is not known."""
    waiting: float
    """Share of a step in which the slowest rank does nothing of its own."""
    relative: float
    """Tokens per second and GPU over those of the smallest size that has a layout."""


class Scale(Part):
    """One model over many numbers of GPUs."""

    model: Model
    """Dimensions of the model."""
    cluster: Cluster
    """GPUs, servers and network."""
    implementation: str
    """Framework, with the kernel choices that differ from its own."""
    seq_length: int
    """Tokens of a sequence."""
    points: list[Point]
    """One for each number of GPUs, ascending."""
    untried: list[Untried]
    """Layouts that were left out, with the option that tries them."""


class Found(Part, extra="allow"):
    """One configuration of a space: beside these fields one for each of its axes, by name."""

    __pydantic_extra__: dict[str, Label]
    keys: dict[str, float | None]
    """Values of the formulas that were asked for."""
    peak_bytes: int
    """Bytes of the peak."""
    verdict: str
    """fits, uncertain or out of memory."""
    part: int
    """Part of the space, from 0."""
    number: int
    """Number of the configuration in its part."""


class Group(Part):
    """The best configurations of one group."""

    per: dict[str, Label]
    """What they share."""
    configurations: list[Found]
    """The configurations, the best one first."""


class Ranking(Part):
    """The answer to a question for the best."""

    by: list[str]
    """Formulas that it is ranked by."""
    groups: list[Group]
    """Groups that have a configuration."""


class Front(Part):
    """The answer to a question for those that none beats in every formula."""

    by: list[str]
    """The formulas."""
    configurations: list[Found]
    """The configurations."""


class Histogram(Part):
    """The answer to a question for counts."""

    of: str
    """Formula that is counted."""
    edges: list[float]
    """Edges between the counts."""
    counts: list[int]
    """One count more than there are edges."""


class Explore(Part):
    """Answer of a space: counts, and an answer to each question."""

    size: int
    """Configurations of the space."""
    done: int
    """Those that were looked at."""
    complete: bool
    """True if every configuration is done."""
    evaluated: int
    """Those whose memory was computed."""
    legal: int
    """Those that break no condition."""
    broken: list[Broken]
    """How many broke which condition first."""
    verdicts: dict[str, int]
    """Legal ones by verdict."""
    answers: dict[str, Ranking | Front | Histogram]
    """The answer to every question, by its name."""
    rows: int | None
    """Rows that were written; null if none were asked for."""
