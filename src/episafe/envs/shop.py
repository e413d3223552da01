"""A shop with fresh goods: a service level and a budget for waste, both at once."""

from dataclasses import dataclass

import numpy as np

from episafe.core.types import Array
from episafe.envs.common import check_range
from episafe.envs.inventory import WEEK, poisson
from episafe.problems.linear import LinearCMDP
from episafe.problems.rules import Chance, Draw, Rules, RuleState, listed, mostly


@dataclass(frozen=True)
class Shop(Rules):
    """Goods that keep for two days. An action is a level to fill up to, and whether yesterday's goods are discounted.

    A state is (yesterday's goods,). In the morning the shelf is filled up to the level. Customers take yesterday's
    goods first, and bargain hunters take what is left of them where they are discounted; what then remains of
    yesterday's goods is thrown away. Reward is what was earned less what was bought, scaled to [0, 1]. There are two
    utilities: the share of the customers who were served, and 1 − thrown away/largest level.
    """

    mean_demand: float = 2.2  # customers per day, over the week; Poisson, cut off at `max_demand`
    max_demand: int = 6
    mean_hunters: float = 1.0  # bargain hunters per day; Poisson, cut off at `max_hunters`
    max_hunters: int = 3
    levels: tuple[int, ...] = (2, 4, 6)  # to choose from, rising
    price: float = 1.0  # of a unit sold
    discounted: float = 0.4  # of a unit that is discounted
    cost: float = 0.6  # of a unit bought
    variation: float = 0.1  # how often the incumbent departs from its rule, as people do
    horizon: int = 14
    names: tuple[str, ...] = ("service", "waste")

    def __post_init__(self) -> None:
        of, names = f"(of {self.horizon})", ("fill up to {}", "fill up to {}, discount")
        units = {
            "reward": "scaled profit",
            "service": f"days of demand served {of}",
            "waste": f"days without waste {of}",
        }
        actions = tuple(name.format(level) for level in self.levels for name in names)
        self.describe((0,), actions, units)

    def chances(self, h: int, state: RuleState) -> list[Chance]:
        """Customers and bargain hunters of the day."""
        return [
            (range(self.max_demand + 1), poisson(self.mean_demand * WEEK[h % 7], self.max_demand)),
            (range(self.max_hunters + 1), poisson(self.mean_hunters, self.max_hunters)),
        ]

    def move(self, h: int, state: RuleState, action: int, w: Draw) -> tuple[RuleState, float, tuple[float, float]]:
        """Fill up, sell yesterday's goods first, throw away what is left of them."""
        (old,), (demand, hunters) = state, w
        level, discount = self.levels[action // 2], action % 2 == 1
        fresh = max(level - old, 0)
        sold_old, price_old = min(old, demand), self.discounted if discount else self.price
        sold_fresh = min(fresh, demand - sold_old)
        hunted = min(old - sold_old, hunters) if discount else 0
        wasted = old - sold_old - hunted
        earned = self.price * sold_fresh + price_old * sold_old + self.discounted * hunted - self.cost * fresh
        worst, best = -self.cost * self.levels[-1], self.price * self.max_demand
        served = (sold_old + sold_fresh) / demand if demand > 0 else 1.0
        return (fresh - sold_fresh,), (earned - worst) / (best - worst), (served, 1 - wasted / self.levels[-1])

    def incumbent(self, h: int, state: RuleState) -> Array:
        """Fill up to the second highest level and discount what is old; now and then to the level below it."""
        usual = 2 * (len(self.levels) - 2) + 1
        return mostly(usual, usual - 2, self.num_actions, self.variation)


def shop(
    rng: np.random.Generator,
    *,
    mean_demand: tuple[float, float] = (2.0, 2.4),
    service_level: float = 0.95,
    waste: float = 4.0,
) -> LinearCMDP:
    """Fourteen days of fresh goods; `service_level` of each day's customers are to be served, on average.

    At most `waste` units are thrown away in a fortnight, on average. The mean demand is drawn from its range.
    """
    check_range("service_level", service_level, 0, 1)
    made = Shop(float(rng.uniform(*mean_demand)))
    check_range("waste", waste, 0, made.horizon * made.levels[-1])
    return listed(made, [service_level * made.horizon, made.horizon - waste / made.levels[-1]])
