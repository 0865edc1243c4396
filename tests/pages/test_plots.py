"""Pictures: whole files that are the same on every run, what is drawn, and one line for what cannot be drawn."""

from __future__ import annotations

import re
import sys
import xml.etree.ElementTree as ET
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from shardmath import compare, explain, explore, fit, moves, recommend, sweep
from shardmath.cli.main import exit_code
from shardmath.commands.compare import plot as compared
from shardmath.commands.explain import plot as explained
from shardmath.commands.explain.report import verdict_line
from shardmath.commands.fit import plot as fitted
from shardmath.commands.moves import plot as moved
from shardmath.commands.moves.report import in_changes
from shardmath.commands.recommend import plot as recommended
from shardmath.errors import InputError
from shardmath.plots import Panel, Picture, refuse_unplottable, write_picture
from shardmath.plots.picture import Table, _lines
from shardmath.plots.style import INK, short, three_digits

pytest.importorskip("matplotlib")

EXPLAIN = ["explain", "llama-3.1-8b", "--gpu", "a100-40gb", "--tp", "4", "--pp", "2"]
SWEEP = ["sweep", "llama-3.2-1b", "--gpu", "a100-40gb", "--num-gpus", "8", "--global-batch-size", "16"]
RECOMMEND = ["recommend", *SWEEP[1:]]
FIT = ["fit", *EXPLAIN[1:], "--num-gpus", "16"]
MOVES = ["moves", *FIT[1:]]
COMPARE = ["compare", "llama-3.1-8b", "--gpu", "a100-40gb", "--against", "--tp 2", "--against", "--gpu h200"]
SPACE = """
model = "llama-3.2-1b"
[fixed]
num_gpus = 8
global_batch_size = 16
seq_length = 4096
[axes]
gpu = ["a100-40gb"]
tensor_parallel = [1, 2, 4]
pipeline_parallel = [1, 2]
recompute = ["none", "full"]
[questions.front]
front = ["peak", "tensor_parallel"]
"""
#: Names as people and files may have them.
NASTY = "<script>alert(1)</script> -->&\"' $x_y$ \n\x1b[31m"


def drawn(panel: Panel, *tables: Table, title: str = "title", subtitle: str = "below") -> Picture:
    return Picture(title, subtitle, (panel,), tables)


def line(part: object) -> None:
    part.add_subplot().plot([1, 2], [3, 4], label="a $b$ & <c>")  # type: ignore[attr-defined]
    part.legend(loc="outside lower center")  # type: ignore[attr-defined]


def words_of(svg: str) -> list[str]:
    """What is written in an SVG: matplotlib has it as comments beside the outlines."""
    return [text.strip() for text in re.findall(r"<!--(.*?)-->", svg, re.DOTALL)]


@pytest.mark.slow
@pytest.mark.parametrize("command", [EXPLAIN, SWEEP, COMPARE, RECOMMEND, FIT, MOVES],
                         ids=["explain", "sweep", "compare", "recommend", "fit", "moves"])
def test_every_format_is_written_whole_and_the_same_twice(command: list[str], tmp_path: Path) -> None:
    for suffix, beginning in (("png", b"\x89PNG"), ("svg", b"<?xml"), ("html", b"<!DOCTYPE html>")):
        files = [tmp_path / f"{name}.{suffix}" for name in ("one", "two")]
        for file in files:
            assert exit_code([*command, "--plot", str(file)]) == 0
        assert files[0].read_bytes() == files[1].read_bytes()
        assert files[0].read_bytes().startswith(beginning)
    assert len([*tmp_path.iterdir()]) == 6
    ET.parse(tmp_path / "one.svg")


@pytest.mark.process
def test_explain_draws_a_bar_for_every_rank_and_what_it_says(tmp_path: Path) -> None:
    found = explain("llama-3.1-8b", "a100-40gb", tensor_parallel=4, pipeline_parallel=2)
    picture = explained.picture(found)
    (table,) = picture.tables
    assert [row[0] for row in table.rows] == ["0", "1"]
    assert [row[-4:-1] for row in table.rows] == [
        [f"{item.share:.1%}", item.verdict, item.rule_80] for item in found.ranks]
    write_picture(picture, str(tmp_path / "x.svg"))
    said = words_of((tmp_path / "x.svg").read_text())
    for item in found.ranks:
        assert three_digits(item.total / 2**30) in said
    assert {"fits", "80%", "100%", "weight", "optimizer", "pipeline rank"} <= {*said}
    assert verdict_line(found) in " ".join(said)


@pytest.mark.process
def test_bars_are_as_high_as_their_account() -> None:
    from matplotlib.figure import Figure

    found = explain("llama-3.1-8b", "a100-40gb", tensor_parallel=4, pipeline_parallel=4)
    figure = Figure()
    explained.picture(found).panels[0].draw(figure)
    (axes,) = figure.axes
    tops: dict[float, float] = {}
    for bar in axes.patches:
        tops[round(bar.get_x() + bar.get_width() / 2)] = bar.get_y() + bar.get_height()
    assert tops == pytest.approx({item.rank: item.total / 2**30 for item in found.ranks}, rel=1e-9)
    assert sorted(one.get_ydata()[0] for one in axes.lines) == pytest.approx(
        [found.ranks[0].limit / 2**30, 0.8 * 40, 40.0])


@pytest.mark.process
def test_compared_bars_have_the_memory_of_their_own_gpu() -> None:
    from matplotlib.figure import Figure

    found = compare("llama-3.1-8b", "a100-40gb", tensor_parallel=4, against=[{"gpu": "h200"}])
    figure = Figure()
    compared.picture(found).panels[0].draw(figure)
    heights = sorted({round(float(one.get_ydata()[0]), 6) for one in figure.axes[0].lines})
    memory = [side.explanation.gpu.memory_bytes / 2**30 for side in found.sides]
    limits = [side.account.limit / 2**30 for side in found.sides]
    assert heights == sorted(round(size, 6) for size in (*limits, *memory, *(0.8 * size for size in memory)))


@pytest.mark.slow
def test_choices_are_as_high_as_their_memory_and_their_step() -> None:
    from matplotlib.figure import Figure

    advice = recommend("llama-3.1-8b", "h100-80gb", 16, global_batch_size=64)
    assert len(advice.choices) > 1
    sizes = ([item.peak_bytes / 2**30 for item in advice.choices], [item.time.seconds for item in advice.choices])
    for panel, expected in zip(recommended.picture(advice).panels, sizes, strict=True):
        figure = Figure()
        panel.draw(figure)
        tops = [0.0] * len(expected)
        for bar in figure.axes[0].patches:
            place = round(bar.get_x() + bar.get_width() / 2)
            tops[place] = max(tops[place], bar.get_y() + bar.get_height())
        assert tops == pytest.approx(expected, rel=0.01)  # without parts that are too small to be seen
    with pytest.raises(InputError, match="nothing fits"):
        recommended.picture(replace(advice, choices=()))


@pytest.mark.slow
def test_a_fit_is_as_long_as_its_values_and_its_peaks() -> None:
    from matplotlib.figure import Figure

    found = fit("llama-3.1-70b", "h100-80gb", num_gpus=64, global_batch_size=512, tensor_parallel=4,
                context_parallel=2, pipeline_parallel=4)
    picture = fitted.picture(found)
    factors, peaks = picture.panels
    figure = Figure()
    factors.draw(figure)
    ends = [bar.get_x() + bar.get_width() for bar in figure.axes[0].patches]
    assert ends == pytest.approx([1 if item.at is None else item.at.value / found.now(item.symbol)
                                  for item in found.answers])
    assert min(ends) < 1 < max(ends)
    figure = Figure()
    peaks.draw(figure)
    solved = [item for item in found.answers if item.at is not None and item.unit != "bytes"]
    lengths = sorted(bar.get_width() for bar in figure.axes[0].patches)
    assert lengths == pytest.approx(sorted(
        bound.peak / 2**30 for item in solved for bound in (item.at, item.beyond) if bound is not None))
    assert figure.axes[0].lines[0].get_xdata()[0] == pytest.approx(float(found.limit) / 2**30)
    (table,) = picture.tables
    assert [row[0] for row in table.rows] == [item.symbol for item in found.answers]
    assert [row[3] == "none" for row in table.rows] == [item.at is None for item in found.answers]
    with pytest.raises(InputError, match="no value fits"):
        fitted.picture(replace(found, answers=tuple(replace(item, at=None) for item in found.answers)))


@pytest.mark.slow
@pytest.mark.parametrize("tensor_parallel", [4, 8])
def test_moves_are_as_long_as_their_elasticities_and_their_peaks(tensor_parallel: int) -> None:
    from matplotlib.figure import Figure

    found = moves("llama-3.1-70b", "h100-80gb", num_gpus=64, global_batch_size=512, tensor_parallel=tensor_parallel,
                  pipeline_parallel=8)
    assert found.fits == (tensor_parallel == 8)
    sets = found.gains if found.fits else found.smallest
    picture = moved.picture(found)
    assert len(picture.panels) == 2 + bool(sets)
    expected = ([float(item.elasticity) for item in found.sensitivities],
                [move.peak_bytes / 2**30 for move in found.differences], [move.peak_bytes / 2**30 for move in sets])
    for panel, values in zip(picture.panels, expected, strict=False):
        figure = Figure()
        panel.draw(figure)
        (axes,) = figure.axes
        assert [bar.get_width() for bar in axes.patches] == pytest.approx(values[:12])
    names = [row[0] for row in picture.tables[1].rows]
    assert names == [in_changes(move) for move in found.differences]


@pytest.mark.slow
def test_the_answer_of_a_sweep_draws_what_its_command_does(tmp_path: Path) -> None:
    assert exit_code([*SWEEP, "--plot", str(tmp_path / "one.svg")]) == 0
    found = sweep("llama-3.2-1b", "a100-40gb", 8, global_batch_size=16)
    found.plot(str(tmp_path / "two.svg"))
    assert (tmp_path / "two.svg").read_bytes() == (tmp_path / "one.svg").read_bytes()
    several = sweep("llama-3.2-1b", "a100-40gb", 8, global_batch_size=16, implementation=["megatron", "nanotron"])
    with pytest.raises(InputError, match="must be one implementation here"):
        several.plot()


class _Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.text: list[str] = []
        self.links: list[str] = []
        self.ids: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.links += [value or "" for name, value in attrs if name in ("src", "href", "xlink:href", "action")]
        self.ids += [value or "" for name, value in attrs if name == "id"]

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def parsed(path: Path) -> _Tags:
    found = _Tags()
    found.feed(path.read_text(encoding="utf-8"))
    return found


@pytest.mark.process
def test_a_page_needs_no_network_and_names_are_escaped(tmp_path: Path) -> None:
    path = tmp_path / "x.html"
    panel = Panel(line, 2, NASTY)
    write_picture(Picture(NASTY, NASTY, (panel, panel), (Table(NASTY, (NASTY, "b"), [(NASTY, NASTY)]),)), str(path))
    found = parsed(path)
    assert "script" not in found.tags
    assert all(link.startswith("#") for link in found.links)
    assert len(found.ids) == len({*found.ids})
    assert {link[1:] for link in found.links} <= {*found.ids}
    assert sum(NASTY.strip() in text for text in found.text) >= 4
    text = path.read_text(encoding="utf-8")
    assert INK not in text
    assert "currentColor" in text
    assert "url(http" not in text
    assert "prefers-color-scheme: dark" in text


@pytest.mark.process
@pytest.mark.parametrize("suffix", ["svg", "png"])
def test_names_are_no_formulas_and_no_control_characters(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"x.{suffix}"
    write_picture(drawn(Panel(line, 2, ""), title=NASTY, subtitle="$\\frac{$" * 30), str(path))
    if suffix == "svg":
        ET.parse(path)
        assert INK not in path.read_text()


@pytest.mark.parametrize("name", ["x.pdf", "x", "-", "x.PNG", ".svg/"])
def test_other_endings_are_refused_before_anything_is_computed(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    for command in (EXPLAIN, SWEEP, COMPARE, FIT, MOVES):
        assert exit_code([*command, "--plot", name]) == 2
        shown = capsys.readouterr()
        assert shown.out == ""
        assert "must end with .png, .svg or .html" in shown.err
    assert [*tmp_path.iterdir()] == []


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(InputError, match=r"pip install 'shardmath\[plots\]'"):
        refuse_unplottable("x.png")
    refuse_unplottable(None)


@pytest.mark.process
def test_nothing_is_left_of_a_picture_that_cannot_be_drawn(tmp_path: Path) -> None:
    def broken(part: object) -> None:
        raise RuntimeError

    (tmp_path / "x.svg").write_text("before")
    with pytest.raises(RuntimeError):
        write_picture(drawn(Panel(broken, 2, "")), str(tmp_path / "x.svg"))
    assert [path.read_text() for path in tmp_path.iterdir()] == ["before"]
    with pytest.raises(InputError, match="plot"):
        write_picture(drawn(Panel(line, 2, "")), str(tmp_path / "no" / "x.svg"))


@pytest.mark.slow
def test_a_space_has_its_fronts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    space = tmp_path / "space.toml"
    space.write_text(SPACE)
    assert exit_code(["explore", str(space), "--plot", str(tmp_path / "x.svg")]) == 0
    assert {"peak, GiB", "tensor_parallel", "fits"} <= {*words_of((tmp_path / "x.svg").read_text())}
    space.write_text(SPACE.replace('front = ["peak", "tensor_parallel"]', 'best = ["peak"]'))
    capsys.readouterr()
    assert exit_code(["explore", str(space), "--plot", str(tmp_path / "y.svg")]) == 2
    assert "needs a question of the space that is a front" in capsys.readouterr().err
    assert not (tmp_path / "y.svg").exists()


@pytest.mark.parametrize(("number", "text"), [
    (0, "0.00"), (0.128, "0.13"), (9.876, "9.88"), (10, "10.0"), (99.94, "99.9"), (123.4, "123"), (25477.2, "25477"),
])
def test_three_digits(number: float, text: str) -> None:
    assert three_digits(number) == text


def test_layouts_in_few_letters() -> None:
    layout = {"tensor_parallel": 4, "pipeline_parallel": 1, "data_parallel": 8, "recompute": "full"}
    assert short(layout) == "TP 4 DP 8 recompute full"
    assert short(layout, ("data_parallel", "recompute")) == "TP 4"
    assert short({}) == "DP"


def test_a_title_is_broken_between_words_and_never_inside_an_option() -> None:
    title = "A: parallelism off, recompute full; B: --zero-stage 1; C: --zero-stage 2; D: --no-overlap-grad-reduce"
    lines = _lines(title)
    assert len(lines) == 2
    assert " ".join(lines) == title
    assert not any(line.endswith(("-", "--zero-stage")) for line in lines)


@pytest.mark.slow
@pytest.mark.parametrize(("method", "counted"), [("bounds", "cut by bounds"), ("sweep", "legal")])
def test_fronts_of_a_space_are_drawn_by_either_method(method: str, counted: str, tmp_path: Path) -> None:
    explored = explore(Path(__file__).resolve().parents[2] / "docs" / "spaces" / "llama-8b-32.toml", method=method)
    picture = explored.plot(str(tmp_path / "front.svg"))
    assert f"{explored.size:,} configurations, " in picture.subtitle
    assert counted in picture.subtitle
