"""Plans as named arrays, and back; what makes two agents one."""

import hashlib
import json
from collections.abc import Sequence
from typing import Any, get_args

import numpy as np

from episafe.errors import InvalidProblem
from episafe.learning.policy_arrays import PolicyArrays
from episafe.problems.policy import MixturePolicy, Policy
from episafe.storage.state_reader import Saved, State, under
from episafe.types import SOURCES, Level, amount

FACTS: dict[str, type[np.generic]] = {  # of a plan, and their types in a state
    "id": np.int64, "source": np.str_, "lam": np.float64, "utility_bound": np.float64, "level": np.str_,
    "reason": np.str_, "failed": np.bool_,
}  # fmt: skip


def stored(plans: list[Any], policies: PolicyArrays) -> State:
    """Plans, one a row, the one in force last; the components of mixtures one after the other."""
    deployed = [plan.policy for plan in plans]
    facts: State = {name: np.array([getattr(plan, name) for plan in plans], dtype) for name, dtype in FACTS.items()}
    numbers = [policies.number(part) for policy in deployed for part in policy.components]
    acting = {
        "is_mixture": np.array([hasattr(policy, "names") for policy in deployed], np.bool_),
        "num_components": np.array([len(policy.components) for policy in deployed], np.int64),
        "components": np.array(numbers, np.int64),
        "weights": np.array([weight for policy in deployed for weight in policy.weights], np.float64),
        "names": np.array([name for policy in deployed for name in getattr(policy, "names", ("",))], np.str_),
    }
    return under("plans", {"current": len(plans) - 1, **facts, **acting})


def restored(saved: Saved, policies: Sequence[Policy], task: Any) -> list[Any]:
    """The plans that `stored` wrote, with these policies."""
    saved = saved.under("plans")
    ids = saved.wholes("id", (None,), 0, 2**62)
    n = len(ids)
    sources, levels, reasons = (saved.texts(name, (n,)).tolist() for name in ("source", "level", "reason"))
    lams = saved.numbers("lam", (n,), nan=True, inf=True).tolist()
    m = task.num_constraints
    shape = (n, m) if m > 1 and n > 0 else (n,)  # of no plans numpy knows no m
    bounds = list(map(amount, saved.numbers("utility_bound", shape, nan=True, inf=True).reshape(n, m)))
    for name, found, known in (("source", sources, SOURCES), ("level", levels, get_args(Level))):
        if not set(found) <= set(known):
            saved.refuse(name, f"holds something else than {', '.join(known)}")
    if saved.whole("current", -1, n) != n - 1 or len(set(ids.tolist())) < n or (n > 0 and ids.max() != ids[-1]):
        saved.refuse("id", "does not number the plans")
    acting = _acting(saved, n, policies)
    facts = (sources, lams, bounds, levels, reasons, ids.tolist(), saved.flags("failed", (n,)).tolist())
    return [task.as_plan(*row) for row in zip(acting, *facts, strict=True)]


def _acting(saved: Saved, n: int, policies: Sequence[Policy]) -> list[Policy]:
    mixed, lengths = saved.flags("is_mixture", (n,)), saved.wholes("num_components", (n,), 1, 2**20)
    total = int(lengths.sum())
    components = saved.wholes("components", (total,), 0, len(policies)).tolist()
    weights = saved.numbers("weights", (total,), least=0)
    names = saved.texts("names", (total,)).tolist()
    found: list[Policy] = []
    start = 0
    for is_mixture, length in zip(mixed.tolist(), lengths.tolist(), strict=True):
        these = slice(start, start + length)
        several = [policies[i] for i in components[these]]
        try:
            found.append(MixturePolicy(several, weights[these], names[these]) if is_mixture else several[0])
        except InvalidProblem as error:
            saved.refuse("weights", f"are none of a mixture ({error})")
        if length > 1 and not is_mixture:
            saved.refuse("num_components", "says several of a plan that is no mixture")
        start += length
    return found


def digest(said: list[Any], numbers: list[Any]) -> str:
    """SHA-256 over what an agent is called, is set to and is told: the same for agents that plan alike."""
    found = hashlib.sha256(as_json(said).encode())
    for array in numbers:
        plain = np.ascontiguousarray(array)
        assert plain.dtype != object  # whose bytes are addresses
        found.update(f"{plain.dtype.str}{plain.shape}".encode() + plain.tobytes())
    return found.hexdigest()


def as_json(said: Any) -> str:
    """Plain values as text, alike for what is alike."""
    return json.dumps(said, sort_keys=True)


def differing(text: str, ours: dict[str, Any]) -> list[str]:
    """The names of settings that are not those that `as_json` wrote."""
    try:
        theirs = json.loads(text)
    except (ValueError, RecursionError):
        theirs = None
    if not isinstance(theirs, dict):
        return ["the settings"]
    return sorted(name for name in ours.keys() | theirs.keys() if ours.get(name) != theirs.get(name))
