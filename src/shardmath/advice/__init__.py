"""Which layouts to try: the few best ones, why they are, and what would change the answer."""

from shardmath.advice.changes import Change
from shardmath.advice.neighbours import Neighbour
from shardmath.advice.run import Advice, Choice, recommend

__all__ = ["Advice", "Change", "Choice", "Neighbour", "recommend"]
