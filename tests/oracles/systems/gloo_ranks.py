"""Rows that a program of this folder counts, each on ranks of its own: processes of DeepSpeed on CPUs, with Gloo."""

from __future__ import annotations

import csv
import os
import socket
import subprocess
import sys
from collections.abc import Iterable, Sequence

RANKS, HOST = 2, "127.0.0.1"


def print_rows(program: str, heads: Sequence[str], cases: Iterable[Sequence[object]]) -> None:
    """Print a table with one row for each case: its words, and the numbers that the first rank prints."""
    table = csv.writer(sys.stdout, lineterminator="\n")
    table.writerow(heads)
    for case in cases:
        table.writerow([*case, *_first_of(program, case)])
        sys.stdout.flush()


def _first_of(program: str, case: Sequence[object]) -> list[str]:
    """Run a program on all ranks with the words of a case; the numbers that the first one prints."""
    with socket.socket() as free:
        free.bind((HOST, 0))
        port = str(free.getsockname()[1])
    ranks = [
        subprocess.Popen(
            [sys.executable, "-W", "ignore", program, *map(str, case)], text=True, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, env={
                **os.environ, "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(RANKS), "MASTER_ADDR": HOST,
                "LOCAL_SIZE": str(RANKS), "MASTER_PORT": port, "DS_ACCELERATOR": "cpu", "GLOO_SOCKET_IFNAME": "lo"})
        for rank in range(RANKS)
    ]
    first, *_ = [process.communicate()[0] for process in ranks]
    assert not any(process.returncode for process in ranks)
    return first.splitlines()[-1].split()
