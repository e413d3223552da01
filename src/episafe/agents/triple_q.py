"""Triple-Q (Wei, Liu and Ying 2022): Q-learning for reward and utility, and a virtual queue of what is owed."""

import math
from typing import Any, ClassVar

import numpy as np

from episafe.agents.base import Agent
from episafe.checks import as_scale, as_whole
from episafe.learning.planner import Every, Replanning
from episafe.learning.policy_arrays import PolicyArrays
from episafe.problems.policy import TablePolicy
from episafe.problems.task import Task
from episafe.storage.state_reader import Saved, State, under
from episafe.types import Array, IntArray, Plan


class TripleQ(Agent):
    """Greedy for Q + (Z/η)C, where Q and C are learned by steps α_t = (χ+1)/(χ+t), t visits in the current frame:

        Q_h ← (1−α_t)Q_h + α_t(r + Q_{h+1}(x', a') + b_t),      C_h ← (1−α_t)C_h + α_t(u + C_{h+1}(x', a') + b_t)
        b_t = ¼√(H²ι(χ+1)/(χ+t)),   ι = 128 ln(√(2SAH)K),   χ = η = K^0.2,   a' greedy at x'

    After each frame of K^0.6 episodes Q, C and the visits begin anew, at H and 0, and the queue of what is owed is
    Z ← [Z + b + ε − C̄]₊, with C̄ the mean of C_1(x_1, a_1) over the frame and ε = 8√(SAH⁶ι³)/K^0.2.

    The paper proves regret Õ(H⁴√(SA)K^0.8/ξ) and no violation in sum, *with cancellation* (soft), for K beyond any run:
    10⁴¹ for 5 states, 3 actions and 4 steps. It keeps no model: an episode costs O(H). No incumbent.

    Wei, Liu and Ying, AISTATS 2022, Algorithm 1. Differs: reward and utility are those that the task tells; a' is the
    greedy action, where an episode is of another policy too; the authors' experiments have other constants.

    Args:
        task: what the learner is told.
        num_episodes: K.
        bonus: multiplies b_t and ε.
        replan: when to plan again; information is ln K of the episodes learned.
    """

    name: ClassVar[str] = "triple-q"
    certified: ClassVar[bool] = False

    def __init__(self, task: Task, num_episodes: int, bonus: float = 1.0, replan: Replanning = Every()) -> None:
        super().__init__(task, replan)
        if not task.is_listed:
            raise TypeError("it has a table of every (h, s, a): it needs a task with listed states, as of LinearCMDP")
        self.num_episodes, self.bonus = as_whole("num_episodes", num_episodes, 1), as_scale("bonus", bonus)
        (H, S, A), K = task.reward.shape, num_episodes
        log_term = 128 * math.log(math.sqrt(2 * S * A * H) * K)
        self._chi = K**0.2
        self._frame_length = math.ceil(K**0.6)
        self._scale = bonus * math.sqrt(H**2 * log_term * (self._chi + 1)) / 4
        self._tightening = bonus * 8 * math.sqrt(S * A * H**6 * log_term**3) / K**0.2
        self._signals = np.stack([task.reward, task.utility])
        self._values: Array = np.full((2, H, S, A), float(H))  # Q and C
        self._visits: Array = np.zeros((H, S, A))
        self._owed = self._promised = 0.0  # Z, and the sum of C_1(x_1, a_1) in this frame
        self._num_learned = 0

    @property
    def num_learned(self) -> int:
        """How many episodes were learned from, logged ones included."""
        return self._num_learned

    def _propose(self) -> Plan:
        lam = self._owed / self._chi
        actions = np.argmax(self._values[0] + lam * self._values[1], axis=-1)
        return Plan(TablePolicy(np.eye(self.task.num_actions)[actions]), "search", lam, level=self.level)

    def _observe(self, states: Any, actions: IntArray) -> None:
        H, lam, values = self.task.horizon, self._owed / self._chi, self._values
        for h, (s, a, after) in enumerate(zip(states[:-1], actions, states[1:], strict=True)):
            later = np.zeros(2)
            if h < H - 1:
                Q, C = values[:, h + 1, after]
                later = values[:, h + 1, after, np.argmax(Q + lam * C)]
            self._visits[h, s, a] += 1
            t = self._chi + self._visits[h, s, a]
            step, bonus = (self._chi + 1) / t, self._scale / math.sqrt(t)
            values[:, h, s, a] = (1 - step) * values[:, h, s, a] + step * (self._signals[:, h, s, a] + later + bonus)
        self._promised += float(values[1, 0, states[0], actions[0]])
        self._num_learned += 1
        if self._num_learned % self._frame_length == 0:
            self._begin_frame()

    def _begin_frame(self) -> None:
        self._owed = max(0.0, self._owed + self.task.threshold + self._tightening - self._promised / self._frame_length)
        self._promised = 0.0
        self._values.fill(self.task.horizon)
        self._visits.fill(0)

    def _information(self) -> Array:
        return np.array([math.log(max(self._num_learned, 1))])

    def settings(self) -> dict[str, str | int | float]:
        """Agent, replanning rule, level, K and the multiplier."""
        return super().settings() | {"num_episodes": self.num_episodes, "bonus": self.bonus}

    def _learned_state(self, policies: PolicyArrays) -> State:
        sums = np.array([self._owed, self._promised])
        learned = {"values": self._values, "visits": self._visits, "sums": sums, "num_episodes": self._num_learned}
        return under("tables", learned)

    def _restore_learned(self, saved: Saved) -> None:
        saved = saved.under("tables")
        self._values = saved.numbers("values", self._values.shape)
        self._visits = saved.numbers("visits", self._visits.shape, least=0)
        self._owed, self._promised = saved.numbers("sums", (2,)).tolist()
        self._num_learned = saved.whole("num_episodes")
