"""Inventory with a service level: how much to order each day, so that profit grows and demand is still served."""

import math
from dataclasses import dataclass
from functools import cache

import numpy as np

from episafe.core.checks import as_count
from episafe.core.types import Array
from episafe.envs.common import check_range
from episafe.problems.linear import LinearCMDP
from episafe.problems.rules import Chance, Draw, Rules, RuleState, listed, mostly

WEEK = (0.8, 0.8, 0.9, 1.0, 1.2, 1.4, 0.9)  # demand by weekday, times the mean


@dataclass(frozen=True)
class Inventory(Rules):
    """A shelf and its pipeline. An action is a level: order what is missing to it, counting what is on its way.

    A state is (stock, due today, due tomorrow, …): what was left overnight, then the orders under way.
    Demand that finds an empty shelf is lost. Reward is price·sold − holding·left, scaled to [0, 1]; utility is the
    share of the day's demand that was served.
    """

    mean_demand: float = 2.0  # units per day, over the week; Poisson, cut off at `max_demand`
    max_demand: int = 6
    levels: tuple[int, ...] = (3, 5, 7, 9)  # the order-up-to levels to choose from, rising
    lead_time: int = 1  # days from order to delivery, at least 1
    price: float = 1.0  # earned by a unit sold
    holding: float = 0.6  # paid for a unit left overnight
    variation: float = 0.1  # how often the incumbent departs from its rule, as people do
    horizon: int = 14

    def __post_init__(self) -> None:
        most, usual = self.levels[-1], round(self.mean_demand)
        start = (most - self.lead_time * usual, *(usual,) * self.lead_time)
        names = tuple(f"order up to {level}" for level in self.levels)
        units = {"reward": "scaled profit", "utility": f"days of demand served (of {self.horizon})"}
        self.describe(start, names, units)

    def chances(self, h: int, state: RuleState) -> list[Chance]:
        """Demand of the day."""
        return [(range(self.max_demand + 1), poisson(self.mean_demand * WEEK[h % 7], self.max_demand))]

    def move(self, h: int, state: RuleState, action: int, w: Draw) -> tuple[RuleState, float, float]:
        """Take the delivery in and order in the morning, sell by day."""
        demand = w[0]
        available, *under_way = self.after(state, action)
        sold = min(available, demand)
        profit = self.price * sold - self.holding * (available - sold)
        worst, best = -self.holding * self.levels[-1], self.price * self.max_demand
        served = sold / demand if demand > 0 else 1.0
        return (available - sold, *under_way), (profit - worst) / (best - worst), served

    def incumbent(self, h: int, state: RuleState) -> Array:
        """Order up to the highest level, and now and then to the one below it."""
        return mostly(self.num_actions - 1, self.num_actions - 2, self.num_actions, self.variation)

    def after(self, state: RuleState, action: int) -> RuleState:
        """What is on the shelf with today's delivery, and what is under way with today's order."""
        stock, delivered, *under_way = state
        return (stock + delivered, *under_way, max(self.levels[action] - sum(state), 0))


def inventory(
    rng: np.random.Generator,
    *,
    mean_demand: tuple[float, float] = (1.8, 2.2),
    levels: tuple[int, ...] = (3, 5, 7, 9),
    holding: float = 0.6,
    service_level: float = 0.9,
) -> LinearCMDP:
    """Fourteen days of one product; `service_level` is the share of each day's demand to be served, on average.

    The mean demand is drawn from the range `mean_demand`. The incumbent's level is the last one.
    """
    check_range("service_level", service_level, 0, 1)
    for i, level in enumerate(levels):
        as_count(f"levels[{i}]", level)
    shop = Inventory(float(rng.uniform(*mean_demand)), levels=tuple(levels), holding=holding)
    return listed(shop, service_level * shop.horizon)


@cache
def poisson(mean: float, most: int) -> Array:
    """Poisson probabilities of 0..most; what lies above counts as `most`."""
    p = np.array([math.exp(-mean + k * math.log(mean) - math.lgamma(k + 1)) for k in range(most + 1)])
    p[most] = 1.0 - p[:most].sum()
    p.setflags(write=False)
    return p
