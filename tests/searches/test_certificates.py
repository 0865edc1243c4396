"""Certificates of a search: those that are written hold, and forged ones, or bounds that are wrong, are refused."""

from __future__ import annotations

import copy
import json
import random
import shlex
import threading
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from oracles.extent import cases
from searches.test_boxes import KINDS, drawn

from shardmath import InputError
from shardmath.cli.main import exit_code
from shardmath.cli.stopping import Stop
from shardmath.commands.explore import Explored, explore
from shardmath.commands.explore.answer import configurations_of
from shardmath.compiler.expressions import ops
from shardmath.compiler.expressions.graph import Graph, exact, ordered
from shardmath.search.boxes import preparing, programs
from shardmath.search.certificates import enclosure, outward, tree
from shardmath.search.certificates.checked import checked
from shardmath.search.certificates.rounding import rounded_upward
from shardmath.search.certificates.tree import Tree
from shardmath.search.spaces import Space
from shardmath.search.spaces.files import read_space

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
SPACE = ROOT / "docs/spaces/llama-8b-32.toml"

Document = dict[str, Any]


def proved(space: Space, path: Path) -> tuple[Explored, Document]:
    """Search a space; return the answer and its certificate."""
    answer = explore(space, method="bounds", certificate=path)
    document: Document = json.loads(path.read_text())
    return answer, document


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Document:
    """The certificate of a small space."""
    return proved(read_space(SPACE), tmp_path_factory.mktemp("proof") / "proof.json")[1]


def test_the_page_shows_a_certificate_and_its_check(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "docs").symlink_to(ROOT / "docs")
    page = (ROOT / "docs/check.md").read_text(encoding="utf-8").partition("## A certificate")[2]
    (_, *lines), = (block.splitlines() for block in page.split("```")[1:2])
    commands = [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]
    printed = []
    for command in commands:
        assert exit_code(shlex.split(command)[1:]) == 0
        printed.append(capsys.readouterr().out)
    assert printed[-1] == lines[-1] + "\n"
    assert exit_code(["check", "proof.json", "--tp", "2"]) == 2
    assert "tensor_parallel = '2': must not be given with a certificate" in capsys.readouterr().err


def worse_first(document: Document) -> None:
    document["answers"]["fastest"] = document["answers"]["fastest"][1:]


def hole_in_front(document: Document) -> None:
    del document["answers"]["front"][7]


def other_keys(document: Document) -> None:
    document["answers"]["fastest"][0]["keys"] = ["1"]


def other_number(document: Document) -> None:
    document["answers"]["fastest"][0]["number"] += 1


def twice(document: Document) -> None:
    document["answers"]["fastest"][1] = document["answers"]["fastest"][0]


def other_space(document: Document) -> None:
    document["space"]["fixed"]["global_batch_size"] = 256


def other_order(document: Document) -> None:
    document["parts"][0]["order"].pop()


def no_tree(document: Document) -> None:
    document["parts"][0]["tree"] = document["parts"][0]["tree"][:-8]


def closed_early(document: Document) -> None:
    """Close boxes of a level that may hold something better."""
    cut, levels = document["parts"][0], read(document).levels
    depth = next(depth for depth in range(len(levels) - 1, 0, -1) if levels[depth].any())
    levels[depth] = np.zeros_like(levels[depth])
    cut["tree"] = Tree([*levels[: depth + 1], *(level[:0] for level in levels[depth + 1:])]).text


def read(document: Document) -> Tree:
    """The tree of the only part of a certificate."""
    part, = read_space(SPACE).parts()
    sizes = {axis.name: axis.size for axis in part.axes}
    return Tree.read(document["parts"][0]["tree"], [sizes[name] for name in document["parts"][0]["order"]])


@pytest.mark.parametrize(("forge", "said"), [
    (worse_first, "must not be better than the answers|must be cut further"),
    (hole_in_front, "must not be better than the answers|must be cut further"),
    (other_keys, r"answers\.fastest = .*: must be the exact keys"),
    (other_number, r"answers\.fastest = .*: must be"),
    (twice, r"answers\.fastest = 3: must be 3 at most, each better than the next"),
    (other_space, r"formulas = .*: must be the digest"),
    (other_order, r"order = .*: must have the axes"),
    (no_tree, r"certificate = 'tree': must"),
    (closed_early, "must be cut further: it may hold a better configuration"),
])
def test_forged_certificates_are_refused(certificate: Document, forge: Callable[[Document], None], said: str) -> None:
    forged = copy.deepcopy(certificate)
    forge(forged)
    with pytest.raises(InputError, match=said):
        checked(forged)


def test_a_certificate_holds_and_its_tree_is_read_as_it_was_written(certificate: Document) -> None:
    result = checked(certificate)
    assert result.answers == {name: len(rows) for name, rows in certificate["answers"].items()}
    assert result.size == 9216
    assert result.boxes == certificate["parts"][0]["boxes"] == read(certificate).boxes
    assert result.exact > sum(result.answers.values()) // 2
    assert read(certificate).text == certificate["parts"][0]["tree"]


def test_threads_that_share_out_boxes_prove_and_refuse_the_same(
    certificate: Document, monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each batch rounds outward in its own thread; a refusal names the first box, as it does without threads."""
    forged = copy.deepcopy(certificate)
    closed_early(forged)
    with pytest.raises(InputError) as before:
        checked(forged)
    threads = set[int]()

    def noted(*args: Any) -> Any:
        threads.add(threading.get_ident())
        third = np.ones(9) / 3  # longer than a register: more than a third only where rounding is upward
        assert (third * 3 > 1).all()
        return right(*args)

    right = enclosure.Enclosure.children
    monkeypatch.setattr(enclosure.Enclosure, "children", noted)
    monkeypatch.setattr(tree, "_FEWEST", 2)
    monkeypatch.setattr(tree, "_BATCH", 8)
    assert checked(certificate).boxes == certificate["parts"][0]["boxes"]
    with pytest.raises(InputError) as after:
        checked(forged)
    assert str(after.value) == str(before.value)
    assert threads - {threading.get_ident()}


def test_the_certificate_of_a_stopped_search_proves_its_gap(
    certificate: Document, tmp_path: Path, capsys: pytest.CaptureFixture[str],
) -> None:
    """It holds with the gap that the search gives, and not with a smaller one, nor as a proof of the best."""
    path, turns = tmp_path / "proof.json", iter([False] * 3)
    answer = explore(read_space(SPACE), method="bounds", certificate=path, stopped=lambda: next(turns, True))
    assert not answer.complete
    part, = answer.bounds
    document = json.loads(path.read_text())
    assert document["gaps"] == part.gaps
    assert checked(document).gaps == part.gaps
    assert exit_code(["check", str(path)]) == 0
    gaps = [f"{len(rows)} of {name} (stopped: others are at most {part.gaps[name]:.2%} better)"
            for name, rows in document["answers"].items()]
    assert f"proved: {', '.join(gaps)} of 9,216 configurations" in capsys.readouterr().out
    for name in part.gaps:
        with pytest.raises(InputError, match=r"must not be better than the answers|must be cut further"):
            checked({**document, "gaps": {**part.gaps, name: 0}})
    for forged in (-0.1, "0", float("inf"), True):
        with pytest.raises(InputError, match=r"gaps\.fastest = .*: must be a number that is not below 0"):
            checked({**document, "gaps": {**part.gaps, "fastest": forged}})
    with pytest.raises(InputError, match=r"gaps = .*: must have fastest, front"):
        checked({**document, "gaps": {}})
    assert part.open > 0
    gap, last = part.gaps["fastest"], list(configurations_of(answer.answers["fastest"]))[-1].keys["step.time"]
    assert gap is not None
    best = float(Fraction(certificate["answers"]["fastest"][-1]["keys"][0]))
    assert last * (1 - gap) <= best * (1 + 1e-9)


def test_a_search_that_is_stopped_before_an_answer_has_no_certificate(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Stop, "__call__", lambda self: True)
    monkeypatch.setattr(preparing, "settled", lambda part, made, *_: made)  # no first answers were found
    monkeypatch.setattr(preparing, "is_large", lambda part: False)
    path = tmp_path / "proof.json"
    exit_code(["explore", str(SPACE), "--method", "bounds", "--certificate", str(path)])
    shown = capsys.readouterr()
    assert "answers may get better by: fastest not known, front not known" in " ".join(shown.out.split())
    assert "stopped before the first answers: no certificate was written" in shown.err
    assert not path.exists()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.cases(1, 60)
def test_answers_of_drawn_spaces_are_proved(kind: str, tmp_path: Path) -> None:
    draws = random.Random(f"certificates {kind}")
    for _ in range(cases(test_answers_of_drawn_spaces_are_proved)):
        answer, document = proved(drawn(kind, draws), tmp_path / "proof.json")
        assert checked(document).size == answer.size


@pytest.mark.parametrize("op", [ops.ADD, ops.MUL, ops.MAX])
def test_a_wrong_bound_of_the_checker_is_refused(
    op: str, certificate: Document, monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Ends that are swapped: the bounds then do not hold what is computed in exact fractions."""
    right = outward._RULES[op]

    def swapped(args: Any, signs: Any) -> Any:
        less, most = right(args, signs)
        return -most, -less

    monkeypatch.setattr(outward, "_RULES", {**outward._RULES, op: swapped})
    with pytest.raises(InputError):
        checked(certificate)


def test_axes_that_are_wrongly_left_out_are_refused(
    certificate: Document, monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Places of an axis that are taken for alike: configurations that stand for others differ in exact fractions."""
    part, = read_space(SPACE).parts()
    axes = [axis.name for axis in part.axes]
    for name in ("micro_batch_size", "gradient_bytes"):
        other = axes.index("tensor_parallel")
        alike = tuple(tuple((other, place) for place in range(4)) if axis == name else () for axis in axes)
        monkeypatch.setattr(enclosure, "idle_places", lambda *_, alike=alike: alike)
        with pytest.raises(InputError, match=r"must be like .*, which stands for it"):
            checked(certificate)


def test_answers_by_a_wrong_bound_of_the_search_are_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A minimum takes the place of a maximum in the search alone."""
    monkeypatch.setattr(programs, "_FOLDED", {**programs._FOLDED, ops.MIN: programs._FOLDED[ops.MAX]})
    draws = random.Random("boxes dense")
    spaces = [drawn("dense", draws) for _ in range(6)]
    with pytest.raises(InputError, match="must not be better than the answers"):
        [proved(space, tmp_path / "proof.json") for space in spaces]


def operations() -> Iterator[tuple[str, Any]]:
    graph = Graph()
    names = [graph.name(letter) for letter in "abc"]
    yield ops.ADD, graph.add(names)
    yield ops.MUL, graph.mul(names)
    yield from ((op, graph.extreme(op, names)) for op in (ops.MAX, ops.MIN))
    yield from ((op, graph.binary(op, *names[:2])) for op in (
        ops.DIV, ops.CEIL_DIV, ops.FLOOR_DIV, ops.LCM, ops.EQ, ops.LE, ops.LT, ops.DIVIDES))


@pytest.mark.parametrize(("op", "node"), list(operations()), ids=lambda item: item if isinstance(item, str) else "")
@pytest.mark.parametrize("scale", [1, 7])
def test_intervals_enclose_exact_fractions(op: str, node: Any, scale: int) -> None:
    """With a scale of 7 ends are floats that sums and products round."""
    count, draws = 60, np.random.default_rng(5)
    whole = op in (ops.LCM, ops.DIVIDES)
    ends = np.sort(draws.integers(1 if whole else -6, 9, (2, 3, count)), axis=0).astype(np.float64)
    ends = ends if whole else ends / scale
    inside = [[Fraction(draws.choice(ends[:, place, at])) for at in range(count)] for place in range(3)]
    args = [(-ends[0, place], ends[1, place]) for place in range(len(node.args))]
    with rounded_upward():
        low, high = outward.enclosed(node, args, [outward.sign_of(arg) for arg in args])
        points = [np.asarray(row, np.float64) for row in inside]
        point = outward.enclosed(node, [(-row, row) for row in points[: len(node.args)]], [outward.ANY] * 3)
    for at in range(count):
        values = dict(zip("abc", (row[at] for row in inside), strict=True))
        divisor = values["a" if op == ops.DIVIDES else "b"]
        if op in (ops.DIV, ops.CEIL_DIV, ops.FLOOR_DIV, ops.DIVIDES) and divisor == 0:
            continue
        value, = exact([node], values)
        for least, most in ((low[at], high[at]), (point[0][at], point[1][at])):
            if node.is_condition:
                assert least <= value <= most
            else:
                assert -least <= value <= most
        if not node.is_condition:
            assert point[1][at] + point[0][at] <= (0 if scale == 1 and op != ops.DIV else 1e-14), op


def unbounded_graphs(draws: np.random.Generator, count: int) -> Iterator[Any]:
    """Draw products, sums, choices and quotients of quotients, whose divisors reach 0."""
    graph = Graph()
    for _ in range(count):
        nodes = [graph.name(letter) for letter in "abc"]
        nodes.append(graph.binary(ops.DIV, *nodes[:2]))
        for _ in range(6):
            op = draws.choice([ops.ADD, ops.MUL, ops.MUL, ops.MAX, ops.MIN, ops.DIV, ops.FLOOR_DIV, ops.SELECT])
            args = [nodes[place] for place in (len(nodes) - 1, *draws.integers(len(nodes), size=2))]
            draws.shuffle(args)
            if op == ops.SELECT:
                nodes.append(graph.select(graph.binary(ops.LE, *args[:2]), *args[1:]))
            elif op in (ops.ADD, ops.MUL):
                nodes.append((graph.add if op == ops.ADD else graph.mul)(args))
            else:
                nodes.append(graph.extreme(op, args) if op in (ops.MAX, ops.MIN) else graph.binary(op, *args[:2]))
        yield nodes[-1]


@pytest.mark.cases(60, 3000)
def test_infinite_ends_enclose_exact_fractions() -> None:
    """Bounds are infinite where a divisor may be 0: what is computed from them holds, and 0 times them is 0."""
    draws, exactly_known, naught = np.random.default_rng(7), 0, 0
    for root in unbounded_graphs(draws, cases(test_infinite_ends_enclose_exact_fractions)):
        ends = np.sort(draws.integers(-3, 4, (2, 3, 40)), axis=0) * draws.integers(0, 2, 3)[:, np.newaxis] / 7
        inside = [[Fraction(draws.choice(ends[:, place, at])) for at in range(40)] for place in range(3)]
        known, everywhere = ({letter: (-low[place], high[place]) for place, letter in enumerate("abc")}
                             for low, high in (ends, (ends[0].min(axis=1), ends[1].max(axis=1))))
        with rounded_upward():
            for node in ordered([root]):
                if node.op == ops.NAME:
                    known[node], everywhere[node] = known[str(node.value)], everywhere[str(node.value)]
                    continue
                signs = [outward.sign_of(everywhere[arg]) for arg in node.args]
                for values in (known, everywhere):
                    values[node] = (outward.constant(node) if not node.args else
                                    outward.enclosed(node, [values[arg] for arg in node.args], signs))
        less, most = (np.broadcast_to(end, 40) for end in known[root])
        assert not np.isnan([less, most]).any()
        for at in range(40):
            try:
                value, = exact([root], dict(zip("abc", (row[at] for row in inside), strict=True)))
            except ZeroDivisionError:
                continue
            assert -less[at] <= value <= most[at]
            exactly_known += bool(np.isfinite([less[at], most[at]]).all())
            naught += bool(np.isinf([less[at], most[at]]).any())
    assert min(exactly_known, naught) > cases(test_infinite_ends_enclose_exact_fractions)


def test_naught_times_no_bounds_is_naught() -> None:
    graph = Graph()
    left, right = graph.name("a"), graph.name("b")
    product, quotient = graph.mul((left, right)), graph.binary(ops.DIV, left, right)
    every, above, naught, unit = ((np.asarray([less]), np.asarray([most])) for less, most in (
        (np.inf, np.inf), (-1.0, np.inf), (-0.0, 0.0), (-0.0, 1.0)))
    for node, args, expected in ((product, [naught, every], naught), (product, [unit, every], every),
                                 (product, [unit, above], (0.0, np.inf)), (quotient, [every, above], every),
                                 (quotient, [unit, above], unit), (quotient, [unit, unit], every)):
        with rounded_upward():
            assert outward.enclosed(node, args, [outward.sign_of(arg) for arg in args]) == expected


def test_rounding_is_as_before_after_the_block() -> None:
    third = np.ones(9) / 3
    with rounded_upward():
        assert (np.ones(9) / 3 > third).all()
    assert np.array_equal(np.ones(9) / 3, third)
    with pytest.raises(IndexError), rounded_upward():
        third[9]
    assert np.array_equal(np.ones(9) / 3, third)
