"""What an environment says, as a task has it: observations as states, actions by number, signals in [0, 1]."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from episafe.errors import InvalidEpisode, InvalidProblem
from episafe.gym.spaces import Actions, as_state, is_finite
from episafe.gym.step_reader import Range, Step
from episafe.problems.boundary_states import Outside


@dataclass(frozen=True, eq=False)
class Reading:
    """How raw values are read, of a live environment and of its logs.

    Attributes:
        space: the observation space.
        actions: the finite actions, numbered.
        scales: the raw ranges of the reward, and of the utility or the cost.
        told: whether reward and utility are told by functions, so that raw ones are not read.
    """

    space: Any
    actions: Actions
    scales: tuple[Range, Range]
    told: tuple[bool, bool]

    @property
    def signal(self) -> str | None:
        """The constraint signal to be read, "utility" or "cost"; None if a function tells it."""
        return None if self.told[1] else self.scales[1].name

    def state(self, observation: Any, place: str) -> Any:
        """The observation as a state; an error if it is not in its space or not finite."""
        if not self.space.contains(observation):
            raise InvalidProblem(
                f"observation {observation!r} {place} is not in the observation space {self.space}: correct the space, "
                "or what is returned (its type counts too)"
            )
        state = as_state(observation)
        if not is_finite(state):
            raise InvalidProblem(f"observation {observation!r} {place} is not finite: mend the environment")
        return state

    def refuse_foreign(self, states: Sequence[Any]) -> None:
        """An error where a reported state is none of the observation space; parts of tuples are not looked at."""
        for h, state in enumerate(states):
            if not isinstance(state, Outside | tuple) and not self.space.contains(state):
                raise InvalidEpisode(
                    f"state {state!r} at step {h} is not in the observation space {self.space}: report observations as "
                    "the environment gives them; their type counts too"
                )

    def values(self, found: Step, place: str) -> tuple[float, float]:
        """Reward and utility in [0, 1], utility = 1 − cost; NaN for what is told."""
        reward = np.nan if self.told[0] else self.scales[0].unit(found.reward, place)
        if self.signal is None:
            return reward, np.nan
        unit = self.scales[1].unit(found.signal, place)
        return reward, (1.0 - unit if self.signal == "cost" else unit)
