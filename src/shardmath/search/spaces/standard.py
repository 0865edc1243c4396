"""The standard space: every layout of one model on one cluster, and what ``sweep`` asks of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from shardmath.account.time import on_nodes
from shardmath.configuration.choosing import degrees_of
from shardmath.configuration.defaults import default_implementation, default_seq_length
from shardmath.configuration.run import Search, search_of
from shardmath.configuration.settings import as_model, recompute_mode, recompute_switches
from shardmath.errors import InputError
from shardmath.generated.definitions import ABSENT_DEGREES, RECOMPUTE_MODES, RECOMPUTE_REGIONS
from shardmath.input.asking import asked_with
from shardmath.input.parameters import MACHINE, checked, other_values
from shardmath.machines.files import any_cluster
from shardmath.search.spaces.candidates import Candidates, DivisorsOf
from shardmath.search.spaces.declared import IMPLEMENTATION, Space
from shardmath.search.spaces.questions import MOST, Best
from shardmath.search.spaces.usual import BY_MEMORY


def space_of(search: Search) -> Space:
    """Return every layout of a search as a space.

    TP, CP and PP run over the divisors of the number of GPUs, micro-batch sizes over those of the batch, expert
    parallelism over those of the experts; other sizes have the defaults of ``explain``. Asked are the ``top`` best
    layouts that fit, the best one for every recompute mode, and the legal ones of least and of most memory. Layouts are
    ranked without time; ``ranked`` changes that. Raises InputError for values that are not legal.
    """
    single_program(search)
    model = as_model(search.model)
    machine = {name: checked(name, search.others[name]) for name in MACHINE if name in search.others}
    cluster = on_nodes(any_cluster(search.gpu, search.network), search.node_size)
    others = {name: value for name, value in search.others.items() if name not in machine}
    asked = other_values({**cluster.memory_parameters, **others})
    if isinstance(search.top, bool) or not 1 <= search.top <= MOST:
        raise InputError("top", search.top, f"must be an integer from 1 to {MOST}", "1")
    sizes = {name: _candidates(name, search.asked(name)) for name in _AXES}
    # A single size of these is no axis: where it is the usual one, formulas need not have it.
    single = {name: sizes[name][0] for name, usual in _AXES.items() if not usual and len(sizes[name]) == 1}
    usual = {**_AXES, **({"expert_parallel": DivisorsOf("num_experts")} if model.num_experts else {}),
             **dict.fromkeys(degrees_of(single_kernels(search)), DivisorsOf("num_gpus"))}
    axes = {name: sizes[name] or usual[name] for name in _AXES if name not in single}
    fixed = {
        "num_gpus": search.num_gpus, "global_batch_size": search.global_batch_size,
        "seq_length": default_seq_length(model) if search.seq_length is None else search.seq_length,
        "distributed_optimizer": search.distributed_optimizer, "vocab_multiple": search.vocab_multiple,
        "node_size": search.node_size, **single, **machine,
        **{name: value for name, value in asked.items() if name not in RECOMPUTE_REGIONS.values()},
    }
    return Space(
        axes={**{name: candidates for name, candidates in axes.items() if candidates},
              "recompute": _modes(search.recompute, asked)},
        model=model, cluster=cluster,
        implementation=implementations_of(search)[0],
        fixed={name: checked(name, value) for name, value in fixed.items() if value is not None},
        questions=(
            Best("best", BY_MEMORY, search.top),
            Best("best_by_recompute", BY_MEMORY, 1, per=("recompute",)),
            Best("smallest", ("peak",), 1, among="legal"),
            Best("largest", ("-peak",), 1, among="legal"),
        ),
        kernels=single_kernels(search) or {}, schedule=search.schedule, zero_stage=search.zero_stage,
        gradients=search.gradients,
    )


#: Axes with their usual candidates; those without are axes only where several sizes are tried.
_AXES: Mapping[str, Candidates | tuple[()]] = {
    **dict.fromkeys(("tensor_parallel", "context_parallel", "pipeline_parallel"), DivisorsOf("num_gpus")),
    **dict.fromkeys(("virtual_pipeline", *ABSENT_DEGREES, "expert_parallel", "expert_tensor_parallel"), ()),
    "micro_batch_size": DivisorsOf("global_batch_size"), "sequence_parallel": (0, 1),
}

layouts = asked_with("layouts", search_of, space_of)


def ranked(space: Space, ranking: tuple[str, ...]) -> Space:
    """Return the same space with what is best decided by ``ranking``."""
    questions = tuple(
        replace(question, by=ranking) if isinstance(question, Best) and question.name.startswith("best") else question
        for question in space.questions
    )
    return replace(space, questions=questions)


def implementations_of(search: Search) -> tuple[str, ...]:
    """Return the implementations that a search tries."""
    if search.implementation is None or isinstance(search.implementation, str):
        return (search.implementation or default_implementation(as_model(search.model)),)
    return tuple(search.implementation)


def single_program(search: Search) -> None:
    """Raise InputError for a search of several implementations, or of several options of a kernel."""
    single_kernels(search)
    if search.implementation is not None and not isinstance(search.implementation, str):
        names = list(search.implementation)
        raise InputError(IMPLEMENTATION, names, "must be one implementation here", names[0] if names else None)


def single_kernels(search: Search) -> Mapping[str, str] | None:
    """Return the kernel choices of a search that has one option for each axis. Raises InputError for several."""
    for axis, option in (search.kernels or {}).items():
        if not isinstance(option, str):
            raise InputError(f"kernels.{axis}", list(option), "must be one option here", option[0] if option else None)
    return search.kernels  # type: ignore[return-value]


def _candidates(name: str, candidates: int | Sequence[int] | None) -> tuple[int, ...]:
    """Return the sizes to try for an axis; none for the usual ones."""
    if candidates is None:
        return ()
    if not isinstance(candidates, Sequence):
        candidates = (candidates,)
    if not candidates:
        raise InputError(name, (), "must have at least one value")
    return tuple(sorted({checked(name, value) for value in candidates}))


def _modes(recompute: Sequence[str] | None, asked: Mapping[str, int]) -> tuple[str, ...]:
    """Get the modes to try; regions asked for one by one go with each but full recompute, unless that is named too."""
    modes = tuple(dict.fromkeys(
        mode if recompute is None and mode == "full" else recompute_mode(mode, asked)
        for mode in (RECOMPUTE_MODES if recompute is None else recompute)
    ))
    if not modes:
        raise InputError("recompute", (), "must name at least one mode")
    for mode in modes:
        recompute_switches(mode)
    return modes
