"""Read policies that `policy.save` wrote."""

import json
from pathlib import Path

from episafe.core.errors import DamagedLog, InvalidProblem
from episafe.core.policy import Policy, StatesPolicy, StepPolicy, TablePolicy
from episafe.core.task import ProblemLike, task_of
from episafe.core.types import Document


def load_policy(path: str | Path, problem: ProblemLike | None = None) -> Policy:
    """Return the policy that `policy.save(path)` wrote.

    Args:
        path: a JSON file.
        problem: the problem or task whose features the policy reads; tables and schedules need none.
    """
    try:
        return policy_of(json.loads(Path(path).read_text()), problem)
    except (ValueError, KeyError) as error:
        raise DamagedLog(f"{path} is not a policy file ({type(error).__name__}: {error}): save it again") from error


def policy_of(document: Document, problem: ProblemLike | None = None) -> Policy:
    """Return the policy that `policy.document()` describes."""
    if not isinstance(document, dict) or "kind" not in document:
        raise InvalidProblem('a policy document is a mapping with a "kind"')
    kind = document["kind"]
    if kind == "table":
        return TablePolicy(document["table"], document["name"])
    if kind == "steps":
        return StepPolicy(document["rows"], document["name"])
    if kind in ("states", "softmax"):
        if problem is None:
            raise TypeError("this policy needs its task: give the problem, es.load_policy(path, problem)")
        if kind == "states":
            return StatesPolicy.of(document, task_of(problem).incumbent)
        from episafe.linear.planner import load_softmax  # tables need no learner

        return load_softmax(document, problem)
    raise InvalidProblem(f"the kind {kind!r} is unknown: known are table, steps, states and softmax")
