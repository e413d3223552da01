"""The words that every room shares: arrays, sources, levels, episodes and plans. This module imports nothing of ours.

Shapes are written in docstrings: H steps, S states, A actions, d features.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
IntArray = NDArray[np.int64]

Source = Literal["safe", "zero", "search", "fixed"]
SOURCES: tuple[Source, ...] = get_args(Source)
SAFE, ZERO, SEARCH, FIXED = range(4)  # the sources as kernels and columns number them: positions in SOURCES
Variant = Literal["released", "text"]  # by the code behind the published figures, or by the words of the paper
Level = Literal["theorem", "calibrated", "heuristic"]
Amount = Any  # a number where there is one constraint; an array (m,), one entry each, where there are several
Move = Callable[[int, Any, int, Any], tuple[Any, float, Amount]]  # (h, state, action, w) ↦ next state, reward, utility
HELD = -1  # the number of a plan that is not the agent's decision: the incumbent, because something else went wrong


def amount(values: Sequence[float] | Array) -> Amount:
    """The one number of a problem with one constraint; an array (m,) where there are several."""
    return float(values[0]) if len(values) == 1 else np.asarray(values, dtype=np.float64)


def amounts(value: Any) -> Array:
    """What `amount` was made of, (m,); (1,) of a number."""
    return np.atleast_1d(np.asarray(value, dtype=np.float64))


def shown(value: Amount) -> str:
    """Six digits of a number, or of each of several."""
    return ", ".join(f"{number:.6g}" for number in amounts(value).tolist())


def every_constraint(value: Amount, num_constraints: int) -> Amount:
    """The same number for each of several constraints, (m,); what has one each, or is of one constraint, as it is."""
    return np.full(num_constraints, value) if num_constraints > 1 and np.ndim(value) == 0 else value


@dataclass(frozen=True)
class Episode:
    """What was seen in one episode. One without states and actions has its totals alone.

    Attributes:
        states: s_1..s_{H+1}, length H+1.
        actions: a_1..a_H, length H.
        rewards, utilities: observed ones, length H, for learners that do not know them; utilities (H, m) of
            several constraints.
        component: which policy of a mixture acted.
        trace: (start, (w_1, …, w_H)), what chance brought, where it is exogenous; None where something was not seen.
        total_utility, total_reward: of the whole episode, where its steps were not seen; utility (m,) where there are
            several constraints.
    """

    states: Any = None
    actions: Any = None
    rewards: Any = None
    utilities: Any = None
    component: int | None = None
    trace: Any = None
    total_utility: Any = None
    total_reward: Any = None

    @classmethod
    def of_totals(cls, utility: Any, reward: float = 0.0, component: int | None = None) -> "Episode":
        """An episode of which only totals are known: it may certify, and teaches no planner."""
        return cls(component=component, total_utility=utility, total_reward=reward)

    @property
    def reports_utility(self) -> bool:
        """Whether it says what utility it had; else only the task's mean, or a replay, can stand in for that."""
        return self.utilities is not None or self.total_utility is not None


@dataclass(frozen=True)
class Plan:
    """A policy to deploy and why it may be.

    Attributes:
        policy: what to deploy, an `es.Policy`.
        source: "safe" (the incumbent), "zero" (λ = 0), "search" (found by search) or "fixed".
        lam: the multiplier; NaN where there is none. Their sum where there are several constraints.
        utility_bound: the bound that was checked against the threshold; for "safe" the one that failed. (m,)
            where there are several constraints.
        level: what the bound is worth: "theorem", "calibrated" or "heuristic".
        reason: why the incumbent is deployed, where it is.
        id: counts the plans of one agent from 0; −1 for one that is not the agent's own decision.
        failed: whether planning raised an error; `reason` says which.
        deployment: the number of its deployment, given by a session.
    """

    policy: Any
    source: Source
    lam: float = math.nan
    utility_bound: Amount = math.nan
    level: Level = "heuristic"
    reason: str = ""
    id: int = 0
    failed: bool = False
    deployment: int | None = None
