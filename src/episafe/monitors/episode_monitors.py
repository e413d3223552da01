"""Monitors of episodes: `watch(plan, episode)` after each report, in the order of arrival."""

import zlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from episafe.checks import TOLERANCE
from episafe.kernels.utility_tests import CHECKED, INCUMBENT, Batch, Promise
from episafe.monitors.base import Alarm, Watch
from episafe.monitors.residual_test import MOST_FEATURES, NUM_BOXES, NUM_CELLS, ResidualData
from episafe.problems.policy import Policy
from episafe.problems.sampled_problem import AnyTask, require_task
from episafe.types import Array, Episode, IntArray, Plan

CHECKED_SOURCES = ("zero", "search")
Flags = NDArray[np.bool_]


class Monitors(Watch):
    """Watches whether what a guarantee assumes still holds. A false alarm, at any time, has probability ≤ delta.

    That holds if episodes are independent given their plans, utilities lie in [0, 1] a step, every report comes, or is
    lost for reasons that have nothing to do with its outcome, and what the monitor tests is true:

    - "incumbent": V^u(π_sf) ≥ b + ξ, by an anytime confidence interval;
    - "threshold": policies that passed the check have V^u ≥ b, on average; mixtures over their coin;
    - "bound": they have V^u ≥ the bound that each was deployed on, on average;
    - "drift": the incumbent's utility does not change;
    - "residual": next states are linear in the features. Not for one-hot features, which always are, nor for d > 100.
    - "range": no episode has a utility outside [0, H]; that needs no probability.

    All but "residual" ask for a halt. docs/reliability.md says how soon they see what.

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

    def __init__(self, task: AnyTask, delta: float = 0.01) -> None:
        require_task("Monitors are", task)
        promise = Promise(task.threshold, task.threshold + (task.slack or 0.0), float(task.horizon))
        watches_features = not task.one_hot and task.dim <= MOST_FEATURES
        super().__init__(delta, promise, (task.horizon, task.dim) if watches_features else None)
        self.task = task
        if task.is_listed:
            rng = np.random.default_rng(0)  # fixed: which states share a box or a cell must not depend on data
            self._box_of = rng.integers(NUM_BOXES, size=task.num_states)
            self._cell_of = rng.permutation(task.num_states * task.num_actions) % NUM_CELLS

    def watch(self, plan: Plan, episode: Episode) -> list[Alarm]:
        """Take in one episode of a plan, after `agent.learn` accepted it; the alarms that it raises, if any."""
        states, actions = episode.states, np.asarray(episode.actions, dtype=np.int64)
        utility, incumbent = self._utility(episode, states, actions), _acting(plan, episode) is self.task.safe_policy
        facts = (utility, plan.utility_bound, incumbent, plan.source in CHECKED_SOURCES)
        return self._watch_all(self._features(states, actions), *(np.array([fact]) for fact in facts))

    def watch_report(self, plan: Plan, *report: Any) -> list[Alarm]:
        """The same, of what a session was told: an episode."""
        return self.watch(plan, *report)

    def watch_batch(
        self, states: IntArray, actions: IntArray, bounds: Array, incumbent: Flags, checked: Flags
    ) -> list[Alarm]:
        """The same for many episodes of a task with listed states, in one compiled pass.

        Args:
            states: (n, H+1).
            actions: (n, H).
            bounds: `utility_bound` of the plan of each episode, (n,).
            incumbent: in which the incumbent acted, as a component of a mixture too, (n,).
            checked: in which the plan had the source "zero" or "search", (n,).
        """
        assert self.task.is_listed
        steps = np.arange(self.task.horizon)
        utilities = self.task.utility[steps, states[:, :-1], actions].sum(axis=1)
        features = None if self._residual is None else self._listed_features(states, actions)
        return self._watch_all(features, utilities, bounds, incumbent, checked)

    def _watch_all(
        self, features: ResidualData | None, utilities: Array, bounds: Array, incumbent: Flags, checked: Flags
    ) -> list[Alarm]:
        H, num_alarms = self.task.horizon, len(self.alarms)
        possible = (utilities >= -TOLERANCE * H) & (utilities <= (1 + TOLERANCE) * H)
        if not possible.all() and all(alarm.what != "range" for alarm in self.alarms):
            first = int(np.argmin(possible))
            says = (
                f"an episode has the utility {utilities[first]:.4g}, outside [0, {H}]: correct the reports or the range"
            )
            self.alarms.append(Alarm("range", says, int(self._seen.counts[0]) + first + 1))
        who = INCUMBENT * incumbent.astype(np.int64) + CHECKED * checked.astype(np.int64)
        sigmas = np.zeros(int(possible.sum()))
        batch = Batch(np.clip(utilities[possible], 0.0, H), bounds[possible], who[possible], sigmas)
        self._take_in(batch, features)
        return self.alarms[num_alarms:]

    def _utility(self, episode: Episode, states: Any, actions: IntArray) -> float:
        """The total utility: as observed where the episode says so, else as the task knows it."""
        if episode.utilities is not None:
            return float(np.sum(episode.utilities))
        return float(sum(self.task.utility_at(h, states[h])[action] for h, action in enumerate(actions.tolist())))

    def _listed_features(self, states: IntArray, actions: IntArray) -> ResidualData:
        assert self.task.is_listed and self.task.phi is not None
        now, pairs = states[:, :-1], states[:, :-1] * self.task.num_actions + actions
        return self.task.phi[now, actions], self._cell_of[pairs], self._box_of[states[:, 1:]]

    def _features(self, states: Any, actions: IntArray) -> ResidualData | None:
        """Of one episode; where states are not listed, cells and boxes are by a hash of what they look like."""
        task = self.task
        if self._residual is None:
            return None
        if task.is_listed:
            return self._listed_features(np.asarray(states)[None, :], actions[None, :])
        hashes = np.array([zlib.crc32(repr(task.key(state)).encode()) for state in states])
        phi = np.array([task.features(states[h])[action] for h, action in enumerate(actions.tolist())])
        cells = (hashes[:-1] * task.num_actions + actions) % NUM_CELLS
        return phi[None], cells[None], (hashes[1:] // NUM_CELLS % NUM_BOXES)[None]


def _acting(plan: Plan, episode: Episode) -> Policy | None:
    """The policy that acted; None if the plan is a mixture and the episode does not say."""
    components: tuple[Policy, ...] = plan.policy.components
    if len(components) == 1:
        return components[0]
    return None if episode.component is None else components[episode.component]
