"""Cloud admission with a latency objective: how many requests to let in, so that the queue stays short."""

from dataclasses import dataclass

import numpy as np

from episafe.core.types import Array
from episafe.envs.common import check_range
from episafe.envs.inventory import poisson
from episafe.problems.linear import LinearCMDP
from episafe.problems.rules import Chance, Draw, Rules, RuleState, listed, mostly


@dataclass(frozen=True)
class Cloud(Rules):
    """A queue in front of servers, and a load that wanders. An action is the most requests let in this minute.

    A state is (queue, load level). Reward is what was let in, over the largest that may be; utility is 1 in a minute
    that ends with a queue no longer than `patience`, that is with a wait within the objective.
    Requests that come and that are done are Poisson, cut off at the largest cap.
    """

    caps: tuple[int, ...] = (1, 2, 4)  # what each action lets in at most, rising
    arrivals: tuple[float, float] = (1.0, 4.0)  # mean requests per minute at the lowest and at the highest load
    served: float = 2.0  # mean requests that are done in a minute
    longest: int = 12  # the queue that cannot be exceeded: what comes then is lost
    patience: int = 4  # the longest queue within the objective
    loads: int = 3  # levels of the load
    calm: float = 0.7  # probability that the load stays for another minute; else it moves one level up or down
    variation: float = 0.1  # how often the incumbent departs from its rule, as people do
    horizon: int = 30
    time_homogeneous: bool = True

    def __post_init__(self) -> None:
        units = {"reward": "scaled requests let in", "utility": f"minutes within the objective (of {self.horizon})"}
        self.describe((0, self.loads // 2), tuple(f"let in {cap}" for cap in self.caps), units)

    def chances(self, h: int, state: RuleState) -> list[Chance]:
        """Requests that come, requests that are done, and the next load."""
        load, most = state[1], self.caps[-1]
        low, high = self.arrivals
        mean = low + (high - low) * load / max(self.loads - 1, 1)
        up, down = min(load + 1, self.loads - 1), max(load - 1, 0)
        drift = (1 - self.calm) / 2
        counts = range(most + 1)
        return [
            (counts, poisson(mean, most)),
            (counts, poisson(self.served, most)),
            ((load, up, down), (self.calm, drift, drift)),
        ]

    def move(self, h: int, state: RuleState, action: int, w: Draw) -> tuple[RuleState, float, float]:
        """Let in up to the cap, then serve."""
        (queue, _), (came, done, load) = state, w
        let_in = min(came, self.caps[action])
        queue = min(max(queue + let_in - done, 0), self.longest)
        return (queue, load), let_in / self.caps[-1], float(queue <= self.patience)

    def incumbent(self, h: int, state: RuleState) -> Array:
        """Return the lowest cap with most of the probability, the next one with the rest."""
        return mostly(0, 1, self.num_actions, self.variation)


def cloud(
    rng: np.random.Generator, *, served: tuple[float, float] = (1.8, 2.2), patience: int = 4, minutes_kept: float = 0.9
) -> LinearCMDP:
    """Half an hour of a small service; `minutes_kept` is the share of minutes that are to be within the objective.

    The mean number of requests done in a minute is drawn from the range `served`.
    """
    check_range("minutes_kept", minutes_kept, 0, 1)
    service = Cloud(served=float(rng.uniform(*served)), patience=patience)
    return listed(service, minutes_kept * service.horizon)
