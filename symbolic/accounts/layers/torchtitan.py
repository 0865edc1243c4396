"""Layers of torchtitan as the operations of their forward passes: fused norms, grouped or latent heads, experts.

Numbers of experts and of tokens have no gradient; they are held as long as functions have names for them.
"""

from __future__ import annotations

from collections.abc import Mapping

from sympy import Expr, Integer

from ...dimensions import (
    DISPATCHED,
    EXPERT_FFN,
    EXPERTS,
    HEAD_DIM,
    HIDDEN,
    LATENT_KV,
    LATENT_KV_ROTARY,
    PADDED_RECEIVED,
    ROUTED,
    SEQUENCE,
    SHARED_FFN,
    SHARED_GATE_UP,
    TOPK,
)
from ...functions import Iverson
from ...parameters import symbols
from ...terms import product
from ..rows import local_shape
from .autograd import Storage, Value, Walk
from .operations import HIGH, LONG, LOW, TOKENS, WHOLE, Shape, sized
from .transformers import KEY, QUERY, Layer
from .transformers_latent import AT, BOTH, OF_ALL, STILL, TURNED, VALUE, queries
from .transformers_latent import QUERY as LATENT_QUERY

q, fs = symbols("q fs")

_ALL: Shape = (*TOKENS, ROUTED)
_CHOSEN: Shape = (*TOKENS, TOPK)
_SENT: Shape = (DISPATCHED, HIDDEN)
_PADDED: Shape = (PADDED_RECEIVED, HIDDEN)
_INNER: Shape = (PADDED_RECEIVED, EXPERT_FFN)


class TitanLayer(Layer):
    """The operations of a dense layer, whose recompute runs to its end."""

    def run(self) -> Value:
        """As the base class says."""
        self.tape.stops_early = False
        if self.choices["rope"] == "cast":  # FSDP2 casts the tables that a layer is called with
            table = self.bytes_of((SEQUENCE, HEAD_DIM), LOW)
            self.tables = [Storage(table), Storage(table)]
            self.tape.operations[0].results += [Value(each, (SEQUENCE, HEAD_DIM), LOW) for each in self.tables]
        return super().run()

    def _of_norm(self, value: Value, name: str, shape: Shape) -> Value:
        """Record one kernel, which keeps its input and a number of every token."""
        weight = f"{name}.weight"

        def backward(walk: Walk, gradients: list[Storage]) -> list[Storage]:
            made = walk.make(self.bytes_of(shape, LOW))
            walk.parameter(sized(LOW * self.weights[weight]), weight)
            return [made]
        statistics = Storage(self.bytes_of(shape[:-1], HIGH))
        return self.value("norm", [value], shape, backward=backward, saved=[value.storage, statistics])

    def attention(self, value: Value) -> Value:
        """Record attention in one kernel, and its projections."""
        return self._latent(value) if self.choices["heads"] == "latent" else self._grouped_heads(value)

    def _grouped_heads(self, value: Value) -> Value:
        query, key, values = (self.linear(value, f"attention.{name}.weight", shape)
                              for name, shape in (("q", QUERY), ("k", KEY), ("v", KEY)))
        if self.normed:
            query, key = self._normed("q", query), self._normed("k", key)
        turned = self._cast_turn(query, key) if self.choices["rope"] == "cast" else self._complex_turn(query, key)
        query, key = turned
        read = self.core([query, key, values], QUERY)
        self.tape.name(*turned)
        return self.linear(read, "attention.o_proj.weight", WHOLE)

    def _complex_turn(self, *values: Value) -> list[Value]:
        """Record products with complex numbers, of which the backward pass makes the conjugates."""
        wide = [self.cast(value, HIGH) for value in values]
        turned = [self._rotated(value) for value in wide]
        made = [self.cast(value, LOW) for value in turned]
        self.tape.name(*values, *wide, *turned)
        return made

    def _rotated(self, value: Value) -> Value:
        table = self.bytes_of((SEQUENCE, value.shape[-1]), HIGH)

        def backward(walk: Walk, gradients: list[Storage]) -> list[Storage]:
            conjugate = walk.make(table)
            made = walk.make(self.bytes_of(value.shape, HIGH))
            walk.drop(conjugate)
            return [made]
        return self.value("rotate", [value], value.shape, HIGH, backward=backward)

    def _cast_turn(self, *values: Value) -> list[Value]:
        """Record products with 16-bit cosines and sines, the latter of halves exchanged, one with its sign turned."""
        made = []
        for value in values:
            straight = self.with_table(value, LOW, self.tables[:1])
            # A half is written as numbers of half as many bytes.
            first, second = (self.simple("slice", value, bytes=1, view=True) for _ in range(2))
            crossed = self.joined(value.shape, [self.simple("negative", second), first])
            made.append(self.add(straight, self.with_table(crossed, LOW, self.tables[1:])))
        self.tape.name(*values, *made)
        return made

    def _latent(self, value: Value) -> Value:
        """Record latent attention, whose queries, keys and values are made from compressed ones."""
        whole = queries(self, value, self.switched[-1])
        still, turning = self.split(whole, STILL, TURNED)
        query = self.joined(LATENT_QUERY, [still, *self._complex_turn(turning)])
        compressed = self.linear(value, f"{AT}.kv_down.weight", (*TOKENS, LATENT_KV_ROTARY))
        latent, shared = self.split(compressed, (*TOKENS, LATENT_KV), OF_ALL)
        turned, = self._complex_turn(shared)
        latent = self.norm(latent, f"{AT}.kv_norm", (*TOKENS, LATENT_KV))
        both = self.linear(latent, f"{AT}.kv_up.weight", BOTH)
        key_still, values = self.split(both, STILL, VALUE)
        heads = self.value("expand", [turned], TURNED, backward=self.making(OF_ALL))
        heads.storage = turned.storage
        key = self.joined(LATENT_QUERY, [key_still, heads])
        read = self.core([query, key, values], VALUE)
        self.tape.name(still, turned)
        return self.linear(read, f"{AT}.o_proj.weight", WHOLE)


class TitanExpertLayer(TitanLayer):
    """The operations of a layer with experts, which may have shared ones beside them."""

    block = "expert"

    @classmethod
    def switches(cls, choices: Mapping[str, str]) -> tuple[Expr, ...]:
        """As the base class says: shared experts, and sigmoids of several experts, which are divided by their sum."""
        divided = (Iverson(q > 1),) if choices["scores"] == "sigmoid" else ()
        return (Iverson(fs > 0), *divided, *super().switches(choices))

    def mlp(self, value: Value) -> Value:
        """Record the router, the experts and shared ones, and the sum of their results."""
        before, self.part = self.part, "experts"
        weights, chosen = self._routed(value)
        is_first = self.choices["weighting"] == "input"
        order = self._numbers("order", (DISPATCHED,))
        shares = (self.simple("index", weights, (DISPATCHED,), saved=[order.storage]) if is_first
                  else self._numbers("sorted weights", (DISPATCHED,), HIGH))
        counts, numbers = self._numbers("counts", (ROUTED,)), self._numbers("token numbers", (DISPATCHED,))
        tokens = sent = self.simple("index", value, _SENT, saved=[numbers.storage])
        if is_first:
            sent = self.cast(self.multiply(self.cast(tokens, HIGH), shares), LOW)
            self.tape.name(tokens)
        results = self._of_experts(sent)
        shared = [self._shared(value)] if self.switched[0] else []
        unsorted = self.simple("put", results, _SENT, saved=[order.storage])
        out = self._summed(unsorted, weights, is_first)
        held = (value, weights, chosen, counts, order, shares, sent, results, unsorted, *shared)
        self.tape.name(*held)
        for each in shared:
            out = self.add(each, out)
            self.tape.name(*held)
        self.part = before
        return out

    def _numbers(self, name: str, shape: Shape, bytes: int = LONG) -> Value:
        """Record numbers that have no gradient."""
        return self.value(name, [], shape, bytes, backward=lambda walk, gradients: [])

    def _shared(self, value: Value) -> Value:
        """Record shared experts, which are an MLP."""
        inner = self.gated(value, "shared_experts", ("gate_proj", "up_proj"), (*TOKENS, SHARED_FFN),
                           (*TOKENS, SHARED_GATE_UP))
        return self.linear(inner, "shared_experts.down.weight", WHOLE)

    def _routed(self, value: Value) -> tuple[Value, Value]:
        """Record fp32 scores of all experts; return those of the chosen ones, as they are weighted, and these."""
        is_sigmoid = self.choices["scores"] == "sigmoid"
        logits = self.linear(value, "router.weight", _ALL)
        scores = self.simple("scores", self.cast(logits, HIGH), kept=True)
        self.tape.name(logits)
        corrected = [self._numbers("corrected scores", _ALL, HIGH)] if self.choices["balance"] == "bias" else []
        best, chosen = self._numbers("best scores", _CHOSEN, HIGH), self._numbers("chosen", _CHOSEN)
        self.tape.name(best)
        weights = self.simple("gather", scores, _CHOSEN, saved=[chosen.storage])
        if self.switched[1] if is_sigmoid else self.choices["scores"] == "softmax":
            total = self.simple("sum", weights, TOKENS, passed=True)
            weights = self._divided(weights, self.simple("bound", total, passed=True))
        weights = self.simple("scaled", weights)
        self.tape.name(*corrected)
        return weights, chosen

    def _divided(self, weights: Value, total: Value) -> Value:
        """Divide by the sum, whose gradient is made first."""
        size = self.bytes_of(weights.shape, HIGH)

        def backward(walk: Walk, gradients: list[Storage]) -> list[Storage]:
            passing = [walk.make(size) for _ in range(4)]
            for each in passing[:3]:
                walk.drop(each)
            made, reduced = walk.make(size), walk.make(self.bytes_of(TOKENS, HIGH))
            walk.drop(passing[3])
            return [made, reduced]
        return self.value("divide", [weights, total], weights.shape, HIGH, backward=backward,
                          saved=[weights.storage, total.storage])

    def _of_experts(self, sent: Value) -> Value:
        """Record tokens put into padded groups, their products, and results taken out of the groups.

        Tokens have one row more on either way, which padding reads and writes.
        """
        places = self._numbers("places", (PADDED_RECEIVED,), 4)
        joined = self._one_row_more(sent)
        padded = self.value("index", [joined], _PADDED, saved=[places.storage],
                            backward=lambda walk, gradients: [walk.make(joined.storage.size)])
        self.tape.name(joined)
        ends = self._numbers("ends", (EXPERTS,), 4)
        gate = self._grouped(padded, "padded_experts.gate.weight", _INNER, ends)
        activated = self.simple("activation", gate, saved=[gate.storage])
        up = self._grouped(padded, "padded_experts.up.weight", _INNER, ends)
        out = self._grouped(self.multiply(activated, up), "padded_experts.down.weight", _PADDED, ends)
        whole = self.simple("put", out, joined.shape, saved=[places.storage])
        whole.storage = Storage(joined.storage.size)
        result = self.value("slice", [whole], _SENT, backward=lambda walk, gradients: [walk.make(whole.storage.size)])
        result.storage = whole.storage
        self.tape.name(out)
        return result

    def _one_row_more(self, sent: Value) -> Value:
        """Join tokens and a row of zeros, of whose gradient theirs is a view."""
        out = self.joined(_SENT, [sent])
        row = sized(product(Integer(LOW), *local_shape((HIDDEN,))))
        size = {**self.bytes_of(_SENT, LOW)}
        for term, number in row.items():
            size[term] = size.get(term, 0) + number
        out.storage = Storage(size)
        return out

    def _grouped(self, value: Value, weight: str, shape: Shape, ends: Value) -> Value:
        """Multiply the tokens of each expert with its matrix."""
        def backward(walk: Walk, gradients: list[Storage]) -> list[Storage]:
            walk.parameter(sized(LOW * self.weights[weight]), weight)
            return [walk.make(self.bytes_of(value.shape, LOW))]
        return self.value(weight, [value], shape, backward=backward, saved=[value.storage, ends.storage])

    def _summed(self, results: Value, weights: Value, weighted_before: bool) -> Value:
        """Sum the results of each token, in fp32 with their weights unless tokens had them before."""
        if weighted_before:
            return self.simple("sum", results, WHOLE, passed=True)
        wide = self.cast(results, HIGH)

        def backward(walk: Walk, gradients: list[Storage]) -> list[Storage]:
            made = walk.make(self.bytes_of(results.shape, HIGH))
            return [walk.make(self.bytes_of(weights.shape, HIGH)), made]
        out = self.value("products", [weights, wide], WHOLE, HIGH, backward=backward,
                         saved=[weights.storage, wide.storage])
        narrow = self.cast(out, LOW)
        self.tape.name(out)
        return narrow
