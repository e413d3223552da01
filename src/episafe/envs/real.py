"""Real problems given by rules: a shelf with a service level, a battery with a reserve, admission with a latency
objective, and a shop with fresh goods under two limits."""

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


@dataclass(frozen=True)
class Battery(Rules):
    """State of charge, price and sun, hour by hour. An action moves so many units: negative sells, positive buys.

    Sun charges for nothing; the house takes a unit now and then. Reward is (price − mean price)·units sold, scaled
    to [0, 1]: a unit in store is worth the mean price, so that emptying the battery at midnight earns nothing.
    Utility is 1 in an hour that ends with the reserve in store.
    """

    capacity: int = 4  # units that the battery holds
    reserve: int = 2  # units to be kept
    prices: int = 3  # levels of the price
    suns: int = 2  # levels of the sun
    moves: tuple[int, ...] = (-1, 0, 1)  # units bought by each action
    load: float = 0.2  # probability that the house takes `house` units in an hour
    house: int = 1
    calm: float = 0.5  # probability that price, and sun, stay as they are for another hour
    variation: float = 0.1  # how often the incumbent departs from its rule, as people do
    horizon: int = 24

    def __post_init__(self) -> None:
        names, counted = tuple(f"buy {move}" for move in self.moves), f"(of {self.horizon})"
        units = {"reward": "scaled earnings", "utility": f"hours with the reserve in store {counted}"}
        self.describe((self.capacity, 0, 0), names, units)

    def chances(self, h: int, state: RuleState) -> list[Chance]:
        """The next price, the next sun, and whether the house takes something."""
        _, price, sun = state
        evening, noon = _bump(h, 19), _bump(h, 12)
        return [
            (range(self.prices), _next(price, self.prices, evening, self.calm)),
            (range(self.suns), _next(sun, self.suns, noon, self.calm)),
            ((0, self.house), (1 - self.load, self.load)),
        ]

    def move(self, h: int, state: RuleState, action: int, w: Draw) -> tuple[RuleState, float, float]:
        """Trade, then sun and house, then the next hour's price and sun."""
        (charge, price, sun), (next_price, next_sun, taken) = state, w
        traded = self.traded(charge, action)
        unit, most = max(self.house, 1), max(map(abs, self.moves))
        gift = unit * sun // max(self.suns - 1, 1)
        charge = min(max(charge + traded - taken, 0) + gift, self.capacity)
        half = (self.prices - 1) / 2
        margin = -traded * (price - half) / (half * most)
        return (charge, next_price, next_sun), (margin + 1) / 2, float(charge >= self.reserve)

    def traded(self, charge: int, action: int) -> int:
        """Return the units bought, within the free capacity and the charge."""
        return min(max(self.moves[action], -charge), self.capacity - charge)

    def incumbent(self, h: int, state: RuleState) -> Array:
        """Fill the battery up and hold; sell with a small probability."""
        free = self.capacity - state[0]
        fill = max(a for a, units in enumerate(self.moves) if units <= free)
        return mostly(fill, 0, self.num_actions, self.variation)

    def after(self, state: RuleState, action: int) -> RuleState:
        """Charge after the trade, price and sun."""
        charge, price, sun = state
        return (charge + self.traded(charge, action), price, sun)


def battery(
    rng: np.random.Generator,
    *,
    load: tuple[float, float] = (0.1, 0.3),
    capacity: int = 4,
    reserve: int = 2,
    hours_kept: float = 0.9,
) -> LinearCMDP:
    """A day of a small battery; `hours_kept` is the share of hours that are to end with the reserve in store.

    The probability that the house takes a unit is drawn from the range `load`.
    """
    check_range("hours_kept", hours_kept, 0, 1)
    home = Battery(capacity, reserve, load=float(rng.uniform(*load)))
    return listed(home, hours_kept * home.horizon)


def _bump(h: int, peak: int) -> float:
    """How near the hour is to the peak, from 0 to 1."""
    return float(np.exp(-(((h - peak) / 4) ** 2)))


def _next(level: int, count: int, pull: float, calm: float) -> Array:
    """Stay with probability `calm`; else draw again, higher for a stronger pull."""
    weight = np.array([(1 - pull) ** (k > 0) * (0.2 + pull) ** k for k in range(count)])
    p: Array = (1 - calm) * weight / weight.sum()
    p[level] += calm
    return p


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
