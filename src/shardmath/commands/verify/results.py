"""Results of programs: read back, compared with the ledger, and kept in a table of evidence."""

from __future__ import annotations

import csv
import os
from typing import Any

from shardmath.account.accounting import Explanation
from shardmath.account.anchor import arguments_of, read_measured
from shardmath.account.configured import configured
from shardmath.account.replaying import replayed
from shardmath.commands.verify.answers import Verified
from shardmath.errors import InputError
from shardmath.files.reading import read_text
from shardmath.files.writing import whole_file
from shardmath.plots.style import short

#: Bytes of a table of evidence.
_LARGEST = 2**24


def read_result(path: str | os.PathLike[str]) -> Verified:
    """Compare a result, which is an anchor, with the account of its run.

    Raises InputError for a file that cannot be read, and for a run that is not legal.
    """
    run, measured, content = read_measured(path, "read")
    arguments = arguments_of(run)
    account = replayed(configured(arguments.pop("model"), arguments.pop("gpu"), **arguments))
    allocated, reserved = measured["allocated_bytes"], measured.get("reserved_bytes")
    low, high = account.process.low["reserved"], account.process.high["reserved"]
    predicted = account.reserved_bytes
    return Verified(
        _text(content, "by"), _text(content, "versions"), account.model.name, account.gpu.name, account.implementation,
        _layout(account), account.inputs["num_gpus"], account.inputs["seq_length"],
        account.inputs["global_batch_size"], account.peak_rank,
        account.peak.total, allocated, account.peak.total / allocated - 1, predicted, reserved,
        None if reserved is None else predicted / reserved - 1, None if reserved is None else low <= reserved <= high,
    )


def add_to_table(result: Verified, path: str) -> None:
    """Append a result to a CSV file, or begin one.

    Raises InputError for a file with other columns, and where no file can be written.
    """
    row = result.to_dict()
    old = read_text("table", path, "a table of evidence", _LARGEST) if os.path.exists(path) else ""
    if old and next(csv.reader([old.splitlines()[0]])) != list(row):
        raise InputError("table", path, "must have the columns of a table that `shardmath verify` began")
    file: Any
    with whole_file("table", path) as file:
        file.write(old if old.endswith("\n") or not old else f"{old}\n")
        writer = csv.DictWriter(file, row, lineterminator="\n")
        if not old:
            writer.writeheader()
        writer.writerow(row)


def _text(content: Any, name: str) -> str:
    """Return a text of the file in one printable line; nothing where it has none."""
    value = content.get(name, "")
    return "".join(sign if sign.isprintable() else "?" for sign in value) if isinstance(value, str) else ""


def _layout(account: Explanation) -> str:
    return short({**account.inputs, "recompute": account.recompute})
