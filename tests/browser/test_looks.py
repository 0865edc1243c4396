"""How the page looks: contrast of texts, colours that colour-blind people can tell apart, nothing out of bounds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations, pairwise
from typing import Any

import pytest
from browser_cases import PHONE, SCREEN

from shardmath.generated.definitions import ROLES

#: Links to all that a page can show: every verdict, a layout that is none, many ranks, a notice, a long formula.
LINKS = {
    "fits": "", "uncertain": "#model=llama-3.1-70b&tensor_parallel=4",
    "out of memory": "#model=llama-3.1-405b&rank=2", "no layout": "#pipeline_parallel=3",
    "many ranks": "#num_gpus=1040&global_batch_size=1040&pipeline_parallel=80&tensor_parallel=1&rank=40",
    "notice": "#colour=red", "loss": "#pipeline_parallel=1&recompute=full&tensor_parallel=8",
    "torchtitan": "#implementation=torchtitan&term=stage.layers_at_work.layer_backward&pipeline_parallel=1",
    "no time": "#model=llama-3.1-8b&gpu=v100-32gb&num_gpus=64",
    "beside no layout": "#model=llama-3.1-405b&num_gpus=64&global_batch_size=64&pipeline_parallel=2&price=2.1"
    "&against=model%3Dllama-3.1-405b%26num_gpus%3D64",
    "two layouts": "#price=2.1&tensor_parallel=4&against=model%3Dllama-3.1-70b%26recompute%3Dfull",
    "sequences": "#across=seq_length&down=global_batch_size",
}
#: Contrast of every text with what is behind it, as WCAG 2 defines it, beside the least that it asks for.
CONTRASTS = """() => {
  const channel = (value) => (value /= 255) <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
  const numbers = (text) => text.match(/[\\d.]+/g).map(Number);
  const luminance = ([r, g, b]) => 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b);
  const behind = (node) => {
    for (; node; node = node.parentElement) {
      const colour = numbers(getComputedStyle(node).backgroundColor);
      if (colour.length < 4 || colour[3] === 1) return colour;
      if (colour[3] !== 0) throw new Error("half transparent");
    }
    return [255, 255, 255];
  };
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const found = [];
  while (texts.nextNode()) {
    const node = texts.currentNode.parentElement;
    if (!texts.currentNode.textContent.trim() || !node.checkVisibility() || node.closest("script, option")) continue;
    const style = getComputedStyle(node);
    const [light, dark] = [luminance(numbers(style.color)), luminance(behind(node))].sort((a, b) => b - a);
    const large = parseFloat(style.fontSize) >= 24 || (parseFloat(style.fontSize) >= 18.66 && style.fontWeight >= 700);
    found.push([(light + 0.05) / (dark + 0.05), large ? 3 : 4.5, texts.currentNode.textContent.trim().slice(0, 40)]);
  }
  return found;
}"""
VARIABLE = """(name) => {
  const probe = document.body.appendChild(document.createElement("i"));
  probe.style.color = `var(--${name})`;
  const found = getComputedStyle(probe).color.match(/\\d+/g).map(Number);
  probe.remove();
  return found;
}"""
#: What is left of linear red, green and blue for people without red or green receptors (Vienot et al. 1999).
BLINDNESS = {
    "none": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "protanopia": ((0.11238, 0.88762, 0), (0.11238, 0.88762, 0), (0.00401, -0.00401, 1)),
    "deuteranopia": ((0.29275, 0.70725, 0), (0.29275, 0.70725, 0), (-0.02234, 0.02234, 1)),
}
EVERY_SCHEME = pytest.mark.parametrize("scheme", ["light", "dark"])
Opener = Callable[..., Any]


@pytest.mark.parametrize("state", LINKS)
def test_every_text_can_be_read_at_every_width(state: str, opened: Opener) -> None:
    """Contrast in light and dark, and nothing wider than the page."""
    tab = opened(LINKS[state], PHONE)
    tab.evaluate("for (const id of ['shape', 'uneven']) document.getElementById(id).open = true")
    tab.wait_for_selector("#best[aria-busy=false]", state="attached")
    for scheme in ("light", "dark"):
        tab.emulate_media(color_scheme=scheme)
        found = tab.evaluate(CONTRASTS)
        assert len(found) > 100
        assert [line for line in found if line[0] < line[1]] == [], scheme
    for width in (320, PHONE[0], 768, SCREEN[0], 1440, 1920):
        tab.set_viewport_size({"width": width, "height": 844})
        assert tab.evaluate("document.documentElement.scrollWidth") <= width
        outside = tab.evaluate("""() => [...document.querySelectorAll("body *")].filter((node) =>
          node.checkVisibility() && !node.closest(".scroll, .equation, math, .unseen")
          && node.getBoundingClientRect().right > innerWidth + 0.5
        ).map((node) => node.outerHTML.slice(0, 80))""")
        assert outside == [], width


def test_every_column_of_two_layouts_is_seen(opened: Opener) -> None:
    """From the width of a small tablet on, also where a rule that one of them breaks is a sentence."""
    tab = opened(LINKS["beside no layout"], (768, 900))
    rule = "pipeline_parallel = 4: must divide the layers that are left for the stages between first and last"
    tab.locator("#compared").scroll_into_view_if_needed()
    assert tab.text_content("#compared .words") == f"kept: {rule}"
    assert tab.evaluate("(([box]) => box.scrollWidth - box.clientWidth)([compared.parentElement])") == 0


def test_ranks_that_are_left_out_are_named(opened: Opener) -> None:
    tab = opened(LINKS["many ranks"])
    for name, ranks in (("chart", ["6 to 39", "41 to 73"]), ("lanes", ["8 to 71"])):
        said = tab.locator(f"#{name} .gap").all_text_contents()
        assert said == [f"ranks {some} are left out" for some in ranks]


def test_every_column_of_the_ranking_is_seen(opened: Opener) -> None:
    """Without scrolling, from the width of a laptop on; on a phone every row is a card that names its numbers."""
    tab = opened()
    tab.wait_for_selector("#best[aria-busy=false] [data-best='0']")
    hidden = """() => { const box = document.getElementById("best").parentElement;
      return box.scrollWidth - box.clientWidth; }"""
    for width in (320, PHONE[0], 768, SCREEN[0], 1920):
        tab.set_viewport_size({"width": width, "height": 900})
        assert tab.evaluate(hidden) == 0, width
    heads = tab.locator("#best thead th").all_inner_texts()
    assert [head.replace("\n", " ") for head in heads] == [
        "step, s", "tokens/s per GPU", "MFU", "peak, GiB", "runs out", "80 % rule", "layout"]
    tab.set_viewport_size({"width": PHONE[0], "height": 900})
    labels = tab.locator("#best [data-rows=choices] tr:nth-child(2) td[data-label]").evaluate_all(
        "cells => cells.map((cell) => getComputedStyle(cell, '::before').content)")
    assert labels[:3] == ['"step "', '"tokens/s per GPU "', '"MFU "']


def test_lines_over_the_timeline_are_named_and_stand_at_their_sizes(opened: Opener) -> None:
    """The most that fits is that of the account; names do not cover each other."""
    for link in ("", "#gpu=b200-180gb&tensor_parallel=2", "#gpu=a100-40gb&tensor_parallel=4", "#risk=50%25"):
        tab = opened(link)
        tab.locator("#timeline").scroll_into_view_if_needed()
        limit, memory, rule, lines, names = tab.evaluate("""() => {
          const values = valuesOf(state);
          const boxes = (kind) => [...document.querySelectorAll(`#timeline .passes ${kind}`)]
            .map((node) => node.getBoundingClientRect());
          const area = document.querySelector("#timeline .passes").getBoundingClientRect();
          const top = Number(document.querySelector(".ticks li").textContent) * GIB;
          const texts = [...document.querySelectorAll("#timeline .line-name")].map((node) => node.textContent);
          const { RULE_SHARE } = shardmath[evaluatorName(state)];
          return [largest(accountsOf(state, values)).limit, values.gpu_memory, RULE_SHARE,
            boxes("line").map(({ y, height }) => (1 - (y + height / 2 - area.y) / HEIGHT) * top),
            texts.map((text, place) => [text, boxes("text")[place].top, boxes("text")[place].bottom])];
        }""")
        sizes = {"the most that fits": limit, "80 % of the GPU": rule * memory, "all of the GPU": memory}
        expected = sorted(sizes.items(), key=lambda line: line[1])
        assert [text for text, _, _ in names] == [f"{title} {size / 2**30:.2f}" for title, size in expected], link
        assert lines == pytest.approx([size for _, size in expected], rel=0.02), link
        for (_, top, _), (_, _, bottom) in pairwise(names):
            assert bottom <= top + 3, (link, names)
        assert tab.evaluate("document.querySelector('#timeline .plot').scrollWidth <= timeline.clientWidth"), link
        assert not tab.is_visible("#timeline .narrow")
        tab.set_viewport_size({"width": PHONE[0], "height": PHONE[1]})
        tab.locator("#timeline .keys").scroll_into_view_if_needed()
        assert tab.is_visible("#timeline .narrow")
        assert not tab.is_visible("#timeline .line-name")
        assert sorted(tab.locator("#timeline .narrow").all_text_contents()) == sorted(text for text, _, _ in names)


def test_a_wide_screen_is_used(opened: Opener) -> None:
    """Bars beside the times, the step beside its moments, tables as wide as their places; nothing covers another."""
    tab = opened(LINKS["two layouts"], (1440, 900))
    tab.wait_for_selector("#best[aria-busy=false] [data-best='0']")
    tab.evaluate("for (const { style } of document.querySelectorAll('section')) style.contentVisibility = 'visible'")
    boxes = """(ids) => Object.fromEntries(ids.map((id) =>
      [id, document.getElementById(id).getBoundingClientRect().toJSON()]))"""
    for width in (1440, 1920):
        tab.set_viewport_size({"width": width, "height": 900})
        for kept in (True, False):
            tab.evaluate("(kept) => { byId('comparison').hidden = !kept; }", kept)
            placed = tab.evaluate(boxes, [
                "results", "stages", "time", "timeline", "moments", "map", "map-legend", "lines"])
            results = placed["results"]
            right = max(box["right"] for box in placed.values())
            assert right == pytest.approx(results["right"], abs=1)
            assert right > width - 60
            beside = [("timeline", "moments"), ("map", "map-legend"), *([] if kept else [("stages", "time")])]
            assert all(placed[one]["right"] < placed[other]["left"] for one, other in beside), (width, kept)
            assert placed["map"]["width"] > 0.6 * results["width"]
        covered = tab.evaluate("""() => [...document.querySelectorAll("#lines tr, #spent tr, #compared tr")]
          .filter((line) => [...line.cells].some((cell) => cell.scrollWidth > cell.clientWidth + 1))
          .map((line) => line.textContent)""")
        assert covered == [], width


def test_on_paper_there_is_nothing_to_press(opened: Opener) -> None:
    tab = opened(LINKS["two layouts"], (718, 1040), "dark")
    tab.wait_for_selector("#best[aria-busy=false] [data-best='0']")
    tab.emulate_media(media="print", color_scheme="dark")
    for seen in ("#headline", "#best", "#compared", "#chart", "#timeline", "#lanes", "#map", "#lines"):
        assert tab.is_visible(seen), seen
    for hidden in (".tools", "#stop", "#drop", "[data-slider=num_gpus]", ".screen"):
        assert not tab.locator(hidden).first.is_visible(), hidden
    assert tab.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert tab.evaluate("document.documentElement.scrollWidth") <= 718


@EVERY_SCHEME
def test_every_colour_of_the_chart_stands_out(scheme: str, opened: Opener) -> None:
    tab = opened(scheme=scheme)
    roles = {role: linear(tab.evaluate(VARIABLE, role)) for role in ROLES}
    for ground in ("ground", "panel"):
        behind = linear(tab.evaluate(VARIABLE, ground))
        assert {role for role, colour in roles.items() if contrast(colour, behind) < 3} == set()
    for kind, matrix in BLINDNESS.items():
        seen = {role: lab([sum(part * c for part, c in zip(row, colour, strict=True)) for row in matrix])
                for role, colour in roles.items()}
        for one, other in combinations(ROLES, 2):
            assert distance(seen[one], seen[other]) > 15, (kind, one, other)
        for one, other in pairwise(ROLES):  # neighbours in a bar
            assert distance(seen[one], seen[other]) > 30, (kind, one, other)


@pytest.mark.parametrize("state", ["fits", "no layout", "two layouts", "notice"])
def test_every_control_has_a_name_and_room_for_a_finger(state: str, opened: Opener) -> None:
    """24 pixels each way, what is unfolded and the formula too, on every screen."""
    tab = opened(LINKS[state], PHONE)
    tab.wait_for_selector("#best[aria-busy=false]", state="attached")
    tab.evaluate("for (const node of document.querySelectorAll('details')) node.open = true")
    tab.evaluate("for (const { style } of document.querySelectorAll('section')) style.contentVisibility = 'visible'")
    unnamed = tab.evaluate("""() => [...document.querySelectorAll("input, select, button")].filter((node) =>
      !(node.labels?.length || node.getAttribute("aria-label") || node.textContent.trim())
    ).map((node) => node.outerHTML)""")
    assert unnamed == []
    for width in (*(PHONE[0], 768, 1440, 1920), 0):
        if width:
            tab.set_viewport_size({"width": width, "height": 900})
        else:
            tab.evaluate("openFormula('step.time')")
            tab.wait_for_selector("#drawer[open] #formula dl")
        small = tab.evaluate("""() => [...document.querySelectorAll("input, select, button, summary, [data-x]")]
          .filter((node) => {
            const { width, height } = node.getBoundingClientRect();
            return node.checkVisibility() && !node.closest("label") && (width < 24 || height < 24);
          }).map((node) => node.outerHTML)""")
        assert small == [], width


def linear(colour: Sequence[float]) -> list[float]:
    return [value / 255 / 12.92 if value <= 10 else ((value / 255 + 0.055) / 1.055) ** 2.4 for value in colour]


def luminance(colour: Sequence[float]) -> float:
    return 0.2126 * colour[0] + 0.7152 * colour[1] + 0.0722 * colour[2]


def contrast(one: Sequence[float], other: Sequence[float]) -> float:
    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


def lab(colour: Sequence[float]) -> list[float]:
    """CIELAB of linear sRGB, with the white of D65."""
    r, g, b = (max(0.0, value) for value in colour)
    xyz = ((0.4124 * r + 0.3576 * g + 0.1805 * b) / 0.9505, 0.2126 * r + 0.7152 * g + 0.0722 * b,
           (0.0193 * r + 0.1192 * g + 0.9505 * b) / 1.0890)
    x, y, z = (value ** (1 / 3) if value > 0.008856 else 7.787 * value + 16 / 116 for value in xyz)
    return [116 * y - 16, 500 * (x - y), 200 * (y - z)]


def distance(one: Sequence[float], other: Sequence[float]) -> float:
    return sum((a - b) ** 2 for a, b in zip(one, other, strict=True)) ** 0.5
