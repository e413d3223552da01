"""What an agent is told, or a theorem assumes: what the world shows to be false is refused before a run begins."""

import math
from typing import Any

import numpy as np

from episafe.checks import TOLERANCE
from episafe.errors import Infeasible
from episafe.problems.exact_answers import least_norm_bound, linearity_gap


def require_same_problem(problem: Any, agent: Any) -> None:
    """The agent may be told another incumbent or slack, but its certificate must be about this problem."""
    ours, theirs = problem.task, agent.task
    arrays = ("reward", "utilities", "limits", "initial_state")
    listed = getattr(ours, "num_states", None) is not None and getattr(theirs, "num_states", None) is not None
    same = listed and all(np.array_equal(getattr(ours, name), getattr(theirs, name)) for name in arrays)
    if not same:
        raise ValueError("the agent was built for another problem: build it from cmdp.task")


def require_true_of_kernel(cmdp: Any, agent: Any) -> None:
    """The slack of the incumbent and a linear kernel with its norm, where a theorem relies on them."""
    told, true = agent.task.stated_utility, cmdp.evaluate(agent.task.safe_policy)[1]
    if not np.all(true >= told - TOLERANCE):
        raise Infeasible(
            f"the agent is told that its incumbent has utility {told}, and it has {true}: correct the slack"
        )
    if getattr(getattr(agent, "certifier", None), "needs_linear_kernel", False):
        _require_linear_kernel(cmdp, agent.task)


def _require_linear_kernel(cmdp: Any, told: Any) -> None:
    """P = φᵀμ in the features that the agent is told, with a μ that keeps its norm bound."""
    needed = least_norm_bound(cmdp.P, told.phi)
    if needed == math.inf:
        gap = linearity_gap(cmdp.P, told.phi)
        raise Infeasible(f"P is not linear in the features, by {gap:g}: use es.certify.Observation()")
    if not told.norm_bound >= needed * (1 - TOLERANCE):
        raise Infeasible(
            f"the agent is told norm_bound {told.norm_bound:.6g}, and P needs {needed:.6g} with its features: build it "
            f"from cmdp.task, or give its task norm_bound={needed * (1 + TOLERANCE):.12g}"
        )


def require_true_of_bandit(bandit: Any, agent: Any, rounds: range) -> None:
    """The agent may be told less (more noise, a larger norm, less slack), but of this problem."""
    ours, theirs = bandit.task, agent.task
    shared = {"dim": (ours.dim, theirs.dim), "threshold": (ours.limits, theirs.limits)}
    names = [name for name, both in shared.items() if not np.array_equal(*both)]
    names = names or list(filter(None, [ours.differing(theirs, rounds)]))
    if names:
        raise ValueError(f"the agent was built for another problem, {names[0]} differ: build it from bandit.task")
    if theirs.noise < ours.noise or theirs.norm_bound < ours.norm_bound:
        raise Infeasible(
            "the agent was told of less noise or a smaller norm than the bandit has: its bound does not hold"
        )
    for one, true in zip(theirs.constraints, ours.told_slacks("a bandit"), strict=True):
        if one.slack is not None and one.slack > true + TOLERANCE:
            raise Infeasible(
                f"the agent was told of the slack {one.slack:.12g}{one.of}, the bandit has {true:.12g}: what relies on "
                "it does not hold; build the agent from bandit.task"
            )
    told = getattr(agent, "known_utility", None)
    if told is not None:
        true = bandit.evaluate(bandit.safe_policy())[1]
        if abs(told - true) > TOLERANCE:
            raise Infeasible(
                f"{type(agent).__name__} was told known_utility={told:.12g}, the incumbent has {true:.12g}: its bound "
                "does not hold; give the exact utility"
            )
