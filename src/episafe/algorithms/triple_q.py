"""Triple-Q (Wei, Liu and Ying 2022): Q-learning for reward and utility, and a virtual queue of the violation."""

import math

import numpy as np

from episafe.core.agent import EVERY, Agent, Replanning, register
from episafe.core.checks import as_count, as_scale
from episafe.core.policy import TablePolicy
from episafe.core.task import ProblemLike
from episafe.core.types import Array, Episode, Plan, Settings
from episafe.linear.counts import known_signals, needs_one_limit


@register(
    name="triple-q", label="Triple-Q",
    summary="Triple-Q (Wei et al. 2022): Q-learning and a virtual queue, without a model; may violate limits",
    arguments=lambda problem, num_episodes: {"num_episodes": num_episodes, "bonus": 0.002}, needs=needs_one_limit,
)  # fmt: skip
class TripleQ(Agent):
    """Deploys the greedy policy for Q + (Z/η)C; Q and C are learned by steps α_t, t visits in the current frame:

        Q_h ← (1−α_t)Q_h + α_t(r + Q_{h+1}(x', a') + b_t),      C_h ← (1−α_t)C_h + α_t(u + C_{h+1}(x', a') + b_t)
        α_t = (χ+1)/(χ+t),   b_t = ¼√(H²ια_t),   ι = 128 ln(√(2SAH)K),   χ = η = K^0.2,   a' greedy at x'

    A frame has K^0.6 episodes. After each frame Q and C are reset to H, the visits are reset to 0, and the queue is
    updated: Z ← [Z + b + ε − C̄]₊. Here C̄ is the mean of C_1(x_1, a_1) over the frame, and ε = 8√(SAH⁶ι³)/K^0.2.

    The paper proves regret Õ(H⁴√(SA)K^0.8/ξ) and no violation in sum, *with cancellation* (soft). The K that it needs
    is too large in practice: 10⁴¹ for 5 states, 3 actions and 4 steps. It keeps no model, so an episode costs O(H). It
    has no incumbent.

    Wei, Liu and Ying, AISTATS 2022, Algorithm 1; their experiments use Algorithm 2, which resets Q and C less.
    Differences: reward and utility are known, and a' is the greedy action even if another policy played the episode.

    Args:
        problem: a problem or its task.
        num_episodes: K.
        bonus: factor on √ι: on b_t, and its cube on ε. With 1, ε exceeds H in any run: the queue always grows and the
            reward is ignored. The authors' experiments have ε = 0.5 and b_t = 0.2√(ln K/t), as with a bonus near 0.002.
        replan: when to plan again; information is the logarithm of the number of episodes.
    """

    def __init__(self, problem: ProblemLike, num_episodes: int, bonus: float = 1.0, replan: Replanning = EVERY) -> None:
        super().__init__(problem, replan)
        self._signals = known_signals(self.task, needs_one_limit)
        self.num_episodes, self.bonus = as_count("num_episodes", num_episodes), as_scale("bonus", bonus)
        (_, H, S, A), K = self._signals.shape, num_episodes
        log_term = bonus**2 * 128 * math.log(math.sqrt(2 * S * A * H) * K)
        self._chi = K**0.2
        self._frame_length = math.ceil(K**0.6)
        self._scale = math.sqrt(H**2 * log_term * (self._chi + 1)) / 4
        self._tightening = 8 * math.sqrt(S * A * H**6 * log_term**3) / K**0.2
        self._values: Array = np.full(self._signals.shape, float(H))  # Q and C
        self._visits: Array = np.zeros((H, S, A))
        self._queue = self._frame_sum = 0.0  # Z, and the sum of C_1(x_1, a_1) in this frame
        self._num_learned = 0

    def decide(self) -> Plan:
        """Return the greedy policy."""
        lam = self._queue / self._chi
        actions = np.argmax(self._values[0] + lam * self._values[1], axis=-1)
        return Plan(TablePolicy(np.eye(self._visits.shape[2])[actions]), "search", level=self.level, lam=lam)

    def observe(self, episode: Episode) -> None:
        """Update Q and C along an episode; at the end of a frame, update the queue and reset them."""
        H, lam, values = len(self._visits), self._queue / self._chi, self._values
        states, actions = episode.states.tolist(), episode.actions.tolist()
        self._frame_sum += float(values[1, 0, states[0], actions[0]])
        for h, (s, a, after) in enumerate(zip(states[:-1], actions, states[1:], strict=True)):
            later = np.zeros(2)
            if h < H - 1:
                Q, C = values[:, h + 1, after]
                later = values[:, h + 1, after, np.argmax(Q + lam * C)]
            self._visits[h, s, a] += 1
            t = self._chi + self._visits[h, s, a]
            step, bonus = (self._chi + 1) / t, self._scale / math.sqrt(t)
            values[:, h, s, a] = (1 - step) * values[:, h, s, a] + step * (self._signals[:, h, s, a] + later + bonus)
        self._num_learned += 1
        if self._num_learned % self._frame_length == 0:
            owed = float(self.task.thresholds[0]) + self._tightening - self._frame_sum / self._frame_length
            self._queue, self._frame_sum = max(0.0, self._queue + owed), 0.0
            values.fill(H)
            self._visits.fill(0)

    def information(self) -> Array:
        """Return the logarithm of the number of episodes, shape (1,)."""
        return np.array([math.log(max(self._num_learned, 1))])

    def settings(self) -> Settings:
        """Return the general settings with K and the factor on √ι."""
        return super().settings() | {"num_episodes": self.num_episodes, "bonus": self.bonus}
