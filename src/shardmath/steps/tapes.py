"""Play the passes of layers that are walked operation by operation; each hands the residual stream to the next."""

from __future__ import annotations

from collections.abc import Callable, MutableMapping

from shardmath.steps.rows import Row, Rows
from shardmath.steps.trace import Trace

#: Saved tensors of a pass, by name.
Held = MutableMapping[str, int]
#: Row of the residual stream, and of its gradient.
STREAM, GRADIENT = "residual.stream", "residual.gradient"


class Tapes:
    """Make and free the tensors of passes; ``keep`` takes the gradient of a parameter, ``add`` ends those of one step.

    The model holds the first layer's input until its final norm is done.
    """

    def __init__(self, rows: Rows, trace: Trace, keep: Callable[[Row, int, int], None],
                 add: Callable[[], None]) -> None:
        self._rows, self._trace, self._keep, self._add = rows, trace, keep, add
        self._weights = {row.name: row for row in rows.every if row.role == "weight"}
        self._size = rows.sizes.get("tape.residual", 0)
        self._stream = self._embedded = self._gradient = 0
        self._is_kept = False

    def begin(self) -> None:
        """Make the output of the embedding."""
        self._stream = self._embedded = self._trace.allocate(self._size, STREAM)
        self._is_kept = False

    def read(self, name: str, held: Held) -> None:
        """Let the head save the final norm's output; the model lets go of what it held."""
        held[name] = self._stream
        if not self._is_kept:
            self._trace.free(self._embedded)

    def begin_backward(self) -> None:
        """Make the gradient of the final norm's output."""
        self._gradient = self._trace.allocate(self._size, GRADIENT)

    def end_backward(self) -> None:
        """Free the gradient of the embedding's output, if it is still there."""
        if self._gradient:
            self._trace.free(self._gradient)
        self._gradient = 0

    def play(self, name: str, held: Held) -> None:
        """Play a pass: ``held`` are the tensors that it saves, or frees."""
        entering, is_kept = self._stream, False
        for word, tensor, size, row in self._rows.passes[name]:
            if word == "make":
                held[tensor] = self._trace.allocate(size, row)
            elif word == "let":
                self._trace.free(held.pop(tensor))
            elif word == "grad":
                self._keep_gradient(tensor, size)
            elif word == "added":
                self._add()
            elif word == "keep":
                held[tensor], is_kept = entering, True
            elif word == "pass":
                self._stream = self._trace.allocate(self._size, STREAM)
            elif word == "take":
                held[tensor] = self._gradient
            else:
                self._gradient = held.pop(tensor)
        if name.endswith("forward"):
            self._let_go(entering, is_kept)

    def _let_go(self, entering: int, is_kept: bool) -> None:
        """End a forward pass, behind which nothing has a name for its input, but for the first layer's."""
        if entering == self._embedded:
            self._is_kept = is_kept
        elif not is_kept:
            self._trace.free(entering)

    def _keep_gradient(self, name: str, size: int) -> None:
        if size:
            elements = size // self._rows.sizes["state.kept_gradient"]
            self._keep(self._weights[name], elements, self._trace.allocate(size, f"{name}.gradient"))
