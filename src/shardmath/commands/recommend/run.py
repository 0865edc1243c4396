"""Recommend the few layouts worth trying for a model, a cluster and a batch, and say why."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from os import PathLike
from typing import Any

from shardmath.account.accounting import Explanation
from shardmath.account.configured import configured_on_any
from shardmath.account.judged import FITS
from shardmath.account.replaying import replayed
from shardmath.account.time import EQUAL
from shardmath.commands.recommend.answer import Advice, Excluded, choice_of
from shardmath.commands.recommend.asking import Asked
from shardmath.commands.recommend.changes import changes
from shardmath.commands.recommend.neighbours import neighbours
from shardmath.configuration.defaults import default_seq_length
from shardmath.configuration.risk import risk_of, with_parts
from shardmath.configuration.run import search_of
from shardmath.configuration.settings import as_model
from shardmath.errors import InputError
from shardmath.input.arguments import typed_like
from shardmath.machines import Cluster
from shardmath.machines.files import any_cluster
from shardmath.machines.gpu import Gpu
from shardmath.machines.prices import CENTS, priced, refuse_both
from shardmath.models.model import Model
from shardmath.search.answered import Answered
from shardmath.search.choosing import choose, seconds_of
from shardmath.search.further import EVERY, simplest, switches_of
from shardmath.search.nests.clusters import Address, client_of
from shardmath.search.nests.configurations import Configuration
from shardmath.search.nests.running import Progress
from shardmath.search.offered import as_arguments, offered
from shardmath.search.refusals import refusal
from shardmath.search.sizes import AXES, FOLLOWING, as_arguments_of_explain, sizes_of
from shardmath.search.spaces.standard import implementations_of, layouts
from shardmath.search.switches import switches
from shardmath.search.untried import impossible, switches_left, untried


@typed_like(layouts)
def recommend(
    model: Model | str | PathLike[str],
    gpu: Gpu | Cluster | str | PathLike[str],
    num_gpus: int,
    *,
    global_batch_size: int,
    seq_length: int | None = None,
    network: str | None = None,
    implementation: str | Sequence[str] | None = None,
    price: Mapping[str, float | str] | float | str | None = None,
    progress: Progress | None = None,
    stopped: Callable[[], bool] = lambda: False,
    dask: Address = None,
    **arguments: Any,
) -> Advice:
    """Return the few layouts worth trying, why, and what would change the answer.

    ``arguments`` are those of ``sweep``: sizes to try for an axis, and what training and kernels are like. The same
    layouts are searched. ``price``: of a GPU-hour, a number or one by kind of GPU. ``progress`` is called with layouts
    that are known to be no better and all. Once ``stopped`` says so, the search ends with the best so far, and says by
    how much it may get better. ``dask``: the address of a Dask scheduler that runs the loops of large searches, a
    client of one, or ``local`` for processes of this machine.

    Raises InputError for every value that is not legal, where no layout is, and where a figure of the machine is not
    known that the time of a step needs.

    Example:
        >>> advice = shardmath.recommend("llama-3.1-8b", "h100-80gb", 16, global_batch_size=128)
        >>> advice.choices[0].role
        'the fastest that fits'
    """
    chosen, cluster = as_model(model), priced(any_cluster(gpu, network), price)
    refuse_both(price, arguments.get(CENTS))
    seq_length = default_seq_length(chosen) if seq_length is None else seq_length
    training = {"seq_length": seq_length, "implementation": implementation, **arguments}
    search = search_of(chosen, cluster, num_gpus, global_batch_size=global_batch_size, **training)
    with client_of(dask) as client:
        asked = Asked(lambda times: offered(chosen, cluster, num_gpus, rank_by="time",
                                            global_batch_size=times * global_batch_size, **training),
                      bool(arguments.get(EVERY)), progress, stopped, client)
        with as_arguments(num_gpus):
            answers = asked.answers
        if answers.complete and not answers.any_legal:
            raise refusal(answers) or InputError("num_gpus", num_gpus, "must leave at least one legal layout")
        first = answers.first()
        changed = () if first is None or first.layers or not answers.complete else tuple(changes(asked, first))
    worth = tuple(replace(item, configuration=simplest(item.configuration)) for item in choose(answers))
    choices = tuple(
        choice_of(item.role, sizes_of(item.configuration),
                  () if item.configuration.layers else neighbours(item.configuration),
                  _explained(item.configuration, chosen, cluster, training), item.configuration.layers or None)
        for item in worth
    )
    return Advice(
        chosen, cluster, ", ".join(implementations_of(search)), num_gpus, global_batch_size, seq_length, answers.legal,
        risk_of(with_parts(arguments)), choices,
        _excluded(answers, worth[0].configuration if worth else None),
        changed,
        (*untried(answers.parts), *switches_left(search, answers.parts), *impossible(search)),
        None if first is not None or not answers.complete else switches(
            search, "uncertain" if worth else "out of memory"),
        None if first is None else by_rule_80(answers, first, cluster.error(bool(chosen.num_experts)) or EQUAL),
        answers.size, answers.complete, answers.gap(),
    )


def _explained(
    configuration: Configuration, model: Model, cluster: Cluster, training: Mapping[str, Any],
) -> Explanation:
    """Return the account of one layout, with a replay of its steps where those are known."""
    sizes, values = as_arguments_of_explain(sizes_of(configuration)), configuration.values
    sizes |= switches_of(configuration)
    others = {name: value for name, value in training.items() if name not in (*AXES, *FOLLOWING, EVERY)}
    if "kernels" in sizes:
        sizes["kernels"] = {**(training.get("kernels") or {}), **sizes["kernels"]}
    return replayed(configured_on_any(
        model, cluster, num_gpus=values["num_gpus"], global_batch_size=values["global_batch_size"],
        **{**others, **sizes}))


def _excluded(answers: Answered, first: Configuration | None) -> Excluded | None:
    """Of the layouts that are faster than the first choice, none of which fits, the one of least memory."""
    faster = [item for item in answers.front("legal") if first is None or seconds_of(item) < seconds_of(first)]
    if not faster:
        return None
    return _described(faster[-1])  # sorted by time: the more time, the less memory


def by_rule_80(answers: Answered, first: Configuration, error: float) -> Excluded | None:
    """Return the fastest layout that fits by the 80 % rule, if its step is shorter by more than an ``error``."""
    item = next((item for item in answers.front("legal") if item.rule_80 == FITS), first)
    return _described(item) if seconds_of(item) < (1 - error) * seconds_of(first) else None


def _described(item: Configuration) -> Excluded:
    return Excluded(sizes_of(item), seconds_of(item), int(item.keys["peak"]), item.verdict, item.rule_80,
                    item.run_out_probability, item.values["gpu_memory"])
