"""Work, traffic and time of one component: a layer's part, for one micro-batch on one rank."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from sympy import Expr, Integer

from ..accounts.rows import components_of
from ..functions import Max
from ..implementations import Implementation
from ..ledger import Component
from ..parameters import symbols
from ..rates import BETWEEN, beside_computing, ring_time, stream_time
from ..terms import TermSet, product, total
from ..work import BOTH_GRADIENTS, Kernel, Transfer
from .rows import RATES, Matmul, Moved, matmuls, repeated, streams, transfers

c, t, ot, s0 = symbols("c t ot s0")

#: Directions of a pass through the model.
PASSES = ("forward", "backward")


#: Overheads of a product on each side: half a tile of 128 x 256 idles at the edges, and its pipeline fills over 256
#: elements of the inner side.
HALF_TILE, FILLING = (Integer(64), Integer(128)), Integer(256)


def matmul_time(item: Matmul) -> Expr:
    """Return the seconds of a forward product, with longer sides for partial tiles and the filling of its pipeline.

    Core attention is one kernel over all of its tiles, so its efficiency stands alone; short sequences reach less of
    it, as tiles at the diagonal are half masked and few tiles leave a part of the GPU idle.
    """
    peak, share = symbols(" ".join(RATES[item.rate]))
    if item.rate == Kernel.ATTENTION.value:
        return item.flops * (1 + s0 / item.length) / (peak * share / 1000)
    rows, columns = HALF_TILE
    sides = (total(item.rows, product(rows, item.groups)), total(item.inner, FILLING), total(item.columns, columns))
    return product(Integer(2), item.factor, *sides) / (peak * share / 1000)


def add_components(terms: TermSet, implementation: Implementation) -> None:
    """Add the FLOPs, bytes, kernels and traffic of every component with work, and their times."""
    for component in components_of(implementation):
        products = matmuls(component, implementation)
        moved = streams(component, implementation)
        name, title = component.name, component.title
        if products:
            terms.add(f"{name}.forward_flops", total(*(item.flops for item in products)), "FLOP",
                      f"{title}: multiplications and additions of the forward pass")
            unneeded = [item.flops for item in products if item.backward < BOTH_GRADIENTS]
            if unneeded:
                terms.add(f"{name}.unneeded_flops", total(*unneeded), "FLOP",
                          f"{title}: gradients of frozen weights, which nobody needs")
            core = [item.flops for item in products if item.rate == Kernel.ATTENTION.value]
            if core:
                terms.add(f"{name}.core_flops", total(*core), "FLOP", f"{title}: those of core attention")
        if moved:
            for way in PASSES:
                terms.add(f"{name}.{way}_bytes", total(*(getattr(item, way) for item in moved)), "bytes",
                          f"{title}: what memory moves outside of products in the {way} pass")
        if products or moved:
            count = Integer(len(products) + sum(item.kernels for item in moved))
            collectives = (item.row.kernels for item in transfers(component, implementation))
            terms.add(f"{name}.kernels", total(count, *collectives), "kernels", f"{title}: kernels of a pass")
            _add_times(terms, component, implementation, products, moved)
        _add_traffic(terms, component, implementation)


def _add_times(
    terms: TermSet, component: Component, implementation: Implementation, products: Iterable[Matmul],
    moved: Iterable[Moved],
) -> None:
    name, title = component.name, component.title
    linear = [matmul_time(item) for item in products if item.rate != Kernel.ATTENTION.value]
    core = [item for item in products if item.rate == Kernel.ATTENTION.value]
    parts: dict[str, list[Expr]] = {way: [] for way in PASSES}
    if linear:
        seconds = terms.add(f"{name}.product_time", total(*linear), "s",
                            f"{title}: products with weights, of one pass")
        parts["forward"].append(seconds)
        parts["backward"].append(_backward(products, seconds))
    if core:
        seconds = terms.add(f"{name}.core_time", total(*map(matmul_time, core)), "s",
                            f"{title}: core attention in the forward pass")
        parts["forward"].append(seconds)
        back = total(*(product(Integer(item.backward), matmul_time(item)) for item in core))
        parts["backward"].append(terms.add(f"{name}.core_backward_time", back, "s",
                                           f"{title}: core attention in the backward pass"))
    for way in PASSES:
        if f"{name}.{way}_bytes" in terms:
            parts[way].append(stream_time(terms[f"{name}.{way}_bytes"].symbol))
        terms.add(f"{name}.{way}_time", total(*parts[way]), "s", f"{title}: computing of the {way} pass")
    again = total(*_switched(
        implementation, *((item.module, matmul_time(item)) for item in products),
        *((item.module, stream_time(item.forward)) for item in moved),
    ))
    if again != 0:
        terms.add(f"{name}.repeated_time", again, "s", f"{title}: computing that recompute of its modules repeats")
        flops = _switched(implementation, *((item.module, item.flops) for item in products))
        terms.add(f"{name}.repeated_flops", total(*flops), "FLOP",
                  f"{title}: products that recompute of its modules repeats")


def _backward(products: Iterable[Matmul], forward: Expr) -> Expr:
    """Return seconds of the backward pass of products that take ``forward`` seconds, as often as each has gradients."""
    own = [item for item in products if item.rate != Kernel.ATTENTION.value]
    counts = {item.backward for item in own}
    if len(counts) == 1:
        return product(Integer(counts.pop()), forward)
    return total(*(product(Integer(item.backward), matmul_time(item)) for item in own))


def _switched(implementation: Implementation, *parts: tuple[str, Expr]) -> Iterator[Expr]:
    """Return the seconds of recomputed modules, grouped by the switch of their region."""
    switched: dict[Expr, list[Expr]] = {}
    for module, cost in parts:
        if (switch := repeated(module, implementation)) != 0:
            switched.setdefault(switch, []).append(cost)
    return (product(switch, total(*costs)) for switch, costs in switched.items())


def _add_traffic(terms: TermSet, component: Component, implementation: Implementation) -> None:
    name, title = component.name, component.title
    exchanged = transfers(component, implementation)
    for group in BETWEEN:
        own = [item for item in exchanged if item.row.ranks == group.name]
        for way in PASSES if own else ():
            passes = [getattr(item, way) for item in own]
            late = [item.hidden for item in own] if way == "backward" else []
            part = f"{name}.{group.name}_{way}"
            words = f"{title}: of the {way} pass among {group.meaning}"
            number = terms.add(f"{part}_passes", total(*passes), "passes", f"{words}, passes over their ring")
            size = terms.add(f"{part}_bytes",
                             total(*(product(count, item.size) for count, item in zip(passes, own, strict=True))),
                             "bytes", f"{words}, bytes made whole, of which each of n ranks sends (n - 1)/n")
            # Products hide the bytes of what is gathered once more, and not the latency.
            waited = ring_time(group.name, total(number, *late), size, own[0].row.sent, own[0].row.pairs)
            terms.add(f"{part}_time", _unhidden(terms, name, way, own[0].row, waited), "s",
                      f"{words}, time that nothing hides")
        again = [(repeated(item.row.module, implementation), item) for item in own]
        if any(switch != 0 for switch, _ in again):
            part = f"{name}.{group.name}_repeated"
            words = f"{title}: of recompute of its modules among {group.meaning}"
            number = terms.add(f"{part}_passes", total(*(product(switch, item.forward) for switch, item in again)),
                               "passes", f"{words}, passes over their ring")
            size = terms.add(f"{part}_bytes",
                             total(*(product(switch, item.forward, item.size) for switch, item in again)), "bytes",
                             f"{words}, bytes made whole")
            waited = ring_time(group.name, number, size, own[0].row.sent, own[0].row.pairs)
            seconds = _unhidden(terms, name, "forward", own[0].row, waited)
            terms.add(f"{part}_time", seconds, "s", f"{words}, time that nothing hides")
        if total(*(item.hidden for item in own)) != 0:
            words = f"{title}: made whole once more beside products of the backward pass"
            terms.add(f"{name}.{group.name}_hidden_passes", total(*(item.hidden for item in own)), "passes", words)
            terms.add(f"{name}.{group.name}_hidden_bytes",
                      total(*(product(item.hidden, item.size) for item in own)), "bytes", words)


def _unhidden(terms: TermSet, name: str, way: str, row: Transfer, seconds: Expr) -> Expr:
    """Return the exposed part of ``seconds``, during which a component waits for other ranks.

    Keys and values travel beside core attention where that is one kernel, all but the last ones.
    Tensor-parallel collectives wait for nothing but themselves, unless they are cut into pieces that run beside
    products, of which the first waits.
    """
    core = f"{name}.core_time" if way == "forward" else f"{name}.core_backward_time"
    if row.beside is Kernel.ATTENTION and core in terms:
        return Max(Integer(0), seconds - product(terms[core].symbol, total(c, Integer(-1))) / c)
    if row.prefetched is not None:
        switch, computing = row.prefetched[way == "backward"], terms[f"{name}.{way}_time"].symbol
        return total(product(1 - switch, seconds), product(switch, beside_computing(seconds, computing)))
    if row.beside is Kernel.MATMUL and f"{name}.product_time" in terms:
        pieces = Max(seconds / t, seconds - terms[f"{name}.product_time"].symbol)
        return total(product(1 - ot, seconds), product(ot, pieces))
    return seconds
