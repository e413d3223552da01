"""Limits on bad episodes, with a running total in the state: on their probability, or on the mean of the worst ones.

The probability of an event is the expectation of its indicator, and a tail is bounded by the expectation of a total
that is cut, so that every certificate of an expected utility is one of these. A listed problem becomes another one:
state (s, l) has number s·L + l, where l counts the total so far in units, and the last of the L levels stands for all
totals above the largest that matters. Other problems get a `Carry`: their states are (state, total), and totals are
exact.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from pkgutil import resolve_name
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from episafe.core.checks import TOLERANCE, as_array, as_number, as_probability, require
from episafe.core.errors import Infeasible, InvalidProblem
from episafe.core.policy import FunctionPolicy
from episafe.core.task import Carry, Constraint, FunctionFeatures, OneHot, TableFeatures, Task
from episafe.core.types import ENDED, START, Array, IntArray, is_outside
from episafe.problems import exact
from episafe.problems.linear import LinearCMDP, Tables
from episafe.problems.moves import NOWHERE, ListedMove
from episafe.problems.rules import MAX_LISTED
from episafe.problems.sampled import PlayedCMDP, carried

Number = TypeVar("Number", bound=np.generic)
Loss = Callable[[float, float], float]  # (running total before a step, after it) -> what the utility of the step loses
EPISODES_TO_CUT = 1000  # of the incumbent, whose quantile is the default cut of a tail
MAX_DENOMINATOR = 1000  # costs that are multiples of 1/n for some n up to this are counted exactly
FEWEST_UNITS = 8  # of the limit, below which rounding is too coarse
ROUNDING = 1e-9  # of a unit: costs that are a multiple up to rounding are taken for it
LEVELS = 10  # of the total, in features, unless the limit is a small whole number
MOST_WHOLE = 50  # a whole limit up to this is counted in ones
AMBIGUOUS = "the problem has {} utilities: say which cost is meant, cost=…"
REMEDY = "give costs in coarser steps, or play the problem: es.chance(es.SampledCMDP(…), …)"


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
    """Return the problem with a limit on bad episodes: with a given probability, the total cost is at most C.

    The running total becomes part of the state. An exogenous problem stays exogenous.

    For a listed problem the utility is 1 at the end of an episode whose total keeps the limit, and 0 otherwise. So the
    threshold is `probability`. Totals are exact if costs are multiples of 1/n, n up to 1000, and there are not too many
    states. Otherwise costs are rounded up, so that the limit still holds; `origin` says by how much a total may be
    overstated.

    For other problems the utility is 0 at the step that breaks the limit and 1 at all others. So the threshold is H − 1
    + probability. Policies see (observation, total), and totals are exact. Steps after an early end cost nothing. A
    live system reports the same signals as without the limit.

    Args:
        problem: an `es.LinearCMDP`, an `es.SampledCMDP`, or what `es.from_gymnasium` returns.
        cost: (H, S, A), or (h, state, action, w) -> cost ≥ 0. States are given by their names if they have names; w is
            the value of chance, or None if it is unknown. By default 1 − utility, or the cost that a Gymnasium
            environment reports.
        total_cost_at_most: C.
        probability: p, the probability with which an episode must keep it.
        name: the name of the limit.
        keep: True to add the limit to those of the problem; by default it replaces them.
        slack: by how much the incumbent's probability exceeds p. None: for a listed problem the exact difference; for
            an environment a measured value (`es.measure_slack`); for an `es.SampledCMDP` unknown.

    Example:
        >>> import episafe as es
        >>> shop = es.make("inventory")
        >>> lost = lambda h, state, action, w: max(w[0] - state[0] - state[1], 0)
        >>> few_lost = es.chance(shop, cost=lost, total_cost_at_most=4, probability=0.9)
        >>> few_lost.task.num_states, few_lost.task.thresholds.tolist()
        (330, [0.9])
    """
    at_most, p = as_number("total_cost_at_most", total_cost_at_most, 0), as_probability("probability", probability)
    require(isinstance(name, str) and name, f"name must be a text that is not empty, got {name!r}")
    described = {"chance": f"{name}: total cost at most {at_most:g} with probability {p:g}"}
    if isinstance(problem, PlayedCMDP):
        steps, most = problem.num_steps, at_most * (1 + ROUNDING)
        limit = Constraint(None, steps - 1 + p, slack, name, steps - 1.0)
        broken: Loss = lambda before, after: float(before <= most < after)  # noqa: E731
        told = _played(problem, problem.cost_of if cost is None else cost, at_most, limit, keep, broken, 1.0)
        return problem.with_total(told, problem.origin | described)
    costs, _, most, over = _in_units(_costs(_listed(problem), cost), at_most)
    utility = np.zeros((*costs.shape[:2], most + 2, *costs.shape[2:]))
    utility[-1] = np.arange(most + 2)[:, None, None] + costs[-1][:, None] <= most
    return _with_levels(problem, costs, utility, Constraint(None, p, slack, name), keep, described, over)


def tail(
    problem: object,
    share: float,
    at_least: float,
    cut: float | None = None,
    slack: float | None = None,
    *,
    name: str = "tail",
    keep: bool = False,
) -> Any:
    """Return the problem with a limit on its worst episodes: the mean total of the worst share is at least c.

    Let α be the share, c the limit and t the cut. The limit is E[min(X, t)] ≥ t − α(t − c), which implies the limit on
    the mean of the worst α. The shortfall of the episode so far becomes part of the state. The utility of a step is 1
    minus what it adds to (t − X)₊. So the total is H − (t − X)₊ and the threshold H − α(t − c). Steps after an early
    end count in full.

    Args:
        problem: an `es.LinearCMDP`, an `es.SampledCMDP`, or what `es.from_gymnasium` returns, with one limit, whose
            utility X adds up. None for a limit that replaces the threshold of `es.Rollout`; it needs a `cut`.
        share: α, such as 0.1 for the worst tenth of the episodes.
        at_least: c, in the units of the task's total utility.
        cut: t > c, fixed before the first deployment. None: the α-quantile of the incumbent's totals, from
            `EPISODES_TO_CUT` episodes that are played for this.
        slack: by how much the incumbent's E[min(X, t)] exceeds t − α(t − c). None as for `chance`.
        name: the name of the limit.
        keep: True to add the limit to that of the problem; by default it replaces it.

    Example:
        >>> import episafe as es
        >>> bad_weeks = es.tail(es.make("inventory"), share=0.1, at_least=9.5, cut=12)
        >>> bad_weeks.origin["tail"]
        'tail: mean of the worst 0.1 at least 9.5, cut at 12'
    """
    share, at_least = as_probability("share", share), as_number("at_least", at_least)
    if cut is None:
        fault = "a limit without a problem needs cut=…: the share-quantile of the incumbent's totals"
        require(problem is not None, fault)
        totals = resolve_name("episafe.simulation.slack:incumbent_totals")(problem, EPISODES_TO_CUT)
        cut = float(np.quantile(totals[:, 0], share, method="inverted_cdf"))
    cut = as_number("cut", cut)
    fault = f"the cut {cut:g} is not above at_least {at_least:g}: the incumbent's worst episodes are below the limit"
    require(cut > at_least, f"{fault}; give a lower limit, or a cut above it", Infeasible)
    allowed = share * (cut - at_least)
    if problem is None:
        return Constraint(None, cut - allowed, slack, name, cut=cut)
    H = problem.num_steps if isinstance(problem, PlayedCMDP) else len(_listed(problem).P)
    fault = f"the cut {cut:g} is not in (0, {H}], where totals are: give it in units of the utility"
    require(0 < cut <= H, fault)
    described = {"tail": f"{name}: mean of the worst {share:g} at least {at_least:g}, cut at {cut:g}"}
    limit, spare = Constraint(None, H - allowed, slack, name, H - cut), H - cut
    if isinstance(problem, PlayedCMDP):
        excess: Loss = lambda before, after: max(after - spare, 0.0) - max(before - spare, 0.0)  # noqa: E731
        ended = problem.task.outside.get(ENDED, (0.0, (0.0,)))[1][0]
        told = _played(problem, _shortfall, spare, limit, keep, excess, ended)
        return problem.with_total(told, problem.origin | described)
    costs, unit, most, over = _in_units(_costs(_listed(problem), None), spare)
    level, spent = np.arange(most + 2)[:, None, None], unit * costs[:, :, None]
    lost = np.where(level > most, spent, np.maximum(unit * level + spent - spare, 0.0))
    return _with_levels(problem, costs, 1 - np.minimum(lost, 1.0), limit, keep, described, over)


def _shortfall(utilities: Array) -> float:
    return 1 - float(utilities[0])


def _listed(problem: object) -> LinearCMDP:
    """Return a listed problem; raise for anything else."""
    if isinstance(problem, LinearCMDP):
        return problem
    raise InvalidProblem(
        "a limit on episodes takes an es.LinearCMDP, an es.SampledCMDP or what es.from_gymnasium returns, got "
        f"{type(problem).__name__}: make one of these first"
    )


def _with_levels(
    problem: Any, costs: IntArray, utility: Array, limit: Constraint, keep: bool, described: dict[str, str], over: float
) -> LinearCMDP:
    """Return the problem whose states are (s, l), with a limit on the utility (H, S, L, A, W) of the steps."""
    kept, most = problem.task.constraints if keep else (), utility.shape[2] - 2
    after = np.minimum(np.arange(most + 2)[:, None, None] + costs[:, :, None], most + 1)
    limits = *kept, limit
    origin = problem.origin | described | ({"total_overstated_by": over} if over else {})
    return LinearCMDP(
        **_product(problem, after, utility, keep),
        threshold=[one.threshold for one in limits],
        slack=[one.slack for one in limits],
        least_total=[one.least_total for one in limits],
        names=[one.name for one in limits],
        origin=origin | ({"S": after.shape[1] * after.shape[2]} if "S" in origin else {}),
    )


def _played(
    problem: PlayedCMDP, cost: object, at_most: float, limit: Constraint, keep: bool, lost: Loss, ended: float
) -> Task:
    """Return the task of a played problem with the limit, whose states are (state, total), see `Carry`.

    The utility of a step is 1 − lost(total before, after), and `ended` in each step after an early end. `cost` is a
    function (h, state, action, w) of the user, or `cost_of` or `_shortfall`, of utilities.
    """
    if not callable(cost):
        raise InvalidProblem(f"cost of a played problem must be a function (h, state, action, w), got {cost!r}")
    inner, most, of_utility = problem.task, at_most * (1 + ROUNDING), cost in (problem.cost_of, _shortfall)
    require(not of_utility or inner.num_constraints == 1, AMBIGUOUS.format(inner.num_constraints))
    first, view, num_kept = int(inner.random_start), inner.view, inner.num_constraints if keep else 0

    def step(h: int, state: Any, action: int, w: object, utilities: Array | None) -> tuple[float, Array]:
        (before, total), told = state, utilities
        told = inner.utility_at(h, before)[:, action] if told is None else told
        shown = before if view is None else view(before)
        spent = as_number(f"cost at step {h}", cost(told) if of_utility else cost(h - first, shown, action, w), 0)
        after = total + spent
        return after, np.append(told[:num_kept], 1.0 - lost(total, after))

    units = int(at_most) if at_most == int(at_most) and 1 <= at_most <= MOST_WHOLE else LEVELS

    def level(total: float) -> int:  # which features tell apart
        share = total / at_most if at_most else float(total > 0) * 2
        return units + 1 if total > most else math.ceil(share * units - ROUNDING * units)

    encode, move, support, num_levels = inner.encode, inner.move, inner.support, units + 2
    assert encode is not None
    nothing = 0.0, (0.0,) * inner.num_constraints
    known = {state: (*inner.outside.get(state, nothing), last) for state, last in ((START, 0.0), (ENDED, ended))}
    signals = {state: (reward, (*told[:num_kept], last)) for state, (reward, told, last) in known.items()}
    features, eye = inner.features, np.eye(num_levels)
    if isinstance(features, OneHot):
        size = features.size and features.size * num_levels
        paired: OneHot | FunctionFeatures = OneHot(lambda state: (inner.key(state[0]), level(state[1])), size)
    else:
        paired = FunctionFeatures(
            lambda state: np.kron(inner.phi(state[0]), eye[level(state[1])]), features.dim * num_levels
        )

    def moved(h: int, state: Any, action: int, w: Any) -> tuple[Any, float, Array]:
        assert move is not None
        before, chance = (state, w[0] if state == START else w) if is_outside(state) else (state[0], w)
        following, reward, utilities, _ = carried(task, h, state, action, (*move(h, before, action, chance), w))
        return following, reward, utilities

    task = replace(
        inner,
        constraints=tuple(replace(one, utility=None) for one in (*inner.constraints[:num_kept], limit)),
        incumbent=FunctionPolicy(
            lambda h, state: inner.incumbent.probabilities(h, state[0]), inner.num_actions or 0, 0, inner.incumbent.name
        ),
        initial_state=START if inner.random_start else (inner.initial_state, 0.0),
        reward=None if inner.reward is None else (lambda h, state: inner.reward_at(h, state[0])),
        features=paired,
        encode=lambda observation: (encode(observation[0]), float(observation[1])),
        view=None if view is None else (lambda state: (view(state[0]), state[1])),
        move=None if move is None else moved,
        support=None if support is None else (lambda h, state: support(h, state[0])),
        carry=Carry(inner, step),
        outside=signals,
        norm_bound=None,
    )
    return task


def _costs(problem: LinearCMDP, cost: object) -> Array:
    """Return costs (H, S, A, W) from an array (H, S, A), a function, or None for 1 − utility; W = 1 without chance."""
    law, shape, names = problem.chance_law, problem.P.shape[:3], problem.task.state_names or range(problem.P.shape[1])
    possible = np.ones((*shape, 1), dtype=bool) if law is None else _steps(law.move.next_states, shape[0]) != NOWHERE
    if cost is None:
        require(problem.task.num_constraints == 1, AMBIGUOUS.format(problem.task.num_constraints))
        utility = problem._utilities[0][..., None] if law is None else law.move.utilities[..., 0]
        costs = 1 - _steps(utility, shape[0])
    elif callable(cost):
        values, costs = (None,) if law is None else law.move.values, np.zeros(possible.shape)
        for h, s, a, i in np.argwhere(possible).tolist():
            costs[h, s, a, i] = cost(h, names[s], a, values[i])
    else:
        costs = as_array("cost", cost, shape)[..., None]
    costs = np.where(possible, costs, 0.0)
    for h, s, a, i in np.argwhere(~(np.isfinite(costs) & (costs >= -TOLERANCE)))[:1].tolist():
        fault = f"cost at step {h}, state {s}, action {a} is {costs[h, s, a, i]:g}: give finite costs of 0 or more"
        raise InvalidProblem(f"{fault}, so that a total above the limit stays above it")
    return np.maximum(costs, 0.0)


def _steps(array: NDArray[Number], horizon: int) -> NDArray[Number]:
    return np.broadcast_to(array, (horizon, *array.shape[1:]))


def _in_units(costs: Array, at_most: float) -> tuple[IntArray, float, int, float]:
    """Return costs as whole units, the unit, the most units that keep the limit, and how far a total may be overstated.

    Exact if costs have a common unit 1/n and the states stay few; else rounded up, to as small a unit as fits.
    """
    S, unit = costs.shape[1], _common_unit(costs, at_most)
    most_units = MAX_LISTED // S - 2
    if unit is None or int(at_most / unit + ROUNDING) > most_units:
        few = most_units >= FEWEST_UNITS and at_most > 0
        require(few, f"even with few units the running total makes more than {MAX_LISTED} states: {REMEDY}")
        unit = at_most / most_units
    whole = np.ceil(costs / unit - ROUNDING)
    over = float((whole * unit - costs).max(axis=(1, 2, 3)).sum())
    over = 0.0 if over <= ROUNDING * len(costs) * unit else over
    fault = f"with {S} states the total is kept in units of {unit:.3g} and may be overstated by {over:.3g}"
    require(at_most == 0 or over < at_most, f"{fault} of the {at_most:g} allowed: {REMEDY}")
    most = int(at_most / unit + ROUNDING)
    return whole.astype(np.int64), unit, most, over


def _common_unit(costs: Array, at_most: float) -> float | None:
    """Return 1/n for the least n ≤ MAX_DENOMINATOR that makes all costs whole, up to rounding; None without one."""
    values, most_off = np.unique(costs), ROUNDING * min(1.0, float(costs.max()), at_most or 1.0)
    fits = (n for n in range(1, MAX_DENOMINATOR + 1) if np.abs(np.round(values * n) / n - values).max() <= most_off)
    n = next(fits, None)
    return None if n is None else 1 / n


def _product(problem: LinearCMDP, after: IntArray, utility: Array, keep: bool) -> Tables:
    """Return the arguments of the problem whose states are (s, l).

    Args:
        problem: the problem without the total.
        after: the level after each step, (H, S, L, A, W), with W = 1 without chance.
        utility: the utility of the limit on the total in each step, of the same shape.
        keep: whether the utilities of the problem come before it.
    """
    task, law, (H, S, L, A, W) = problem.task, problem.chance_law, after.shape
    wide: Callable[[Array], Array] = lambda array: np.repeat(_steps(array, H), L, axis=1)  # noqa: E731
    made: Tables = {
        "reward": wide(problem._reward),
        "safe_policy": wide(task.incumbent.table()),
        "initial_state": task.initial_state * L,
        "state_names": [(name, level) for name in task.state_names or range(S) for level in range(L)],
        "action_names": task.action_names,
        "units": task.units,
        "time_homogeneous": bool(task.time_homogeneous and (after == after[0]).all()),
    }
    if law is None:
        P = np.zeros((H, S, L, A, S, L))
        h, s, level, a = np.indices(after.shape[:4])
        P[h, s, level, a, :, after[..., 0]] = problem.P[h, s, a]
        utilities = map(wide, problem._utilities if keep else ())
        made |= {"P": P.reshape(H, S * L, A, S * L), "utility": [*utilities, utility.reshape(H, S * L, A)]}
    else:
        comes = _steps(law.move.next_states, H)[:, :, None]
        next_states = np.where(comes == NOWHERE, NOWHERE, comes * L + after).reshape(H, S * L, A, W)
        indicator = np.where(comes == NOWHERE, 0.0, utility).reshape(H, S * L, A, W, 1)
        told = np.concatenate([*([wide(law.move.utilities)] if keep else []), indicator], axis=-1)
        move, wide_law = ListedMove(law.move.values, next_states, wide(law.move.rewards), told), wide(law.law)
        P, _, means = move.means(wide_law)
        made |= {"P": P, "utility": list(np.minimum(means, 1.0)), "move": move, "law": wide_law}
    if isinstance(task.features, TableFeatures) and task.dim * L <= MAX_LISTED:
        phi = np.einsum("sad,lk->sladk", task.features.phi, np.eye(L)).reshape(S * L, A, task.dim * L)
        linear = exact.linear_measures(made["P"], phi)[1] <= TOLERANCE  # else one-hot features of the pairs
        made["phi"] = phi if linear else None
    return made
