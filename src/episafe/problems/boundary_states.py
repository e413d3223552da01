"""Two states that no environment has: one before a random start, one after an early end."""

from enum import Enum
from typing import Any

from episafe.storage.json_values import register


class Outside(Enum):
    """Where an episode is while its environment is not running. All actions are alike there, and nobody moves it.

    START is a dummy first step whose transition is the distribution of the start (algorithms.md, 5.4). ENDED is
    absorbing: an episode that ends early stays there up to the horizon.
    """

    START = "start"
    ENDED = "ended"


START, ENDED = Outside.START, Outside.ENDED
register("outside", Outside, lambda state: state.value, Outside)


def is_outside(state: Any) -> bool:
    """Whether a state, which may be anything, is START or ENDED."""
    return isinstance(state, Outside)
