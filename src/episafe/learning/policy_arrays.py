"""Policies as named arrays, and back: each stored once, and referred to by its number."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from episafe.checks import as_distributions
from episafe.errors import InvalidProblem
from episafe.kernels.model_arrays import Scales
from episafe.learning.planner import SoftmaxPolicy
from episafe.learning.regression import AnyRegression, fitted
from episafe.problems.bandit_policy import Mixture
from episafe.problems.policy import Policy, StepPolicy, TablePolicy
from episafe.problems.sampled_problem import AnyTask
from episafe.storage.state_reader import Saved, State, under
from episafe.types import Array

INCUMBENT, OWN, NAMED, TABLE, SOFTMAX, ATOMS, STEPS = "incumbent", "own", "named", "table", "softmax", "atoms", "steps"
LEAST_SCALES = len(Scales._fields) - 1  # `most_lost` is stored where it is known
NOBODY: Mapping[str, Policy] = {}


class PolicyArrays:
    """The policies that a state refers to.

    Args:
        task: its incumbent need not be stored.
        own: nor a policy that the agent was built with, where it has one.
        named: nor the candidates, which the agent is given again under the same names.
    """

    def __init__(self, task: Any, own: Policy | None = None, named: Mapping[str, Policy] = NOBODY) -> None:
        self._task, self._own, self._named = task, own, named
        self._policies: list[Policy] = []
        self._number: dict[int, int] = {}

    def number(self, policy: Policy | None) -> int:
        """The number of a policy, added if it is new; −1 for none."""
        if policy is None:
            return -1
        if id(policy) not in self._number:
            self._number[id(policy)] = len(self._policies)
            self._policies.append(policy)
        return self._number[id(policy)]

    def state(self) -> State:
        """All that were numbered, as named arrays."""
        kinds = [self._kind(policy) for policy in self._policies]
        names = np.array([policy.name for policy in self._policies], dtype=np.str_)
        state = under("policies", {"kinds": np.array(kinds, dtype="<U9"), "names": names})
        for i, policy in enumerate(self._policies):
            if kinds[i] not in (OWN, INCUMBENT, NAMED):
                state |= under(f"policies.{i}", WRITERS[type(policy)][1](policy))
        return state

    def _kind(self, policy: Policy) -> str:
        if policy is self._own:
            return OWN
        if policy is self._task.safe_policy:
            return INCUMBENT
        if self._named.get(policy.name) is policy:
            return NAMED
        if type(policy) in WRITERS:
            return WRITERS[type(policy)][0]
        raise InvalidProblem(
            f"a {type(policy).__name__} cannot be stored: deploy tables, softmax policies, mixtures of these, or the "
            "incumbent"
        )


def restored_policies(
    saved: Saved,
    task: Any,
    regression: AnyRegression | None,
    own: Policy | None = None,
    named: Mapping[str, Policy] = NOBODY,
) -> list[Policy]:
    """The policies that `PolicyArrays.state` stored; softmax policies act by the slots of `regression`."""
    saved = saved.under("policies")
    policies: list[Policy] = []
    kinds = saved.texts("kinds", (None,)).tolist()
    names = saved.texts("names", (len(kinds),)).tolist()
    for i, (kind, name) in enumerate(zip(kinds, names, strict=True)):
        if kind in (OWN, INCUMBENT) and kinds.index(kind) < i:
            saved.refuse("kinds", f"holds {kind!r} twice")
        given = {OWN: own, INCUMBENT: task.safe_policy, NAMED: named.get(name)}
        found = given[kind] if kind in given else _read(kind, saved.under(str(i)), task, regression)
        if found is None and kind == NAMED:
            saved.refuse("names", f"has the candidate {name!r}, which this agent was not given")
        if found is None:
            saved.refuse("kinds", f"holds {kind!r}")
        if kind in (TABLE, SOFTMAX, STEPS):
            found.name = name
        policies.append(found)
    return policies


def _read(kind: str, saved: Saved, task: Any, regression: AnyRegression | None) -> Policy | None:
    """A policy that was stored as arrays; None where such an agent has none of this kind."""
    if kind == ATOMS and task.kind == "bandit":
        m = saved.width("probabilities")
        atoms = saved.numbers("atoms", (m, task.dim))
        return Mixture(atoms, saved_distributions(saved, "probabilities", (m,)))  # type: ignore[return-value]
    if kind == TABLE and getattr(task, "num_states", None) is not None:
        return TablePolicy(saved_distributions(saved, "table", (task.horizon, task.num_states, task.num_actions)))
    if kind == STEPS and task.kind == "mdp":
        return StepPolicy(saved_distributions(saved, "rows", (task.horizon, task.num_actions)))
    if kind == SOFTMAX and regression is not None:
        return _softmax_again(saved, task, regression)
    return None


def saved_distributions(saved: Saved, name: str, shape: tuple[int, ...]) -> Array:
    """An entry whose last axis is a probability distribution."""
    try:
        return as_distributions(name, saved.numbers(name, shape), shape)
    except InvalidProblem as error:
        saved.refuse(name, f"is no policy ({error})")


def _softmax(policy: SoftmaxPolicy) -> dict[str, object]:
    kept = policy.fitted.kept
    if "size" in kept:
        used = int(kept["size"].max())
        kept = {name: array if name == "size" else array[..., :used] for name, array in kept.items()}
    return {"lam": policy.lam, "scales": np.array(list(policy.fitted.scales.said().values())), **kept}


# By exact type, since a subclass may act otherwise: what a policy is stored as, and by which arrays.
WRITERS: dict[type, tuple[str, Callable[[Any], dict[str, object]]]] = {
    TablePolicy: (TABLE, lambda policy: {"table": policy.table()}),
    SoftmaxPolicy: (SOFTMAX, _softmax),
    Mixture: (ATOMS, vars),
    StepPolicy: (STEPS, lambda policy: {"rows": policy.rows}),
}


def _softmax_again(saved: Saved, task: AnyTask, regression: AnyRegression) -> SoftmaxPolicy:
    lam = saved.number("lam", least=0)
    given = saved.numbers("scales", (None,))
    if not LEAST_SCALES <= len(given) <= len(Scales._fields):
        saved.refuse("scales", f"has {len(given)} entries")
    scales = Scales(*given.tolist())
    if not scales.kappa > 0:
        saved.refuse("scales", f"says κ = {scales.kappa}")
    if not scales.most_lost > 0:  # a least total is below H
        saved.refuse("scales", f"says that an episode loses {scales.most_lost} at most")
    H, A, d = task.horizon, task.num_actions, task.dim
    if not task.one_hot:
        steps = 0 if regression.signals is None else H
        shapes = {"gram_inv": (H, d, d), "weights": (H, 3, d), "theta": (steps, 2, d)}
        features = {name: saved.numbers(name, shape) for name, shape in shapes.items()}
        return SoftmaxPolicy(task, fitted(regression, scales, lam, features), lam)
    size = saved.wholes("size", (H,), 0, 2**40)
    if (size > regression.support.size).any():
        saved.refuse("size", "says more slots than the regression has")
    n, unknown = int(size.max()), task.unknown
    m = 0 if task.num_states is not None else n
    slots = {"size": size, "bonus": saved.numbers("bonus", (H, A, n), least=0), "Q": saved.numbers("Q", (H, 3, A, n))}
    slots |= {name: saved.numbers(name, (H, A, m), nan=name in unknown) for name in ("reward", "utility")}
    return SoftmaxPolicy(task, fitted(regression, scales, lam, slots), lam)
