"""Window sums and running sums: how much weight the next episode may give to anything but the incumbent.

The promise of level "window" rests on this exact arithmetic alone; docs/appendix/budget.md has the proof. It uses no
statistics: only that no episode of the incumbent totals less than x, none of another policy less than its own least
total, and that reports are true.
"""

from collections.abc import Callable, Hashable

import numpy as np

from episafe.core.types import Array

Calendar = Callable[[str], tuple[Hashable, int]]  # episode id -> window, and how many later episodes it has at least
SHAVED = 1e-12  # relative; taken off a weight, so that rounding never makes a sum negative


class Windows:
    """The windows that contain the next episode t, each with its surplus Σ (u_s − b) over the episodes before t.

    An episode counts as its certain total, `floor`, until its report is settled. For every window [a, e]
    that contains t, a weight of 1 for all other policies than the incumbent is allowed in episode t if

        Σ_{a ≤ s < t} (u_s − b)  +  (floor_t − b)  +  (e − t)(x − b)  ≥  0,

    and a share λ of that weight if λ floor_t + (1 − λ) x in place of floor_t satisfies it. A raised threshold holds for
    windows that begin later, a lowered threshold holds at once.

    Args:
        size: n; every n consecutive episodes are a window.
        thresholds: b (m,).
        incumbent_least: x ≥ b (m,).
        calendar: assigns each episode to one more window; None for none.
    """

    def __init__(self, size: int, thresholds: Array, incumbent_least: Array, calendar: Calendar | None = None) -> None:
        self.size, self.limit, self.x, self.calendar = size, thresholds.copy(), incumbent_least, calendar
        self.count = 0  # episodes deployed: the number t of the next
        self.surplus = np.zeros((size, len(thresholds)))  # of the window that begins at a, in row a mod n
        self.begun_under = np.tile(thresholds, (size, 1))  # b of each window
        self.months: dict[Hashable, tuple[Array, Array]] = {}  # surplus and b of each calendar window
        self.placed: dict[int, tuple[int, Hashable, Array]] = {}  # unsettled: number, calendar window, counted total

    def reserves(self, episode_id: str) -> Array:
        """Return the surplus that each window of the next episode has if the incumbent acts, (·, m)."""
        starts = np.arange(max(self.count - self.size + 1, 0), self.count)
        rows, left = starts % self.size, starts + self.size - self.count  # episodes of the window from this one on
        running = self.surplus[rows] + left[:, None] * (self.x - self.begun_under[rows])
        found = [*running, self.size * (self.x - self.limit)]  # the last window begins with this episode
        if self.calendar is not None:
            label, later = self.calendar(episode_id)
            surplus, b = self.months.get(label, (np.zeros_like(self.x), self.limit))
            found.append(surplus + (1 + max(int(later), 0)) * (self.x - b))
        return np.array(found)

    def share(self, floor: Array, episode_id: str) -> float:
        """Return the largest share λ in [0, 1] of a plan whose certain total is `floor` (m,)."""
        costs = self.x - floor
        if (costs <= 0).all():
            return 1.0
        reserve = self.reserves(episode_id).min(axis=0)
        allowed = float(np.min(reserve[costs > 0] / costs[costs > 0]))
        return 1.0 if allowed >= 1 else max(allowed * (1 - SHAVED), 0.0)

    def deploy(self, deployment: int, floor: Array, episode_id: str) -> None:
        """Count the next episode as its certain total, (m,)."""
        row, label = self.count % self.size, None
        self.surplus[row], self.begun_under[row] = 0.0, self.limit
        rows = self._rows(self.count)
        self.surplus[rows] += floor - self.begun_under[rows]
        if self.calendar is not None:
            label, _ = self.calendar(episode_id)
            surplus, b = self.months.get(label, (np.zeros_like(self.x), self.limit.copy()))
            self.months[label] = surplus + floor - b, b
        self.placed[deployment] = self.count, label, floor
        self.count += 1

    def settle(self, deployment: int, total: Array) -> None:
        """Replace the certain total by the reported total (m,), in every window that is not over."""
        number, label, counted = self.placed.pop(deployment)
        self.surplus[self._rows(number)] += total - counted
        if self.calendar is not None:
            surplus, b = self.months[label]
            self.months[label] = surplus + total - counted, b

    def _rows(self, number: int) -> list[int]:
        """Return the rows of the windows that contain a deployed episode and are not over."""
        newest = max(self.count - 1, number)
        return [a % self.size for a in range(max(newest - self.size + 1, 0), number + 1)]

    def abandon(self, deployment: int) -> None:
        """Count an episode that will have no report as its certain total."""
        self.placed.pop(deployment, None)

    def change(self, thresholds: Array) -> None:
        """Use other thresholds: raised ones in windows that begin later, lowered ones at once."""
        self.limit = thresholds.copy()
        self.begun_under = np.minimum(self.begun_under, thresholds)
        self.months = {label: (surplus, np.minimum(b, thresholds)) for label, (surplus, b) in self.months.items()}


class Relative:
    """The running sum S = Σ (u_s − α u_s^inc), by replays of what was deployed and of the incumbent.

    With totals in [0, T] and weight w of all other policies than the incumbent, u − α u^inc ≥ min(0, 1 − α − w) T; an
    episode counts as this value until it is settled. So w ≤ 1 − α + S/T keeps S ≥ 0.

    Args:
        alpha: α in (0, 1).
        largest: T.
        num_constraints: m.
    """

    def __init__(self, alpha: float, largest: float, num_constraints: int) -> None:
        self.alpha, self.largest, self.sums = alpha, largest, np.zeros(num_constraints)
        self.placed: dict[int, float] = {}

    def weight(self) -> float:
        """Return the largest weight w of all other policies than the incumbent."""
        return float(np.clip((1 - self.alpha + self.sums.min() / self.largest) * (1 - SHAVED), 0.0, 1.0))

    def deploy(self, deployment: int, weight: float) -> None:
        """Count an episode as the worst case."""
        self.placed[deployment] = min(0.0, 1 - self.alpha - weight) * self.largest
        self.sums += self.placed[deployment]

    def settle(self, deployment: int, total: Array, incumbent: Array) -> None:
        """Replace the worst case by the replayed totals of the plan and of the incumbent, (m,)."""
        self.sums += total - self.alpha * incumbent - self.placed.pop(deployment)

    def abandon(self, deployment: int) -> None:
        """Count an episode that will have no report as the worst case."""
        self.placed.pop(deployment, None)
