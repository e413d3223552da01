"""Policies trained elsewhere, as candidates."""

from collections.abc import Callable
from typing import Any, Protocol

import gymnasium
import numpy as np

from episafe.core.errors import InvalidProblem
from episafe.core.types import Array


class Model(Protocol):
    """What is asked of a model of Stable-Baselines3."""

    action_space: gymnasium.Space[Any]

    def predict(self, observation: Any, *, deterministic: bool) -> tuple[Any, Any]:
        """Return an action, and a state that is not used."""


def stable_baselines(model: Model) -> Callable[[int, Any], Array]:
    """Return the policy of a model trained with Stable-Baselines3: in each state, its deterministic action.

    The model must have finite actions, and be trained on the observations that the problem's environment gives.
    """
    space = model.action_space
    if not isinstance(space, gymnasium.spaces.Discrete):
        raise InvalidProblem(f"episafe needs finite actions; the model acts in {space}: train it with Discrete actions")
    num_actions, start = int(space.n), int(space.start)

    def probabilities(h: int, observation: Any) -> Array:
        """Return 1 for the action that the model predicts, 0 for the others."""
        action, _ = model.predict(observation, deterministic=True)
        return np.eye(num_actions)[int(action) - start]

    return probabilities
