"""A policy that goes by the step alone: what is done at step h is the same in every state."""

from typing import Any

import numpy as np

from episafe.checks import as_distributions
from episafe.problems.policy import Policy, in_range
from episafe.types import Array


class StepPolicy(Policy):
    """Probabilities of the actions at each step, (H, A), whatever the state: a plan for the weekdays, say."""

    has_table = False

    def __init__(self, rows: Any) -> None:
        self.rows = as_distributions("policy", rows, (None, None))
        self._sure = [int(row.argmax()) if row.max() == 1.0 else None for row in self.rows]

    def probabilities(self, h: int, state: Any) -> Array:
        """π_h, shape (A,)."""
        in_range("step", h, len(self.rows))
        return self.rows[h]

    def act(self, h: int, state: Any, rng: np.random.Generator) -> int:
        """An action drawn from π_h; without a draw where only one is possible."""
        sure = self._sure[h]
        return super().act(h, state, rng) if sure is None else sure

    def table(self) -> Array:
        """Refused: it knows no states."""
        raise TypeError("a StepPolicy knows no states, and has no table of them: ask probabilities(h, state)")

    def as_json(self) -> dict[str, Any]:
        """Its rows."""
        horizon, num_actions = self.rows.shape
        return {"kind": "steps", "horizon": horizon, "num_actions": num_actions, "steps": self.rows.tolist()}
