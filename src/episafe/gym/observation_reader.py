"""What an environment says, as a task has it: observations as states, actions by number, signals in [0, 1]."""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from episafe.errors import InvalidEpisode, InvalidProblem
from episafe.gym.spaces import Actions, as_state, is_finite, quick_test
from episafe.gym.step_reader import OTHER, Range, Step

REMEMBERED = 1_000  # states read last, which are not looked at again when they are reported


@dataclass(frozen=True, eq=False)
class Reading:
    """How raw values are read, of a live environment and of its logs.

    Attributes:
        space: the observation space.
        actions: the finite actions, numbered.
        scales: the raw ranges of the reward, and of the utility or the cost.
        told: whether reward and utility are told by functions, so that raw ones are not read.
        outside: states of the task that are no observations.
    """

    space: Any
    actions: Actions
    scales: tuple[Range, Range]
    told: tuple[bool, bool]
    outside: tuple[Hashable, ...] = ()

    @cached_property
    def signal(self) -> str | None:
        """The constraint signal to be read, "utility" or "cost"; None if a function tells it."""
        return None if self.told[1] else self.scales[1].name

    @cached_property
    def _passes(self) -> Callable[[Any], bool]:
        return quick_test(self.space)

    @cached_property
    def _tells(self) -> bool:
        return any(self.told)

    @cached_property
    def _is_own(self) -> dict[int, Any]:
        """The arrays that were read last, sealed, by their identity."""
        return {}

    def quick_step(self, returned: Any) -> tuple[Any, float, float] | None:
        """State, reward and utility of a step that is plainly right, and not the last; None: it is to be read in full.

        That is so for five values of the very types that are asked for, where nothing is told and all is in range.
        """
        if type(returned) is not tuple or len(returned) != 5 or self._tells:
            return None
        observation, raw, terminated, truncated, info = returned
        if terminated is not False or truncated is not False or type(info) is not dict or type(raw) is not float:
            return None
        (_, low, high), (name, least, most) = self.scales
        signal = info.get(name)
        if type(signal) is not float or OTHER[name] in info or not self._passes(observation):
            return None
        reward, utility = (raw - low) / (high - low), (signal - least) / (most - least)
        if not (0.0 <= reward <= 1.0 and 0.0 <= utility <= 1.0):
            return None
        return self._kept(observation), reward, 1.0 - utility if name == "cost" else utility

    def _kept(self, observation: Any) -> Any:
        """What passed the test as a state; arrays are remembered."""
        if type(observation) is not np.ndarray:
            return as_state(observation)
        state = observation.copy()
        state.setflags(write=False)
        if len(self._is_own) >= REMEMBERED:
            self._is_own.clear()
        self._is_own[id(state)] = state
        return state

    def state(self, observation: Any, place: str) -> Any:
        """The observation as a state; an error if it is not in its space or not finite."""
        if self._passes(observation):
            return self._kept(observation)
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
            if self._is_own.get(id(state)) is state or self._passes(state):
                continue
            if isinstance(state, tuple) or any(state is one for one in self.outside):
                continue
            if not self.space.contains(state):
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
