"""A running total of costs as part of the state of a listed problem: what a limit on bad episodes needs.

State (s, l) has number s·L + l, where l counts the total so far in units, from 0; the last of the L levels stands for
all totals beyond the limit.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from math import lcm
from typing import Any

import numpy as np

from episafe.checks import TOLERANCE, as_finite, require_takes
from episafe.errors import InvalidProblem
from episafe.problems.exact_answers import linearity_gap
from episafe.problems.listed_move import NOWHERE, ListedMove
from episafe.problems.policy import as_table
from episafe.problems.rules import MAX_LISTED
from episafe.types import Array, IntArray

MAX_DENOMINATOR = 1000  # costs that are multiples of 1/n for some n up to this are counted exactly
FEWEST_BINS = 8  # of the total, below which rounding says too little
ROOM = 1e-9  # of a unit: costs that are a multiple up to rounding are taken for it

# what `LinearCMDP` takes, all but the limits: P, reward, phi, initial_state, safe_policy, time_homogeneous,
# state_names, move, law, and `utility`, a list of one a constraint
Tables = Mapping[str, Any]


@dataclass(frozen=True, eq=False)
class CostUnits:
    """Costs as whole numbers of a unit, and the limit on their total.

    Attributes:
        costs: (H, S, A, W) whole numbers of units, rounded up; W = 1 where they do not depend on chance.
        most: the largest total that keeps the limit.
        unit: in the units of the cost.
        overstated: by how much the total of an episode may be too large, at most; 0 where it is exact.
    """

    costs: IntArray
    most: int
    unit: float
    overstated: float

    @property
    def levels(self) -> int:
        """L, how many values the running total takes."""
        return self.most + 2

    def following(self) -> IntArray:
        """The level after a step, (H, S, L, A, W)."""
        here = np.arange(self.levels)[:, None, None]
        return np.minimum(here + self.costs[:, :, None], self.most + 1)


def in_units(costs: Array, at_most: float) -> CostUnits:
    """Exact where costs have a common unit 1/n and the states stay few; else rounded up, to as small a unit as fits."""
    H, S = costs.shape[:2]
    room = MAX_LISTED // S - 2  # units in the limit
    unit = _common_unit(costs, at_most)
    if unit is None or int(at_most / unit + ROOM) > room:
        if room < FEWEST_BINS or at_most == 0:
            raise InvalidProblem(
                f"{S} states with a running total are more than {MAX_LISTED}: give costs in coarser steps, or play the "
                "problem as an environment, es.chance(env, …), with es.certify.Observation"
            )
        unit = at_most / room
    whole = np.ceil(costs / unit - ROOM)
    over = (whole * unit - costs).max(axis=(1, 2, 3)).sum()
    overstated = 0.0 if over <= ROOM * H * unit else float(over)
    if overstated >= at_most > 0:
        raise InvalidProblem(
            f"with {S} states the total can be kept in units of {unit:.3g}, and may be overstated by {overstated:.3g} "
            f"of the {at_most:g} allowed: give costs in coarser steps, or play the problem as an environment, "
            "es.chance(env, …), with es.certify.Observation"
        )
    most = int(at_most / unit + ROOM)
    return CostUnits(np.minimum(whole, most + 1).astype(np.int64), most, unit, overstated)


def _common_unit(costs: Array, at_most: float) -> float | None:
    """1/n for the least n that makes all costs whole; None where there is none up to MAX_DENOMINATOR.

    Up to rounding, which is small beside the largest cost and the limit: costs of 1e-10 are not 0.
    """
    n, room = 1, ROOM * min(1.0, float(costs.max()), at_most or 1.0)
    for cost in np.unique(costs).tolist():
        fraction = Fraction(cost).limit_denominator(MAX_DENOMINATOR)
        n = lcm(n, fraction.denominator)
        if abs(float(fraction) - cost) > room or n > MAX_DENOMINATOR:
            return None
    return 1 / n


def costs_of(tables: Tables, cost: Any) -> Array:
    """Costs (H, S, A, W) from what a user gives: an array (H, S, A), a function, or None for 1 − utility."""
    move: ListedMove | None = tables["move"]
    shape = tables["reward"].shape
    if cost is None:
        costs = 1 - _utility(tables)
    elif callable(cost):
        costs = _told_costs(cost, tables)
    else:
        costs = as_finite("cost", cost, shape)[..., None]
    if costs.min() < -TOLERANCE or not np.isfinite(costs).all():
        place = np.unravel_index(np.argmin(costs), costs.shape)
        raise InvalidProblem(
            f"cost at step {place[0]}, state {place[1]}, action {place[2]} is {costs[place]:g}: give costs of 0 or "
            "more, so that a total beyond the limit stays beyond it"
        )
    if move is not None:
        costs = np.where(_rows(move, shape[0]) == NOWHERE, 0.0, costs)
    return np.maximum(costs, 0.0)


def _utility(tables: Tables) -> Array:
    move, utilities = tables["move"], tables["utility"]
    if len(utilities) > 1:
        raise InvalidProblem(f"the problem has {len(utilities)} utilities: say which cost is meant, cost=…")
    given: Array = utilities[0][..., None] if move is None else move.utilities
    return np.broadcast_to(given, (len(utilities[0]), *given.shape[1:]))


def _told_costs(cost: Any, tables: Tables) -> Array:
    """What a function says of every step, state, action and, where chance is exogenous, what it can bring."""
    require_takes("cost", cost, "cost(h, state, action, w)", 0, None, 0, None)
    move, (H, S, A) = tables["move"], tables["reward"].shape
    names = range(S) if tables["state_names"] is None else tables["state_names"]
    values = (None,) if move is None else move.values
    can_be = np.ones((H, S, A, 1), bool) if move is None else _rows(move, H) != NOWHERE
    costs = np.zeros((H, S, A, len(values)))
    for h, s, a, i in np.argwhere(can_be).tolist():
        costs[h, s, a, i] = cost(h, names[s], a, values[i])
    return costs


def _rows(move: ListedMove, horizon: int) -> IntArray:
    """Next states of every step, (H, S, A, W)."""
    return np.broadcast_to(move.next_states, (horizon, *move.next_states.shape[1:]))


def with_running_total(tables: Tables, units: CostUnits, keep: bool) -> dict[str, Any]:
    """The tables of the problem whose states are (s, l); the last utility is 1 at the end of a kept episode, else 0.

    `keep`: whether the utilities that are there come before it.
    """
    reward, L, after = tables["reward"], units.levels, units.following()
    told, names = tables["utility"] if keep else [], tables["state_names"] or range(reward.shape[1])
    kept = np.zeros(after.shape)
    kept[-1] = after[-1] <= units.most
    made: dict[str, Any] = {
        "reward": np.repeat(reward, L, axis=1),
        "safe_policy": np.repeat(as_table("safe_policy", tables["safe_policy"], reward.shape), L, axis=1),
        "initial_state": tables["initial_state"] * L,
        "state_names": [(name, level) for name in names for level in range(L)],
        "time_homogeneous": bool(tables["time_homogeneous"] and (units.costs == units.costs[0]).all()),
    }
    if tables["move"] is None:
        indicator = kept[..., 0].reshape(made["reward"].shape)
        made |= {"P": _kernel(tables["P"], after[..., 0])}
        made |= {"utility": [*(np.repeat(utility, L, axis=1) for utility in told), indicator]}
    else:
        made |= _exogenous(tables, after, kept, bool(told))
    return made | {"phi": _features(tables["phi"], L, made["P"])}


def _kernel(P: Array, after: IntArray) -> Array:
    """P_h((s', l')|(s, l), a) = P_h(s'|s, a) 1{l' = after(h, s, l, a)}."""
    H, S, L, A = after.shape
    made = np.zeros((H, S, L, A, S, L))
    h, s, level, a = np.indices(after.shape)
    made[h, s, level, a, :, after] = P[h, s, a]
    return made.reshape(H, S * L, A, S * L)


def _exogenous(tables: Tables, after: IntArray, kept: Array, keep: bool) -> dict[str, Any]:
    """The moves of (s, l), the law, and their means."""
    move, (H, S, L, A, W) = tables["move"], after.shape
    shape = (H, S * L, A, W)
    comes = _rows(move, H)[:, :, None]
    next_states = np.where(comes == NOWHERE, NOWHERE, comes * L + after).reshape(shape)
    indicator = np.where(comes == NOWHERE, 0.0, kept).reshape(shape)
    rewards = np.repeat(np.broadcast_to(move.rewards, (H, S, A, W)), L, axis=1)
    utilities = indicator
    if keep:
        told = np.broadcast_to(move.utilities, (H, *move.utilities.shape[1:])).reshape(H, S, A, W, -1)
        utilities = np.concatenate([np.repeat(told, L, axis=1), indicator[..., None]], axis=-1)
    law = np.repeat(np.broadcast_to(tables["law"], (H, S, W)), L, axis=1)
    made = ListedMove(move.values, next_states, rewards, utilities)
    P, _, means = made.means(law)
    means = np.minimum(means, 1.0)  # sums of probabilities, up to rounding
    P /= P.sum(axis=3, keepdims=True)
    each = list(np.moveaxis(means, -1, 0)) if means.ndim == 4 else [means]
    return {"P": P, "utility": each, "move": made, "law": law}


def _features(phi: Array | None, levels: int, P: Array) -> Array | None:
    """φ(s, a) ⊗ e_l, if P is linear in it; else None, one-hot features of the pairs."""
    if phi is None or phi.shape[2] * levels > MAX_LISTED:
        return None
    S, A, d = phi.shape
    wide = np.einsum("sad,lk->sladk", phi, np.eye(levels)).reshape(S * levels, A, d * levels)
    return wide if linearity_gap(P, wide) <= TOLERANCE else None
