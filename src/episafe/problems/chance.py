"""Limits on bad episodes: ℙ(total cost of an episode ≤ C) ≥ p, by a running total in the state.

The probability of an event is the expectation of its indicator, so that every certificate of an expected utility is one
of a probability: the utility of an episode is 1 if its total cost is at most C, else 0. State (s, l) of a listed
problem has number s·L + l, where l counts the total so far in units; the last of the L levels stands for all totals
above C.
"""

from collections.abc import Callable, Sequence
from fractions import Fraction
from math import lcm
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from episafe.core.checks import TOLERANCE, as_array, as_number, as_probability
from episafe.core.errors import InvalidProblem
from episafe.core.task import Constraint, TableFeatures
from episafe.core.types import Array, IntArray
from episafe.problems import exact
from episafe.problems.linear import LinearCMDP, Tables
from episafe.problems.moves import NOWHERE, ListedMove
from episafe.problems.rules import MAX_LISTED, Rules, tables

Number = TypeVar("Number", bound=np.generic)
MAX_DENOMINATOR = 1000  # costs that are multiples of 1/n for some n up to this are counted exactly
FEWEST_UNITS = 8  # of the limit, below which rounding is too coarse
ROUNDING = 1e-9  # of a unit: costs that are a multiple up to rounding are taken for it
REMEDY = "give costs in coarser steps, or play the problem as an environment, es.chance(env, …)"


def chance(
    problem: object,
    *,
    cost: object = None,
    total_cost_at_most: float,
    probability: float = 0.95,
    name: str = "chance",
    keep: bool = False,
    slack: float | None = None,
) -> Any:
    """Return the problem with a limit on bad episodes: with this probability, the total cost is at most so much.

    The running total becomes part of the state. The utility is 1 at the end of an episode whose total keeps the limit
    and 0 otherwise, so that the expected utility of a policy is the probability, and the threshold is `probability`.
    An exogenous problem stays exogenous.

    Totals are exact if costs are multiples of 1/n, n up to 1000, and the states stay few enough. Otherwise costs are
    rounded up, so that the limit is kept in any case; `origin` says by how much a total may be overstated.

    Args:
        problem: an `es.LinearCMDP`, `Rules` (which are listed), or a Gymnasium environment. Of the last a wrapper is
            returned that reports `info["cost"]` 1 at the step that breaks the limit: give `es.from_gymnasium` its
            `cost_limit`, 1 − probability, and its `episode_cost_max`, 1.
        cost: (H, S, A), or (h, state, action, w) -> cost ≥ 0; states are given by their names if they have names, and
            w is what chance brought, None if the problem is not exogenous. By default 1 − utility. For an environment
            w is info["chance"], and the default is info["cost"], or 1 − info["utility"].
        total_cost_at_most: C.
        probability: p, with which an episode has to keep it.
        name: the name of the limit.
        keep: True to add the limit to those of the problem; by default it replaces them.
        slack: by how much the incumbent's probability exceeds p; None for the exact difference of a listed problem.

    Example:
        >>> import episafe as es
        >>> shop = es.make("inventory")
        >>> lost = lambda h, state, action, w: max(w[0] - state[0] - state[1], 0)
        >>> few_lost = es.chance(shop, cost=lost, total_cost_at_most=4, probability=0.9)
        >>> few_lost.task.num_states, few_lost.task.thresholds.tolist()
        (330, [0.9])
    """
    at_most, probability = (
        as_number("total_cost_at_most", total_cost_at_most),
        as_probability("probability", probability),
    )
    if at_most < 0:
        raise InvalidProblem(f"total_cost_at_most must be 0 or more, got {at_most:g}: costs are not negative")
    if not isinstance(name, str) or not name:
        raise InvalidProblem(f"name must be a text that people read, got {name!r}")
    kept: Sequence[Constraint] = ()
    if isinstance(problem, LinearCMDP):
        kept, given, origin = problem.task.constraints if keep else (), _tables_of(problem), dict(problem.origin)
    elif isinstance(problem, Rules):
        if keep:
            raise InvalidProblem(
                "rules have no limits to keep: list them first, es.chance(listed(rules, …), keep=True)"
            )
        given, origin = {"move": None, "law": None, **tables(problem)}, {}
    else:
        try:
            from episafe.gym.chance import ChanceWrapper  # needs Gymnasium
        except ImportError as error:
            raise ImportError("chance limits of environments need Gymnasium: pip install gymnasium") from error
        return ChanceWrapper(problem, cost, at_most, probability, name, keep)
    utilities = given.pop("utility")
    given["utilities"] = list(utilities) if np.ndim(utilities) == 4 else [utilities]
    costs, most, overstated = _in_units(_costs(given, cost), at_most)
    origin |= {"chance": f"{name}: total cost at most {at_most:g} with probability {probability:g}"}
    origin |= {"total_overstated_by": overstated} if overstated else {}
    origin |= {"S": (most + 2) * len(given["P"][0])} if "S" in origin else {}
    return LinearCMDP(
        **_product(given, costs, most, bool(kept)),
        threshold=[*(one.threshold for one in kept), probability],
        slack=[*(one.slack for one in kept), slack],
        least_total=[*(one.least_total for one in kept), 0.0],
        names=[*(one.name for one in kept), name],
        origin=origin,
    )


def _tables_of(problem: LinearCMDP) -> Tables:
    task, law = problem.task, problem.chance_law
    features = task.features
    return {
        "P": problem.P, "reward": problem._reward, "utility": list(problem._utilities),
        "phi": features.phi if isinstance(features, TableFeatures) else None, "initial_state": task.initial_state,
        "safe_policy": task.incumbent.table(), "state_names": task.state_names, "action_names": task.action_names,
        "units": task.units, "time_homogeneous": task.time_homogeneous, "move": task.move,
        "law": None if law is None else law.law,
    }  # fmt: skip


def _costs(given: Tables, cost: object) -> Array:
    """Return costs (H, S, A, W) from an array (H, S, A), a function, or None for 1 − utility; W = 1 without chance."""
    move, shape = given["move"], given["reward"].shape
    possible = np.ones((*shape, 1), dtype=bool) if move is None else _every_step(move.next_states, shape[0]) != NOWHERE
    if cost is None:
        if len(given["utilities"]) > 1:
            raise InvalidProblem(
                f"the problem has {len(given['utilities'])} utilities: say which cost is meant, cost=…"
            )
        utility = given["utilities"][0][..., None] if move is None else move.utilities[..., 0]
        costs = 1 - _every_step(utility, shape[0])
    elif callable(cost):
        names = given["state_names"] or range(shape[1])
        values, costs = (None,) if move is None else move.values, np.zeros(possible.shape)
        for h, s, a, i in np.argwhere(possible).tolist():
            costs[h, s, a, i] = cost(h, names[s], a, values[i])
    else:
        costs = as_array("cost", cost, shape)[..., None]
    costs = np.where(possible, costs, 0.0)
    if not (costs >= -TOLERANCE).all() or not np.isfinite(costs).all():
        place = np.unravel_index(np.argmin(np.where(np.isfinite(costs), costs, -np.inf)), costs.shape)
        raise InvalidProblem(
            f"cost at step {place[0]}, state {place[1]}, action {place[2]} is {costs[place]:g}: give finite costs of 0 "
            "or more, so that a total above the limit stays above it"
        )
    return np.maximum(costs, 0.0)


def _every_step(array: NDArray[Number], horizon: int) -> NDArray[Number]:
    return np.broadcast_to(array, (horizon, *array.shape[1:]))


def _in_units(costs: Array, at_most: float) -> tuple[IntArray, int, float]:
    """Return costs as whole units, the most units that keep the limit, and by how much a total may be overstated.

    Exact if costs have a common unit 1/n and the states stay few; else rounded up, to as small a unit as fits.
    """
    S, unit = costs.shape[1], _common_unit(costs, at_most)
    most_units = MAX_LISTED // S - 2
    if unit is None or int(at_most / unit + ROUNDING) > most_units:
        if most_units < FEWEST_UNITS or at_most == 0:
            raise InvalidProblem(f"{S} states with a running total are more than {MAX_LISTED}: {REMEDY}")
        unit = at_most / most_units
    whole = np.ceil(costs / unit - ROUNDING)
    over = float((whole * unit - costs).max(axis=(1, 2, 3)).sum())
    over = 0.0 if over <= ROUNDING * len(costs) * unit else over
    if over >= at_most > 0:
        raise InvalidProblem(
            f"with {S} states the total is kept in units of {unit:.3g} and may be overstated by {over:.3g} of the "
            f"{at_most:g} allowed: {REMEDY}"
        )
    most = int(at_most / unit + ROUNDING)
    return np.minimum(whole, most + 1).astype(np.int64), most, over


def _common_unit(costs: Array, at_most: float) -> float | None:
    """Return 1/n for the least n ≤ MAX_DENOMINATOR that makes all costs whole, up to rounding; None without one."""
    n, most_off = 1, ROUNDING * min(1.0, float(costs.max()), at_most or 1.0)
    for cost in np.unique(costs).tolist():
        fraction = Fraction(cost).limit_denominator(MAX_DENOMINATOR)
        n = lcm(n, fraction.denominator)
        if abs(float(fraction) - cost) > most_off or n > MAX_DENOMINATOR:
            return None
    return 1 / n


def _product(given: Tables, costs: IntArray, most: int, keep: bool) -> Tables:
    """Return the arguments of the problem whose states are (s, l); the last utility is 1 at the end of a kept episode.

    `keep`: whether the utilities of the problem come before it.
    """
    reward, move, L = given["reward"], given["move"], most + 2
    after = np.minimum(np.arange(L)[:, None, None] + costs[:, :, None], most + 1)  # (H, S, L, A, W)
    H, S, _, A, W = after.shape
    kept = np.zeros(after.shape)
    kept[-1] = after[-1] <= most
    utilities = given["utilities"] if keep else []
    wide: Callable[[Array], Array] = lambda array: np.repeat(array, L, axis=1)  # noqa: E731
    made = {name: given[name] for name in ("action_names", "units")} | {
        "reward": wide(reward),
        "safe_policy": wide(np.asarray(given["safe_policy"])),
        "initial_state": given["initial_state"] * L,
        "state_names": [(name, level) for name in given["state_names"] or range(S) for level in range(L)],
        "time_homogeneous": bool(given["time_homogeneous"] and (costs == costs[0]).all()),
    }
    if move is None:
        P = np.zeros((H, S, L, A, S, L))
        h, s, level, a = np.indices(after.shape[:4])
        P[h, s, level, a, :, after[..., 0]] = given["P"][h, s, a]
        made |= {"P": P.reshape(H, S * L, A, S * L)}
        made |= {"utility": [*map(wide, utilities), kept.reshape(H, S * L, A)]}
    else:
        comes = _every_step(move.next_states, H)[:, :, None]
        next_states = np.where(comes == NOWHERE, NOWHERE, comes * L + after).reshape(H, S * L, A, W)
        indicator = np.where(comes == NOWHERE, 0.0, kept).reshape(H, S * L, A, W, 1)
        told = [wide(_every_step(move.utilities, H))] if keep else []
        rewards, law = wide(_every_step(move.rewards, H)), wide(_every_step(given["law"], H))
        moved = ListedMove(move.values, next_states, rewards, np.concatenate([*told, indicator], axis=-1))
        P, _, means = moved.means(law)
        made |= {"P": P / P.sum(axis=3, keepdims=True), "utility": list(np.minimum(means, 1.0))}
        made |= {"move": moved, "law": law}
    return made | {"phi": _features(given["phi"], L, made["P"])}


def _features(phi: Array | None, levels: int, P: Array) -> Array | None:
    """Return φ(s, a) ⊗ e_l if P is linear in it; else None, for one-hot features of the pairs."""
    if phi is None or phi.shape[2] * levels > MAX_LISTED:
        return None
    S, A, d = phi.shape
    wide = np.einsum("sad,lk->sladk", phi, np.eye(levels)).reshape(S * levels, A, d * levels)
    return wide if exact.linear_measures(P, wide)[1] <= TOLERANCE else None
