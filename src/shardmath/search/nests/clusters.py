"""Sweep on a Dask cluster: chunks are its tasks, which it runs again where a worker is lost.

Dask sends Python objects as pickles over TCP: whoever reaches a port of the scheduler or of a worker can run code
there, and a scheduler can run code here. TLS is a matter of Dask's own configuration and of an address with tls://.
"""

from __future__ import annotations

import logging
import signal
from collections.abc import Iterator
from concurrent.futures import CancelledError, Future
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import TYPE_CHECKING, Any, TypeAlias

from shardmath.errors import InputError
from shardmath.search.nests.answers import Answer
from shardmath.search.nests.nest import Nest
from shardmath.search.nests.running import Swept, Workers, on_threads, swept

if TYPE_CHECKING:
    from distributed import Client, LocalCluster

#: Address of a Dask scheduler, "local", a ``distributed.Client``, or None.
Address: TypeAlias = str | Any | None
#: The cluster that is made here, of processes of this machine.
LOCAL = "local"
#: Loggers of Dask, and of what it stands on.
_LOGGERS = ("distributed", "tornado", "asyncio")
#: Configurations of one task at least: some tenths of a second.
_CHUNK = 1 << 28
#: Tasks that wait on each thread beside the one that runs.
_AHEAD = 2
#: Bytes of answers that a task may bring along, to look for better ones only.
_SEED = 1 << 18
#: Times that a task is tried again after an error of its worker.
_RETRIES = 3
#: Seconds in which a scheduler must answer, and a first worker must be there.
_PATIENCE = 30
#: Seconds in which processes of this machine must be there again, and end, once they are needed no more.
_ENDING = 10


@contextmanager
def client_of(where: Address, processes: int | None = None) -> Iterator[Client | None]:
    """Yield a client of the scheduler at an address, or of ``local`` processes that end with the block.

    A client stays as it is and open, and None is none. Raises InputError for anything else, where Dask is not
    installed, where no scheduler or no worker answers, and where they go away while the block still needs them.
    """
    if where is None:
        yield None
        return
    try:
        from distributed import KilledWorker
    except ImportError:
        raise InputError("dask", where, "needs Dask: pip install 'shardmath[dask]'") from None
    try:
        with _quiet(), _opened(where, processes) as client:
            yield client
    except CancelledError:
        raise InputError("dask", where, "must stay until the sweep ends: the scheduler went away") from None
    except KilledWorker as error:
        rule = f"must have workers that live: {error.allowed_failures + 1} of them were lost at one chunk"
        raise InputError("dask", where, rule) from None


def is_local(where: Address) -> bool:
    """Tell whether the cluster is made here."""
    return isinstance(where, str) and where == LOCAL


def _opened(where: Address, processes: int | None) -> AbstractContextManager[Client]:
    from distributed import Client

    if isinstance(where, Client):
        return nullcontext(where)
    if not isinstance(where, str):
        raise InputError("dask", where, "must be the address of a Dask scheduler, local, or a distributed.Client")
    return _local(processes) if is_local(where) else _there(where)


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep what Dask logs out of the terminal: what goes wrong is one line of our own."""
    names = [name for name in logging.root.manager.loggerDict if name.partition(".")[0] in _LOGGERS]
    before = {logging.getLogger(name): logging.getLogger(name).level for name in {*names, *_LOGGERS}}
    for logger in before:
        logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        for logger, level in before.items():
            logger.setLevel(level)


@contextmanager
def _local(processes: int | None) -> Iterator[Client]:
    from distributed import Client, LocalCluster

    made = LocalCluster(n_workers=processes, threads_per_worker=1, dashboard_address=":0",
                        silence_logs=logging.CRITICAL + 1)
    with ended(made) as cluster, Client(cluster) as client:
        client.register_worker_callbacks(_ignore_interrupts)
        yield client


@contextmanager
def ended(cluster: LocalCluster) -> Iterator[LocalCluster]:
    """Yield the cluster, and close it after the block.

    On Python 3.13 a process that is started in place of a lost one is sometimes never there, and the end of a cluster
    waits for it for ever. So it waits for a while, and processes that are left over end with this one.
    """
    from distributed import Client

    try:
        yield cluster
    finally:
        with suppress(OSError), Client(cluster) as client:  # a timeout is one, too
            client.wait_for_workers(len(cluster.workers), timeout=_ENDING)
        with suppress(TimeoutError):
            cluster.close(timeout=_ENDING)


@contextmanager
def _there(address: str) -> Iterator[Client]:
    from distributed import Client

    try:
        client = Client(address, timeout=_PATIENCE)
    except (OSError, ValueError, TypeError):
        raise InputError("dask", address, "must be the address of a Dask scheduler that answers, or local") from None
    with client:
        try:
            client.wait_for_workers(1, timeout=_PATIENCE)
        except TimeoutError:
            raise InputError("dask", address, f"must have a worker: there was none in {_PATIENCE} s") from None
        yield client


def workers_of(
    nest: Nest, client: Client | None, threads: int | None = None,
) -> AbstractContextManager[Workers]:
    """Yield the threads of a cluster, or without a client those of this process."""
    return on_threads(nest, threads) if client is None else on_cluster(nest, client)


@contextmanager
def on_cluster(nest: Nest, client: Client) -> Iterator[Workers]:
    """Yield the threads of a cluster. The nest goes there by its source, and each worker compiles it once."""
    pool: Any = client.get_executor(pure=False, retries=_RETRIES)
    # The result of a task, so that a new worker can have it made again.
    there = client.submit(_itself, nest, pure=False)

    def submit(start: int, stop: int, known: Answer) -> Future[Swept]:
        size = sum(array.nbytes for item in known.questions for array in item.arrays)
        promised: Future[Swept] = pool.submit(swept, there, start, stop, known if size <= _SEED else nest.empty())
        return promised

    threads = max(1, sum(client.nthreads().values()))
    yield Workers(submit, _AHEAD * threads, _CHUNK)


def _ignore_interrupts() -> None:
    """Ignore what reaches every process of a terminal or of a Slurm job: what workers have begun is still wanted."""
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_IGN)


def _itself(nest: Nest) -> Nest:
    return nest
