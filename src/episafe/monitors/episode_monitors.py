"""Monitors of episodes: a session tells them of deployments and reports; `watch(plan, episode)` does both at once."""

import math
import zlib
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from episafe.checks import TOLERANCE
from episafe.errors import InvalidEpisode
from episafe.kernels.claim_wealth import LEAST_ROOM
from episafe.kernels.utility_tests import CHECKED, INCUMBENT, NOW, Batch, Promise
from episafe.monitors.base import Watch
from episafe.monitors.monitor_state import Alarm, Coin, Expected, ReportSummary
from episafe.monitors.residual_test import MOST_FEATURES, NUM_BOXES, NUM_CELLS, ResidualData
from episafe.monitors.several_monitors import SeveralMonitors
from episafe.problems.episodic_task import SIGNALS
from episafe.problems.sampled_problem import AnyTask, require_task
from episafe.types import Array, Episode, IntArray, Plan

CHECKED_SOURCES = ("zero", "search")
Flags = NDArray[np.bool_]


class Monitors(Watch):
    """Watches whether what a guarantee assumes still holds. A false alarm, at any time, has probability ≤ delta.

    After an alarm a person may let the agent go on (`go_on`): all tests begin anew then, with delta anew. It holds
    whatever delays or loses reports, if each is of its own deployment, given its plan an episode is independent of the
    others, and what the monitor tests is true:

    - "incumbent": V^u(π_sf) ≥ b + ξ;
    - "threshold": policies that passed the check have V^u ≥ b, on average; mixtures over their coin;
    - "bound": they have V^u ≥ the bound that each was deployed on, on average;
    - "spell": each of them has V^u ≥ b, of late too, whatever was before;
    - "drift": the incumbent's utility does not change;
    - "residual": next states are linear in the features. Not for one-hot features, which always are, nor for d > 100;
    - "coin": components are drawn by the weights of their plan;
    - "range": no episode has a utility outside [least_total, H]; that needs no probability.

    The first seven have a sixth of delta each, "spell" and "coin" half of that; where there are m constraints, each
    constraint has a set of them at an m-th of delta, by its name. All but "residual" ask for a halt. docs/monitors.md
    says how soon they see what.

    Args:
        task: the agent's own, `agent.task`: by it the incumbent is known.
        delta: the probability of a false alarm, in all.

    Example:
        >>> import episafe as es
        >>> cmdp = es.make("tabular", seed=0)
        >>> agent = es.OPSE(cmdp.task, es.Constants.paper("tabular"))
        >>> monitors = es.Monitors(agent.task)
        >>> record = es.run(cmdp, agent, num_episodes=100, monitors=monitors)
        >>> monitors.alarms
        []
    """

    def __new__(cls, task: AnyTask, delta: float = 0.01) -> Any:
        """Monitors for this task; a set for each constraint where there are several."""
        if getattr(task, "num_constraints", 1) > 1:
            return SeveralMonitors(task, delta, cls)
        return super().__new__(cls)

    def __init__(self, task: AnyTask, delta: float = 0.01) -> None:
        require_task("Monitors are", task)
        promise = Promise(task.threshold, task.threshold + (task.slack or 0.0), float(task.horizon))
        watches_features = not task.one_hot and task.dim <= MOST_FEATURES
        super().__init__(delta, promise, (task.horizon, task.dim) if watches_features else None)
        self.task, self.floor = task, min(task.least_total, 0.0)
        if task.is_listed:
            rng = np.random.default_rng(0)  # fixed: which states share a box or a cell must not depend on data
            self._box_of = rng.integers(NUM_BOXES, size=task.num_states)
            self._cell_of = rng.permutation(task.num_states * task.num_actions) % NUM_CELLS

    def keep_to(self, task: AnyTask) -> None:
        """Hold utilities against the limit that the task has now."""
        super().keep_to(task)
        self.task = task

    def watch(self, plan: Plan, episode: Episode) -> list[Alarm]:
        """A deployment and its episode, at once; the alarms that it raises, if any."""
        return self._at_once(plan, episode.component, episode)

    def watch_report(self, plan: Plan, *report: Any) -> list[Alarm]:
        """The same, of what a session was told: an episode."""
        return self.watch(plan, *report)

    def watch_batch(
        self, states: IntArray, actions: IntArray, bounds: Array, incumbent: Flags, checked: Flags
    ) -> list[Alarm]:
        """The same for many episodes of a task with listed states, in one compiled pass; nothing may be waited for.

        Args:
            states: (n, H+1).
            actions: (n, H).
            bounds: `utility_bound` of the plan of each episode, (n,).
            incumbent: in which the incumbent acted, as a component of a mixture too, (n,).
            checked: in which the plan had the source "zero" or "search", (n,).
        """
        assert self.task.is_listed and len(self.line) == 0
        n, steps = len(states), np.arange(self.task.horizon)
        utilities = self.task.utility[steps, states[:, :-1], actions].sum(axis=1)
        who = INCUMBENT * incumbent.astype(np.int64) + CHECKED * checked.astype(np.int64)
        nothing = np.zeros(n, dtype=np.int64)
        self._take_in(Batch(utilities, bounds, who, np.zeros(n), np.full(n, NOW), nothing))
        self.line.pass_by(n)
        self._follow_incumbent(utilities[incumbent])
        self._follow_spells(np.where(checked, self._lacks(utilities), np.nan))
        if self.residual is not None:
            self.residual.watch(*self._listed_features(states, actions))
        return self._news()

    def _lacks(self, utilities: Array) -> Array:
        """What episodes lack to the threshold, as `_lack` says of one."""
        b, H = self.promise.threshold, self.promise.ceiling
        return (b - utilities) / max(H - b, LEAST_ROOM * H)

    def refused(self, *report: Any) -> list[Alarm]:
        """The alarm of an episode that would fit, if its rewards and utilities were in their range."""
        (episode,) = report
        given = {name: getattr(episode, name) for name in SIGNALS.values() if getattr(episode, name) is not None}
        try:
            inside = {name: np.clip(np.asarray(seen), 0, 1) for name, seen in given.items()}
            if episode.total_utility is not None:
                inside["total_utility"] = min(max(episode.total_utility, self.task.least_total), self.task.horizon)
            self.task.check_report(replace(episode, **inside))
            outside = self._outside(episode, self._utility(episode))
        except (InvalidEpisode, TypeError, ValueError, OverflowError):
            return []
        return [self._range_alarm(f"{outside}, and was refused")] if outside else []

    def _facts(self, plan: Plan, component: int | None) -> Expected:
        components = plan.policy.components if hasattr(plan.policy, "names") else (plan.policy,)
        safe = tuple(policy is self.task.safe_policy for policy in components)
        mixed, coin = len(components) > 1, None
        if mixed:
            coin = Coin(tuple(np.asarray(plan.policy.weights).tolist()), safe, int(self.last_coin[0]))
        acts = safe[component] if mixed and component is not None else any(safe)
        who = INCUMBENT * acts + CHECKED * (plan.source in CHECKED_SOURCES)
        return Expected(who, plan.utility_bound, coin=coin)

    def _outcome(self, *report: Any) -> ReportSummary:
        (episode,) = report
        utility, H = self._utility(episode), float(self.task.horizon)
        outside = self._outside(episode, utility)
        counted = math.nan if outside else min(max(utility, self.task.least_total), H)
        return ReportSummary(counted, episode.component, self._features(episode), outside)

    def _outside(self, episode: Episode, utility: float) -> str:
        """What is outside its range, in words: the total utility, or a step of what the task does not tell."""
        for name in (plural for signal, plural in SIGNALS.items() if signal in self.task.unknown):
            if getattr(episode, name) is None:
                continue  # of totals alone there are no steps
            seen = np.asarray(getattr(episode, name))
            if not _within(seen, 1.0):
                return f"{name} from {seen.min():.4g} to {seen.max():.4g} a step, outside [0, 1]"
        least, most = self.task.least_total, self.task.horizon
        inside = _within(np.array([utility]), most, least)
        return "" if inside else f"the utility {utility:.4g}, outside [{least:g}, {most}]"

    def _utility(self, episode: Episode) -> float:
        """The total utility: as observed where the episode says so, else as its trace shows, else as the task knows it.

        The task's own are means over chance, which a change of the world does not change.
        """
        if episode.utilities is not None:
            return float(np.sum(episode.utilities))
        if episode.trace is not None and episode.states is not None and not episode.reports_utility:
            return self.task.most_utility(episode)
        return float(self.task.total("utility", episode))

    def _listed_features(self, states: IntArray, actions: IntArray) -> ResidualData:
        assert self.task.is_listed and self.task.phi is not None
        now, pairs = states[:, :-1], states[:, :-1] * self.task.num_actions + actions
        return self.task.phi[now, actions], self._cell_of[pairs], self._box_of[states[:, 1:]]

    def _features(self, episode: Episode) -> ResidualData | None:
        """Of one episode; where states are not listed, cells and boxes are by a hash of what they look like."""
        task, states = self.task, episode.states
        if self.residual is None or states is None:
            return None
        actions = np.asarray(episode.actions, dtype=np.int64)
        if task.is_listed:
            return self._listed_features(np.asarray(states)[None, :], actions[None, :])
        hashes = np.array([zlib.crc32(repr(task.key(state)).encode()) for state in states])
        phi = np.array([task.features(states[h])[action] for h, action in enumerate(actions.tolist())])
        cells = (hashes[:-1] * task.num_actions + actions) % NUM_CELLS
        return phi[None], cells[None], (hashes[1:] // NUM_CELLS % NUM_BOXES)[None]


def _within(values: Array, most: float, least: float = 0.0) -> bool:
    """Whether all lie in [least, most], up to rounding."""
    rounding = TOLERANCE * (most - least)
    return bool((values >= least - rounding).all() and (values <= most + rounding).all())
