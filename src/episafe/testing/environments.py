"""The battery for problems: listed ones exactly, those by functions and of Gymnasium by playing the incumbent."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

import episafe as es
from episafe.stats import mean_interval
from episafe.testing.assertions import require, require_no_path, require_same_arrays, require_same_records
from episafe.testing.check_fixtures import Check, EpisodeGround, checks_of, incumbent_of, run_all, selected
from episafe.types import Array, amounts, shown

TOLERANCE = 1e-9
NUM_EPISODES = 300  # that the incumbent is played for
FALSE_ALARM = 1e-3  # the probability that a safe incumbent is rejected by them, at most


def check_environment(problem: Any, *, skip: Iterable[str | Check] = ()) -> list[str]:
    """Run every check on a problem; what passed, or one AssertionError that lists what did not.

    Args:
        problem: an `es.LinearCMDP`, an `es.SampledCMDP`, or what `es.from_gymnasium` made of an environment.
        skip: names of checks to leave out.

    Example:
        >>> import episafe as es
        >>> from episafe.testing import check_environment
        >>> len(check_environment(es.make("tabular", seed=3)))
        10
    """
    return run_all(selected(environment_checks(), skip), [(type(problem).__name__, (problem,))])


def environment_checks() -> list[Check]:
    """All checks (problem), for `pytest.mark.parametrize`. What a kind of problem cannot know is passed over."""
    return checks_of(__name__, check_environment)


def check_transitions_are_distributions(problem: Any) -> None:
    """Each P_h(·|s,a) is finite, ≥ 0 and sums to 1."""
    if hasattr(problem, "P"):
        _require_distributions("P", problem.P)


def check_incumbent_is_a_policy(problem: Any) -> None:
    """Each π_sf(·|s) is finite, ≥ 0 and sums to 1, at every state, or at those that it comes to itself."""
    for rows in EpisodeGround(problem).policy_arrays(incumbent_of(problem.task)):
        _require_distributions("safe_policy", rows)


def check_signals_are_in_range(problem: Any) -> None:
    """Rewards and utilities have a value in [0, 1] for each action; NaN is what a task does not tell."""
    for name in ("reward", "utility"):
        for h, state in _places(problem):
            row = np.asarray(getattr(problem.task, f"{name}_at")(h, state))
            known = row[~np.isnan(row)]
            each = () if name == "reward" or problem.task.num_constraints == 1 else (problem.task.num_constraints,)
            shape = (problem.task.num_actions, *each)
            right = row.shape == shape and (np.abs(known - 0.5) <= 0.5 + TOLERANCE).all()
            require(right, f"the {name} of step {h} at {state!r} is {row}: rescale it to [0, 1], one for each action")


def check_feature_norms(problem: Any) -> None:
    """φ(s, ·) has shape (A, d) and norms ≤ 1."""
    task = problem.task
    if task.one_hot:
        return  # such features are never built
    for _, state in _places(problem):
        block = np.asarray(task.features(state))
        right = block.shape == (task.num_actions, task.dim) and np.isfinite(block).all()
        require(right, f"the features at {state!r} have shape {block.shape}, or are no numbers: return (A, d)")
        largest = float(np.linalg.norm(block, axis=1).max())
        require(largest <= 1 + TOLERANCE, f"the features at {state!r} have norm {largest:.6g}: divide all by the "
                "largest, and multiply norm_bound by it")  # fmt: skip


def check_features_are_linear(problem: Any) -> None:
    """P is linear in the features that are given, where it is known: ‖P_h(·|s,a) − φᵀμ_h‖₁ is rounding."""
    if hasattr(problem, "P"):
        gap = problem.linearity_gap()
        require(
            gap <= TOLERANCE, f"P is not linear in phi, by {gap:.3g}: give other features, or none for one-hot ones"
        )


def check_incumbent_is_safe(problem: Any) -> None:
    """The incumbent has utility ≥ b + ξ: exactly, or by an interval that wrongs a safe one once in 1000 times."""
    task, told = problem.task, amounts(problem.task.stated_utility)
    if hasattr(problem, "P"):
        utility = problem.evaluate(task.safe_policy)[1]
        require((amounts(utility) >= told - TOLERANCE).all(), f"the incumbent has utility {shown(utility)}, and b + "
                f"slack is {shown(told)}: lower one of them, or give a safer incumbent")  # fmt: skip
        return
    record = es.run(problem, es.Fixed(task, "incumbent"), NUM_EPISODES, seed=1)
    totals = np.asarray(record.utility_totals).reshape(NUM_EPISODES, -1) / task.horizon
    for c, wanted in enumerate(told.tolist()):
        upper = task.horizon * mean_interval(totals[:, c], 2 * FALSE_ALARM / len(told))[1]
        require(upper >= wanted, f"the incumbent has utility {upper:.6g} at most by {NUM_EPISODES} episodes, and b + "
                f"slack is {wanted:.6g}: measure it with es.measure_slack")  # fmt: skip


def check_optimum_is_the_best_safe_value(problem: Any) -> None:
    """The optimum is attained by a safe policy, is no less than the incumbent's reward, and the LP finds it too."""
    if not hasattr(problem, "P"):
        return
    best, incumbent = problem.optimal_value(), problem.evaluate(problem.task.safe_policy)[0]
    require(best >= incumbent - TOLERANCE, f"the optimum {best:.9g} is below the incumbent's reward {incumbent:.9g}")
    reward, utility = problem.evaluate(problem.optimal_policy())
    attained = abs(reward - best) <= 1e-6 and np.all(utility >= problem.task.limits - 1e-6)
    require(
        attained, f"the optimal policy has reward {reward:.9g}, utility {shown(utility)}; the optimum is {best:.9g}"
    )
    require(abs(problem.optimal_value("lp") - best) <= 1e-5, "the linear program finds another optimum: report this")


def check_runs_repeat_by_seed(problem: Any) -> None:
    """Two runs of one seed are the same: all chance comes from the generators that are handed in."""
    first, second = (es.run(problem, es.Fixed(problem.task, "uniform"), 20, seed=3) for _ in range(2))
    sentence = "two runs of one seed differ: draw from the rng that is handed in, and keep nothing between episodes"
    require_same_records(first, second, sentence)


def check_save_and_load(problem: Any) -> None:
    """A listed problem comes back from its file as it was, bit for bit."""
    if not hasattr(problem, "save"):
        return
    with TemporaryDirectory() as folder:
        path = Path(folder) / "problem.npz"
        problem.save(path)
        again = type(problem).load(path)
    require_same_arrays(_arrays(problem), _arrays(again), "the problem differs after save and load")


def check_task_tells_no_transitions(problem: Any) -> None:
    """No path leads from the task to the problem, to P, or to what samples from it."""
    if not hasattr(problem, "env"):  # the features of an environment may well be its own
        require_no_path(problem.task, EpisodeGround(problem).secrets())


def _require_distributions(name: str, rows: Array) -> None:
    right = np.isfinite(rows).all() and rows.min() >= 0 and np.abs(rows.sum(axis=-1) - 1).max() <= TOLERANCE
    require(right, f"{name} has rows that are no distributions: make them >= 0, and divide each by its sum")


def _places(problem: Any) -> Iterator[tuple[int, Any]]:
    """Steps and states: all of them, or those that the incumbent comes to."""
    states = EpisodeGround(problem).states
    if hasattr(problem, "P"):
        yield from ((h, state) for h in range(problem.task.horizon) for state in states)
        return
    steps = problem.task.horizon + 1
    yield from ((i % steps, state) for i, state in enumerate(states) if i % steps < problem.task.horizon)


def _arrays(problem: Any) -> dict[str, Any]:
    task = problem.task
    names = ("reward", "utilities", "phi", "initial_state", "limits", "stated_utility", "time_homogeneous")
    told = {name: np.array(getattr(task, name)) for name in names if getattr(task, name) is not None}
    return {**told, "P": problem.P, "safe_policy": task.safe_policy.table(), "origin": np.array(str(problem.origin))}
