"""Advice for several kinds of GPUs: the fastest layout that fits, a faster one that may, and the one with most room."""

from __future__ import annotations

from collections.abc import Iterator

from shardmath.account.accounting import explanation
from shardmath.commands.recommend.answer import Advice, Choice, Excluded, choice_of
from shardmath.configuration.run import Search
from shardmath.generated.definitions import VERDICTS
from shardmath.machines import Cluster
from shardmath.search.choosing import FASTER, SLOWER, SMALLER
from shardmath.search.kinds import Looked, OnKinds, legal_ones, looked_at
from shardmath.search.sizes import AXES, FOLLOWING
from shardmath.search.untried import untried_on_kinds

_FITS, _UNCERTAIN, _ = (name for name, _ in VERDICTS)


def advice_on_kinds(search: Search, cluster: Cluster) -> Advice:
    """Return the few layouts worth trying. Raises InputError as ``looked_at`` does, and where no layout is legal."""
    looked = legal_ones(looked_at(search, cluster), search.num_gpus)
    chosen = list(_chosen(looked))
    job = looked.legal[0].configuration.job
    faster = [item for item in looked.legal if item.verdict != _FITS
              and (not looked.those(_FITS) or item.order < looked.those(_FITS)[0].order)]
    least = min(faster, key=lambda item: (max(item.shares), item.time.seconds), default=None)
    return Advice(
        job.model, cluster, job.evaluator.implementation, search.num_gpus, search.global_batch_size,
        job.values["seq_length"], len(looked.legal), tuple(_choice(item, role) for item, role in chosen),
        None if least is None else Excluded(_sizes(least), least.time.seconds, least.totals[least.peak],
                                            round(least.totals[least.peak] / least.shares[least.peak])),
        (), untried_on_kinds(job.evaluator.implementation),
    )


def _chosen(looked: Looked) -> Iterator[tuple[OnKinds, str]]:
    """Yield the layouts to try, the best first, and why each is worth it."""
    fitting, uncertain = looked.those(_FITS), looked.those(_UNCERTAIN)
    if fitting:
        yield fitting[0], "the fastest that fits"
    if uncertain and (not fitting or uncertain[0].time.seconds < (1 - FASTER) * fitting[0].time.seconds):
        yield uncertain[0], "faster, if it fits" if fitting else "the fastest that may fit"
    if fitting:
        close = [item for item in fitting if item.time.seconds <= (1 + SLOWER) * fitting[0].time.seconds]
        least = min(close, key=lambda item: (max(item.shares), item.order))
        if max(least.shares) < (1 - SMALLER) * max(fitting[0].shares):
            yield least, "the most room"


def _choice(item: OnKinds, role: str) -> Choice:
    return choice_of(role, _sizes(item), (), explanation(item.configuration), item.layers)


def _sizes(item: OnKinds) -> dict[str, int | str]:
    layout = item.layout
    return {name: getattr(layout, name) for name in (*AXES, *FOLLOWING, "pipeline_layout")}
