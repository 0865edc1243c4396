"""Elements that ranks receive when a layout changes equal those of a program that places every element."""

from __future__ import annotations

from hypothesis import assume, given, settings
from hypothesis import strategies as st
from oracles.extent import FULL

from shardmath.symbolic.parallel.resharding import Mesh, Tensors, loaded, received, saved
from tests.oracles.systems.resharding import Layout, Network, lacking, placed

RANKS, LAYERS, ROWS = 12, 12, 11
DEGREES = [
    (tp, cp, RANKS // (tp * cp * pp), pp) for tp in (1, 2, 3, 4, 6) for cp in (1, 2, 3) for pp in (1, 2, 3, 4, 6)
    if RANKS % (tp * cp * pp) == 0
]


@st.composite
def layouts(draw: st.DrawFn) -> Layout:
    tp, cp, dp, pp = draw(st.sampled_from(DEGREES))
    chunks = draw(st.sampled_from([1, 2])) if pp > 1 else 1
    assume(LAYERS % (pp * chunks) == 0)
    least = -(-ROWS // tp)
    return Layout(tp, cp, dp, pp, chunks, least + draw(st.integers(0, 2)), draw(st.booleans()))


MODELS = st.builds(Network, st.just(ROWS), st.integers(1, 3), st.just(LAYERS), st.sampled_from([12, 24]),
                   st.integers(0, 2), st.booleans())


def tensors_of(model: Network) -> Tensors:
    return Tensors(model.rows, model.columns, model.layers, model.units, model.others, model.tied)


def mesh_of(layout: Layout) -> Mesh:
    stages = layout.pp * layout.chunks
    return Mesh(layout.tp, layout.cp, layout.dp, layout.pp, (LAYERS // stages,) * stages, layout.rows, layout.zero)


@settings(max_examples=150 if FULL else 40, deadline=None)
@given(MODELS, layouts(), layouts())
def test_every_rank_receives_what_it_lacks(model: Network, old: Layout, new: Layout) -> None:
    counted = [(rank.weights, rank.states) for rank in received(tensors_of(model), mesh_of(old), mesh_of(new))]
    assert counted == lacking(model, old, new)


@settings(max_examples=50 if FULL else 20, deadline=None)
@given(MODELS, layouts())
def test_a_checkpoint_has_every_element_once_and_ranks_read_what_they_keep(model: Network, layout: Layout) -> None:
    tensors, ranks = tensors_of(model), list(placed(model, layout))
    read = loaded(tensors, mesh_of(layout))
    assert (read.weights, read.states) == (sum(len(own) for own, _ in ranks), sum(len(own) for _, own in ranks))
    assert saved(tensors) == len({element for own, _ in ranks for element in own})
    assert saved(tensors) == len({element for _, own in ranks for element in own})


def test_nobody_receives_anything_where_the_layout_stays() -> None:
    model, layout = Network(ROWS, 2, LAYERS, 24, 1, False), Layout(2, 1, 3, 2, 2, 6, True)
    assert all(rank.weights == rank.states == 0
               for rank in received(tensors_of(model), mesh_of(layout), mesh_of(layout)))
