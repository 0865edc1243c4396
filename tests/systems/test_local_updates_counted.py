"""Local updates by torchft's and hivemind's own code: states, copies and sent bytes beside the ledger's."""

from __future__ import annotations

import pytest
from counted import table
from outer_terms import ledger

pytestmark = pytest.mark.slow
#: Bytes of hivemind's 8-bit code beside the elements of each message: a length, and 256 values in fp32.
CODE = 8 + 4 * 256


def numbers(cell: str) -> list[int]:
    return [int(number) for number in cell.split()]


@pytest.mark.parametrize("row", table("torchft_counted"), ids=lambda row: f"{row['kind']}-{row['width']}")
def test_torchft(row: dict[str, str]) -> None:
    """Two rounds of two groups, in which an all-reduce sends as many bytes as its tensor has.

    An outer step has two tensors beside what the ledger has: torchft clones each parameter as it saves it, and lets go
    of a clone when it has made the next. A fragment of one tensor has one clone.
    """
    layers, width, steps, fragments, overlap = (
        int(row[name]) for name in ("layers", "width", "steps", "fragments", "overlap"))
    elements, turn = layers * width**2, steps // fragments
    kind = row["kind"]
    sent = ledger(kind, "stage.outer_sent_bytes", elements, R=2, fr=fragments, ob=32)
    assert numbers(row["sent"]) == 2 * fragments * [sent if step == turn - 1 - overlap else 0 for step in range(turn)]
    if kind == "average":
        copy = ledger(kind, "stage.outer_step.optimizer_step", elements)
        assert numbers(row["beside"]) == 2 * [*(turn - 1) * [0], copy]
        assert (row["momentum"], row["backup"]) == ("0", "0")
        return
    assert int(row["backup"]) == ledger("diloco_host", "stage.host_local_updates", elements)
    assert int(row["momentum"]) + int(row["backup"]) == 8 * elements
    clones = 4 * width**2 * min(2, layers // fragments)
    during = ledger(kind, "stage.outer_gradients", elements, fr=fragments, lt=overlap)
    update = ledger(kind, "stage.outer_step.optimizer_step", elements, fr=fragments)
    assert numbers(row["beside"]) == 2 * fragments * [
        update + clones if step == turn - 1 else during if step >= turn - 1 - overlap else 0 for step in range(turn)]


@pytest.mark.parametrize("row", table("hivemind_counted"), ids=lambda row: f"{row['peers']}-{row['bits']}")
def test_hivemind(row: dict[str, str]) -> None:
    """All peers together: each sends parts to those who average them, and averages back, as in a ring."""
    peers, bits, messages = (int(row[name]) for name in ("peers", "bits", "messages"))
    each = ledger("average", "stage.outer_sent_bytes", peers * int(row["elements"]), R=peers, fr=1, ob=bits)
    assert int(row["sent"]) == each + (messages * CODE if bits == 8 else 0)
