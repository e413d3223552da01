"""Monitors of rounds: `watch(plan, utility)` after each one."""

import math
from typing import Any

import numpy as np

from episafe.agents.bandits.base import BanditPlan, refuse_what_is_no_task
from episafe.errors import InvalidEpisode
from episafe.monitors.alarm import Alarm
from episafe.monitors.base import Watch
from episafe.monitors.utility_monitors import CHECKED, INCUMBENT, Batch, Promise
from episafe.problems.bandit_policy import Mixture, over_arms
from episafe.problems.bandit_task import BanditTask
from episafe.types import Array


class Monitors(Watch):
    """Watches whether what a guarantee assumes still holds. A false alarm, in any round, has probability ≤ delta.

    "incumbent" (where the slack is told), "threshold", "bound" and, where arms do not change, "drift" are those of
    `es.Monitors`, by the noise R and the norm bound B in place of a range: the utility of a round differs from the
    plan's by σ-sub-Gaussian noise, σ² = R² + (B max‖a − 𝔼a‖)², the second for what the plan itself draws.

    Args:
        task: the agent's own, `agent.task`.
        delta: the probability of a false alarm, in all.
    """

    def __init__(self, task: BanditTask, delta: float = 0.01) -> None:
        refuse_what_is_no_task(task)
        self.task = task
        least = -math.inf if task.slack is None else task.threshold + task.slack
        sigma = math.hypot(task.noise, task.norm_bound) if task.changes else self._sigma(*_incumbent(task))
        super().__init__(delta, Promise(task.threshold, least, math.nan, not task.changes, sigma), None)

    def watch(self, plan: BanditPlan, utility: Any) -> list[Alarm]:
        """Take in the utility of a round of a plan, after `agent.learn` accepted it."""
        seen = np.asarray(utility)
        if seen.shape != () or seen.dtype.kind not in "biuf" or not np.isfinite(seen):
            raise InvalidEpisode(f"utility must be one finite number, got {utility!r}")
        who = INCUMBENT if plan.source == "safe" else CHECKED
        sigma = self._sigma(plan.atoms, plan.probabilities)
        batch = Batch(
            np.array([float(seen)]), np.array([plan.utility_bound]), np.array([who], dtype=np.int64), np.array([sigma])
        )
        return self._raise(self._utilities.watch(batch))

    def _sigma(self, atoms: Array, probabilities: Array) -> float:
        spread = float(np.linalg.norm(atoms - probabilities @ atoms, axis=1).max())
        return math.hypot(self.task.noise, self.task.norm_bound * spread)


def _incumbent(task: BanditTask) -> tuple[Array, Array]:
    incumbent = task.incumbent(0)
    mixture = over_arms(task.arms(0), incumbent) if task.is_finite else Mixture(incumbent[None, :], np.ones(1))
    return mixture.atoms, mixture.probabilities
