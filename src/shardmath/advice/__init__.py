"""Which layouts to try: the few best ones, why they are, and what would change the answer."""

from shardmath.advice.advising import Advice, Choice, recommend
from shardmath.advice.changes import Change
from shardmath.advice.neighbours import Neighbour

__all__ = ["Advice", "Change", "Choice", "Neighbour", "recommend"]
