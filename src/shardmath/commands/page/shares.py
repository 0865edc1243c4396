"""The share of the page that is derived of one implementation, each in a process of its own where there are cores."""

from __future__ import annotations

import errno
import gc
import os
import signal
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import active_children, get_context
from typing import Any, NamedTuple

from shardmath.commands.page.catalogue import evaluator_data, is_drawn
from shardmath.commands.page.exports import refusals
from shardmath.commands.page.kernels import ADAPTED, Asked, combination_of, combinations, key_of, variants_of
from shardmath.commands.page.spaces import part_data, parts_of
from shardmath.commands.page.typesetting import formulas_of, script_of
from shardmath.compiler.evaluators import Evaluator
from shardmath.errors import InputError
from shardmath.formats.writers import WRITERS
from shardmath.machines import Cluster
from shardmath.models.model import Model
from shardmath.reports.waiting import mute

#: Seconds between two looks at what the processes have done.
_LOOK = 0.1
Progress = Callable[[int, int | None], None]
#: Told how many sets of formulas were derived, and how many there are besides those known.
_Count = Callable[[int, int], None]


class Asking(NamedTuple):
    """Models of the page: of the ``first`` one all ``kernels``, of ``families`` some implementations alone."""

    models: Sequence[Model]
    families: Sequence[Model]
    of_families: Sequence[str]
    first: Model
    kernels: Asked
    cluster: Cluster


class Derived(NamedTuple):
    """One evaluator of the page: its data, the names of its inputs, its JavaScript, and its formulas by term."""

    data: dict[str, Any]
    inputs: frozenset[str]
    script: str
    formulas: dict[str, dict[str, Any]]


class Share(NamedTuple):
    """All that the page has of an implementation.

    ``parts`` of spaces are by model, ``variants`` names of evaluators by combination of kernels and by that of the
    usual one, ``unwritten`` reasons by model, format and combination.
    """

    parts: dict[str, list[dict[str, Any]]]
    variants: dict[str, dict[str, str]]
    derived: dict[str, Derived]
    unwritten: dict[str, dict[str, dict[str, str]]]


class _Listed(NamedTuple):
    """Parts, variants and evaluators that are to be derived of an implementation."""

    parts: dict[str, list[dict[str, Any]]]
    variants: dict[str, dict[str, str]]
    evaluators: dict[str, Evaluator]


def shares_of(asking: Asking, implementations: Sequence[str], progress: Progress | None) -> dict[str, Share]:
    """Derive the share of each implementation, side by side where there are cores; ``progress`` counts formulas.

    Raises InputError for an axis and an option of kernels that no implementation has.
    """
    for implementation in implementations:
        combinations(implementation, asking.kernels)
    if (os.cpu_count() or 1) == 1 or not is_safe_to_copy():
        counted = _Counted(1, progress)
        lists = {implementation: _listed(asking, implementation) for implementation in implementations}
        counted(0, sum(len(listed.evaluators) for listed in lists.values()))
        return {implementation: _derived(asking, implementation, listed, counted)
                for implementation, listed in lists.items()}
    return _side_by_side(asking, implementations, _Counted(len(implementations), progress))


def is_safe_to_copy() -> bool:
    """Tell whether a copy of the running process works: not elsewhere than on Linux, nor beside the threads of JAX."""
    return sys.platform == "linux" and "jax" not in sys.modules


def _side_by_side(asking: Asking, implementations: Sequence[str], counted: _Count) -> dict[str, Share]:
    context = get_context("fork")
    notes = context.SimpleQueue()
    others = active_children()
    with ProcessPoolExecutor(len(implementations), context, _alone, (notes,)) as pool:  # all say early how many
        shares = {name: pool.submit(_share, asking, name) for name in implementations}
        waiting: set[Future[Share]] = {*shares.values()}
        try:
            while waiting:
                waiting = wait(waiting, _LOOK).not_done
                while not notes.empty():
                    counted(*notes.get())
            return {name: share.result() for name, share in shares.items()}
        except BrokenProcessPool:
            rule = "a process that derives formulas was ended from outside, perhaps for want of memory"
            raise ChildProcessError(errno.ECHILD, rule, "page") from None
        finally:  # when asked to end, the pool would wait for minutes until they are done
            for process in active_children():
                if waiting and process not in others:
                    process.kill()


class _Counted:
    """Sums of what is done and of what there is, which is not known before all implementations are listed."""

    def __init__(self, unlisted: int, progress: Progress | None) -> None:
        self._unlisted, self._progress = unlisted, progress
        self._done = self._all = 0

    def __call__(self, done: int, more: int) -> None:
        self._done, self._all = self._done + done, self._all + more
        self._unlisted -= not done
        if self._progress is not None:
            self._progress(self._done, None if self._unlisted else self._all)


#: Where a process of a share puts its counts.
_notes: list[Any] = []


def _alone(notes: Any) -> None:
    """Begin the process of a share: it shows nothing, ends at any signal, and is too short to look for circles."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    mute()
    gc.disable()
    _notes[:] = [notes]


def _share(asking: Asking, implementation: str) -> Share:
    def count(done: int, more: int) -> None:
        _notes[0].put((done, more))

    listed = _listed(asking, implementation)
    count(0, len(listed.evaluators))
    return _derived(asking, implementation, listed, count)


def _listed(asking: Asking, implementation: str) -> _Listed:
    """List the parts of the spaces of all models that an implementation has, and their evaluators with any kernels."""
    parts: dict[str, list[dict[str, Any]]] = {}
    evaluators: dict[str, Evaluator] = {}
    families = asking.families if implementation in asking.of_families else ()
    for model in (*asking.models, *families):
        try:
            own = parts_of(model, asking.cluster, implementation)
        except InputError:  # the framework has no such model
            continue
        evaluators |= {part.evaluator.name: part.evaluator for _, part in own}
        parts[model.name] = [part_data(space, part, model, asking.cluster.node_size) for space, part in own]
    variants: dict[str, dict[str, str]] = {}
    first, adapted = combinations(implementation, asking.kernels), ADAPTED.get(implementation, ())
    known: set[tuple[str, ...]] = set()
    for model in (asking.first, *(model for model in (*asking.models, *families) if model != asking.first)):
        changes = first if model == asking.first else adapted
        usual_ones = tuple(part["evaluator"] for part in parts.get(model.name, ()))
        if usual_ones in known:  # the same formulas have the same kernels
            continue
        known.add(usual_ones)
        for key, changed in variants_of(model, asking.cluster, implementation, changes):
            variants.setdefault(key, {}).update({usual: item.name for usual, item in changed.items()})
            evaluators |= {item.name: item for item in changed.values()}
    return _Listed(parts, variants, evaluators)


def _derived(asking: Asking, implementation: str, listed: _Listed, count: _Count) -> Share:
    derived: dict[str, Derived] = {}
    for name, evaluator in listed.evaluators.items():
        data = evaluator_data(evaluator)
        inputs = {*evaluator.terms.INPUTS, *(evaluator.times.INPUTS if evaluator.is_timed else ())}
        derived[name] = Derived(data, frozenset(inputs), script_of(evaluator, is_drawn(data)), formulas_of(evaluator))
        count(1, 0)
    return Share(listed.parts, listed.variants, derived, _unwritten(asking, implementation, [*listed.variants]))


def _unwritten(asking: Asking, implementation: str, variants: Sequence[str]) -> dict[str, dict[str, dict[str, str]]]:
    """Return why formats of an implementation cannot say models, by model, format and combination of kernels."""
    if implementation not in {format.implementation for format in WRITERS.values()}:
        return {}
    reasons: dict[str, dict[str, dict[str, str]]] = {}
    for model in (*asking.models, *asking.families):
        keys = ["", *(variants if model == asking.first else map(key_of, ADAPTED.get(implementation, ())))]
        if known := refusals(model, implementation, map(combination_of, keys)):
            reasons[model.name] = known
    return reasons
