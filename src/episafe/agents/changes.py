"""Changes of an agent in use: promotions, other thresholds, slacks or constants. What was proved stays proved.

A bound L on V(π) does not depend on b, so it survives any change of b, also one that depends on data. The incumbent
keeps v = b + ξ of before; a person who knows better states another slack.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

import numpy as np

from episafe.certify.base import INCUMBENT
from episafe.checks import as_number, as_slack
from episafe.errors import Infeasible
from episafe.kernels.mixing import admits_all
from episafe.learning.constants import DERIVED, Constants
from episafe.problems.policy import Policy
from episafe.problems.task import Constraint
from episafe.types import amounts, shown

Limits = tuple[tuple[float, ...], tuple[float | None, ...]]


@dataclass(frozen=True)
class Change:
    """What holds from here on.

    Attributes:
        thresholds: b of each constraint.
        slacks: ξ of each; None where it is not known.
        constants: those that are others than before, by name.
    """

    thresholds: tuple[float, ...]
    slacks: tuple[float | None, ...]
    constants: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def read(cls, said: Mapping[str, Any]) -> "Change":
        """What `as_json` gave."""
        thresholds = tuple(as_number("threshold", b) for b in said["thresholds"])
        constants = {str(name): value for name, value in said["constants"].items()}
        return cls(thresholds, tuple(map(as_slack, said["slacks"])), constants)

    def as_json(self) -> dict[str, Any]:
        """As plain values."""
        return {"thresholds": list(self.thresholds), "slacks": list(self.slacks), "constants": dict(self.constants)}


class Begun(NamedTuple):
    """What an agent was built with, before its first change."""

    task: Any
    constants: Constants | None
    fingerprint: str
    fingerprint_but_incumbent: str
    identity: dict[str, Any]


def policy_named(agent: Any, name: str) -> Policy:
    """The incumbent, a candidate or, where a certificate has policies on trial, one of these, by its name."""
    known = {**agent.candidates, INCUMBENT: agent.task.safe_policy}
    if name in known:
        return known[name]
    if not hasattr(agent.certificate, "ledger"):
        raise ValueError(
            f"{agent.label} knows no policy {name!r}: there are {', '.join([INCUMBENT, *agent.candidates])}"
        )
    return agent.certificate.ledger.policy(name)


def require_promotable(agent: Any, name: str) -> None:
    """Refuse what cannot act when nothing else may: only the incumbent, and what is proved, can."""
    if name == INCUMBENT:
        return
    if not hasattr(agent.certificate, "ledger"):
        raise ValueError(
            f"{agent.label} has no policies on trial that could be promoted: use es.Rollout, or es.OPSE with "
            "es.certify.Observation()"
        )
    if agent.void:
        raise ValueError(f"{name!r} cannot be promoted: {agent.void}")
    bounds = agent.bounds()
    if name not in bounds:
        raise ValueError(f"no policy {name!r} is on trial: there are {', '.join(bounds)}")
    if not admits_all(bounds[name], agent.task.limits):
        raise ValueError(
            f"{name!r} is proved to have {shown(bounds[name])}, below the threshold {shown(agent.task.limits)}: "
            "only what is certified can be promoted"
        )


def require_withdrawable(agent: Any, name: str) -> None:
    """Refuse what is not on trial."""
    if name == INCUMBENT:
        raise ValueError("the incumbent pays for all trials and cannot be withdrawn: open with new_incumbent=…")
    bounds = agent.bounds()
    if name not in bounds or not hasattr(agent.certificate, "ledger"):
        raise ValueError(f"no policy {name!r} is on trial: there are {', '.join(bounds) or 'none'}")


def checked(agent: Any, threshold: Any = None, slack: Any = None, constants: Any = None) -> Change:
    """A change of what is given, checked; nothing is changed yet."""
    task, own = agent.task, agent._own_constants()
    others = {} if constants is None or own is None else _changed_constants(own, constants)
    agent._require_changeable(constants)
    limits = _changed_limits(agent, threshold, slack)
    now = [(one.threshold, one.slack) for one in task.constraints]
    if list(zip(*limits, strict=True)) == now and not others:
        raise ValueError("nothing would change: give another threshold, slack or constants")
    task.with_limits(*limits)
    return Change(*limits, others)


def made(agent: Any, change: Change) -> list[str]:
    """Go on with another threshold, slack or constants; what does not survive that, in words.

    Every bound survives, and so does every sequence, with its δ_j. What no longer reaches the threshold is on trial
    again, and is not promoted any more.
    """
    b, before = agent.task.limits, agent.bounds()
    apply(agent, Change(*_changed_limits(agent, change.thresholds, change.slacks), change.constants))
    proved = {name: bound for name, bound in before.items() if name != INCUMBENT and admits_all(bound, b)}
    lost = [name for name, bound in proved.items() if not admits_all(bound, agent.task.limits)]
    below = f"is below {shown(agent.task.limits)}"
    dropped = [f"{name} acts alone no more: its bound {shown(before[name])} {below}" for name in lost]
    if agent.promoted in lost:
        dropped.append(f"{agent.promoted} is promoted no more")
        agent._promote(INCUMBENT)
    agent._plan_anew()
    return dropped


def apply(agent: Any, change: Change) -> None:
    """Let a change hold, whatever was proved when it was made: a state that is restored says it of a later moment."""
    own = agent._own_constants()
    agent._begun = agent._begun or Begun(
        agent.task, own, agent.fingerprint(), agent.fingerprint_but_incumbent(), agent._identity()
    )
    agent.task = agent.task.with_limits(change.thresholds, change.slacks)
    agent._rebuild(agent.task, own.replace(**change.constants) if own is not None and change.constants else own)
    agent.certificate.change(agent.task)
    agent.changes = [*agent.changes, change]


def _changed_limits(agent: Any, threshold: Any, slack: Any) -> Limits:
    """Thresholds and slacks that hold from now on; refused if the incumbent is not known to be above a threshold.

    Args:
        agent: with the task as it was.
        threshold, slack: new ones, a number, one for each constraint, or those that change by name; None: all stay.
    """
    task, names = agent.task, agent.task.constraint_names
    # of the incumbent of each constraint where no slack is known: b, or what its own episodes have proved
    proved = np.maximum(amounts(task.limits), amounts(agent.bounds().get(INCUMBENT, task.limits)))
    limits = [
        _changed(one, float(known), b, xi)
        for one, known, b, xi in zip(
            task.constraints, proved, _each(threshold, names), _each(slack, names), strict=True
        )
    ]
    return tuple(b for b, _ in limits), tuple(xi for _, xi in limits)


def _each(given: Any, names: Sequence[str]) -> list[Any]:
    """One value for each constraint; None for one that stays."""
    if isinstance(given, Mapping) and set(given) <= set(names):
        return [given.get(name) for name in names]
    if given is None or (len(names) == 1 and np.ndim(given) == 0 and not isinstance(given, Mapping)):
        return [given] * len(names)
    if np.shape(given) != (len(names),):
        called = f" ({', '.join(names)}), or by their names those that change" if len(names) > 1 else ""
        raise ValueError(f"give {len(names)} numbers, one a constraint{called}, got {given!r}")
    return list(given)


def _changed(one: Constraint, proved: float, threshold: Any, slack: Any) -> tuple[float, float | None]:
    b = one.threshold if threshold is None else as_number("threshold", threshold)
    if one.slack is None:
        if slack is not None:
            raise ValueError("the slack was not known when this began, and the incumbent is proved by its own episodes")
        if b > proved:
            raise Infeasible(
                f"the incumbent is proved to have {proved:.6g} and the threshold{one.of} would be {b:.6g}: wait until "
                "more is proved of it, or begin a new folder with another incumbent"
            )
        return b, None
    if slack is not None:
        return b, as_slack(slack)
    known = one.threshold + one.slack
    rest = known - b
    if not rest > 0:
        raise Infeasible(
            f"the incumbent is known to have {known:.6g} and the threshold{one.of} would be {b:.6g}: state the slack "
            "that it has above it, if somebody knows that, or begin a new folder with another incumbent"
        )
    return b, rest if b + rest <= known else math.nextafter(rest, 0.0)


def _changed_constants(was: Constants, now: Any) -> dict[str, float]:
    """The constants that are others than before, by name."""
    if not isinstance(now, Constants):
        raise TypeError(f"constants must be es.Constants, got {now!r}: agent.constants.replace(C_r=…) makes some")
    before = asdict(was)
    return {name: value for name, value in asdict(now).items() if name not in DERIVED and value != before[name]}
