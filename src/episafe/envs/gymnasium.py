"""Our environments for other people's agents: import this, then `gymnasium.make("episafe/Streaming-v0")`.

Not imported by episafe itself, which works without Gymnasium. In one go:
`gymnasium.make("episafe.envs.gymnasium:episafe/Streaming-v0", problem_seed=3)`.
"""

from typing import Any

import gymnasium
import numpy as np

from episafe.envs import ENVIRONMENTS, make
from episafe.problems.cmdp import LinearCMDP
from episafe.problems.policy import draw_index
from episafe.problems.rules import Rules


class CMDPEnv(gymnasium.Env[int, int]):
    """A `LinearCMDP` as an environment: states and actions by number, `info["utility"]`, truncated after H steps.

    With several constraints `info["utility"]` is a mapping, by their names.

    Args:
        cmdp: the problem; kept as `cmdp`, for exact values.
    """

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012  # Gymnasium's own form

    def __init__(self, cmdp: LinearCMDP) -> None:
        task = cmdp.task
        self.cmdp = cmdp
        self.observation_space = gymnasium.spaces.Discrete(task.num_states)  # type: ignore[assignment]
        self.action_space = gymnasium.spaces.Discrete(task.num_actions)  # type: ignore[assignment]
        self._h, self._state = task.horizon, task.initial_state

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[int, dict[str, Any]]:
        """Begin at the initial state."""
        super().reset(seed=seed)
        self._h, self._state = 0, self.cmdp.task.initial_state
        return self._state, {}

    def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
        """One step: s' ~ P_h(·|s, a), r_h(s, a), and u_h(s, a) in info."""
        task, at = self.cmdp.task, (self._h, self._state, int(action))
        if self._h >= task.horizon:
            raise gymnasium.error.ResetNeeded(f"the episode of {task.horizon} steps is over: call reset()")
        self._state = draw_index(self.cmdp.P[at], self.np_random)
        self._h += 1
        told = [float(one.utility[at]) for one in task.constraints]
        info = {"utility": _by_name(task.constraint_names, told)}
        return self._state, float(task.reward[at]), False, self._h == task.horizon, info


class RulesEnv(gymnasium.Env[Any, int]):
    """Rules as an environment, of any size: nothing is listed. Observations are states as arrays of whole numbers.

    What chance brings is in `info["chance"]`. Where it does not depend on what is done, the problem is exogenous:
    `es.from_gymnasium(env, move=env.move, …)`.

    Args:
        rules: e.g. `episafe.envs.inventory.Inventory()`, or your own; kept as `rules`.
    """

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012  # Gymnasium's own form

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self.observation_space = gymnasium.spaces.MultiDiscrete(list(rules.shape))
        self.action_space = gymnasium.spaces.Discrete(rules.num_actions)  # type: ignore[assignment]
        self._h, self._state = rules.horizon, rules.start

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin at the start."""
        super().reset(seed=seed)
        self._h, self._state = 0, self.rules.start
        return np.array(self._state), {}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """One step: each chance is drawn by itself, then the rules move; the utility is in info."""
        if self._h >= self.rules.horizon:
            raise gymnasium.error.ResetNeeded(f"the episode of {self.rules.horizon} steps is over: call reset()")
        luck = tuple(values[draw_index(p, self.np_random)] for values, p in self.rules.chances(self._h, self._state))
        self._state, reward, utility = self.rules.move(self._h, self._state, int(action), luck)
        self._h += 1
        named = _by_name(self.rules.names, list(utility)) if np.ndim(utility) else utility
        info = {"utility": named, "chance": luck}
        return np.array(self._state), reward, False, self._h == self.rules.horizon, info

    def move(self, h: int, state: Any, action: int, w: Any) -> tuple[Any, float, float]:
        """Next observation, reward and utility, given what chance brings."""
        following, reward, utility = self.rules.move(h, tuple(state.tolist()), action, w)
        return np.array(following), reward, utility


def _by_name(names: tuple[str, ...], values: list[float]) -> Any:
    """The one utility, or several by the names of their constraints."""
    if len(values) == 1:
        return values[0]
    return dict(zip(names or [f"constraint {c}" for c in range(len(values))], values, strict=True))


def build(name: str, problem_seed: int = 0, **options: Any) -> CMDPEnv:
    """`es.make(name, problem_seed, …)` as an environment."""
    return CMDPEnv(make(name, problem_seed, **options))


for _name in ENVIRONMENTS:
    gymnasium.register(id=f"episafe/{_name.title()}-v0", entry_point=f"{__name__}:build", kwargs={"name": _name})
