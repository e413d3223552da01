"""Race: which opaque candidate to try next, when to give one up, and which one acts. Heuristic, like trials.py."""

import math

import numpy as np

from episafe.certify.evidence import Accounts
from episafe.certify.trials import Trials
from episafe.core.agent import Candidate, Seen
from episafe.core.task import Task
from episafe.core.types import Array, Plan
from episafe.kernels.mixture import best_weights
from episafe.kernels.wealth import LOG_WORST

LEVEL, SHORTEST_TRIAL = 0.05, 10  # of the test that ends a trial; episodes of its own before that
PRIOR = 4.0  # episodes at b, and at the reward of the acting policy, that a candidate starts with
POOLED = 20.0  # episodes of its own that the spread of all candidates counts for in that of each
AHEAD = 1000  # episodes for which a gain lasts, at least; else as many as there were
LEAST_LEFT = 0.1  # of ln(1/δ_j): evidence that is taken to be missing at least
RHO = 0.18  # the radius of a mean is smallest after some tens of values
REWARD = -1  # index of the reward in what was seen of a policy; utility c has index c


class Race(Trials):
    """Tries candidates one at a time, each at the largest weight that the check allows.

    While none is certified, all are tried; after that, only those whose rewards may be better. The certified candidate
    with the highest mean reward acts. A candidate is given up if its utility is below b, or its reward below that of
    the acting policy.

    Attributes:
        seen: results by policy and signal (n, m + 1, 3): number of episodes, mean, Σ(x − mean)².
        dropped, passed, certified: flags (n,): given up; overtaken, so tried only if it earns more; bounds reach the
            limits.
    """

    def __init__(self, task: Task, accounts: Accounts) -> None:
        super().__init__(task, accounts)
        self.seen = np.zeros((1, task.num_constraints + 1, 3))
        self.dropped = self.passed = self.certified = np.zeros(1, dtype=np.bool_)

    def add(self, candidate: Candidate, guess: float = 0.0) -> int:
        """Put a candidate on trial; return its row."""
        row = super().add(candidate, guess)
        self.seen = np.concatenate([self.seen, np.zeros((1, *self.seen.shape[1:]))])
        flags = self.dropped, self.passed, self.certified
        self.dropped, self.passed, self.certified = (np.append(one, False) for one in flags)
        self.judge()
        return row

    def _shared_row(self) -> int:
        """Return a new row, also for proposals: candidates keep their rows until they are decided."""
        return self._own_row()

    @property
    def is_idle(self) -> bool:
        """Return whether no candidate is on trial."""
        acting = self._acting()
        return not any(self._is_racing(i, acting) for i in range(1, len(self.dropped)))

    def standing(self) -> tuple[Seen, ...]:
        """Return the observed results of every policy; the policy that acts comes first."""
        acting = self._acting()
        found = []
        for i in (acting, *(i for i in range(len(self.policies)) if i != acting)):
            policy, (number, mean, deviations) = self.policies[i], self.seen[i].T
            if policy is not None:
                found.append(Seen(policy, int(number[0]), mean, deviations / np.maximum(number, 1)))
        return tuple(found)

    def see(self, row: int, utilities: Array, reward: float) -> None:
        """Add the totals of an episode of a row by Welford's update, which gives equal values a spread of exactly 0."""
        seen, values = self.seen[row], np.append(utilities, reward)
        seen[:, 0] += 1
        before = values - seen[:, 1]
        seen[:, 1] += before / seen[:, 0]
        seen[:, 2] += before * (values - seen[:, 1])

    def judge(self, again: bool = False) -> None:
        """Note the rows that are certified now, those that they overtake, and those that are given up.

        `again`: also judge the rows that were given up before.
        """
        accounts, means = self.accounts, self.seen[:, :, 1]
        certified = np.array([i > 0 and accounts.is_certified(i) for i in range(len(means))])
        if (certified & ~self.certified).any():
            self.passed = self.passed | ~certified
        self.certified = certified
        self.dropped = (self.dropped & (not again)) | (accounts.wealth.in_use == 0)
        best = max(means[i, REWARD] - radius(self.seen[i, REWARD]) for i in (0, self._acting()))
        for i in range(1, len(means)):
            if self.seen[i, REWARD, 0] >= SHORTEST_TRIAL:
                upper = means[i] + [radius(one) for one in self.seen[i]]
                below = (upper[:REWARD] < accounts.thresholds).any() and not certified[i]
                self.dropped[i] |= below or upper[REWARD] < best

    def choose(self, num_episodes: int) -> Plan:
        """Return the most valuable trial; if there is none, the acting policy alone."""
        acting = self._acting()
        racing = [i for i in range(1, len(self.dropped)) if self._is_racing(i, acting)]
        found = self._trial(racing, acting) if racing else None
        if found is not None:
            first, weights = found
            others = [i for i in (*range(1, len(weights)), 0) if weights[i] > 0 and i != first]
            return self.as_plan([first, *others], weights[[first, *others]].tolist(), self.assured)
        if acting:
            return self.as_plan([acting], [1.0], self.lower)
        return self.fallback("the incumbent's slack is not proved yet" if racing else "no candidate is on trial")

    @property
    def assured(self) -> Array:
        """Return L (n, m); the incumbent reaches the thresholds, even if its slack is unknown."""
        lower = self.lower.copy()
        lower[0] = np.maximum(lower[0], self.accounts.thresholds)
        return lower

    def _acting(self) -> int:
        """Return the certified row with the highest mean reward, the newest of equals, or else the row that pays."""
        rows = np.flatnonzero(self.certified & ~self.dropped).tolist()
        return max(rows, key=lambda i: (self.seen[i, REWARD, 1], i), default=self.base)

    def _is_racing(self, i: int, acting: int) -> bool:
        """Return whether row i should be tried: it is not decided, and not overtaken by a row that earns as much."""
        if self.dropped[i] or self.certified[i] or not self.passed[i]:
            return not (self.dropped[i] or self.certified[i])
        n, mean, deviations = self.seen[:, REWARD].T
        differ = deviations.any() or np.ptp(mean[n > 0]) > 0
        return bool(differ and mean[i] + radius(self.seen[i, REWARD]) > mean[acting])

    def _trial(self, racing: list[int], acting: int) -> tuple[int, Array] | None:
        """Return the row with the most valuable trial and the weights; None if the acting policy alone is better."""
        values, rewards, b = self._values(racing, acting), self.seen[:, REWARD, 1], self.accounts.thresholds
        most, found, may_pay = (rewards[acting] if acting else -math.inf), None, ~self.dropped
        may_pay[0] = self.base == 0  # after a promotion the promoted policy pays, and not the incumbent
        payer = int(np.argmax(np.where(may_pay, (self.assured - b).min(axis=1), -np.inf)))
        for i, value in zip(racing, values.tolist(), strict=True):
            own = np.eye(len(rewards))[i]
            scores = np.where(own > 0, value, rewards)
            weights = best_weights(
                scores if acting else own, self.assured, b, (may_pay | (own > 0)).astype(np.int64), payer
            )
            if weights[i] > 0 and weights @ scores > most:
                most, found = weights @ scores, (i, weights)
        return found

    def _values(self, racing: list[int], acting: int) -> Array:
        """Return the value of an episode of each row: its reward, plus its part of the gain that a proof would bring.

        The gain is E(R − R_acting)₊ in all episodes ahead, times the part of its proof that one episode makes. The best
        bet λ ≤ 1 lets ln(1 + λ(X − b)/(b − x₀)) grow by about (V − b)²/2σ², and by no more than its mean.
        """
        now, ahead = float(self.seen[acting, REWARD, 1]), max(self.seen[:, REWARD, 0].sum(), AHEAD)
        shift, error, z = (one[racing] for one in beliefs(self.seen[:, REWARD], now))
        gain = error * normal_parts(z)[0] if error.any() else 1.0
        parts, wealth = [], self.accounts.wealth
        for c, b in enumerate(self.accounts.thresholds.tolist()):
            _, spread, z = (one[racing] for one in beliefs(self.seen[:, c], b))
            first, second = normal_parts(z)
            g = np.minimum((wealth.means[racing, c] < b).sum(axis=1), wealth.means.shape[2] - 1)
            logs = wealth.logs[racing, c, g] + wealth.absent[racing, None] * LOG_WORST
            left = wealth.log_term[racing, c] - np.log((np.exp(logs) * wealth.products[racing, c, g]).sum(axis=1))
            quadratic = second / (self.seen[racing, c, 0] + PRIOR) / 2
            linear = spread * first / np.maximum(b - wealth.least[racing, c], 1e-9 * (1 + abs(b)))
            parts.append(np.minimum(quadratic, linear) / np.maximum(left, LEAST_LEFT))
        worth: Array = now + shift + gain * ahead * np.min(parts, axis=0)
        return worth


def radius(seen: Array) -> float:
    """Return the one-sided error of a mean, given (n, mean, Σ(x − mean)²); infinite for n < 2.

    The asymptotic confidence sequence of Waudby-Smith, Arbour, Sinha, Kennedy and Ramdas (2021), s the standard
    deviation: s √(2 (nρ² + 1)/(n²ρ²) · ln(√(nρ² + 1)/level)).
    """
    n, _, deviations = seen.tolist()
    if n < 2:
        return math.inf
    s, grows = math.sqrt(deviations / (n - 1)), n * RHO**2 + 1
    return s * math.sqrt(2 * grows / (n * RHO) ** 2 * math.log(math.sqrt(grows) / LEVEL))


def beliefs(seen: Array, at: float) -> tuple[Array, Array, Array]:
    """Return the estimated distance of each row's mean above `at`, its error, and their ratio, 0 without an error.

    `seen` holds n, mean and Σ(x − mean)² by row. The estimate is normal, with `PRIOR` additional values at `at` and a
    spread partly taken from all rows.
    """
    n, mean, deviations = seen.T
    about = deviations + n * PRIOR / (n + PRIOR) * (mean - at) ** 2
    pooled = about.sum() / max(n.sum(), 1.0)
    error = np.sqrt((about + POOLED * pooled) / (n + POOLED) / (n + PRIOR))
    shift = n * (mean - at) / (n + PRIOR)
    return shift, error, np.divide(shift, error, out=np.zeros_like(shift), where=error > 0)


def normal_parts(z: Array) -> tuple[Array, Array]:
    """Return E(z + N)₊ and E(z + N)₊², N standard normal: zΦ + φ and (z² + 1)Φ + zφ."""
    Phi = np.array([math.erfc(-one / math.sqrt(2)) / 2 for one in z.tolist()])
    phi = np.exp(-z * z / 2) / math.sqrt(2 * math.pi)
    return z * Phi + phi, (z * z + 1) * Phi + z * phi
