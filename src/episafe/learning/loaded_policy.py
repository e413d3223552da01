"""`es.load_policy`: a policy from its file, which acts as the one that was saved, by what the task tells."""

from collections.abc import Callable, Hashable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from episafe.checks import as_distributions
from episafe.errors import InvalidProblem
from episafe.kernels.model_arrays import Scales
from episafe.learning.fitted_policy import FittedFeatures, act_unseen, facts_as_json
from episafe.learning.planner import SoftmaxPolicy
from episafe.learning.signal_regression import Signals
from episafe.problems.policy import FunctionPolicy, MixturePolicy, Policy, StepPolicy, TablePolicy, in_range
from episafe.problems.policy_file import Field, read_policy
from episafe.problems.sampled_problem import SampledTask
from episafe.problems.states import Outside
from episafe.problems.task import Constraint
from episafe.storage.json_values import as_text, from_text
from episafe.types import Array

SIGNALS = ("reward", "utility")
UNREADABLE = (LookupError, TypeError, ValueError, AttributeError, RecursionError)


def load_policy(path: str | Path, features: Any = None) -> Policy:
    """The policy that `policy.save` wrote: its probabilities are those of the one that was saved, to 1e-12.

    What the file says is proved of it is in `policy.certificate`; that is a note, and no proof of its own.

    Args:
        path: of the file. What it holds is checked, and nothing in it is run.
        features: for policies of states that are not listed: the task, `problem.task`; or, where the task tells neither
            reward nor utility, its function state ↦ φ(state, ·), shape (A, d), or state ↦ cell of one-hot features.

    Example:
        >>> import episafe as es
        >>> es.make("tabular").task.safe_policy.save("incumbent.json")  # doctest: +SKIP
        >>> es.load_policy("incumbent.json").probabilities(0, 0)  # doctest: +SKIP
    """
    said = read_policy(Path(path))
    policy = _policy(said, features)
    policy.certificate = said.value("certificate", dict)
    return policy


def _policy(said: Field, features: Any) -> Policy:
    kind = said.value("kind", str)
    if kind not in READERS:
        said.refuse("kind", f"is {kind!r}, not one of {', '.join(READERS)}")
    try:
        policy = READERS[kind](said, features)
    except InvalidProblem as error:
        said.refuse(kind, f"is none ({error})")
    policy.name = said.value("name", str)
    return policy


def _table(said: Field, features: Any) -> Policy:
    shape = said.whole("horizon"), said.whole("num_states"), said.whole("num_actions")
    return TablePolicy(said.numbers("table", shape))


def _steps(said: Field, features: Any) -> Policy:
    return StepPolicy(said.numbers("steps", (said.whole("horizon"), said.whole("num_actions"))))


def _mixture(said: Field, features: Any) -> Policy:
    parts = said.objects("components")
    if not parts or any(part.said.get("kind") == "mixture" for part in parts):
        said.refuse("components", "must be policies, and no mixtures themselves")
    weights = said.numbers("weights", (len(parts),))
    return MixturePolicy([_policy(part, features) for part in parts], weights)


def _softmax(said: Field, features: Any) -> Policy:
    task = _task(said, features, "features")
    H, d = task.horizon, _dim(said)
    if task.dim != d:
        said.refuse("weights", f"are of {d} features, and the task has {task.dim}")
    steps = H if task.unknown else 0
    shapes: dict[str, tuple[int, ...]] = {"gram_inv": (H, d, d), "weights": (H, 3, d)}
    kept = {name: said.numbers(name, shape) for name, shape in shapes.items()}
    kept["theta"] = said.numbers("theta", (steps, 2, d)) if steps else np.zeros((0, 2, d))
    lam, known = said.number("lam", 0), SimpleNamespace(task=task, signals=_signals(said, task), known=None)
    return SoftmaxPolicy(task, FittedFeatures(known, _scales(said), lam, kept), lam)


def _dim(said: Field) -> int:
    """d, as the file says it."""
    try:
        return len(said.said["weights"][0][0])
    except UNREADABLE:
        said.refuse("weights", "is no array (H, 3, d)")


def _rows(said: Field, features: Any) -> Policy:
    task = _task(said, features, "cell")
    rows: list[dict[Hashable, Array]] = []
    for h, field in enumerate(said.objects("rows")):
        try:
            names = [from_text(text) for text in field.said]
            keys = [name if task.cell_function else task.key(name) for name in names]  # lists of before for arrays too
            if len(set(keys)) < len(keys):
                said.refuse("rows", f"has at step {h} one state twice, as a list and as an array")
            read = [field.numbers(as_text(name), (task.num_actions,)) for name in names]
            rows.append(dict(zip(keys, read, strict=True)))
        except UNREADABLE as error:
            said.refuse("rows", f"has at step {h} a state that cannot be read ({error})")
        for name, row in rows[h].items():
            as_distributions(f"the row of {name!r} at step {h}", row, row.shape)
    if len(rows) != task.horizon:
        said.refuse("rows", f"has {len(rows)} steps, not {task.horizon}")
    if task.initial_state is None:  # told by a function: the rows say whether states are arrays
        first = _array_like(next((name for row in rows for name in row if not isinstance(name, Outside)), None))
        task = replace(task, initial_state=first, norm_bound=None)
    elsewhere = said.number("beta", 0), said.number("bonus", -np.inf)
    return RowsPolicy(task, rows, elsewhere, _signals(said, task), _scales(said), said.number("lam", 0))


def _array_like(name: Any) -> Array | None:
    """An array of the type and shape of the one that is known by this name; None where it is no array's."""
    is_array = isinstance(name, tuple) and len(name) == 3 and isinstance(name[2], bytes)
    return np.zeros(name[1], dtype=name[0]) if is_array else None


READERS = {"table": _table, "steps": _steps, "mixture": _mixture, "softmax": _softmax, "rows": _rows}


class RowsPolicy(Policy):
    """π^λ by its rows at the states that were met when it was made, and by what the task tells elsewhere."""

    is_checked = True

    def __init__(
        self,
        task: Any,
        rows: list[dict[Hashable, Array]],
        elsewhere: tuple[float, float],
        signals: Signals | None,
        scales: Scales,
        lam: float,
    ) -> None:
        self._task, self._rows, self._elsewhere = task, rows, elsewhere
        self._signals, self._scales, self._lam = signals, scales, lam

    def probabilities(self, h: int, state: Any) -> Array:
        """π_h(·|state), shape (A,)."""
        in_range("step", h, len(self._rows))
        found = self._rows[h].get(self._task.key(state))
        if found is not None:
            return found
        return act_unseen(self._task, self._signals, self._elsewhere, self._scales, self._lam, (h, state))

    def table(self) -> Array:
        """Not to be had: the states are not listed."""
        raise ValueError("a policy of states that are not listed has no table: use probabilities(h, state)")

    def as_json(self) -> dict[str, Any]:
        """As it was read."""
        rows = [{as_text(name): row.tolist() for name, row in step.items()} for step in self._rows]
        facts = facts_as_json(self._task, self._signals, self._scales, self._lam)
        beta, bonus = self._elsewhere
        return {"kind": "rows", **facts, "beta": beta, "bonus": bonus, "rows": rows}


def _told_task(said: Field, function: Callable[[Any], Any], one_hot: bool) -> SampledTask:
    """What a policy of a file asks of a task that tells neither reward nor utility, by one function of the state."""
    A, dim, told = said.whole("num_actions"), 0 if one_hot else _dim(said), said.value("outside", dict)
    try:
        outside = {Outside(name): (float(r), float(u)) for name, (r, u) in told.items()}
    except UNREADABLE as error:
        said.refuse("outside", f"is not as it must be ({error})")

    def features(state: Any) -> Array:
        """φ(state, ·), shape (A, d); the last columns are of states outside, and 0 at all others."""
        phi = np.array(function(state), dtype=np.float64)
        return np.hstack([phi, np.zeros((A, len(outside)))]) if phi.shape == (A, dim - len(outside)) else phi

    return SampledTask(
        horizon=said.whole("horizon"),
        num_actions=A,
        dim=dim,
        initial_state=None,
        constraint=Constraint(None, 0.0, None),
        safe_policy=FunctionPolicy(lambda h, state: np.full(A, 1 / A), A),
        feature_function=None if one_hot else features,
        reward_function=None,
        outside=outside,
        cell_function=function if one_hot else None,
    )


def _task(said: Field, given: Any, what: str) -> Any:
    """Who tells the policy of its states: the task that was given, if it is like the one of the file, or a function."""
    learned = said.value("learned", list)
    told = [name for name in SIGNALS if name not in learned]
    if hasattr(given, "reward_at"):
        task = given
    elif callable(given) and not told:
        return _told_task(said, given, what == "cell")
    else:
        remedy = f"the task tells {' and '.join(told)}: give features=problem.task" if told else (
            f"give features=problem.task, or the function state ↦ {what}"
        )  # fmt: skip
        raise ValueError(f"{said.path}: the states of {said.place} are not listed; {remedy}")
    theirs = said.whole("horizon"), said.whole("num_actions"), sorted(learned), what == "cell"
    ours = task.horizon, task.num_actions, sorted(task.unknown), bool(task.one_hot)
    if theirs != ours or task.is_listed:
        raise ValueError(
            f"{said.path}: {said.place} is of another task: horizon, actions, what is learned and whether features are "
            f"one-hot are {theirs} there, and {ours} here"
        )
    if "utility_weights" not in said.said and (task.num_constraints == 1 or "utility" in learned):
        return task
    return task.weighted(said.numbers("utility_weights", (task.num_constraints,)))


def _signals(said: Field, task: Any) -> Signals | None:
    if not task.unknown:
        return None
    made = Signals(task, 0.0, True)
    scale_r, scale_u = said.numbers("signal_scales", (2,)).tolist()
    made.scales = (scale_r, scale_u)
    return made


def _scales(said: Field) -> Scales:
    scales = Field(said.path, f"scales of {said.place}", said.said.get("scales"))
    names = [name for name in Scales._fields if name != "most_lost" or name in scales.said]
    found = Scales(**{name: float(scales.numbers(name, ())) for name in names})
    if not found.kappa > 0:
        scales.refuse("kappa", f"is {found.kappa}, and must be > 0")
    return found
