"""A limit on bad episodes of a Gymnasium environment: a wrapper that keeps the running total.

Not imported by episafe itself, which works without Gymnasium; `es.chance(env, …)` makes one.
"""

import math
from collections.abc import Mapping
from typing import Any

import gymnasium

from episafe.checks import as_number, require_takes
from episafe.errors import InvalidProblem
from episafe.gym.observations import observations_of
from episafe.gym.step_reader import read_info
from episafe.problems.states import ENDED

BINS = 10  # of the total, in observations, where the limit is no small whole number
MOST_WHOLE = 50  # a whole limit up to this is counted in ones
ROOM = 1e-9  # of a unit: totals that are a multiple up to rounding are taken for it


class ChanceWrapper(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Reports a cost of 1 at the step that brings the total cost of an episode beyond a limit, else 0.

    So the expected cost of an episode is the probability that it breaks the limit: `cost_limit` is what to give to
    `es.from_gymnasium`, with `episode_cost_max=1`. Totals are exact. Observations are (observation, level), the total
    so far in units, rounded up: what a planner plans by, and nothing is proved from it.

    Args:
        env: the environment.
        cost: (h, observation, action, w) ↦ cost ≥ 0, w = info["chance"]; None for info["cost"], the cost that is the
            third of six values, or 1 − info["utility"].
        at_most, probability, name: the total cost not to be exceeded, with which probability, and what people read.
        keep: whether what else the environment reports is kept, each by its name: info["cost"] is then a mapping.

    Attributes:
        cost_limit: 1 − probability; {name: …} with `keep`, to be joined with the limits of the others.
        episode_cost_max: 1; {name: 1} with `keep`.
    """

    def __init__(self, env: Any, cost: Any, limit: tuple[float, float, str], keep: bool) -> None:
        if hasattr(env, "num_envs"):
            raise InvalidProblem(
                "chance takes one environment: wrap each of those that a vector environment is made of"
            )
        if cost is not None:
            if not callable(cost):
                raise InvalidProblem(
                    f"cost of an environment must be a function cost(h, observation, action, w), got a "
                    f"{type(cost).__name__}: give one, or None for what the environment reports"
                )
            require_takes("cost", cost, "cost(h, observation, action, w)", 0, None, 0, None)
        super().__init__(env)
        self._cost, self._keep = cost, keep
        self._at_most, probability, self._name = limit
        whole = self._at_most == int(self._at_most) and 1 <= self._at_most <= MOST_WHOLE
        self._bins = int(self._at_most) if whole else BINS
        self._read = observations_of(env.observation_space).read
        levels = gymnasium.spaces.Discrete(self._bins + 2)
        self.observation_space = gymnasium.spaces.Tuple((env.observation_space, levels))
        self.cost_limit: Any = {self._name: 1 - probability} if keep else 1 - probability
        self.episode_cost_max: Any = {self._name: 1.0} if keep else 1.0
        self._h, self._total, self._observation = 0, 0.0, None

    def reset(self, **given: Any) -> tuple[Any, dict[str, Any]]:
        """Begin with a total of 0."""
        self._observation, info = self.env.reset(**given)
        self._h, self._total = 0, 0.0
        return (self._observation, 0), info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """One step of the environment; the total goes on."""
        returned: Any = self.env.step(action)
        info = dict(read_info(returned))
        if len(returned) == 6:
            info["cost"] = returned[2]
        spent = self._spent(info, action)
        before, self._total = self._total, self._total + spent
        breaks = float(self._is_over(self._total) and not self._is_over(before))
        self._observation, self._h = returned[0], self._h + 1
        return (returned[0], self._level(self._total)), returned[1], *returned[-3:-1], self._reported(info, breaks)

    def move(self, h: int, state: Any, action: int, w: Any) -> tuple[Any, float, Any]:
        """How it moves given chance, of an environment that says so: utilities are 1 − cost, kept ones before it.

        Needs costs that are whole numbers of the unit of a level: others are refused.
        """
        observation, level = state
        observation = self._read(observation)  # an array, as the environment itself gives it, no tuple of its numbers
        inner: Any = self.env.get_wrapper_attr("move")
        following, reward, utility = inner(h, observation, action, w)
        spent = 1 - utility if self._cost is None else self._cost(h, observation, action, w)
        units = spent * self._bins / self._at_most if self._at_most else (self._bins + 1) * (spent > 0)
        if abs(units - round(units)) > ROOM * self._bins:
            raise InvalidProblem(
                f"the cost {spent!r} at step {h} is no multiple of {self._at_most / self._bins:g}, the unit of the "
                "total: such an episode cannot be replayed; give no move"
            )
        after = min(level + round(units), self._bins + 1)
        keeps = 1.0 - float(level <= self._bins < after)
        state = ENDED if following is ENDED else (following, after)
        return state, reward, (utility, keeps) if self._keep else keeps

    def _is_over(self, total: float) -> bool:
        return total > self._at_most * (1 + ROOM)

    def _level(self, total: float) -> int:
        if self._is_over(total):
            return self._bins + 1
        return min(math.ceil(total * self._bins / self._at_most - ROOM * self._bins), self._bins) if total > 0 else 0

    def _spent(self, info: Mapping[str, Any], action: Any) -> float:
        """The cost of a step."""
        place = f"at step {self._h}"
        if self._cost is not None:
            spent = self._cost(self._h, self._observation, action, info.get("chance"))
        elif isinstance(info.get("cost"), Mapping) or isinstance(info.get("utility"), Mapping):
            raise InvalidProblem("the environment reports several signals: say which cost is meant, cost=…")
        elif "cost" in info:
            spent = info["cost"]
        elif "utility" in info:
            spent = 1 - as_number(f"utility {place}", info["utility"])
        else:
            raise InvalidProblem(f'info {place} has neither "cost" nor "utility": give cost=…, or report one of them')
        number = as_number(f"cost {place}", spent)
        if number < 0:
            raise InvalidProblem(f"cost {place} is {number:g}: give costs of 0 or more, or a total could come back")
        return number

    def _reported(self, info: dict[str, Any], breaks: float) -> dict[str, Any]:
        """What is told of a step: this cost, and with `keep` whatever else there was, by its name."""
        told = {name: value for name, value in info.items() if name not in ("cost", "utility")}
        if not self._keep:
            return told | {"cost": breaks}
        kept = {name: _by_name(name, info[name]) for name in ("utility", "cost") if name in info}
        return told | kept | {"cost": {**kept.get("cost", {}), self._name: breaks}}


def _by_name(signal: str, value: Any) -> dict[str, Any]:
    return dict(value) if isinstance(value, Mapping) else {signal: value}
