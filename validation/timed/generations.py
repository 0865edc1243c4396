"""The part of docs/validation.md about constants of GPU generations, and public throughputs predicted with them."""

from __future__ import annotations

from collections import Counter

import numpy as np

from shardmath.generated.definitions import EFFICIENCIES, ERROR_OF_EXPERTS, ERRORS
from validation.measured.metrics import Target
from validation.measured.sections import paragraph
from validation.measured.sections import targets as table_of_targets
from validation.tables import markdown
from validation.timed.metrics import Numbers
from validation.timed.presets import (
    FITTED,
    Runs,
    band,
    beside,
    fitted,
    generations,
    left_out,
    nine_of_ten,
    with_experts,
)
from validation.timed.public import BESIDE, SETTING, TABLE, public_runs, runs_beside

#: Median error of public rows of dense models that constants were not fitted to, and of those on B200.
DENSE, B200 = 0.05, 0.05

ABOUT = """Constants of time differ by generation of GPUs. The shipped ones were fitted to one half of the runs on GPUs
    of a generation, and the other half judges them. The rule was fixed before a row was read: constants are fitted to
    rows whose id has an even last digit in its SHA-256. Every row is a run of Fujii et al., of Hagemann et al., of
    SimuMax on B200, or a throughput that NVIDIA, torchtitan or Megatron-LM published."""
LEFT_OUT = """The band of a generation is what nine of ten predictions were within. For it each group of runs (a model
    on one kind of GPU, or a group of the tables above) was predicted with constants fitted to all other groups."""
MISSES = """What is missed: Blackwell has one set of constants for all sizes, and its products of Llama 3.1 405B in FP8
    are faster than they say. MXFP8 and FP8 with current scales have one rate, and casts to FP8 have no row of time yet.
    Of Llama 3 70B on 64 GB300 NVIDIA prints more tokens per second without chunks than with five a release before,
    which leaves that row a quarter too long. On servers of eight B200 a collective waits for 24.3 us and 8.6 us for
    each further rank, as SimuMax measured; with NCCL's own numbers for older GPUs, 8.4 and 3.4 us, its runs on eight
    tensor-parallel ranks come out a tenth too short."""
THROUGHPUTS = f"""[`{TABLE}`](../tests/data/{TABLE}) has every row with its source and date. FP8 runs have recipes of
    Transformer Engine; NVIDIA's runs hide collectives beside work, as their recipes do. H100 of 96 GB are limited to
    500 W. torchtitan says that their peak lies between those of the H100 NVL (400 W) and SXM (700 W), and does not know
    it. Here it lies on the line through both, by watts: 887 TFLOP/s in BF16. Runs of 2022 sent each rank's part of an
    output between stages, which is counted as all of it."""

EXPERTS = """The same table's runs of models with experts. No constant is fitted to any of them, and their 90th
    percentile is the band that step times of models with experts have. Stages of DeepSeek-V3 hold the layers that
    Megatron-Bridge's recipes list, and predict one token further unless the source says otherwise. Dispatchers, and
    whether tokens go to experts beside another micro-batch (`expert_overlap`), are those of its recipes of that release
    (`scripts/performance/configs` of v0.2.0 and v0.3.0)."""
ROUTES = """Three things are counted since these rows were first predicted, with 13.1 % in the median and 28.0 % in
    nine of ten. *Tokens over the network*: every rank sends its own part to each other one, over its own adapter,
    and no ring passes them on; DeepEP and HybridEP send a token once to each other server. Within 72 GPUs that
    NVLink joins nothing leaves it. *Tokens beside computing*: Megatron-Core's schedule of two micro-batches hides
    either pass of one behind the other pass of the other. *Launches*: Transformer Engine (2.9 to 2.12) quantises
    the tokens of an expert and multiplies them one expert after the other: 10 kernels of an expert in both passes
    with MXFP8, 22 with current scales. The host needs 0.2 ms for an expert in a pass (`expert_launch_ns`). That is
    set by two runs of Qwen3 30B on eight B200 in micro-batches of one sequence, which are none of these rows: their
    GPUs wait for the host most of the time."""
RUNS_BESIDE = f"""Further runs ([`{BESIDE}`](../tests/data/{BESIDE}) has sources and dates) show each of the three
    alone. As a ring, the first of them would be predicted 30 % too short. The libraries' own figures for 32 and 64
    ranks are 43.7 of the 50 GB/s of an adapter (`flex_network_per_mille`). They are of no row here; at the rate of
    collectives the three rows with HybridEP would be +12.8, -2.0 and -19.4 % off. NVIDIA took `moe_a2a_overlap` out of
    its recipe of Qwen3 235B on B200 for what it costs the host, and chunks too: with MXFP8 20.1 s became 16.9."""
#: GB/s of an adapter of 400 Gb/s that collectives on Hopper are counted with.
_OF_ADAPTER = 50 * EFFICIENCIES["hopper"]["network_per_mille"] / 1000
CAUSES = f"""By cause, of the 34 rows: tokens beside computing on Blackwell, and Qwen3 30B of release 25.11 on 16 H100,
    are the lowest (-23 to -61 %). Within 72 GPUs that NVLink joins, 12 of 13 rows of DeepSeek-V3 and Qwen3 235B are too
    long, those in BF16 most (+9 to +23 %). Tokens on their way take a fifth to a third of a micro-batch there. A token
    meets fewer ranks than it may (7.2 of 32 in the mean, not 8), which is a tenth of that, 2 to 3 % of a step. Qwen3
    30B on eight GPUs is too short (-1 to -19 %), though a token is counted for 8 ranks and meets 5.3: with the mean it
    would be shorter by another tenth. HybridEP's own figures for 32 ranks of GB200, 586 GB/s, are the rate that is
    counted, 577. Qwen3 235B on 256 H100 (+14 to +17 %) waits for tokens of an all-to-all among four servers during more
    than half of a micro-batch, at the rate that was fitted to other collectives, {_OF_ADAPTER:.1f} of the 50 GB/s of an
    adapter. All-to-alls of NCCL that were published reach more of theirs: 12 GB/s on 64 A800 in eight servers, 10.7 of
    which leave the server, where an all-reduce has 95 for a server, 11.9 for a GPU (NVIDIA/nccl#1116); and on six
    servers of H100 what one adapter gives, 48 to 49 GB/s, by NCCL's maintainers (NVIDIA/nccl-tests#267). So the rate
    may be why, which these rows were not fitted to. Neither the efficiency of grouped products by an expert's tokens
    nor uneven loads can be told apart from these rows."""
NOT_EXPLAINED = """Not explained: with tokens beside computing, B200 and B300 in servers of eight take longer than
    the host needs here, and longer than without: that schedule's own work on the host is not counted. The runs of
    Qwen3 30B on 16 H100 whose tokens go by all-to-all take 16 ms for a sequence in a layer, in micro-batches of one
    sequence and of two, those with DeepEP 9 ms: what the GPU does there is not known. Rows in BF16 on Blackwell are
    predicted too long: its constants were fitted to FP8. CUDA graphs of attention and routers, which recipes of
    GB200 and GB300 have, are not counted: their micro-batches keep the GPU longer than the host needs. Neither is
    recompute of up projections of latent attention in DeepSeek-V3."""


def section() -> list[str]:
    """Return the parts of the section: constants, errors by generation, every row, rows without a time."""
    tables = generations()
    return [
        "### Constants by generation of GPUs", paragraph(ABOUT), table_of_targets(targets(tables)),
        constants(tables), errors(tables), paragraph(LEFT_OUT), paragraph(MISSES), paragraph(repeated()),
        "### Public throughputs", paragraph(THROUGHPUTS), rows(tables), refused(),
        "### Models with experts", paragraph(EXPERTS), of_experts(), paragraph(ROUTES), rows(with_experts(), "judges"),
        paragraph(RUNS_BESIDE), of_runs_beside(), paragraph(CAUSES), paragraph(NOT_EXPLAINED),
    ]


def shares(runs: Runs) -> Numbers:
    """Predicted over measured time less 1, with the shipped constants."""
    return np.asarray(runs({name: EFFICIENCIES[runs.generation][name] for name in FITTED}) / runs.measured - 1)


def is_public(name: str) -> bool:
    """Return True for a row of the table of public throughputs."""
    return name in {item.id for item in public_runs()}


def targets(tables: tuple[Runs, ...]) -> tuple[Target, ...]:
    """Return the goals of rows that constants were not fitted to."""
    judged = {name: share for runs in tables for name, share, shown in
              zip(runs.names, shares(runs), runs.shown, strict=True) if not shown}
    public = np.array([abs(share) for name, share in judged.items() if is_public(name)])
    b200 = np.array([abs(share) for name, share in judged.items() if ("b200-180gb" in name and "gb200" not in name)
                     or name.startswith("simumax")])
    return (
        _target(f"{len(public)} public rows of dense models, not fitted to: median error", DENSE, public),
        _target(f"{len(b200)} rows on B200, not fitted to: median error", B200, b200),
    )


def _target(words: str, asked: float, errors_of_rows: Numbers) -> Target:
    reached = float(np.median(errors_of_rows))
    return Target(words, f"at most {asked:.0%}", f"{reached:.2%}", reached <= asked)


def constants(tables: tuple[Runs, ...]) -> str:
    """Shipped constants beside those of a new fit."""
    lines = [
        (f"`{name}`", *(
            f"{EFFICIENCIES[runs.generation][name]:,} ({fitted(runs).parameters[name]:,})" for runs in tables
        ))
        for name in FITTED
    ]
    return markdown(("shipped (fitted anew)", *(runs.generation.replace("_", " ") for runs in tables)), lines)


def errors(tables: tuple[Runs, ...]) -> str:
    """Return errors of the shown and of the judging half of each generation, and the band."""
    lines: list[tuple[object, ...]] = []
    for runs in tables:
        name, shipped = runs.generation.replace("_", " "), ERRORS[runs.generation]
        for words, chosen in (("fitted to", runs.shown), ("judge", ~runs.shown)):
            own = shares(runs)[chosen]
            lines.append((name, words, len(own), *_spread(own)))
        lines.append((name, "groups left out", len(runs.names), *_spread(left_out(runs))))
        lines.append((name, "band", "", "", f"{shipped / 10:.1f}% ({band(runs) / 10:.1f}%)", ""))
    return markdown(("generation", "rows", "number", "median error", "90th percentile", "signed"), lines)


def _spread(own: Numbers) -> tuple[str, str, str]:
    return f"{np.median(np.abs(own)):.1%}", f"{np.percentile(np.abs(own), 90):.1%}", f"{np.median(own):+.1%}"


def of_experts() -> str:
    """Return errors of models with experts on each generation, and of all together with the shipped band."""
    tables = with_experts()
    own = [(runs.generation.replace("_", " "), shares(runs)) for runs in tables]
    every = np.concatenate([share for _, share in own])
    lines: list[tuple[object, ...]] = [(name, len(share), *_spread(share)) for name, share in (*own, ("all", every))]
    lines.append(("shipped band", "", "", f"{ERROR_OF_EXPERTS / 10:.1f}% ({band_of_experts() / 10:.1f}%)", ""))
    return markdown(("generation", "rows", "median error", "90th percentile", "signed"), lines)


def band_of_experts() -> int:
    """Per mille of the measured time that nine of ten predictions of models with experts are within."""
    return nine_of_ten(np.concatenate([shares(runs) for runs in with_experts()]))


def rows(tables: tuple[Runs, ...], half: str = "") -> str:
    """Return every public row with its error; all are of one ``half`` where it is named."""
    lines = [
        (name, half or ("fitted to" if shown else "judges"), f"{measured:.3f}", f"{share:+.1%}")
        for runs in tables
        for name, shown, measured, share in zip(runs.names, runs.shown, runs.measured, shares(runs), strict=True)
        if is_public(name)
    ]
    return markdown(("row", "half", "measured s", "error"), lines)


def of_runs_beside() -> str:
    """Return further runs of models with experts, each with its error; two of them set the time of the host."""
    setting = {item.id for item in runs_beside() if item.note == SETTING}
    lines = [
        (name, "sets the host's time" if name in setting else "judges", f"{measured:.2f}", f"{share:+.1%}")
        for runs in beside() for name, measured, share in zip(runs.names, runs.measured, shares(runs), strict=True)
    ]
    return markdown(("run", "", "measured s", "error"), lines)


def repeated() -> str:
    """Say how far releases of the software, and its recipes of FP8, differ in the same layout."""
    known = {item.id: item.run.seconds for item in public_runs() if item.run}
    by_layout: dict[tuple[str, ...], list[float]] = {}
    for name, seconds in known.items():
        project, _, *layout = name.split("/")
        by_layout.setdefault((project, *layout), []).append(seconds)
    releases = [max(own) / min(own) - 1 for own in by_layout.values() if len(own) > 1]
    blocks = [known[name] / known[scaled] - 1 for name in known
              if (scaled := name.replace("fp8-mx", "fp8-current")) != name and scaled in known]
    return f"""Of {len(releases)} layouts two releases or more were published; the slowest is {np.median(releases):.1%}
        above the fastest in the median, {np.percentile(releases, 90):.0%} in one of ten and {max(releases):.0%} at
        most. In the same layout and release MXFP8 took {min(blocks):.0%} to {max(blocks):.0%} longer than current
        scales ({len(blocks)} pairs). No constant of a GPU can follow either."""


def refused() -> str:
    """Count the rows without a time, by reason."""
    reasons = Counter(_reason(item.refusal) for item in public_runs() if item.run is None)
    return markdown(("rows without a time", "reason"), [(number, reason) for reason, number in reasons.most_common()])


def _reason(refusal: str) -> str:
    return refusal.partition("not counted yet: ")[2] or refusal
