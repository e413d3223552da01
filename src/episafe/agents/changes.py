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
from episafe.gym.signal_limits import units_of
from episafe.gym.step_reader import LIMIT, OTHER
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


def checked(
    agent: Any, threshold: Any = None, slack: Any = None, constants: Any = None, cost_limit: Any = None
) -> Change:
    """A change of what is given, in the units that limits were stated in, checked; nothing is changed yet."""
    task, own = agent.task, agent._own_constants()
    others = {} if constants is None or own is None else _changed_constants(own, constants)
    agent._require_changeable(constants)
    limits = _changed_limits(agent, *_read_limits(task, {"utility": threshold, "cost": cost_limit}, slack))
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


def _read_limits(task: Any, given: Mapping[str, Any], slack: Any) -> tuple[list[Any], list[Any]]:
    """b and ξ of each constraint, of utilities in [0, 1] where they were so scaled; None for what stays.

    Args:
        task: as it was.
        given: new limits by the signal that they are on, "utility" or "cost": a number, one for each constraint, or
            those that change by name; None: all stay.
        slack: new ones, likewise.
    """
    names, units = task.constraint_names, units_of(task)
    kept, slacks = {signal: _each(limits, names) for signal, limits in given.items()}, _each(slack, names)
    found = []
    for c, (one, unit) in enumerate(zip(task.constraints, units, strict=True)):
        signal, other = unit.signal, OTHER[unit.signal]
        if kept[other][c] is not None:
            raise ValueError(
                f"the limit{one.of} is on a {signal}: give {LIMIT[signal]}=…, in the units of that {signal}, in place "
                f"of {LIMIT[other]}=…"
            )
        found.append(unit.scaled(kept[signal][c], slacks[c], one.threshold, one.least_total))
    return [b for b, _ in found], [xi for _, xi in found]


def _changed_limits(agent: Any, thresholds: Sequence[Any], slacks: Sequence[Any]) -> Limits:
    """Thresholds and slacks that hold from now on; refused if the incumbent is not known to be above a threshold.

    Args:
        agent: with the task as it was.
        thresholds, slacks: new ones, one for each constraint; None for one that stays.
    """
    task = agent.task
    # of the incumbent of each constraint where no slack is known: b, or what its own episodes have proved
    proved = np.maximum(amounts(task.limits), amounts(agent.bounds().get(INCUMBENT, task.limits)))
    limits = [
        _changed(task, c, float(known), b, xi)
        for c, (known, b, xi) in enumerate(zip(proved, thresholds, slacks, strict=True))
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


def _changed(task: Any, c: int, proved: float, threshold: Any, slack: Any) -> tuple[float, float | None]:
    one: Constraint = task.constraints[c]
    b = one.threshold if threshold is None else as_number("threshold", threshold)
    if one.slack is None:
        if slack is not None:
            raise ValueError("the slack was not known when this began, and the incumbent is proved by its own episodes")
        if b > proved:
            raise Infeasible(
                f"the incumbent is proved to have {_beside(task, c, proved, b)}: wait until more is proved of it, or "
                "begin a new folder with another incumbent"
            )
        return b, None
    if slack is not None:
        return b, as_slack(slack)
    known = one.threshold + one.slack
    rest = known - b
    if not rest > 0:
        raise Infeasible(
            f"the incumbent is known to have {_beside(task, c, known, b)}: state the slack that it has to spare there, "
            "if somebody knows that, or begin a new folder with another incumbent"
        )
    return b, rest if b + rest <= known else math.nextafter(rest, 0.0)


def _beside(task: Any, c: int, has: float, b: float) -> str:
    """What an error says of what the incumbent has, beside the limit that there would be, as people state both."""
    unit, of = units_of(task)[c], task.constraints[c].of
    most = "at most " if unit.signal == "cost" else ""
    return f"{most}{unit.raw(has):.6g} and the {LIMIT[unit.signal]}{of} would be {unit.raw(b):.6g}"


def _changed_constants(was: Constants, now: Any) -> dict[str, float]:
    """The constants that are others than before, by name."""
    if not isinstance(now, Constants):
        raise TypeError(f"constants must be es.Constants, got {now!r}: agent.constants.replace(C_r=…) makes some")
    before = asdict(was)
    return {name: value for name, value in asdict(now).items() if name not in DERIVED and value != before[name]}
