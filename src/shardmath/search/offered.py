"""The layouts that an implementation offers for a job: the spaces that every command searches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import product
from typing import Any

from shardmath.account.time import time_unknown
from shardmath.compiler.evaluators import changed_choices
from shardmath.configuration.choosing import has_own_pipeline, options_of
from shardmath.configuration.run import Search, search_of
from shardmath.configuration.settings import SELECTIVE, as_model, recompute_mode, recompute_switches
from shardmath.divisors import divisors
from shardmath.errors import InputError
from shardmath.generated.definitions import (
    IMPLEMENTATIONS,
    RECOMPUTE_REGIONS,
    SCHEDULES,
    SPLIT_BACKWARD,
)
from shardmath.input.parameters import checked
from shardmath.machines.files import any_cluster
from shardmath.models.model import Model
from shardmath.search.further import further_kernels, with_switches
from shardmath.search.layout import RANKINGS
from shardmath.search.modes import recompute_modes
from shardmath.search.spaces import Space
from shardmath.search.spaces.declared import IMPLEMENTATION, options_from
from shardmath.search.spaces.programs import LeftOut, combined
from shardmath.search.spaces.standard import implementations_of, ranked, single_kernels, space_of
from shardmath.search.stages import chunk_counts, has_uneven, with_uneven

#: Choices of kernels that follow from the layout.
VARIED = ("schedule", "stages", "pipeline", "recompute_saves")

#: Where a space declares what a person gives as an argument of its own.
_SECTIONS = ("axes", "fixed", "derived", "kernels")


def offered(model: Model, gpu: Any, num_gpus: int, *, rank_by: str | None = None, **asked: Any) -> tuple[Space, ...]:
    """Return the spaces of a job; ``asked`` are the arguments of ``sweep``. See ``spaces_of``."""
    return spaces_of(search_of(model, gpu, num_gpus, **asked), rank_by)


def spaces_of(search: Search, rank_by: str | None = None) -> tuple[Space, ...]:
    """Return the spaces of a search, ranked: those of each combination of implementations and kernels that can be.

    Axes without asked sizes have all candidates of the implementation. The best is the fastest where all speeds are
    known, unless ``rank_by`` says otherwise. Raises InputError as ``layouts`` does.
    """
    if search.every_switch:
        if rank_by == "memory":
            rule = "must be time where every switch is tried: some change time alone"
            raise InputError("rank_by", rank_by, rule, "time")
        rank_by = "time"

    def make(options: dict[str, str]) -> list[Space]:
        made, refused = list[Space](), list[InputError]()
        for others in _each(further_kernels(_with(search, options)) if search.every_switch else {}):
            try:
                made += labelled({**options, **others})
            except InputError as error:
                refused.append(error)
        if not made:
            raise refused[0]
        return made

    def labelled(options: dict[str, str]) -> list[Space]:
        refused = dict[str, InputError]()
        spaces = _spaces(_with(search, options), refused)
        if not spaces:
            raise next(iter(refused.values()))
        named = {axis: (option,) for axis, option in options.items()}
        program = {name: named.pop(name) for name in (IMPLEMENTATION,) if name in named}
        return [replace(space, axes={**program, **space.axes}, kernels={**space.kernels, **named})
                for space in spaces]

    programs = programs_of(search)
    return _ranked(combined(programs, make)[0] if programs else make({}), search, rank_by)


def programs_of(search: Search) -> dict[str, tuple[str, ...]]:
    """Return what chooses formulas where several are asked for: implementations, and options of kernels by axis.

    Raises InputError for those that are there twice.
    """
    several = {f"kernels.{axis}": options for axis, options in (search.kernels or {}).items()}
    return {field.removeprefix("kernels."): options_from(field, options)
            for field, options in {IMPLEMENTATION: search.implementation, **several}.items()
            if options is not None and not isinstance(options, str)}


def left_out(search: Search) -> tuple[LeftOut, ...]:
    """Return the combinations of implementations and options of kernels that cannot be, each with the reason."""
    programs = programs_of(search)
    if search.every_switch:
        return tuple(item for options in _each(programs) for item in _uncounted(search, options))
    if len(programs) < 2:
        return ()
    return combined(programs, lambda options: _spaces(_with(search, options), {})[0].parts())[1]


def _each(axes: Mapping[str, Sequence[str]]) -> Iterator[dict[str, str]]:
    """Yield every combination of options."""
    return (dict(zip(axes, names, strict=True)) for names in product(*axes.values()))


def _uncounted(search: Search, asked: dict[str, str]) -> Iterator[LeftOut]:
    """Yield what cannot be, or is not counted, of a search of every switch with some options, each with the reason."""
    for further in _each(further_kernels(_with(search, asked))):
        options, refused = {**asked, **further}, dict[str, InputError]()
        try:
            _spaces(_with(search, options), refused)
        except InputError as error:
            yield LeftOut(options, str(error))
        for schedule, reason in refused.items():
            yield LeftOut({**options, **({"schedule": schedule} if schedule else {})}, reason.rule)


def _is_counted(space: Space, refused: dict[str, InputError]) -> bool:
    """Tell whether a space has formulas; if not, the reason is put down under its schedule."""
    try:
        space.parts()
    except InputError as error:
        refused[space.schedule or ""] = error
        return False
    return True


def _with(search: Search, options: Mapping[str, str]) -> Search:
    """Return a search of one implementation and one option of each kernel."""
    kernels = {name: option for name, option in options.items() if name != IMPLEMENTATION}
    return replace(search, implementation=options.get(IMPLEMENTATION, search.implementation),
                   kernels={**(search.kernels or {}), **kernels})


def _ranked(spaces: Sequence[Space], search: Search, rank_by: str | None) -> tuple[Space, ...]:
    cluster = any_cluster(search.gpu, search.network)
    if rank_by == "memory" and spaces[0].kernels.get("stages") == "listed":
        rule = "must be time where each layout has a list of layers of its own: they are shared out by it"
        raise InputError("rank_by", rank_by, rule, "time")
    firsts = {repr(space.programs): space for space in reversed(spaces)}  # one of each combination of options
    timed = rank_by == "time" or (rank_by is None and not any(
        time_unknown(space.parts()[0].evaluator, cluster, search.num_gpus) for space in firsts.values()))
    return tuple(ranked(space, RANKINGS["time" if timed else "memory"]) for space in spaces)


def _spaces(search: Search, refused: dict[str, InputError]) -> list[Space]:
    """Return the spaces of a search with one implementation, and one option for each axis of kernels.

    Of one that tries every switch those are left out that are not counted; the reasons go to ``refused``.
    """
    model, cluster = as_model(search.model), any_cluster(search.gpu, search.network)
    implementation, = implementations_of(search)
    changed_choices(implementation)
    declared = {**search.others, "node_size": search.node_size}
    kernels = cluster.kernels(implementation, single_kernels(search), declared)
    search = replace(search, model=model, gpu=cluster, network=None, kernels=kernels)
    if (kernels or {}).get("stages") == "listed":  # each layout is looked at alone
        search = replace(search, virtual_pipeline=search.virtual_pipeline or (1,))
    spaces = []
    for pipeline in _pipelines(search, model, implementation):
        for mode in _kinds_of_recompute(search, implementation, pipeline.get("schedule")):
            experts = _experts(search, model, search.node_size or cluster.node_size, implementation)
            space = space_of(replace(search, **{**experts, **pipeline, **mode}))
            if search.every_switch and not _is_counted(space, refused):
                continue
            if pipeline["virtual_pipeline"] != (1,) or pipeline["pipeline_parallel"] != (1,):
                space = with_uneven(space) if has_uneven(implementation, search) else space
            space = space if mode else _with_modes(space, search)
            spaces.append(with_switches(space, search) if search.every_switch else space)
    return spaces


def _pipelines(search: Search, model: Model, implementation: str) -> Iterator[dict[str, Any]]:
    """Yield pipelines that one evaluator each knows, as fields of a search: numbers of stages, chunks, a schedule."""
    stages = None if search.pipeline_parallel is None else tuple(search.pipeline_parallel)
    several = tuple(size for size in stages or divisors(checked("num_gpus", search.num_gpus)) if size > 1)
    allowed = options_of(implementation, "schedule")
    schedule = search.schedule or (single_kernels(search) or {}).get("schedule")
    chunks = search.virtual_pipeline
    if has_own_pipeline(implementation):  # FSDP2 without a pipeline is another program than with one
        if schedule is None and (stages is None or 1 in stages) and 1 in (chunks or (1,)):
            yield {"pipeline_parallel": (1,), "virtual_pipeline": (1,)}
        for name in allowed if schedule is None else (schedule,):
            sizes = _chunks(name, chunks, (2, 3))
            if several and sizes:
                yield {"pipeline_parallel": several, "virtual_pipeline": sizes, "schedule": name}
        return
    if "interleaved" in allowed and schedule in (None, "interleaved"):
        several_chunks = chunk_counts(model, has_uneven(implementation, search))
        counts = chunks or ((1, *several_chunks) if schedule is None else several_chunks)
        if counts:
            yield {"pipeline_parallel": stages, "virtual_pipeline": (1,) if stages == (1,) and not chunks else counts}
            return
    for name in allowed if schedule is None else (schedule,):
        # Without a pipeline all orders of passes are one.
        degrees = stages if name == allowed[0] or stages is not None else several
        if degrees != ():
            yield {"pipeline_parallel": degrees, "virtual_pipeline": tuple(chunks or (1,)),
                   "schedule": search.schedule if name == schedule or len(allowed) == 1 else name}


def _chunks(schedule: str, asked: Sequence[int] | None, usual: Sequence[int]) -> tuple[int, ...]:
    """Return numbers of chunks that a schedule has."""
    own = SCHEDULES[schedule]
    sizes = tuple(usual) if own is None and schedule != "gpipe" else (own or 1,)
    return sizes if asked is None else tuple(asked)


def _experts(search: Search, model: Model, node_size: int, implementation: str) -> dict[str, Any]:
    """Return the numbers of ranks that share out one expert: those inside a node, unless they are asked for."""
    fixed = IMPLEMENTATIONS[implementation]["fixed"]
    if not model.num_experts or "expert_tensor_parallel" in fixed or search.expert_tensor_parallel is not None:
        return {}
    return {"expert_tensor_parallel": tuple(size for size in divisors(search.num_gpus) if size <= node_size)}


def _kinds_of_recompute(search: Search, implementation: str, schedule: str | None) -> Iterator[dict[str, Any]]:
    """Yield recompute of whole layers or modules, and recompute that keeps outputs of operations, as fields."""
    yield {}
    saves = options_of(implementation, "recompute_saves")
    if search.recompute is None and "ops" in saves and schedule not in SPLIT_BACKWARD:
        yield {"recompute": (SELECTIVE,)}


def _with_modes(space: Space, search: Search) -> Space:
    """Return the space with all recompute modes, unless they are asked for; modules asked for go with each."""
    if search.recompute is not None:
        return space
    part, = space.parts()
    named = {switch: search.others.get(switch, 0) for switch in RECOMPUTE_REGIONS.values()}
    modes: dict[tuple[int, ...], str] = {}
    for mode in recompute_modes(part):
        whole = mode if mode == "full" else recompute_mode(mode, named)
        modes.setdefault(tuple(recompute_switches(whole).values()), whole)
    return replace(space, axes={**space.axes, "recompute": tuple(modes.values())})


@contextmanager
def as_arguments(num_gpus: int) -> Iterator[None]:
    """Raise the InputErrors of a declared space under the name of the argument that declared it."""
    try:
        yield
    except InputError as error:
        section, _, name = error.field.partition(".")
        if not name or section not in _SECTIONS:
            raise
        if name == "data_parallel" and section == "derived":
            rule = "must leave products of sizes below 2^53, for exact arithmetic: name the sizes to try for some axes"
            raise InputError("num_gpus", num_gpus, rule) from None
        raise InputError(name, error.value, error.rule, error.nearest) from None
