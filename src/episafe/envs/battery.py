"""A battery with a reserve: buy cheap, sell dear, and keep enough for an outage."""

from dataclasses import dataclass

import numpy as np

from episafe.core.types import Array
from episafe.envs.common import check_range
from episafe.problems.linear import LinearCMDP
from episafe.problems.rules import Chance, Draw, Rules, RuleState, listed, mostly


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
