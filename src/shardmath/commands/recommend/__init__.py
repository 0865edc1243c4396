"""Which layouts to try: the few best ones, why they are, and what would change the answer."""

from shardmath.commands.recommend.answer import Advice, Choice
from shardmath.commands.recommend.changes import Change
from shardmath.commands.recommend.neighbours import Neighbour
from shardmath.commands.recommend.run import recommend

__all__ = ["Advice", "Change", "Choice", "Neighbour", "recommend"]
