"""Plans as named arrays, and back; what makes two agents one."""

import hashlib
import json
import math
from collections.abc import Sequence
from typing import Any, NamedTuple, get_args

import numpy as np

from episafe.agents.plan import Plan, Source
from episafe.errors import InvalidProblem
from episafe.learning.constants import Level
from episafe.learning.policy_arrays import Shelf
from episafe.problems import state_keys
from episafe.problems.policy import MixturePolicy, Policy, components_of
from episafe.problems.sampled import AnyTask, SampledTask
from episafe.storage.state_reader import Saved, State, under


class Issued(NamedTuple):
    """Plans that may still be reported, and the number among them of the one in force; −1 before the first."""

    plans: list[Plan]
    current: int


def stored(issued: Issued, shelf: Shelf) -> State:
    """Plans, one a row; the components of mixtures one after the other."""
    plans = issued.plans
    parts = [components_of(plan.policy) for plan in plans]
    return under(
        "plans",
        {
            "current": issued.current,
            "id": _wholes([plan.id for plan in plans]),
            "source": _texts([plan.source for plan in plans]),
            "lam": np.array([plan.lam for plan in plans], dtype=np.float64),
            "utility_bound": np.array([plan.utility_bound for plan in plans], dtype=np.float64),
            "level": _texts([plan.level for plan in plans]),
            "reason": _texts([plan.reason for plan in plans]),
            "is_mixture": np.array([isinstance(plan.policy, MixturePolicy) for plan in plans], dtype=np.bool_),
            "num_components": _wholes([len(components) for components, _ in parts]),
            "components": _wholes([shelf.number(policy) for components, _ in parts for policy in components]),
            "weights": np.array([weight for _, weights in parts for weight in weights], dtype=np.float64),
        },
    )


def restored(saved: Saved, policies: Sequence[Policy]) -> Issued:
    """The plans that `stored` wrote, with these policies."""
    saved = saved.under("plans")
    ids = saved.wholes("id", (None,), 0, 2**62)
    n = len(ids)
    current = saved.whole("current", -1, n)
    sources, levels, reasons = (saved.texts(name, (n,)).tolist() for name in ("source", "level", "reason"))
    lams = saved.numbers("lam", (n,), nan=True, inf=True).tolist()
    bounds = saved.numbers("utility_bound", (n,), nan=True, inf=True).tolist()
    for name, found, known in (("source", sources, get_args(Source)), ("level", levels, get_args(Level))):
        if not set(found) <= set(known):
            saved.refuse(name, f"holds something else than {', '.join(known)}")
    if len(set(ids.tolist())) < n or (current < 0 and n > 0) or (n > 0 and ids.max() != ids[current]):
        saved.refuse("id", "does not number the plans")
    acting = _acting(saved, n, policies)
    plans = [Plan(*row) for row in zip(acting, sources, lams, bounds, levels, reasons, ids.tolist(), strict=True)]
    return Issued(plans, current)


def _acting(saved: Saved, n: int, policies: Sequence[Policy]) -> list[Policy]:
    mixed, lengths = saved.flags("is_mixture", (n,)), saved.wholes("num_components", (n,), 1, 2**20)
    total = int(lengths.sum())
    components = saved.wholes("components", (total,), 0, len(policies)).tolist()
    weights = saved.numbers("weights", (total,), least=0)
    found: list[Policy] = []
    start = 0
    for is_mixture, length in zip(mixed.tolist(), lengths.tolist(), strict=True):
        several = [policies[i] for i in components[start : start + length]]
        try:
            found.append(MixturePolicy(several, weights[start : start + length]) if is_mixture else several[0])
        except InvalidProblem as error:
            saved.refuse("weights", f"are none of a mixture ({error})")
        if length > 1 and not is_mixture:
            saved.refuse("num_components", "says several of a plan that is no mixture")
        start += length
    return found


def fingerprint(name: str, settings: dict[str, Any], task: AnyTask, own: Policy | None) -> str:
    """SHA-256 over what an agent is called, is set to and is told: the same for agents that plan alike."""
    found = hashlib.sha256(json.dumps([name, settings], sort_keys=True).encode())
    for array in _told(task, own):
        plain = np.ascontiguousarray(array)
        assert plain.dtype != object  # whose bytes are addresses
        found.update(f"{plain.dtype.str}{plain.shape}".encode() + plain.tobytes())
    return found.hexdigest()


def _told(task: AnyTask, own: Policy | None) -> list[Any]:
    """The numbers of a task; where it is given by functions, those of its initial state."""
    several = [task.safe_policy] if own is None else [task.safe_policy, own]
    sizes = [task.horizon, task.num_actions, task.dim]
    slack = math.nan if task.slack is None else task.slack
    kept = [sizes, [task.threshold, slack], [task.one_hot, task.time_homogeneous]]
    if isinstance(task, SampledTask):
        s = task.initial_state
        outside = sorted((state.value, *told) for state, told in task.outside.items())
        features = np.zeros(0) if task.one_hot else task.features(s)
        known = [features, task.reward_at(0, s), task.utility_at(0, s)]
        names = state_keys.encoded([task.key(s), tuple(outside), tuple(task.unknown)])
        return [*kept, names, *known, *(policy.probabilities(0, s) for policy in several)]
    phi = np.zeros(0) if task.phi is None else task.phi
    listed = [task.reward, task.utility, phi, np.array([task.num_states, task.initial_state])]
    return [*kept, *listed, *(policy.table() for policy in several)]


def _wholes(values: list[int]) -> Any:
    return np.array(values, dtype=np.int64)


def _texts(values: Sequence[str]) -> Any:
    return np.array(values, dtype=np.str_) if values else np.zeros(0, dtype="<U1")
