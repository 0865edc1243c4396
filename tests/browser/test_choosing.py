"""The choice of layouts worth trying is written twice, in Python and for the page: random lists have one answer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Any

from oracles.extent import FULL, SEED

from shardmath.generated.definitions import VERDICTS
from shardmath.search.choosing import RISKS, choose

LISTS = 5000 if FULL else 500
#: Degrees that make a kind, as the page names them in its labels.
DEGREES = ("tensor_parallel", "context_parallel", "pipeline_parallel", "expert_parallel")
#: The choice on the page from layouts that are added one by one, with a program of no formulas.
CHOSEN = """(lists) => {
  shardmath.drawn = { rule80: () => 0, runOutProbability: (peak, probability) => probability };
  return lists.map((layouts) => {
    const answers = new Answers();
    for (const { seconds, peak, verdict, probability, values, number } of layouts)
      answers.add({ peak, process: probability, seconds, verdict }, values, { ...values, number },
        { evaluator: "drawn" });
    return choose(answers).map(({ role, labels }) => [labels.number, role]);
  });
}"""


@dataclass(frozen=True)
class Program:
    """A program of which a layout has no formulas."""

    name: str = "drawn"
    implementation: str = "megatron"


@dataclass(frozen=True)
class OfProgram:
    """The part of a space that a layout is in."""

    evaluator: Program = field(default_factory=Program)


@dataclass(frozen=True)
class Layout:
    """A layout with the numbers that the choice looks at."""

    number: int
    seconds: float
    peak: int
    verdict_place: int
    run_out_probability: float
    values: dict[str, int]
    part: OfProgram = field(default_factory=OfProgram)

    @property
    def keys(self) -> dict[str, float]:
        """Numbers that layouts are ranked by."""
        return {"step.time": self.seconds, "peak": self.peak, "micro_batch_size": self.values["micro_batch_size"]}

    @property
    def verdict(self) -> str:
        """Verdict in words."""
        return VERDICTS[self.verdict_place][0]

    def plain(self) -> dict[str, Any]:
        """Return the layout as the page gets it."""
        return {"number": self.number, "seconds": self.seconds, "peak": self.peak, "verdict": self.verdict_place,
                "probability": self.run_out_probability, "values": self.values}


class Listed:
    """Answers about a list of layouts, by looking at each."""

    def __init__(self, layouts: list[Layout]) -> None:
        self._every = sorted(layouts, key=lambda item: tuple(item.keys.values()))
        self._fitting = [item for item in self._every if item.verdict_place == 0]

    def first(self) -> Layout | None:
        """Return the best that fits."""
        return self._fitting[0] if self._fitting else None

    def front(self, among: str) -> list[Layout]:
        """Return those of which none is faster and smaller than another."""
        layouts = self._fitting if among == "fitting" else self._every
        return [item for place, item in enumerate(layouts) if all(item.peak < other.peak for other in layouts[:place])]

    def asks(self, question: str) -> bool:
        """Check if a question was asked; a page looks at one implementation."""
        return question == "kinds"

    def best(self, question: str) -> list[Layout]:
        """Return the best that fits of each kind."""
        assert question == "kinds"
        kinds: dict[tuple[int, ...], Layout] = {}
        for item in self._fitting:
            kinds.setdefault(tuple(item.values[name] for name in DEGREES), item)
        return list(kinds.values())


def drawn(random: Random) -> Iterator[Layout]:
    """Draw a list; times and peaks are close to each other, so that bounds of the choice are met."""
    scale, limit = random.choice((0.05, 0.2, 1.0)), random.randrange(500, 2000)
    for number in range(random.choice((0, 1, 2, 5, 20, 60))):
        peak = random.randrange(400, 1800)
        probability = min(1.0, max(0.0, (peak - limit) / 600 + 0.01))
        values = {name: random.choice((1, 1, 2, 4)) for name in DEGREES}
        verdict = 0 if probability <= 0.01 else 1 if probability < 1 else 2
        values["micro_batch_size"] = random.choice((1, 2, 4))
        yield Layout(number, 1 + scale * random.random(), peak, verdict, probability, values)


def test_the_choice_of_the_page_is_that_of_python(opened: Callable[..., Any], record_property: Any) -> None:
    random = Random(SEED)
    lists = [list(drawn(random)) for _ in range(LISTS)]
    answers = opened().evaluate(CHOSEN, [[item.plain() for item in layouts] for layouts in lists])
    roles = set()
    for layouts, chosen in zip(lists, answers, strict=True):
        expected = [[item.configuration.number, item.role] for item in choose(Listed(layouts))]  # type: ignore[arg-type]
        assert chosen == expected, layouts
        roles |= {role for _, role in chosen}
    assert len(roles) == 5 + len(RISKS)  # every reason for a choice came up
    record_property("lists", len(lists))
