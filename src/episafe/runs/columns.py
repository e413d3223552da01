"""The columns of a record while a run fills them. Compiled loops write into the named tuples."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from episafe.types import SOURCES, Array, IntArray

COINS = ("components", "weights", "acting_numbers")  # what a record calls those of `Coins`
BY_SOURCE = -1  # in `acting`: the name follows from the source and the plan of the episode


class Facts(NamedTuple):
    """One row an episode: `values` (K, 1 + m) V^r and V^u, `bounds` (K, 1 + m) λ and the bound, `sources`, `plan_ids`
    (K,).

    Sources are numbers here, positions in `types.SOURCES`.
    """

    values: Array
    bounds: Array
    sources: NDArray[np.int8]
    plan_ids: IntArray


class Coins(NamedTuple):
    """The coin of each episode: `components` (K,), which policy of the plan acted, `weights` (K, n), and `acting` (K,),
    the number of its name.

    A plan that is no mixture has weights (1, 0) and component 0.
    """

    components: IntArray
    weights: Array
    acting: NDArray[np.int32]


class Columns:
    """All columns of a run of K episodes.

    Attributes:
        facts: of every run.
        coins: of agents that may deploy mixtures, else None.
        totals: (K, 1 + m) reward and utility collected, where exact values cannot be known, else None.
        optima: (K,) the optimum of each episode, where it changes, else None.
        names: the numbers of the policies that acted, by their names.
        halts: the episodes after which monitors halted the agent, and why.
        failed: in how many episodes the incumbent acted because planning had failed, and the first reason.
    """

    def __init__(
        self, num_episodes: int, *, totals: bool, changing: bool, mixes: bool, num_constraints: int = 1
    ) -> None:
        K, width = num_episodes, 1 + num_constraints
        self.num_episodes = K
        sources, plan_ids = np.empty(K, dtype=np.int8), np.empty(K, dtype=np.int64)
        self.facts = Facts(np.empty((K, width)), np.empty((K, width)), sources, plan_ids)
        self.coins = _no_coins(K) if mixes else None
        self.totals = np.empty((K, width)) if totals else None
        self.optima = np.full(K, np.nan) if changing else None
        self.names: dict[str, int] = {}
        self.halts: dict[int, str] = {}
        self.failed = (0, "")

    @property
    def figures(self) -> dict[str, Array | None]:
        """The columns of numbers as a record calls them; of utilities (K,), or (K, m) where there are several."""
        pairs = {"values": self.facts.values, "totals": self.totals}
        named: dict[str, Array | None] = {
            "lams": self.facts.bounds[:, 0],
            "utility_bounds": _utilities(self.facts.bounds),
        }
        for kind, both in pairs.items():
            named[f"reward_{kind}"] = None if both is None else both[:, 0]
            named[f"utility_{kind}"] = None if both is None else _utilities(both)
        return named

    @property
    def coin_figures(self) -> dict[str, Any]:
        """The columns of coins as a record calls them; none where no plan may be a mixture."""
        return {} if self.coins is None else dict(zip(COINS, self.coins, strict=True))

    def others(self) -> dict[str, Array]:
        """The columns that only some runs have, by name."""
        columns = {"totals": self.totals, "optima": self.optima}
        return {name: column for name, column in columns.items() if column is not None}

    def fail(self, num_episodes: int, reason: str) -> None:
        """Note that planning had failed before so many episodes."""
        self.failed = (self.failed[0] + num_episodes, self.failed[1] or reason)

    def note(self, at: Any, plan: Any, values: tuple[float, Any], drawn: tuple[int | None, Any]) -> None:
        """The facts of an episode, or of several `at` once, that are known before: the plan, its values, who acts."""
        facts, (component, acting) = self.facts, drawn
        facts.values[at, 0], facts.values[at, 1:] = values
        facts.bounds[at, 0], facts.bounds[at, 1:] = plan.lam, plan.utility_bound
        facts.sources[at], facts.plan_ids[at] = SOURCES.index(plan.source), plan.id
        if getattr(plan, "failed", False):
            self.fail(np.size(at), plan.reason)
        if component is not None:
            self.widen(len(plan.policy.weights))
            assert self.coins is not None
            weights, n = self.coins.weights, len(plan.policy.weights)
            self.coins.components[at], weights[at, :n], weights[at, n:] = component, plan.policy.weights, 0.0
        if self.coins is not None:
            self.coins.acting[at] = self.number(getattr(acting, "name", ""))

    def number(self, name: str) -> int:
        """The number of a name; of none, that it follows from the source."""
        return self.names.setdefault(name, len(self.names)) if name else BY_SOURCE

    def widen(self, n: int) -> None:
        """Make room for mixtures of n policies, where there is none."""
        if self.coins is not None and n <= self.coins.weights.shape[1]:
            return
        old, K = self.coins or _no_coins(self.num_episodes), self.num_episodes
        weights = np.zeros((K, max(n, 2)))
        weights[:, : old.weights.shape[1]] = old.weights
        self.coins = Coins(old.components, weights, old.acting)


def _utilities(both: Array) -> Array:
    """All columns but the first; as (K,) where that is one."""
    return both[:, 1] if both.shape[1] == 2 else both[:, 1:]


def _no_coins(num_episodes: int) -> Coins:
    """Room for a run, as if no plan were a mixture."""
    weights = np.zeros((num_episodes, 2))
    weights[:, 0] = 1.0
    acting = np.full(num_episodes, BY_SOURCE, dtype=np.int32)
    return Coins(np.zeros(num_episodes, dtype=np.int64), weights, acting)
