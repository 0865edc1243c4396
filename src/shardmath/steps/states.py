"""Births of what lasts: weights, gradients, optimizer states and buffers of a rank."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction

from shardmath.steps.buckets import BUCKET, Buckets
from shardmath.steps.buckets import NAME as BUCKETS
from shardmath.steps.rows import Row, Rows
from shardmath.steps.trace import Trace

WORKSPACE = "workspace"
#: Prefix of parameters that have no states but themselves, and are made before the others.
FROZEN = "frozen_"


class States:
    """Allocate what lasts, exactly as many bytes as the account has of each role.

    Optimizer states that ranks share out are those of shard number ``shard``, of which 0 is the first rank's; those of
    experts, which fewer ranks share, are of the shard that the same rank has.
    """

    def __init__(self, rows: Rows, trace: Trace, shard: int = 0) -> None:
        self._rows, self._trace, self.shard = rows, trace, shard
        groups = {FROZEN: rows.weights(experts=False, frozen=True), "": rows.weights(experts=False),
                  "expert_": rows.weights(experts=True)}
        self._groups = {prefix: elements for prefix, elements in groups.items() if elements}
        used = {event.removeprefix("use:") for script in rows.scripts.values() for event in script
                if event.startswith("use:")}
        self.buckets = Buckets(rows, trace)
        self.weights: list[int] = []
        """Parameters, as they were made before the first step."""
        self._late = [row for row in rows.every if row.role == "buffer" and used & {row.name, row.component}
                      for _ in range(self._count(row))]

    def begin(self) -> None:
        """Make all that is there before the first step; parameters that move are freed when they have."""
        moved: list[int] = []
        for name, pieces in self._pieces(late=False):
            if self._rows.states[name][0] == "optimizer":
                self._trace.free_all(moved[::-1])
                moved = []
            if self._moves(name):
                moved = [self._trace.allocate(size, name) for size in self._cut(sum(pieces), "tensor", "weight")]
            keys = [self._trace.allocate(size, name) for size in pieces]
            if self._rows.states[name][0] == "weight":
                self.weights += keys
        self._trace.free_all(moved[::-1])
        self.buckets.make()
        static = self._rows.static()
        buffers = [row for row in self._rows.every if row.role == "buffer" for _ in range(self._count(row))]
        workspaces, others = ([row for row in buffers if (row.module == WORKSPACE) is first and row not in self._late]
                              for first in (True, False))
        for name, size in [*((row.name, row.size) for row in workspaces), ("input", static["input"]),
                           *((row.name, row.size) for row in others)]:
            self._trace.allocate(size, name)
        made = int(self._rows.account.get(f"stage.{BUCKETS}.buffer", 0))
        assert made + sum(row.size for row in buffers) == static["buffer"]
        if self._rows.choices["data_parallel"] == "megatron_fsdp":
            self._trace.empty_cache()

    def listed(self, name: str, size: int) -> Iterator[int]:
        """Yield ``size`` bytes in pieces like a state's, without the smallest: vectors are in a list of their own."""
        pieces = next(pieces for late in (False, True) for state, pieces in self._pieces(late) if state == name)
        beyond = sum(pieces) - size
        vectors: list[int] = []
        for piece in sorted(pieces):
            if sum(vectors) + piece > beyond:
                break
            vectors.append(piece)
        for piece in pieces:
            if piece in vectors:
                vectors.remove(piece)
            elif size:
                yield (held := min(piece, size))
                size -= held
        if size:
            yield size

    def _moves(self, name: str) -> bool:
        """Return True for parameters that move into a buffer: those of which ranks share out the optimizer states."""
        values = self._rows.values
        return (self._rows.states[name][1] == "moved" and bool(values["distributed_optimizer"])
                and not values["sharded_weights"])

    def _count(self, row: Row) -> int:
        instances = self._rows.instances(row)
        return min(1, instances) if row.lifetime == "SHARED" else instances

    def use(self, name: str) -> None:
        """Make the buffers of a name or of a component, the last first, if they are not there yet."""
        made = [row for row in reversed(self._late) if name in (row.name, row.component)]
        for row in made:
            self._late.remove(row)
            self._trace.allocate(row.size, row.name)
        if not made:
            self._trace.allocate(0, name)  # the lag of deferred frees was fitted with uses counted as allocations

    def first_step(self) -> None:
        """Make the states that the first optimizer step makes: all of a parameter, then those of the next one."""
        states = list(self._pieces(late=True))
        for sizes in zip(*(pieces for _, pieces in states), strict=True):
            for (name, _), size in zip(states, sizes, strict=True):
                self._trace.allocate(size, name)

    def _pieces(self, late: bool) -> Iterator[tuple[str, list[int]]]:
        """Yield each state with the sizes of its allocations; those of a role have its bytes, to the last one."""
        for role, total in self._rows.static().items():
            if role == "buffer":
                continue  # buckets are no sum of a part of every parameter
            known = {name: self._rows.sizes[f"state.{name}"] for name, (of, _, _) in self._rows.states.items()
                     if of == role}
            whole, left = sum(known.values()), total
            for place, (name, each) in enumerate(known.items(), start=1):
                size = left if place == len(known) else total * each // whole
                left -= size
                _, piece, is_late = self._rows.states[name]
                if piece == "moved" and not self._moves(name):
                    piece = "tensor"
                if is_late == late and size:
                    yield name, list(self._cut(size, piece, role))

    def _cut(self, size: int, piece: str, role: str) -> Iterator[int]:
        """Cut a state into its allocations, group by group of the parameters that are laid out together."""
        if not self._groups:
            yield size
            return
        kind = "shard" if role == "optimizer" else "buffer"
        groups = {prefix: elements for prefix, elements in self._groups.items() if prefix != FROZEN or role == "weight"}
        shares = [self._rows.account.get(f"stage.{prefix}{kind}_elements", 1) for prefix in groups]
        before, start = Fraction(0), 0
        for (prefix, elements), share in zip(groups.items(), shares, strict=True):
            before += share
            end = int(size * before / sum(shares, Fraction(0)))
            if piece == "shard":
                yield from self._shard(end - start, elements, self._place_in(prefix))
            else:
                yield from self._cut_group(end - start, piece, elements)
            start = end

    def _place_in(self, prefix: str) -> int:
        """Return the number of the rank's shard in a group of parameters: ranks with the same experts are fewer."""
        own, others = (Fraction(self._rows.account.get(f"stage.{name}buffer_elements", 1))
                       / self._rows.account.get(f"stage.{name}shard_elements", 1) for name in (prefix, ""))
        return int(self.shard * own / others)

    def _cut_group(self, size: int, piece: str, counts: Sequence[int]) -> Iterator[int]:
        if piece in ("whole", "moved"):
            yield size
            return
        elements, before, held = sum(counts), 0, 0
        start = 0
        for count in counts:
            before += count
            end = size * before // elements
            held += end - start
            start = end
            if piece == "tensor" or held >= BUCKET:
                yield held
                held = 0
        if held:
            yield held

    def _shard(self, size: int, counts: Sequence[int], place: int) -> Iterator[int]:
        """Cut shard number ``place``, a range of the buffer, in which parameters lie from the last to the first."""
        each = next(self._rows.sizes[f"state.{name}"] for name, (_, piece, _) in self._rows.states.items()
                    if piece == "shard")
        start, before = place * size, 0
        for count in reversed(counts):
            after = before + each * count
            if (held := min(after, start + size) - max(before, start)) > 0:
                yield held
            before = after
        if (padding := start + size - max(before, start)) > 0:
            yield padding
