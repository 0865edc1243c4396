"""Sweep a declared space: all parts, here or on a cluster, with checkpoints, into one answer and a table of rows."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shardmath.commands.explore.answer import Explored, LeftOut, explored
from shardmath.commands.explore.bounded import bounded_answer, is_provable, write_certificate
from shardmath.commands.explore.rows import refuse_unwritable, write_rows
from shardmath.configuration.risk import PARTS, risk_of
from shardmath.errors import InputError, nearest_names
from shardmath.input.arguments import typed
from shardmath.machines.files import any_cluster
from shardmath.search.distinct import with_room
from shardmath.search.nests.checkpoint import Checkpoint
from shardmath.search.nests.chosen import BACKENDS, refuse_loops
from shardmath.search.nests.clusters import Address, client_of, is_local, workers_of
from shardmath.search.nests.cuda import CudaNest, on_gpu
from shardmath.search.nests.nest import Nest
from shardmath.search.nests.rows import Folder, Table
from shardmath.search.nests.running import Progress, Run, run
from shardmath.search.refusals import refusal_of
from shardmath.search.spaces import Part, Rows, Space, read_space, space_of
from shardmath.search.spaces.parts import left_out
from shardmath.search.spaces.questions import of_program

if TYPE_CHECKING:
    from distributed import Client

#: Devices that may evaluate.
DEVICES = ("cpu", "cuda")
#: How a space is answered: by a look at every configuration, or by bounds of boxes.
METHODS = ("sweep", "bounds")


@typed
def explore(
    space: Space | Mapping[str, Any] | str | os.PathLike[str], *, threads: int | None = None, dask: Address = None,
    device: str = "cpu", backend: str = "auto", rows: str | os.PathLike[str] | None = None, terms: Sequence[str] = (),
    among: str = "fits", checkpoint: str | os.PathLike[str] | None = None, resume: bool = False,
    method: str = "sweep", certificate: str | os.PathLike[str] | None = None,
    progress: Progress | None = None, writing: Progress | None = None, stopped: Callable[[], bool] = lambda: False,
) -> Explored:
    """Look at every configuration of ``space`` and answer its questions.

    ``space`` is the path of a file (.toml, .yaml), what such a file holds as plain data, or a ``Space``.
    With ``method`` "bounds" the best and the fronts are found by branch and bound instead: whole boxes are closed by
    bounds of their formulas, so that spaces of 10^12 configurations are answered, without counts. ``certificate`` is
    then a file for a proof of the answers, which ``shardmath check`` checks. That of a search that is stopped says by
    how much they may get better; without any answer yet it writes none.
    ``threads`` work here, or the workers of the Dask scheduler at the address ``dask``, or of a client of one;
    ``local`` are as many processes of this machine. With ``device`` "cuda" a GPU of this machine works instead.
    ``backend`` runs the loops: "llvm" as machine code, soonest; "numba" as machine code too, with the same numbers;
    "numpy" on columns, without a compiler; "auto" is numpy or llvm, whichever answers sooner.
    ``rows`` is a file (.parquet, .csv) for the configurations ``among`` those that fit, may fit (``uncertain``) or are
    ``legal``, with ``terms`` (names or formulas) as further columns.
    ``checkpoint`` is a file for the state, kept up to date every few seconds and at the end; with ``resume`` the sweep
    goes on from there if it is there, else one that is there is refused. Rows that are not in their file yet are in a
    folder beside the checkpoint; without one beside their file.
    Once ``stopped`` says so, nothing more is begun: the answer, and the file of rows, are of what was done by then.
    ``progress`` is called with configurations done and all, ``writing`` with rows written and all.

    Raises InputError for what is wrong with the space, with files, with the cluster, or where there is no GPU.

    Example:
        >>> axes = {"tensor_parallel": [1, 2, 4, 8], "micro_batch_size": [1, 2]}
        >>> job = {"model": "llama-3.1-8b", "gpu": "h100-80gb", "fixed": {"num_gpus": 16, "global_batch_size": 64}}
        >>> questions = {"least": {"best": ["peak"], "count": 1}}
        >>> answer = shardmath.explore({**job, "axes": axes, "questions": questions})
        >>> answer.legal, answer.verdicts["fits"], answer.records()[0]["tensor_parallel"]
        (8, 4, 8)
    """
    space = space if isinstance(space, Space) else space_of(space) if isinstance(space, Mapping) else read_space(space)
    _one_of("method", method, METHODS)
    if method == "bounds":
        for name, value in (("rows", rows), ("checkpoint", checkpoint), ("dask", dask), ("threads", threads)):
            if value is not None:
                raise InputError(name, str(value), "must not be given with method bounds, which has no rows")
        parts = space.parts()
        refuse_loops(parts, method=method)
        answer = _with_left_out(bounded_answer(parts, space.questions, stopped), space, parts)
        if certificate is not None and is_provable(answer):
            write_certificate(os.fspath(certificate), space, answer)
        return answer
    if certificate is not None:
        raise InputError("certificate", str(certificate), "must not be given without method bounds", "method bounds")
    _one_of("device", device, DEVICES)
    if device == "cuda" and (threads is not None or dask is not None):
        raise InputError("device", device, "must not be given with threads or a cluster: one GPU works", "cpu")
    if backend not in BACKENDS:
        raise InputError("backend", backend, "must be one of the backends", nearest_names(backend, BACKENDS))
    if device == "cuda" and backend != "auto":
        raise InputError("backend", backend, "must not be given with a GPU, which has its own", "auto")
    if threads is not None and threads < 1:
        raise InputError("threads", threads, "must be at least 1", "1")
    if threads is not None and dask is not None and not is_local(dask):
        raise InputError("threads", threads, "must not be given with the address of a scheduler")
    table = None if rows is None else _Table.asked(os.fspath(rows), Rows("rows", tuple(terms), among))
    if table is None and terms:
        raise InputError("terms", list(terms), "must not be given without rows: they are their columns")
    if any(isinstance(question, Rows) for question in space.questions):
        raise InputError("questions", "rows", "must not be among the questions: give rows, terms and among")
    asked = space if table is None else replace(space, questions=(*space.questions, table.question))
    parts = asked.parts()
    refuse_loops(parts, device=device, backend=backend)
    made = CudaNest if device == "cuda" else BACKENDS[backend]
    nests = [made(part, tuple(with_room(part, of_program(item, part.labels)) for item in asked.questions))
             for part in parts]
    kept = None if checkpoint is None else Checkpoint(Path(os.path.abspath(checkpoint)), nests)
    runs = _begun(nests, kept, resume, table)
    with _folder(kept, table, runs) as folder, client_of(dask, threads) as client:
        _sweep(nests, runs, threads, client, folder, kept, progress, stopped)
        written = None
        if table is not None and folder is not None:
            total = _rows(nests, runs, table.question.among)
            written = write_rows(table.path, nests, table.question.of, folder, writing, total)
            if kept is not None and all(map(_finished, nests, runs)):
                kept.written = table.path
        elif table is not None:
            written = _rows(nests, runs, table.question.among)
        if kept is not None:
            kept.save(runs)
    if kept is not None and kept.written is not None and kept.rows.is_dir():
        Folder(kept.rows).remove()
    return _with_left_out(_explained(explored(nests, runs, space.questions, written), space, parts), space, parts)


def _one_of(field: str, value: str, names: Sequence[str]) -> None:
    if value not in names:
        raise InputError(field, value, f"must be one of the {field}s", " or ".join(names))


def _with_left_out(answer: Explored, space: Space, parts: Sequence[Part]) -> Explored:
    """Return an answer with the combinations of options that cannot be, and the risk that all parts accept."""
    accepted = {risk_of(part.fixed) if PARTS in part.fixed else None for part in parts}
    risk = accepted.pop() if len(accepted) == 1 else None
    measured = space.cluster is not None and any_cluster(space.cluster).links is not None
    return replace(answer, risk=risk, links_as_fastest=measured,
                   left_out=tuple(LeftOut(item.options, item.reason) for item in left_out(space)))


def _explained(answer: Explored, space: Space, parts: Sequence[Part]) -> Explored:
    """Return an answer with the reason why no configuration is legal, where that is so."""
    if answer.legal or not answer.complete:
        return answer
    return replace(answer, refusal=str(refusal_of(parts, space.asked) or ""))


@dataclass(frozen=True)
class _Table:
    """A file of rows that is asked for."""

    path: str
    question: Rows

    @classmethod
    def asked(cls, path: str, question: Rows) -> _Table:
        """Raises InputError unless the file can be written."""
        refuse_unwritable(path)
        return cls(os.path.abspath(path), question)


def _begun(nests: Sequence[Nest], kept: Checkpoint | None, resume: bool, table: _Table | None) -> list[Run]:
    if resume and kept is None:
        raise InputError("resume", resume, "must not be given without a checkpoint")
    if kept is not None and os.path.exists(kept.path):
        if not resume:
            rule = "must be a new file, or resume must be given: this one has the state of a sweep"
            raise InputError("checkpoint", str(kept.path), rule)
        runs = kept.load()
        if kept.written is not None and table is not None and kept.written != table.path:
            rule = f"must be {kept.written}: there the rows of this checkpoint are, which is complete"
            raise InputError("rows", table.path, rule)
        return runs
    runs = [Run(nest.empty()) for nest in nests]
    if kept is not None:
        kept.save(runs)
    return runs


@contextmanager
def _folder(kept: Checkpoint | None, table: _Table | None, runs: Sequence[Run]) -> Iterator[Folder | None]:
    """Yield the folder of rows until they become one file; None if none are asked for, or all are in their file."""
    if table is None or (kept is not None and kept.written is not None):
        yield None
    elif kept is not None:
        folder = Folder(kept.rows)
        folder.keep([state.done for state in runs])
        yield folder
    else:
        with tempfile.TemporaryDirectory(prefix=f".{Path(table.path).name}.", dir=Path(table.path).parent) as path:
            yield Folder(Path(path))


def _sweep(
    nests: Sequence[Nest], runs: Sequence[Run], threads: int | None, client: Client | None, folder: Folder | None,
    kept: Checkpoint | None, progress: Progress | None, stopped: Callable[[], bool],
) -> None:
    """Bring ``runs`` to their end, part after part."""
    size = sum(nest.size for nest in nests)
    if progress is not None:
        progress(sum(state.shards * nest.shard_size for nest, state in zip(nests, runs, strict=True)), size)
    for nest, state in zip(nests, runs, strict=True):
        others = sum(run.shards * other.shard_size for other, run in zip(nests, runs, strict=True) if other is not nest)
        if stopped() or _finished(nest, state):
            continue

        def report(done: int, _: int, others: int = others) -> None:
            if progress is not None:
                progress(others + done, size)

        def save(_: Run) -> None:
            if kept is not None:
                kept.save_now_and_then(runs)

        def keep(start: int, stop: int, table: Table, part: int = nest.part.number) -> None:
            if folder is not None:
                folder.add(part, start, stop, table)

        workers = on_gpu(nest) if isinstance(nest, CudaNest) else workers_of(nest, client, threads)
        run(nest, state, workers=workers, progress=report, after_chunk=save, on_rows=keep, stopped=stopped)


def _finished(nest: Nest, state: Run) -> bool:
    return state.shards == nest.shards


def _rows(nests: Sequence[Nest], runs: Sequence[Run], among: str) -> int:
    """Count the rows: configurations with one of the first verdicts, or with any."""
    verdicts = {"fits": 1, "uncertain": 2, "legal": None}[among]
    return sum(int(state.answer.verdicts[:verdicts].sum()) for state in runs)
