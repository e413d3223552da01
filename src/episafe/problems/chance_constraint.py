"""Limits on bad episodes: ℙ(total cost of an episode ≤ C) ≥ p, by a running total in the state.

The probability of an event is the expectation of its indicator, so that every certificate of an expected utility is one
of a chance: the utility of an episode is 1 if its total cost is at most C, else 0.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from episafe.checks import as_number, as_probability
from episafe.errors import InvalidProblem
from episafe.problems.cmdp import LinearCMDP
from episafe.problems.rules import tables
from episafe.problems.running_total import Tables, costs_of, in_units, with_running_total
from episafe.problems.task import Constraint

Limit = tuple[float, float, str]  # total cost ≤ the first with at least this probability, and what people call it


def chance(
    problem: Any,
    *,
    cost: Any = None,
    total_cost_at_most: float,
    probability: float = 0.95,
    name: str = "chance",
    keep: bool = False,
) -> Any:
    """The problem with a limit on bad episodes: the total cost of an episode is at most so much, with this probability.

    The running total becomes part of the state. Utility is 1 at the end of an episode whose total keeps the limit and 0
    otherwise, so that the expected utility of a policy *is* the probability, and the threshold is `probability`. An
    exogenous problem stays one.

    Totals are exact where costs are multiples of 1/n, n up to 1000, and the states stay few enough. Otherwise costs are
    rounded up to a unit: what is kept is then kept a fortiori, and `origin` says by how much a total may be overstated.

    Args:
        problem: an `es.LinearCMDP`, `Rules` (which are listed), or a Gymnasium environment, of which a wrapper is
            returned that reports `info["cost"]` 1 at the step that breaks the limit: its `cost_limit` is
            1 − probability, its `episode_cost_max` 1.
        cost: (H, S, A), or (h, state, action, w) ↦ cost ≥ 0; states are called by their names where they have any, and
            w is what chance brought, None where the problem is not exogenous. By default 1 − utility. Of an
            environment w is info["chance"], and the default info["cost"], or 1 − info["utility"].
        total_cost_at_most: C.
        probability: p, with which an episode has to keep it.
        name: what people read of the limit.
        keep: True to add the limit to those that are there; by default it takes their place.

    Example:
        >>> import episafe as es
        >>> shop = es.make("inventory")
        >>> lost = lambda h, state, action, w: max(w[0] - state[0] - state[1], 0)
        >>> few_lost = es.chance(shop, cost=lost, total_cost_at_most=4, probability=0.9)
        >>> few_lost.task.num_states, few_lost.task.threshold
        (330, 0.9)
    """
    limit = _checked(total_cost_at_most, probability, name)
    if hasattr(problem, "P"):
        return _with_limit(_tables_of(problem), cost, limit, problem.task.constraints if keep else (), problem.origin)
    if hasattr(problem, "chances"):
        if keep:
            raise InvalidProblem(
                "rules have no limits yet, so none can be kept: list them first, "
                "es.chance(listed(rules, threshold), …, keep=True)"
            )
        made = tables(problem)
        several = made["utility"] if isinstance(made["utility"], list) else [made["utility"]]
        return _with_limit({"move": None, "law": None, **made, "utility": several}, cost, limit, (), {})
    if hasattr(problem, "action_space"):
        from episafe.gym.chance_wrapper import ChanceWrapper  # needs Gymnasium

        return ChanceWrapper(problem, cost, limit, keep)
    raise InvalidProblem(
        f"chance takes an es.LinearCMDP, Rules or a Gymnasium environment, got {type(problem).__name__}: where there "
        "is a live environment wrap that, es.from_gymnasium(es.chance(env, …), cost_limit=…)"
    )


def _checked(at_most: Any, probability: Any, name: Any) -> Limit:
    """What `chance` is asked for."""
    at_most, probability = as_number("total_cost_at_most", at_most), as_probability("probability", probability)
    if at_most < 0:
        raise InvalidProblem(f"total_cost_at_most must be 0 or more, got {at_most:g}: costs are not negative")
    if not isinstance(name, str) or not name:
        raise InvalidProblem(f"name must be a word that people read, got {name!r}: give a string")
    return at_most, probability, name


def _tables_of(problem: LinearCMDP) -> dict[str, Any]:
    task, law = problem.task, problem.law
    return {
        "P": problem.P, "reward": task.reward, "utility": list(task.utilities), "phi": task.phi,
        "initial_state": task.initial_state, "safe_policy": task.safe_policy, "state_names": problem.state_names,
        "time_homogeneous": task.time_homogeneous, "move": task.move, "law": None if law is None else law.law,
    }  # fmt: skip


def _with_limit(
    given: Tables, cost: Any, limit: Limit, kept: Sequence[Constraint], origin: Mapping[str, str | int | float]
) -> LinearCMDP:
    """The listed problem with the running total in its state, under the limits that are kept and this one."""
    at_most, probability, name = limit
    units = in_units(costs_of(given, cost), at_most)
    said = f"{name}: total cost at most {at_most:g} with probability {probability:g}"
    over = {"total_overstated_by": units.overstated} if units.overstated else {}
    sizes = {"S": units.levels * given["reward"].shape[1]} if "S" in origin else {}
    return LinearCMDP(
        **with_running_total(given, units, bool(kept)),
        threshold=[*(one.threshold for one in kept), probability],
        slack=[*(one.slack for one in kept), None],
        least_total=[*(one.least_total for one in kept), 0.0],
        names=[*(one.name or "utility" for one in kept), name],
        origin={**origin, **sizes, "chance": said, **over},
    )
