"""Layers of Transformers with experts as the operations of their forward passes: router, grouped products, sums.

Numbers of experts and of tokens are int64 and have no gradient; they are held as long as functions have names for them.
"""

from __future__ import annotations

from collections.abc import Mapping

from sympy import Expr, Integer, Symbol

from ...dimensions import (
    EXPERT_FFN,
    EXPERT_GATE_UP,
    HIDDEN,
    RECEIVED,
    ROUTED,
    SENT,
    SHARED_FFN,
    SHARED_GATE_UP,
    TOPK,
)
from ...functions import Iverson
from ...parameters import symbols
from .autograd import Storage, Value, Walk
from .operations import HIGH, LONG, LOW, TOKENS, WHOLE, Shape, sized
from .transformers import Layer

q, fs, sgate, lbias = symbols("q fs sgate lbias")

_ALL: Shape = (*TOKENS, ROUTED)
_CHOSEN: Shape = (*TOKENS, TOPK)
#: ERNIE 4.5's router.
_BOUNDED = "huggingface_bounded"


class ExpertLayer(Layer):
    """The operations of one layer with experts, which may have shared ones beside them, and these a gate."""

    block = "expert"

    @classmethod
    def switches(cls, choices: Mapping[str, str]) -> tuple[Expr, ...]:
        """As the base class says."""
        return (*(() if _is_bounded(choices) else (Iverson(fs > 0), sgate)), *super().switches(choices))

    @classmethod
    def settled(cls, choices: Mapping[str, str]) -> Mapping[Symbol, Expr]:
        """As the base class says: experts that may have biases have them."""
        return {lbias: Integer(1)} if choices["biases"] == "linear" else {}

    def mlp(self, value: Value) -> Value:
        """Record the router, the experts and shared ones, and the sum of their results."""
        has_shared, has_gate = (False, False) if _is_bounded(self.choices) else self.switched[:2]
        before, self.part = self.part, "experts"
        shared = [self._shared(value)] if has_shared and self._is_shared_first else []
        logits, weights = self._routed(value)
        out = self._of_experts(value, weights)
        self.tape.name(value, logits, weights)
        if has_shared and self.choices["shared_sum"] == "fp32":
            out = self._summed_wide(value, out)
        elif has_shared and not shared:
            shared = [self._shared(value)]
        for each in shared:
            out = self.add(out, self._gated_once(value, each) if has_gate else each)
        self.tape.name(*shared)
        self.part = before
        return self.simple("scaled", out) if self._is_scaled else out

    @property
    def _is_scaled(self) -> bool:
        return self.choices["router"] == "huggingface_top"  # Granite 3

    @property
    def _has_biases(self) -> bool:
        return bool(self.settled(self.choices))

    @property
    def _is_wide(self) -> bool:
        return self.choices["router_weights"] == "fp32"

    @property
    def _is_shared_first(self) -> bool:
        router = self.choices["router"]
        return router == _BOUNDED or (router == "huggingface" and not self._is_of_deepseek)

    @property
    def _is_of_deepseek(self) -> bool:
        return self._has_sigmoids or self.choices["heads"] == "latent"

    @property
    def _has_sigmoids(self) -> bool:
        return self.choices["scores"] == "sigmoid"

    def _shared(self, value: Value) -> Value:
        """Record shared experts, which are an MLP."""
        inner = self.gated(value, "shared_experts", ("gate_proj", "up_proj"), (*TOKENS, SHARED_FFN),
                           (*TOKENS, SHARED_GATE_UP))
        return self.linear(inner, "shared_experts.down.weight", WHOLE)

    def _gated_once(self, value: Value, result: Value) -> Value:
        """Multiply the result of shared experts with one number for each token."""
        gate = self.simple("sigmoid", self.linear(value, "shared_experts.gate.weight", TOKENS), kept=True)
        return self.multiply(result, gate)

    def _summed_wide(self, value: Value, routed: Value) -> Value:
        """Record shared experts and an fp32 sum of their result with a copy that the routed ones' has by then."""
        out = self.add(self.cast(routed, HIGH), self.cast(self._shared(value), HIGH))
        self.tape.name(routed)
        return self.cast(out, LOW)

    def _numbers(self, name: str, shape: Shape, bytes: int = LONG) -> Value:
        """Record numbers that have no gradient."""
        return self.value(name, [], shape, bytes, backward=lambda walk, gradients: [])

    def _routed(self, value: Value) -> tuple[Value, Value]:
        """Record the scores; return the logits, and the weights of the chosen experts."""
        router, is_low = self.choices["router"], self.choices["router_precision"] == "bf16"
        if router == _BOUNDED or (router == "huggingface" and (self._is_of_deepseek or self._is_wide)):
            logits = self._wide_logits(self.cast(value, HIGH))
        else:
            logits = self.linear(value, "router.weight", _ALL, "router.scores.bias" if self._has_biases else "")
        if self._is_scaled:
            logits = self.cast(logits, HIGH)
        chooses_first = self._is_scaled or router == "huggingface_chosen"
        weights = (self._of_chosen if chooses_first else self._chosen)(logits)
        return logits, self.cast(weights, LOW) if is_low and weights.bytes == HIGH else weights

    def _chosen(self, logits: Value) -> Value:
        """Record the scores of all experts in fp32, and those of the chosen ones, which may be divided by their sum."""
        high = self.cast(logits, HIGH) if logits.bytes == LOW else logits
        scores, chosen = self.simple("scores", high, kept=True), Storage(self.bytes_of(_CHOSEN, LONG))
        is_bounded = self.choices["router"] == _BOUNDED
        if self._has_sigmoids or is_bounded:  # others than the scores choose
            corrected = self._numbers("corrected scores", _ALL, HIGH)
            weights = self.simple("gather", scores, _CHOSEN, saved=[chosen])
            self.tape.name(corrected)
        else:
            weights = self.simple("topk", scores, _CHOSEN, saved=[chosen])
        if self.choices["scores"] != "softmax_all":
            total = self.simple("sum", weights, TOKENS, passed=True)
            total = self.simple("bound", total, saved=[total.storage]) if is_bounded else total
            weights = self._divided(weights, total, weights.storage if is_bounded else Storage(weights.storage.size))
        is_scaled = self._is_of_deepseek and logits.bytes == HIGH
        return self.simple("scaled", weights) if is_scaled else weights

    def _of_chosen(self, logits: Value) -> Value:
        """Record the best logits, and their softmax alone."""
        best = self.simple("topk", logits, _CHOSEN, saved=[Storage(self.bytes_of(_CHOSEN, LONG))])
        return self.simple("softmax", best, kept=True)

    def _wide_logits(self, value: Value) -> Value:
        """Multiply with the router's weight in fp32, or with an fp32 copy of it."""
        weight = self.weights["router.weight"]
        copies = [] if self._is_wide else [Storage(sized(HIGH * weight))]

        def backward(walk: Walk, gradients: list[Storage]) -> list[Storage]:
            wide = [walk.make(copy.size) for copy in copies]
            if not wide:
                walk.parameter(sized(HIGH * weight), "router.weight")
            made = walk.make(value.storage.size)
            walk.returned()
            for each in wide:
                walk.parameter(sized(LOW * weight), "router.weight")
                walk.drop(each)
            return [made]
        return self.value("router.weight", [value], _ALL, HIGH, backward=backward, saved=[value.storage, *copies])

    def _divided(self, weights: Value, total: Value, copy: Storage) -> Value:
        """Divide by their sum; saved is what is divided, or a copy where that is done in place."""
        size = self.bytes_of(weights.shape, weights.bytes)
        several = {Iverson(q > 1) * product: number for product, number in size.items()}  # one is its own sum

        def backward(walk: Walk, gradients: list[Storage]) -> list[Storage]:
            made = walk.make(size)
            passing = [walk.make(each) for each in (size, size, size, several)]
            reduced = walk.make(self.bytes_of(TOKENS, weights.bytes))
            for each in reversed(passing):
                walk.drop(each)
            return [made, reduced]
        return self.value("divide", [weights, total], weights.shape, weights.bytes, backward=backward,
                          saved=[copy, total.storage])

    def _of_experts(self, value: Value, weights: Value) -> Value:
        """Record tokens sorted by expert, their products, and results sorted back and summed for each token."""
        numbers, order = (self._numbers(name, (SENT,)) for name in ("sorted numbers", "order"))
        places = self._numbers("places", (SENT,))
        tokens = self.simple("index", value, (SENT, HIDDEN), saved=[places.storage])
        shares = self.simple("index", weights, (SENT,), saved=[order.storage])
        narrow = self._numbers("narrow numbers", (SENT,), 4)
        counted, offsets = (self._numbers(name, (ROUTED,), 4) for name in ("counts", "offsets"))
        added = self._bias("experts.gate_up.bias", (SENT, EXPERT_GATE_UP), numbers)
        whole = self._grouped(tokens, "experts.gate_up.weight", (RECEIVED, EXPERT_GATE_UP), offsets.storage, added)
        inner = self._bounded(whole) if _is_bounded(self.choices) else self._activated(whole)
        last = self._bias("experts.down.bias", (SENT, HIDDEN), numbers)
        self.tape.name(*added)
        results = self._grouped(inner, "experts.down.weight", (RECEIVED, HIDDEN), offsets.storage, last)
        weighted = self._weighted(results, shares)
        back = self._numbers("places back", (SENT,))
        self._numbers("range", (SENT,))  # which is written to them
        restored = self.simple("index", weighted, saved=[back.storage])
        out = self._summed(restored)
        out = self.cast(out, LOW) if out.bytes == HIGH else out
        self.tape.name(numbers, narrow, counted, tokens, results, restored, *last)
        return out

    def _bias(self, weight: str, shape: Shape, numbers: Value) -> list[Value]:
        """Take the biases of the experts of all tokens, if they have some."""
        return [self.read(weight, shape, saved=[numbers.storage])] if self._has_biases else []

    def _activated(self, whole: Value) -> Value:
        gate, up = self.halves(whole, (RECEIVED, EXPERT_FFN))
        return self.multiply(self.simple("activation", gate, saved=[gate.storage]), up)

    def _bounded(self, whole: Value) -> Value:
        """Record the product of GPT-OSS: gate and up projections alternate and are bounded, the latter plus 1."""
        parts = [self.slice(whole, (RECEIVED, EXPERT_FFN)) for _ in range(2)]
        gate, up = (self._clamped(part, bounds) for bounds, part in enumerate(parts, 1))
        product = self.multiply(gate, self.simple("sigmoid", self.simple("scaled", gate), kept=True))
        out = self.multiply(self.simple("shift", up, passed=True), product)
        self.tape.name(up)
        return out

    def _clamped(self, value: Value, bounds: int) -> Value:
        """Keep a tensor within one bound or two; its backward pass compares with each."""
        def backward(walk: Walk, gradients: list[Storage]) -> list[Storage]:
            masks = [walk.make(self.bytes_of(value.shape, 1)) for _ in range(bounds)]
            made = walk.make(self.bytes_of(value.shape, LOW))
            for each in reversed(masks):
                walk.drop(each)
            return [made]
        return self.value("clamp", [value], value.shape, backward=backward, saved=[value.storage])

    def _summed(self, results: Value) -> Value:
        """Sum the results of each token, whose gradients are copies of the sum's; of one result it is that itself."""
        size = self.bytes_of(results.shape, results.bytes)
        if results.bytes == LOW and not self._is_scaled:  # it is the gradient of the residual too, which lives longer
            size = {Iverson(q > 1) * product: number for product, number in size.items()}
        return self.value("sum", [results], WHOLE, results.bytes, backward=lambda walk, gradients: [walk.make(size)])

    def _grouped(self, value: Value, weight: str, shape: Shape, offsets: Storage, added: list[Value]) -> Value:
        """Multiply the tokens of each expert with its matrix, and add its bias in place."""
        def backward(walk: Walk, gradients: list[Storage]) -> list[Storage]:
            walk.parameter(sized(LOW * self.weights[weight]), weight)
            return [walk.make(self.bytes_of(value.shape, LOW))]
        out = self.value(weight, [value], shape, backward=backward, saved=[value.storage, offsets])
        for each in added:
            storage, out = out.storage, self.add(out, each)
            out.storage = storage
        return out

    def _weighted(self, results: Value, shares: Value) -> Value:
        """Multiply results with the weights of their tokens, which may be wider."""
        if shares.bytes == results.bytes:
            return self.multiply(results, shares)
        size = self.bytes_of(results.shape, shares.bytes)

        def backward(walk: Walk, gradients: list[Storage]) -> list[Storage]:
            wide, products = walk.make(size), walk.make(size)
            walk.returned()
            made = walk.make(self.bytes_of(results.shape, results.bytes))
            walk.drop(wide)
            reduced = walk.make(self.bytes_of(shares.shape, shares.bytes))
            walk.drop(products)
            return [made, reduced]
        return self.value("weight", [results, shares], results.shape, shares.bytes, backward=backward,
                          saved=[results.storage, shares.storage])


def _is_bounded(choices: Mapping[str, str]) -> bool:
    """Tell whether gates are bounded, as in GPT-OSS, which has no shared experts."""
    return choices["mlp"] == "swiglu_clamped"
