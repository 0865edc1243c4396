"""Play the scripts of a step: the events at one of its points, as ``symbolic/orders/words.py`` spells them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from shardmath.steps.bound import Bound
from shardmath.steps.gathering import AT_WORK, Gathering
from shardmath.steps.megatron_units import MegatronUnits
from shardmath.steps.partition import Partition
from shardmath.steps.rows import IN_LAYER, Row, Rows
from shardmath.steps.states import States
from shardmath.steps.tapes import Tapes
from shardmath.steps.trace import EXCHANGE, EXPERTS, PIPELINE, TENSOR, Trace
from shardmath.steps.units import Units

#: Tensors that an instance saved for its backward pass, by row.
Held = dict[str, int]
#: Word behind which a recomputed instance has all that it saves.
END = "end"
#: Event of a recomputed layer's output, which its checkpoint holds.
OUTPUT = "+recomputed.output"
#: Name of what an instance makes for the next one.
NEXT = "next"
#: Streams by name, the usual one without.
_STREAMS = {"": 0, "exchange": EXCHANGE}
#: Sums of a layer's forward pass that are not there when it is recomputed.
OF_FORWARD = ("stage.received_gradient", "stage.input_before")


@dataclass
class _Point:
    """Tensors of a point: those of its moment by size, rows to save, tensors saved, and those allocated here."""

    moment: Mapping[str, int]
    saves: Sequence[Row]
    held: Held
    here_too: bool
    here: Held = field(default_factory=dict)


def has_units(scripts: Mapping[str, Sequence[str]]) -> bool:
    """Check if scripts gather parameters unit by unit, as FSDP2 does."""
    return any(event.startswith("open:") for script in scripts.values() for event in script)


class Player:
    """Write the events of scripts to a trace; tensors that pass from one point to another are kept between them."""

    def __init__(self, rows: Rows, trace: Trace, states: States) -> None:
        self.rows, self._trace, self._states = rows, trace, states
        """Rows at work: a layer whose experts get other tokens than those of the layers before has rows of its own."""
        self._is_partitioned = rows.choices["data_parallel"] == "deepspeed"
        gathers = self._is_partitioned and rows.values["sharded_weights"]
        self.partition = (Gathering if gathers else Partition)(rows, trace, states)
        self.bound = Bound(rows, trace)
        self.units: Units | MegatronUnits | None = None
        if rows.choices["data_parallel"] == "megatron_fsdp":
            self.units = MegatronUnits(rows, trace, self.bound)
        elif has_units(rows.scripts):
            self.units = Units(rows, trace)
        holds_back = rows.choices["collectives"] == "own"
        self._streams = {"^": PIPELINE, **({"~": TENSOR} if holds_back and rows.values["tensor_parallel"] > 1 else {})}
        self._sends_tokens = holds_back and rows.values["expert_parallel"] > 1
        self._passing: dict[str, list[int]] = {}
        self._unsaved: Held = {}
        self._added: list[int] = []
        self.gradients: list[int] = []
        """Elements of the gradients of a micro-batch, in the order in which they were made."""
        self._sums = False
        self._shared: Held = {}
        self._walks_layers = any(word.startswith("drop") for word in rows.scripts["layer_forward"])
        self._next: int | None = None
        tapes = Tapes(rows, trace, self._keep_gradient, self._add)
        self._words: dict[str, Callable[[str, _Point], object]] = {
            "save": self._save, "free": self._free, "grad": self._make_gradients, "drop": self._drop,
            "at": self._enter, "use": lambda name, point: states.use(name), END: self._save_rest, "again": self._again,
            "remake": self._remake, "roots": self._list_roots,
            "bind": lambda name, point: self.bound.bind_gradient(point.here),
            "unbind": lambda name, point: self.bound.unbind(),
            "copied": self._copy, "added": self._add, "share": self._share, "unshare": self._unshare,
            "tape": lambda name, point: tapes.play(name, point.held), "begin": lambda name, point: tapes.begin(),
            "read": lambda name, point: tapes.read(name, point.held),
            "return": lambda name, point: tapes.begin_backward(),
            "returned": lambda name, point: tapes.end_backward(),
            "later": self._later, "on": self._enter_stream, "zero": lambda name, point: self.partition.play(name),
            "sum": self._end_microbatch, "sent": self._send, "wait": self._wait,
            "receive": lambda name, point: trace.receive() if point.here_too else None, "next": self._hand_over,
            **({word: self._of_unit(play) for word, play in self.units.words.items()} if self.units else {}),
        }

    def play(self, point: str, saves: Sequence[Row] = (), held: Held | None = None, here_too: bool = False) -> None:
        """Run the script of a point: ``saves`` are rows to save, ``held`` the tensors that are saved.

        Tensors that only pass do so where the work of the point is ``here_too``, on this rank and chunk.
        """
        self._layer = self._trace.point = point
        at = _Point(self.rows.by_moment[point] if here_too else {}, saves, {} if held is None else held, here_too)
        for event in self.rows.scripts[point]:
            self._event(event, at)

    def _event(self, event: str, point: _Point) -> None:
        trace, sign, name = self._trace, event[0], event[1:]
        if sign.isalpha():
            word, _, name = event.partition(":")
            self._words[word](name, point)
        elif event == "+*":
            point.here |= {item: trace.allocate(size, item) for item, size in point.moment.items()
                           if item not in point.here and not self._passing.get(item)}
        elif event == "-*":
            trace.free_all(list(point.here.values()))
            point.here.clear()
        elif event == "-all":
            trace.free_all([key for keys in self._passing.values() for key in keys])
            self._passing, self._sums = {}, False
        elif sign == "+" and name in point.moment:
            point.here[name] = trace.allocate(point.moment[name], name)
        elif sign in "+=":
            row, _, pieces = name.partition("/")
            size = self.rows.sizes.get(f"passing.{row}", self.rows.sizes.get(row, 0)) // int(pieces or 1)
            if size and point.here_too:
                self._passing.setdefault(name, []).append(trace.allocate(size, row))
        elif name in point.here:
            trace.free(point.here.pop(name), self._streams.get(sign))
        elif self._passing.get(name):
            trace.free(self._passing[name].pop(0), self._streams.get(sign))

    def _of_unit(self, play: Callable[[str], None]) -> Callable[[str, _Point], object]:
        """Return the word of a unit, which the rank has where the point is; a backward pass turns on every rank."""
        return lambda name, point: play(name) if point.here_too or not name else None

    def _enter(self, name: str, point: _Point) -> None:
        """Go on to another moment: what the one before has in sums ends with it."""
        for item in [item for item in point.here if item not in self.rows.sizes]:
            self._trace.free(point.here.pop(item))
        point.moment = self.rows.by_moment[name]

    def _enter_stream(self, name: str, point: _Point) -> None:
        self._trace.stream = _STREAMS[name] if self.rows.values["context_parallel"] > 1 else 0

    def _send(self, names: str, point: _Point) -> None:
        for name in names.split("/") if self._sends_tokens else ():
            for key in [point.here.get(name), point.held.get(name), *self._passing.get(name, ())]:
                if key is not None:
                    self._trace.use(key, EXPERTS)

    def _wait(self, name: str, point: _Point) -> None:
        """Let the host wait for numbers of the GPU: those of tokens, where experts take as many as are sent to them."""
        if point.here_too and not (name and self.rows.values["expert_capacity_percent"]):
            self._trace.wait()

    def _free(self, name: str, point: _Point) -> None:
        for row in [row for row in reversed(point.held) if name in ("", row, row.partition(".")[0])]:
            self._trace.free(point.held.pop(row))

    def _make_gradients(self, name: str, point: _Point) -> None:
        kept = self.rows.sizes["state.kept_gradient"]
        for row in self.rows.every if point.here_too else ():
            if row.role == "weight" and name in (row.component, row.name) and row.name not in self.rows.frozen:
                self._keep_gradient(row, row.size, self._trace.allocate(kept * row.size, f"{row.component}.gradient"))

    def _keep_gradient(self, row: Row, elements: int, key: int) -> None:
        """Keep the gradient of a parameter until it is added to earlier ones, reduced, or the step is done."""
        self.gradients.append(elements)
        if isinstance(self.units, Units):
            self.units.keep(row, key)
        elif self._is_partitioned:
            self.partition.make(row, key)
        else:
            (self._added if self._sums else self._passing.setdefault("grad", [])).append(key)

    def _add(self, name: str = "", point: _Point | None = None) -> None:
        self._trace.free_all(self._added)
        self._added = []

    def _end_microbatch(self, name: str, point: _Point) -> None:
        self._sums = True

    def _share(self, name: str, point: _Point) -> None:
        self._shared |= {row.name: self._trace.allocate(row.size, row.name) for row in self.rows.shared
                         if row.name not in self._shared and name in ("", row.name)}

    def _later(self, event: str, point: _Point) -> None:
        """Run an event, but not behind the first layer."""
        if not self.bound.is_first:
            self._event(event, point)

    def _unshare(self, name: str, point: _Point) -> None:
        """Free what all layers share; with the name ``first`` behind the first layer alone."""
        if name and not self.bound.is_first:
            return
        self._trace.free_all([*self._shared.values()])
        self._shared.clear()

    def _copy(self, name: str, point: _Point) -> None:
        """Put a copy in the place of a tensor, where what a model returns is copied."""
        if self._passing.get(name) and self.rows.sizes.get("passing.copied"):
            key = self._passing[name].pop(0)
            self._passing[name].append(self._trace.allocate(self._trace.size(key), name))
            self._trace.free(key)

    def _drop(self, name: str, point: _Point) -> None:
        rows = list(self._unsaved)
        dropped = rows if name == "all" else [name] if name in rows else [] if name else rows[:-1]
        self._trace.free_all([self._unsaved.pop(row) for row in dropped])

    def _hand_over(self, name: str, point: _Point) -> None:
        self._next = self._trace.allocate(self.rows.sizes["passing.output"], NEXT)

    def _handed_over(self, size: int) -> int | None:
        """Return the tensor that the instance before made for this one, if it is of this size.

        Another one is freed, or passes where the point's script says when it is freed.
        """
        key, self._next = self._next, None
        if key is None or self._trace.size(key) == size:
            return key
        if f"-{NEXT}" in self.rows.scripts[self._layer]:
            self._passing[NEXT] = [key]
        else:
            self._trace.free(key)
        return None

    def _save(self, name: str, point: _Point) -> None:
        """Save rows; those of a recomputed layer that its checkpoint does not keep wait to be dropped."""
        saves, kept = point.saves, {row.name for row in point.saves}
        walked = saves and self._walks_layers and saves[0].place in IN_LAYER
        for row in [*saves, *(row for row in self.rows.of_forward if walked and row.name not in kept)]:
            if name in ("", row.component, row.name) and row.name not in point.held and row.name not in self._unsaved:
                saved = row.name if row.name in kept else self.rows.same.get(row.name, row.name)
                key = self._handed_over(row.size) or self._trace.allocate(row.size, row.name)
                if saved in kept:
                    point.held[saved] = key
                else:
                    self._unsaved[row.name] = key

    def _save_rest(self, name: str, point: _Point) -> None:
        """Save what a checkpoint keeps beside the tensors of the layer."""
        for row in point.saves:
            if row.name not in point.held:
                point.held[row.name] = self._trace.allocate(row.size, row.name)

    def _again(self, name: str, point: _Point) -> None:
        """Make the saved tensors of a recomputed layer, where its checkpoint has none in their memory."""
        if not self.rows.values["recompute_full"]:
            return
        held, same = point.held, self.rows.same
        for kept in [row for row in held if row not in same.values() and name != "kept"]:
            self._trace.free(held.pop(kept))
        forward = _Point({}, (), held, True)
        self.partition.recomputes = True
        for event in self.rows.scripts[self._layer.replace("backward", "forward")]:
            word, _, saved = event.partition(":")
            if event == END and not forward.moment:
                break  # behind the end only results of experts are made again
            if word == "save":
                for row in self.rows.of_forward:
                    if saved in (row.component, row.name) and row.name not in held:
                        held[row.name] = held.pop(same.get(row.name, ""), 0) or self._trace.allocate(row.size, row.name)
            elif word == "at":
                forward.moment = {item: size for item, size in self.rows.by_moment[saved].items()
                                  if not item.startswith(OF_FORWARD)}
            elif event[0] in "+-":
                self._event(event, forward)
            elif word == "unbind":
                self.bound.unbind()
            elif word in ("sent", "wait") or (word == "zero" and saved != AT_WORK):
                self._event(event, forward)
            elif word == "on":
                self._enter_stream(saved, forward)
            elif event[0] == "=":
                self._event(OUTPUT, point)
        if not self._passing.get(OUTPUT[1:]):
            self._event(OUTPUT, point)
        self.partition.recomputes = False
        self.bound.bind_input(held)

    def _list_roots(self, name: str, point: _Point) -> None:
        """Make the roots of a state that an optimizer of lists makes, tensor by tensor."""
        if size := int(self.rows.account.get("stage.listed_roots.optimizer_step", 0)):
            self._trace.free_all([self._trace.allocate(each, "listed_roots")
                                  for each in self._states.listed(name, size)])

    def _remake(self, name: str, point: _Point) -> None:
        """Make the saved tensors of a component, or one, that a checkpoint inside of the layer has dropped."""
        for row in self.rows.dropped:
            if name in (row.component, row.name) and row.name not in point.held:
                point.held[row.name] = self._trace.allocate(row.size, row.name)
