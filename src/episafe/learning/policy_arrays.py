"""Policies as named arrays, and back: each stored once, and referred to by its number."""

import numpy as np

from episafe.errors import InvalidProblem
from episafe.kernels.model_arrays import Scales
from episafe.learning.fitted_policy import OfFeatures, OfSlots
from episafe.learning.planner import SoftmaxPolicy
from episafe.learning.regression import Regression, SampledRegression
from episafe.problems.policy import Policy, TablePolicy
from episafe.problems.sampled import AnyTask
from episafe.storage.state_reader import Saved, State, under

INCUMBENT, OWN, TABLE, SOFTMAX = "incumbent", "own", "table", "softmax"


class Shelf:
    """The policies that a state refers to.

    Args:
        task: its incumbent need not be stored.
        own: nor a policy that the agent was built with, where it has one.
    """

    def __init__(self, task: AnyTask, own: Policy | None = None) -> None:
        self._task, self._own = task, own
        self._policies: list[Policy] = []
        self._number: dict[int, int] = {}

    def number(self, policy: Policy | None) -> int:
        """The number of a policy, put on the shelf if it is new; −1 for none."""
        if policy is None:
            return -1
        if id(policy) not in self._number:
            self._number[id(policy)] = len(self._policies)
            self._policies.append(policy)
        return self._number[id(policy)]

    def state(self) -> State:
        """All policies on the shelf."""
        kinds = [self._kind(policy) for policy in self._policies]
        found = under("policies", {"kinds": np.array(kinds, dtype="<U9")})
        for i, policy in enumerate(self._policies):
            if kinds[i] == TABLE:
                found |= under(f"policies.{i}", {"table": policy.table()})
            if kinds[i] == SOFTMAX:
                assert isinstance(policy, SoftmaxPolicy)
                found |= under(f"policies.{i}", _softmax(policy))
        return found

    def _kind(self, policy: Policy) -> str:
        if policy is self._own:
            return OWN
        if policy is self._task.safe_policy:
            return INCUMBENT
        for kind, known in ((TABLE, TablePolicy), (SOFTMAX, SoftmaxPolicy)):
            if type(policy) is known:
                return kind
        raise InvalidProblem(
            f"a {type(policy).__name__} cannot be stored: deploy tables, softmax policies, mixtures of these, or the "
            "incumbent"
        )


def taken_down(saved: Saved, task: AnyTask, regression: Regression | None, own: Policy | None = None) -> list[Policy]:
    """The policies that `Shelf.state` stored; softmax policies act by the slots of `regression`."""
    saved = saved.under("policies")
    found: list[Policy] = []
    kinds = saved.texts("kinds", (None,)).tolist()
    for i, kind in enumerate(kinds):
        if kind in (OWN, INCUMBENT) and kinds.index(kind) < i:
            saved.refuse("kinds", f"holds {kind!r} twice")
        below = saved.under(str(i))
        if kind == OWN and own is not None:
            found.append(own)
        elif kind == INCUMBENT:
            found.append(task.safe_policy)
        elif kind == TABLE and task.num_states is not None:
            found.append(_table(below, (task.horizon, task.num_states, task.num_actions)))
        elif kind == SOFTMAX and regression is not None:
            found.append(_softmax_again(below, task, regression))
        else:
            saved.refuse("kinds", f"holds {kind!r}")
    return found


def _table(saved: Saved, shape: tuple[int, int, int]) -> Policy:
    table = saved.numbers("table", shape)
    try:
        return TablePolicy(table)
    except InvalidProblem as error:
        saved.refuse("table", f"is no policy ({error})")


def _softmax(policy: SoftmaxPolicy) -> dict[str, object]:
    kept = policy.fitted.kept
    arrays: dict[str, object] = {"lam": policy.lam, "scales": np.array(policy.fitted.scales), **kept._asdict()}
    if isinstance(kept, OfSlots):
        used = int(kept.size.max())
        arrays |= {"bonus": kept.bonus[..., :used], "Q": kept.Q[..., :used]}
        arrays |= {"reward": kept.reward[..., :used], "utility": kept.utility[..., :used]}
    return arrays


def _softmax_again(saved: Saved, task: AnyTask, regression: Regression) -> SoftmaxPolicy:
    lam = saved.number("lam", least=0)
    scales = Scales(*saved.numbers("scales", (len(Scales._fields),)).tolist())
    if not scales.kappa > 0:
        saved.refuse("scales", f"says κ = {scales.kappa}")
    H, A, d = task.horizon, task.num_actions, task.dim
    if not task.one_hot:
        steps = H if isinstance(regression, SampledRegression) and regression.signals is not None else 0
        features = OfFeatures(
            saved.numbers("gram_inv", (H, d, d)),
            saved.numbers("weights", (H, 3, d)),
            saved.numbers("theta", (steps, 2, d)),
        )
        return SoftmaxPolicy(task, regression.refitted(scales, lam, features), lam)
    size = saved.wholes("size", (H,), 0, 2**40)
    if (size > regression.support.size).any():
        saved.refuse("size", "says more slots than the regression has")
    n, unknown = int(size.max()), getattr(task, "unknown", ())
    m = 0 if task.num_states is not None else n
    slots = OfSlots(
        size,
        saved.numbers("bonus", (H, A, n), least=0),
        saved.numbers("Q", (H, 3, A, n)),
        saved.numbers("reward", (H, A, m), nan="reward" in unknown),
        saved.numbers("utility", (H, A, m), nan="utility" in unknown),
    )
    return SoftmaxPolicy(task, regression.refitted(scales, lam, slots), lam)
