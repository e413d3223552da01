"""A limit on bad episodes of a Gymnasium environment: a wrapper that keeps the running total. `es.chance` makes it."""

import math
from collections.abc import Mapping
from typing import Any

import gymnasium

from episafe.core.checks import as_number
from episafe.core.errors import InvalidProblem
from episafe.core.types import ENDED, Move, State, is_outside

LEVELS = 10  # of the total, in observations, unless the limit is a small whole number
MOST_WHOLE = 50  # a whole limit up to this is counted in ones
ROUNDING = 1e-9  # of a unit: totals that are a multiple up to rounding are taken for it


class ChanceWrapper(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Reports a cost of 1 at the step that brings the total cost of an episode above a limit, else 0.

    So the expected cost of an episode is the probability that it breaks the limit. Totals are exact. Observations are
    (observation, level): the total so far in units, rounded up, which planners use and no proof does.

    Attributes:
        cost_limit: 1 − probability; {name: …} with `keep`, to be joined with the other limits.
        episode_cost_max: 1; {name: 1} with `keep`.
    """

    def __init__(self, env: object, cost: object, at_most: float, probability: float, name: str, keep: bool) -> None:
        if not isinstance(env, gymnasium.Env):
            raise InvalidProblem(
                f"chance takes an es.LinearCMDP, Rules or one Gymnasium environment, got {type(env).__name__}"
            )
        if not (cost is None or callable(cost)):
            raise InvalidProblem(
                f"cost of an environment must be a function (h, observation, action, w), got {type(cost).__name__}"
            )
        super().__init__(env)
        self._cost, self._keep, self._at_most, self._name = cost, keep, at_most, name
        whole = at_most == int(at_most) and 1 <= at_most <= MOST_WHOLE
        self._levels = int(at_most) if whole else LEVELS
        level = gymnasium.spaces.Discrete(self._levels + 2)
        self.observation_space = gymnasium.spaces.Tuple((env.observation_space, level))
        self.cost_limit = {name: 1 - probability} if keep else 1 - probability
        self.episode_cost_max = {name: 1.0} if keep else 1.0
        self._h, self._total, self._observation = 0, 0.0, None

    def reset(self, **given: Any) -> tuple[Any, dict[str, Any]]:
        """Begin with a total of 0."""
        self._observation, info = self.env.reset(**given)
        self._h, self._total = 0, 0.0
        return (self._observation, 0), info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Make a step of the environment and add its cost to the total."""
        returned: Any = self.env.step(action)
        info = dict(returned[-1])
        if len(returned) == 6:
            info["cost"] = returned[2]
        before, self._total = self._total, self._total + self._spent(info, action)
        breaks = float(self._is_over(self._total) and not self._is_over(before))
        self._observation, self._h = returned[0], self._h + 1
        told = {name: value for name, value in info.items() if name not in ("cost", "utility")}
        kept = {name: _by_name(name, info[name]) for name in ("utility", "cost") if self._keep and name in info}
        told |= kept | {"cost": {**kept.get("cost", {}), self._name: breaks} if self._keep else breaks}
        return (returned[0], self._level(self._total)), returned[1], *returned[-3:-1], told

    def move(self, h: int, state: tuple[State, int], action: int, w: object) -> tuple[State, float, object]:
        """Return how the wrapped environment moves given chance, if the environment has `move`; utilities are 1 − cost.

        Kept utilities come first. Raise if a cost is no multiple of the unit of a level: it cannot be replayed.
        """
        observation, level = state
        inner: Move = self.env.get_wrapper_attr("move")
        following, reward, utility = inner(h, observation, action, w)
        spent = 1 - utility if self._cost is None else self._cost(h, observation, action, w)
        units = spent * self._levels / self._at_most if self._at_most else (self._levels + 1) * (spent > 0)
        if abs(units - round(units)) > ROUNDING * self._levels:
            raise InvalidProblem(
                f"the cost {spent!r} at step {h} is no multiple of {self._at_most / self._levels:g}, the unit of the "
                "total: such an episode cannot be replayed; give no move"
            )
        after = min(level + round(units), self._levels + 1)
        keeps = 1.0 - float(level <= self._levels < after)
        return ENDED if is_outside(following) else (following, after), reward, (utility, keeps) if self._keep else keeps

    def _is_over(self, total: float) -> bool:
        return total > self._at_most * (1 + ROUNDING)

    def _level(self, total: float) -> int:
        if self._is_over(total):
            return self._levels + 1
        units = total * self._levels / self._at_most if total > 0 else 0.0
        return min(math.ceil(units - ROUNDING * self._levels), self._levels)

    def _spent(self, info: Mapping[str, object], action: object) -> float:
        """Return the cost of a step."""
        if self._cost is not None:
            spent = self._cost(self._h, self._observation, action, info.get("chance"))
        elif "cost" in info:
            spent = info["cost"]
        elif "utility" in info and not isinstance(info["utility"], Mapping):
            spent = 1 - as_number("utility", info["utility"])
        else:
            raise InvalidProblem('info has neither "cost" nor one "utility": give cost=…, or report one of them')
        if isinstance(spent, Mapping):
            raise InvalidProblem("the environment reports several costs: say which one is meant, cost=…")
        number = as_number(f"cost at step {self._h}", spent)
        if number < 0:
            raise InvalidProblem(f"the cost at step {self._h} is {number:g}: give costs of 0 or more")
        return number


def _by_name(signal: str, value: object) -> dict[str, Any]:
    return dict(value) if isinstance(value, Mapping) else {signal: value}
