"""Monitors of rounds: a session tells them of deployments and reports; `watch(plan, utility)` does both at once."""

import math
from typing import Any

import numpy as np

from episafe.errors import InvalidEpisode
from episafe.kernels.utility_tests import CHECKED, INCUMBENT, Promise
from episafe.monitors.base import Watch
from episafe.monitors.monitor_state import Alarm, Expected, ReportSummary
from episafe.monitors.several_monitors import SeveralMonitors
from episafe.problems.bandit_policy import BanditPlan, Mixture
from episafe.problems.bandit_task import BanditTask, require_bandit_task


class Monitors(Watch):
    """Watches whether what a guarantee assumes still holds. A false alarm, in any round, has probability ≤ delta.

    "incumbent" (where the slack is told), "threshold", "bound" and, where arms do not change, "drift" are those of
    `es.Monitors`, by the noise R and the norm bound B in place of a range: the utility of a round differs from the
    plan's by σ-sub-Gaussian noise, σ² = R² + (B max‖a − 𝔼a‖)², the second for what the plan itself draws. A report of
    several rounds counts as one, by the mean of their utilities; how many there are must not depend on what was seen.

    Args:
        task: the agent's own, `agent.task`.
        delta: the probability of a false alarm, in all.
    """

    def __new__(cls, task: BanditTask, delta: float = 0.01) -> Any:
        """Monitors for this task; a set for each constraint where there are several."""
        if getattr(task, "num_constraints", 1) > 1:
            return SeveralMonitors(task, delta, cls)
        return super().__new__(cls)

    def __init__(self, task: BanditTask, delta: float = 0.01) -> None:
        require_bandit_task(task)
        self.task = task
        least = -math.inf if task.slack is None else task.threshold + task.slack
        sigma = math.hypot(task.noise, task.norm_bound) if task.changes else self._sigma(task.incumbent_policy(0))
        super().__init__(delta, Promise(task.threshold, least, math.nan, not task.changes, sigma), None)

    def watch(self, plan: BanditPlan, utility: Any) -> list[Alarm]:
        """A deployment and the utility of its round, at once; the alarms that it raises, if any."""
        return self._at_once(plan, None, None, None, utility)

    def watch_report(self, plan: BanditPlan, *report: Any) -> list[Alarm]:
        """The same, of what a session was told: action, reward and utility of a round, or of several."""
        return self._at_once(plan, None, *report)

    def _facts(self, plan: BanditPlan, component: int | None) -> Expected:
        who = INCUMBENT if plan.source == "safe" else CHECKED
        return Expected(who, plan.utility_bound, self._sigma(plan.policy))

    def _outcome(self, *report: Any) -> ReportSummary:
        _, _, utility = report
        seen = np.atleast_1d(utility)
        if seen.shape == (0,):  # a batch in which nobody came
            return ReportSummary(math.nan)
        if seen.ndim != 1 or seen.dtype.kind not in "biuf" or not np.isfinite(seen).all():
            raise InvalidEpisode(f"utility must be one finite number, or some, got {utility!r}")
        return ReportSummary(float(seen.mean()))

    def _sigma(self, policy: Mixture) -> float:
        spread = float(np.linalg.norm(policy.atoms - policy.mean(), axis=1).max())
        return math.hypot(self.task.noise, self.task.norm_bound * spread)
